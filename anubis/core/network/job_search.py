"""The state of a search for the part of a job that fails, from the verdicts of a campaign."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from anubis.core.network.bisection import Group
from anubis.core.network.reproduction import SearchProgress, divide, reproduce
from anubis.core.records import Judgement, PartVerdict, Plan, Verdict

NOT_BEGUN = SearchProgress()


def search_progress(
    plan: Plan,
    verdicts: Iterable[Verdict],
    causes: Iterable[PartVerdict],
    lost: Collection[str],
    named_between: Callable[[Sequence[Group]], bool | None] | None = None,
) -> SearchProgress:
    """The progress of the search: what was found, and what it needs next. Without
    `named_between`, pairs across parts have ended, and `causes` has what they show."""
    workloads, verdicts = searched_workloads(plan), tuple(verdicts)
    results = results_of_groups(verdicts, workloads, silence_fails=True)
    met = {node for group in results for node in group} - set(lost)
    nodes = [node.name for node in plan.nodes if node.name in met]
    if not nodes:
        return NOT_BEGUN
    is_named = are_named(plan, causes)
    silent = any(is_silent(v) for v in verdicts if (v.benchmark, v.parameters) in workloads)
    return reproduce(
        divide(nodes, plan.fabric),
        results,
        named_between or (lambda parts: is_named),
        by_comparison=not silent,
    )


def are_named(plan: Plan, causes: Iterable[PartVerdict]) -> bool:
    """True if pairs across the fabric show a cause; what groups show has nodes as its ends."""
    return any(cause.parts and not cause.nodes and cause not in plan.wiring for cause in causes)


def searched_workloads(plan: Plan) -> frozenset[tuple[str, str]]:
    return frozenset((workload.benchmark, workload.parameters) for workload in plan.reproducing)


def results_of_groups(
    verdicts: Iterable[Verdict],
    workloads: Collection[tuple[str, str]],
    *,
    silence_fails: bool = False,
) -> dict[Group, bool | None]:
    """The groups that were tested, each with True if it failed or fell short in any metric, and
    None if that is unknown. With `silence_fails` a group without an answer failed, and those that
    ran to their end are good then, even if they cannot be compared with others."""
    failed: dict[Group, bool | None] = {}
    silent = False
    for verdict in verdicts:
        group = verdict.participants
        if len(group) < 2 or (verdict.benchmark, verdict.parameters) not in workloads:
            continue
        no_answer = silence_fails and is_silent(verdict)
        silent = silent or no_answer
        if verdict.judgement is Judgement.DEFECTIVE or no_answer:
            failed[group] = True
        elif verdict.judgement is Judgement.HEALTHY:
            failed[group] = failed.get(group) or False
        else:
            failed.setdefault(group, None)
    return {group: bool(is_bad) for group, is_bad in failed.items()} if silent else failed


def is_silent(verdict: Verdict) -> bool:
    """True if a group gave no answer."""
    applies = verdict.judgement is not Judgement.NOT_APPLICABLE
    return applies and len(verdict.participants) > 1 and not verdict.metric
