"""The progress of searches by groups, from the verdicts of a campaign: for the part of a job that
fails, and for the nodes that make groups slow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from anubis.core.network.group_search import (
    NOTHING,
    REPEATS,
    SMALLEST,
    Core,
    NamedBetween,
    Search,
    SearchProgress,
    Tests,
    unanswered,
)
from anubis.core.network.group_search import together as run_together
from anubis.core.network.pairing import Group, batches
from anubis.core.network.reproduction import divide, reproduce
from anubis.core.records import Judgement, PartVerdict, Plan, PlannedEntry, Verdict

NOT_BEGUN = SearchProgress()


def search_progress(
    plan: Plan,
    verdicts: Iterable[Verdict],
    causes: Iterable[PartVerdict],
    lost: Collection[str],
    named_between: NamedBetween | None = None,
) -> SearchProgress:
    """The progress of the search: what was found, and what it needs next. Without
    `named_between`, pairs across parts have ended, and `causes` has what they show."""
    workloads, verdicts = searched_workloads(plan), tuple(verdicts)
    results = results_of_groups(verdicts, workloads, silence_fails=True)
    programs = group_programs(verdicts, workloads)
    answered = {group for group, bad in results.items() if bad or programs[group] >= workloads}
    shortest = reproducing_entries(plan)[0].workload
    begun = {g for g in results if (shortest.benchmark, shortest.parameters) in programs[g]}
    met = {node for group in results for node in group} - set(lost)
    nodes = [node.name for node in plan.nodes if node.name in met]
    if not nodes:
        return NOT_BEGUN
    is_named = are_named(plan, causes)
    silent = any(is_silent(v) for v in verdicts if (v.benchmark, v.parameters) in workloads)
    return reproduce(
        divide(nodes, plan.fabric),
        {group: results[group] for group in answered},
        named_between or (lambda parts: is_named),
        by_comparison=not silent,
        brief_results={group: results[group] for group in answered | begun},
    )


def slow_group_progress(
    plan: Plan, entry: PlannedEntry, verdicts: Iterable[Verdict], lost: Collection[str]
) -> SearchProgress:
    """The progress of the search in the slow groups of an entry. Lost nodes no longer take part."""
    results = results_of_groups(verdicts, {(entry.workload.benchmark, entry.workload.parameters)})
    left = {
        tuple(node for node in group if node not in lost): results[group]
        for group in _planned_groups(plan, entry, results)
    }
    return look_into_groups(left, results)


def _planned_groups(
    plan: Plan, entry: PlannedEntry, tried: Mapping[Group, bool | None]
) -> Iterator[Group]:
    """Yield the groups that were not part of a search: their nodes are in the order of the plan."""
    met = {node for group in tried for node in group}
    nodes = [node.name for node in plan.nodes if node.name in met]
    if entry.size:
        side_by_side = chain.from_iterable(batches(nodes, entry.size))
        yield from (group for group in side_by_side if group in tried)
    else:
        ordered = [group for group in tried if group == tuple(n for n in nodes if n in group)]
        yield from [max(ordered, key=len)] if ordered else ()


def are_named(plan: Plan, causes: Iterable[PartVerdict]) -> bool:
    """True if pairs across the fabric show a cause; what groups show has nodes as its ends."""
    return any(cause.parts and not cause.nodes and cause not in plan.wiring for cause in causes)


def searched_workloads(plan: Plan) -> frozenset[tuple[str, str]]:
    return frozenset((workload.benchmark, workload.parameters) for workload in plan.reproducing)


def reproducing_entries(plan: Plan) -> list[PlannedEntry]:
    """The entries of groups that reproduce a job, the shortest one first. A group that fails by one
    need not run the others."""
    entries = (entry for phase in plan.phases for entry in phase.entries)
    able = (entry for entry in entries if entry.workload in plan.reproducing)
    return sorted(able, key=lambda entry: entry.duration_s)


def group_programs(
    verdicts: Iterable[Verdict], workloads: Collection[tuple[str, str]]
) -> Mapping[Group, frozenset[tuple[str, str]]]:
    programs: dict[Group, frozenset[tuple[str, str]]] = {}
    for verdict in verdicts:
        measured_by = verdict.benchmark, verdict.parameters
        if len(verdict.participants) > 1 and measured_by in workloads:
            group = verdict.participants
            programs[group] = programs.get(group, frozenset()) | {measured_by}
    return programs


def results_of_groups(
    verdicts: Iterable[Verdict],
    workloads: Collection[tuple[str, str]],
    *,
    silence_fails: bool = False,
) -> dict[Group, bool | None]:
    """The groups that were tested, each with True if it failed or fell short in any metric, and
    None if that is unknown. With `silence_fails`, a group without an answer counts as failed, and
    then one that ran to its end is good, even if it cannot be compared with others."""
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


# --- slow groups -------------------------------------------------------------------------------
# All groups of a benchmark that run side by side are searched in the same rounds. A group in which
# nothing is found runs again: only what is slow each time is at fault.


def look_into_groups(
    planned: Mapping[Group, bool | None], results: Mapping[Group, bool | None]
) -> SearchProgress:
    """The progress of a search in planned groups, each given with True if it is slow."""
    search = Search()
    for group, is_slow in planned.items():
        if is_slow is not None:
            search.add_known(group, failed=is_slow)
    job = _SlowGroups(search)
    slow = [group for group, is_slow in planned.items() if is_slow and len(group) >= SMALLEST]
    rounds = search.carry_out(run_together([job.look_into(group) for group in slow]))
    further = unanswered(rounds, results)
    return SearchProgress(
        groups=further.groups,
        nodes=tuple(search.named),
        links=tuple(search.links),
        paths=tuple(job.paths),
    )


@dataclass
class _SlowGroups:
    search: Search
    paths: list[Group] = field(default_factory=list)

    def look_into(self, group: Group) -> Tests:
        for _ in range(REPEATS):
            findings = yield from self.search.narrow(group)
            if findings or not self.search.named.keys().isdisjoint(group):
                return findings
            (again,) = yield [Core(group)]
            if not again:
                return NOTHING
        self.paths.append(group)
        return NOTHING
