"""Which benchmarks a campaign asked of a node that did not answer: it owes them until it passes.

A node owes its own missing answers only. It owes nothing

- where it measured and nobody could compare: no criterion, none that is trusted, or no majority.
  It has answered; the fault is what we know. Nothing is proven by that either;
- where a program says that it does not apply there: that is an answer;
- what everybody measures at once, such as one all-reduce over all nodes: what comes of it says
  nothing of one of them;
- what its campaign spared it after it was found defective: the defect keeps it out of service.

Whatever else leaves a node unknown is its own: it was lost, crashed, hung or differed from run to
run, could not be run or told apart, is not in the topology, or its campaign was cut short.
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

Demanded = tuple[str, str]  # a benchmark, and with which parameters


def leaves_open(judgement: Judgement, code: str) -> bool:
    """Whether a verdict with this code says that a node left something unanswered."""
    return judgement is Judgement.UNKNOWN and code not in COMPARED_IN_VAIN


def unanswered(
    plan: Plan,
    nodes: Iterable[NodeVerdict],
    own: Mapping[str, Sequence[Verdict]],
    executions: Iterable[Execution],
) -> dict[str, tuple[str, ...]]:
    """By name: what the nodes owe that were found defective or unknown. `own`: the verdicts on each
    node alone."""
    judged = {node.node: node.judgement for node in nodes if _is_open(node)}
    answered = _answered(executions, judged) if judged else {}
    return {
        node: _owed_by(node, judgement, plan, own.get(node, ()), answered[node])
        for node, judgement in judged.items()
    }


def _is_open(node: NodeVerdict) -> bool:
    return node.judgement in (Judgement.UNKNOWN, Judgement.DEFECTIVE)


def _answered(
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


def _owed_by(
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
    if not owed:  # lost after its last answer, or not where the fabric can tell
        of_fabric = {w.benchmark for w in plan.crossing if missing and _is_of_fabric(missing)}
        owed = of_fabric or {benchmark for benchmark, _ in questions}
    return tuple(sorted(owed))


def _is_of_fabric(missing: Iterable[Verdict]) -> bool:
    return all(verdict.code != LOST for verdict in missing)


def _questions_to(node: str, plan: Plan) -> set[Demanded]:
    """A partner is asked what takes several. Where nobody can tell, it was all."""
    entries = [entry for phase in plan.phases for entry in phase.entries]
    own = [entry for entry in entries if _is_asked(entry, node, plan)]
    return {
        (entry.workload.benchmark, entry.workload.parameters)
        for entry in list(filter(_tells_of_one, own)) or own or entries
    }


def _is_asked(entry: PlannedEntry, node: str, plan: Plan) -> bool:
    if entry.groups == "across":  # it follows from results, and not for everybody
        return False
    meets = node in plan.partners and entry.scope != "node"
    return meets or entry.nodes is None or node in entry.nodes


def _tells_of_one(entry: PlannedEntry) -> bool:
    return not (entry.scope == "group" and entry.groups in OF_ALL_AT_ONCE)
