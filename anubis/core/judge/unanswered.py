"""Benchmarks that a node did not answer in a campaign: it owes them until it passes.

A node owes only its own missing answers. It does not owe

- a measurement that could not be compared, because there was no criterion, no trusted one or no
  majority. The node has answered, although the answer proves nothing;
- a benchmark whose program reports that it does not apply there: that is an answer;
- a benchmark that all nodes measure at once, such as one all-reduce over all of them: its result
  does not describe one node;
- a benchmark that its campaign skipped after it was found defective: the defect keeps it out of
  service.

Any other cause of an unknown node counts as its own: it was lost, crashed, hung or differed from
run to run, could not be run or told apart, is not in the topology, or its campaign was cut short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from anubis.core.judge.unmeasured import LOST
from anubis.core.records import (
    COMPARED_IN_VAIN,
    Ended,
    Execution,
    Judgement,
    NodeVerdict,
    Plan,
    PlannedEntry,
    Verdict,
)

ANSWERED = (Ended.MEASURED, Ended.NOT_APPLICABLE)
OF_ALL_AT_ONCE = ("all", "batches")

Demanded = tuple[str, str]  # a benchmark and its parameters


def leaves_open(judgement: Judgement, code: str) -> bool:
    """True if a verdict with this code means that a node left something unanswered."""
    return judgement is Judgement.UNKNOWN and code not in COMPARED_IN_VAIN


def unanswered_benchmarks(
    plan: Plan,
    nodes: Iterable[NodeVerdict],
    own: Mapping[str, Sequence[Verdict]],
    executions: Iterable[Execution],
) -> dict[str, tuple[str, ...]]:
    """The benchmarks that each defective or unknown node owes, by name of the node. `own` has the
    verdicts on each node alone."""
    judged = {node.node: node.judgement for node in nodes if _is_open(node)}
    answered = _answered_demands(executions, judged) if judged else {}
    return {
        node: _debts_of(node, judgement, plan, own.get(node, ()), answered[node])
        for node, judgement in judged.items()
    }


def _is_open(node: NodeVerdict) -> bool:
    return node.judgement in (Judgement.UNKNOWN, Judgement.DEFECTIVE)


def _answered_demands(
    executions: Iterable[Execution], nodes: Collection[str]
) -> defaultdict[str, set[Demanded]]:
    answered = defaultdict[str, set[Demanded]](set)
    for execution in executions:
        if execution.final and execution.ended in ANSWERED:
            workload = execution.step.workload
            for name in execution.step.participants:
                if name in nodes:
                    answered[name].add((workload.benchmark, workload.parameters))
    return answered


def _debts_of(
    node: str, judgement: Judgement, plan: Plan, own: Sequence[Verdict], answered: set[Demanded]
) -> tuple[str, ...]:
    missing = [v for v in own if leaves_open(v.judgement, v.code)]
    named = {verdict.benchmark for verdict in missing if verdict.benchmark}
    if judgement is Judgement.DEFECTIVE:
        return tuple(sorted(named))
    if own and not missing:
        return ()
    questions = _questions_to(node, plan)
    owed = named | {benchmark for benchmark, _ in questions - answered}
    if not owed:  # lost after its last answer, or absent from the fabric
        of_fabric = {w.benchmark for w in plan.crossing if missing and _is_of_fabric(missing)}
        owed = of_fabric or {benchmark for benchmark, _ in questions}
    return tuple(sorted(owed))


def _is_of_fabric(missing: Iterable[Verdict]) -> bool:
    return all(verdict.code != LOST for verdict in missing)


def _questions_to(node: str, plan: Plan) -> set[Demanded]:
    """The benchmarks asked of a node. A partner is asked those with several participants. If no
    entry fits, it was asked all."""
    entries = [entry for phase in plan.phases for entry in phase.entries]
    own = [entry for entry in entries if _is_asked(entry, node, plan)]
    return {
        (entry.workload.benchmark, entry.workload.parameters)
        for entry in list(filter(_describes_one, own)) or own or entries
    }


def _is_asked(entry: PlannedEntry, node: str, plan: Plan) -> bool:
    if entry.groups == "across":  # follows from results, and only for some nodes
        return False
    meets = node in plan.partners and entry.scope != "node"
    return meets or entry.nodes is None or node in entry.nodes


def _describes_one(entry: PlannedEntry) -> bool:
    return not (entry.scope == "group" and entry.groups in OF_ALL_AT_ONCE)
