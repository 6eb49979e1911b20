"""What left no samples: programs that failed, hung, could not be run or do not apply; lost nodes.

A program that fails twice on a node, and runs on most nodes of its kind, is a defect of that node.
Where it fails on most of them nobody is blamed, and neither where the infrastructure failed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from anubis.core.network.rails import across
from anubis.core.records import (
    FAILED_ONCE,
    Ended,
    Execution,
    Judgement,
    Plan,
    Verdict,
    Workload,
)

CODES = {
    Ended.FAILED: "NOT-MEASURED",
    Ended.NOT_RUN: "NOT-MEASURED",
    Ended.TIMED_OUT: "TIMED-OUT",
    Ended.NOT_APPLICABLE: "NOT-APPLICABLE",
}
DEFECTS = {Ended.FAILED: "CRASH", Ended.TIMED_OUT: "HANG"}  # after the name of the benchmark
TRIED = {Ended.MEASURED, *DEFECTS}  # the program itself ran, and shows what the node can do
LOST = "NODE-LOST"
ENOUGH = 2  # failures of one program on one node

Runs = Mapping[tuple[Workload, str], Sequence[Execution]]  # by program and node


def judge_unmeasured(
    executions: Iterable[Execution], plan: Plan, lost: Mapping[str, str]
) -> Iterator[Verdict]:
    """One verdict for each lost node, one for each node on which a program fails that runs on its
    peers, and one for each other step."""
    reasons = dict(lost)
    runs: defaultdict[tuple[Workload, str], list[Execution]] = defaultdict(list)
    executions = list(executions)
    reproduced = {  # where some groups fail and others do not, those that fail do so for a reason
        execution.step.workload
        for execution in executions
        if execution.ended is Ended.MEASURED and execution.step.workload in plan.reproducing
    }
    for execution in executions:
        for name in execution.lost:
            reasons.setdefault(name, execution.reason)
        step, ended = execution.step, execution.ended
        if execution.final and ended in TRIED and len(step.participants) == 1:
            runs[step.workload, step.participants[0]].append(execution)
        elif execution.final and ended in DEFECTS and step.workload in reproduced:
            code = f"{step.workload.benchmark.upper()}.{DEFECTS[ended]}"
            yield _verdict(execution, Judgement.DEFECTIVE, code, execution.reason)
        elif execution.final and ended in CODES:
            yield _as_it_ended(execution)
    yield from _compare(runs, plan)
    for name in sorted(reasons):
        yield Verdict(
            participants=(name,),
            benchmark="",
            judgement=Judgement.UNKNOWN,
            code=LOST,
            reason=reasons[name],
        )


def _compare(runs: Runs, plan: Plan) -> Iterator[Verdict]:
    """Each node with the nodes of its kind that tried the same program."""
    failures = {
        place: [run for run in tries if run.ended is not Ended.MEASURED]
        for place, tries in runs.items()
    }
    tried = Counter((workload, plan.sku(node)) for workload, node in runs)
    passed = Counter(
        (workload, plan.sku(node)) for (workload, node), failed in failures.items() if not failed
    )
    for (workload, node), failed in failures.items():
        kind = workload, plan.sku(node)
        if 2 * passed[kind] <= tried[kind]:
            yield from map(_as_it_ended, failed)
        elif failed:
            peers = f"it runs on {passed[kind]} of {tried[kind]} nodes"
            yield _unlike_peers(runs[workload, node], failed, peers)


def _unlike_peers(tries: Sequence[Execution], failed: Sequence[Execution], peers: str) -> Verdict:
    last = failed[-1]
    if len(failed) >= ENOUGH:
        code = f"{last.step.workload.benchmark.upper()}.{DEFECTS[last.ended]}"
        reason = f"failed {len(failed)} times here, {peers}: {last.reason}"
        return _verdict(last, Judgement.DEFECTIVE, code, reason)
    if any(run.step.turn for run in tries):
        reason = f"failed once, and ran when it was tried again: {last.reason}"
        return _verdict(last, Judgement.UNKNOWN, "UNSTABLE", reason)
    return _verdict(last, Judgement.UNKNOWN, FAILED_ONCE, last.reason)


def _as_it_ended(execution: Execution) -> Verdict:
    absent = execution.ended is Ended.NOT_APPLICABLE
    judgement = Judgement.NOT_APPLICABLE if absent else Judgement.UNKNOWN
    return _verdict(execution, judgement, CODES[execution.ended], execution.reason)


def _verdict(execution: Execution, judgement: Judgement, code: str, reason: str) -> Verdict:
    step = execution.step
    return Verdict(
        participants=step.participants,
        benchmark=step.workload.benchmark,
        device=across(step.shift),
        parameters=step.workload.parameters,
        judgement=judgement,
        code=code,
        reason=reason,
    )
