"""Questions that a node did not answer: verdicts on what left no usable samples, and the benchmarks
that the node owes until it passes them.

No usable samples are left by programs that failed, hung, could not be run or do not apply, by lost
nodes, by rails on which a pair gave no result, and by numbers that are no measurement. If a program
fails twice on a node, and runs on most nodes of its kind, the node is defective. If it fails on
most of them, or if the infrastructure failed, no node is blamed.

A node owes only its own missing answers. It does not owe a measurement that could not be compared,
because there was no criterion, no trusted one or no majority: the node has answered, although the
answer proves nothing. Nor does it owe a benchmark

- whose program reports that it does not apply there;
- that all nodes measure at once, such as one all-reduce over all of them: its result does not
  describe one node;
- that its campaign skipped after the node was found defective: the defect keeps it out of service.

Any other cause of an unknown node counts as its own:
it was lost, crashed, hung or differed from run to run, could not be run or told apart, is not in
the topology, or its campaign was cut short.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from anubis.core.fabric import Fabric, rail_of
from anubis.core.judge.sentences import Finding
from anubis.core.judge.units import SAMPLED, are_usable
from anubis.core.network.pairing import joined_nics, pair_test_of
from anubis.core.network.rails import Rails, device_across
from anubis.core.records import (
    COMPARED_IN_VAIN,
    FAILED_ONCE,
    Ended,
    Execution,
    Judgement,
    NodeVerdict,
    Plan,
    PlannedEntry,
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
ENDS = {Ended.FAILED: "crashes", Ended.TIMED_OUT: "hangs"}  # the same in words
IN_VAIN = {  # the same of a program for which no node is blamed
    Ended.FAILED: "failed",
    Ended.NOT_RUN: "could not be run",
    Ended.TIMED_OUT: "ran out of time",
    Ended.NOT_APPLICABLE: "does not apply",
}
TRIED = {Ended.MEASURED, *DEFECTS}  # the program itself ran, which shows what the node can do
LOST = "NODE-LOST"
ENOUGH = 2  # failures of one program on one node

RAILS_CHOSEN = "hcas"  # the parameter of a pair program that chooses among the rails

Runs = Mapping[tuple[Workload, str], Sequence[Execution]]  # by program and node


def judge_unmeasured(
    executions: Iterable[Execution], plan: Plan, lost: Mapping[str, str]
) -> Iterator[Verdict]:
    """Yield a verdict for each lost node, for each node on which a program fails that runs on its
    peers, and for each other step without samples."""
    reasons = dict(lost)
    runs: defaultdict[tuple[Workload, str], list[Execution]] = defaultdict(list)
    executions = list(executions)
    reproduced = {  # if only some groups fail, their failure has a cause of its own
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
            yield _defect(execution, execution.reason)
        elif execution.final and ended in CODES:
            yield from _end_verdicts(execution)
    yield from _compare(runs, plan)
    for name in sorted(reasons):
        yield Verdict(
            participants=(name,),
            benchmark="",
            judgement=Judgement.UNKNOWN,
            code=LOST,
            reason=reasons[name],
            cause="lost during the campaign",
        )


def judge_silent_rails(executions: Iterable[Execution], plan: Plan) -> Iterator[Verdict]:
    """Yield a verdict for each rail on which two nodes gave no result, although they gave one on
    another rail. Programs measure the rails that are up, and do not mention the others."""
    fabric = plan.fabric
    if fabric is None or len(fabric.rails) < 2:
        return
    crossed = [run for run in executions if run.step.workload in plan.crossing]
    devices = {device for run in crossed for _, device, _ in run.result.series.layout.series}
    rails = Rails.from_devices(fabric, devices)
    for run in crossed:
        if run.ended is not Ended.MEASURED or not (pair_test := pair_test_of(run.step)):
            continue
        names = run.step.participants
        layout = run.result.series.layout
        measured = {rails.rail_nics_between(names, device) for _, device, _ in layout.series} - {
            None
        }
        chosen = _chosen_rails(run.step.workload, fabric)
        for a, b in joined_nics(fabric, pair_test) if measured else ():
            if a.rail in chosen and (a.rail_nic, b.rail_nic) not in measured:
                device = f"{a.device}-{b.device}"
                finding = Finding(
                    reason=f"brought no result on {device}, while it did on {len(measured)} others",
                    cause=f"{run.step.workload.benchmark} brought no result on a rail",
                )
                yield _verdict(run, Judgement.UNKNOWN, "NOT-MEASURED", finding, device)


def judge_unusable(executions: Iterable[Execution], plan: Plan) -> Iterator[Verdict]:
    """Yield a verdict for each series with a number that is no measurement. `units` leaves such
    series out; they say nothing of the others."""
    for run in executions:
        if run.ended not in SAMPLED or are_usable(run.result.series.values, may_be_0=False).all():
            continue
        for series in run.result.series:
            spec = plan.spec(run.step.workload).metric(series.metric)
            may_be_0 = spec is not None and spec.judged_by == "limit"
            odd = series.samples[~are_usable(series.samples, may_be_0=may_be_0)]
            if odd.size:
                expected = "0 or a positive" if may_be_0 else "a positive"
                measured = f'measured {series.metric} on {series.device} as "{odd[0]:g}"'
                finding = Finding(
                    reason=f"{measured}: expected {expected} finite number",
                    cause=f"{run.step.workload.benchmark}: {series.metric} is no measurement",
                )
                verdict = _verdict(run, Judgement.UNKNOWN, "NOT-MEASURED", finding, series.device)
                yield replace(verdict, metric=series.metric)


def _chosen_rails(workload: Workload, fabric: Fabric) -> Collection[str]:
    """The rails that the parameters name; all rails if they name none."""
    named = str(json.loads(workload.parameters or "{}").get(RAILS_CHOSEN) or "")
    return {rail_of(name.strip()) for name in named.split(",")} if named else set(fabric.rails)


def _compare(runs: Runs, plan: Plan) -> Iterator[Verdict]:
    """Compare each node with the nodes of its kind that tried the same program."""
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
            yield from map(_end_verdict, failed)
        elif failed:
            peers = f"it runs on {passed[kind]} of {tried[kind]} nodes"
            yield _judge_unlike_peers(runs[workload, node], failed, peers)


def _judge_unlike_peers(
    tries: Sequence[Execution], failed: Sequence[Execution], peers: str
) -> Verdict:
    last = failed[-1]
    if len(failed) >= ENOUGH:
        return _defect(last, f"failed {len(failed)} times here, but {peers}: {last.reason}")
    cause = f"{last.step.workload.benchmark} failed once"
    if any(run.step.turn for run in tries):
        reason = f"failed once, and ran when it was tried again: {last.reason}"
        finding = Finding(reason=reason, cause=f"{cause}, and ran when it was tried again")
        return _verdict(last, Judgement.UNKNOWN, "UNSTABLE", finding)
    return _verdict(last, Judgement.UNKNOWN, FAILED_ONCE, Finding(reason=last.reason, cause=cause))


def _defect(execution: Execution, reason: str) -> Verdict:
    benchmark, ended = execution.step.workload.benchmark, execution.ended
    code = f"{benchmark.upper()}.{DEFECTS[ended]}"
    finding = Finding(reason=reason, cause=f"{benchmark} {ENDS[ended]}")
    return _verdict(execution, Judgement.DEFECTIVE, code, finding)


def _end_verdict(execution: Execution) -> Verdict:
    ended, benchmark = execution.ended, execution.step.workload.benchmark
    absent = ended is Ended.NOT_APPLICABLE
    judgement = Judgement.NOT_APPLICABLE if absent else Judgement.UNKNOWN
    finding = Finding(reason=execution.reason, cause=f"{benchmark} {IN_VAIN[ended]}")
    return _verdict(execution, judgement, CODES[ended], finding)


def _end_verdicts(execution: Execution) -> Iterator[Verdict]:
    """Yield a verdict on each device of a pair that failed beside others, or one on the run."""
    of_run, devices = _end_verdict(execution), execution.result.unanswered
    if len(execution.step.participants) != 2 or not devices:
        yield of_run
        return
    for device, reason in devices.items():
        yield replace(of_run, device=device, reason=f"{device}: {reason}")


def _verdict(
    execution: Execution, judgement: Judgement, code: str, finding: Finding, device: str = ""
) -> Verdict:
    step = execution.step
    return Verdict(
        participants=step.participants,
        benchmark=step.workload.benchmark,
        device=device or device_across(step.shift),
        parameters=step.workload.parameters,
        judgement=judgement,
        code=code,
        reason=finding.reason,
        cause=finding.cause,
    )


ANSWERED = (Ended.MEASURED, Ended.NOT_APPLICABLE)
OF_ALL_AT_ONCE = ("all", "batches")

Demanded = tuple[str, str]  # a benchmark and its parameters
OPEN = (Judgement.UNKNOWN, Judgement.DEFECTIVE)  # of nodes that may owe something


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
    judged = {node.node: node.judgement for node in nodes if node.judgement in OPEN}
    answered = _answered_demands(executions, judged) if judged else {}
    return {
        node: _debts_of(node, judgement, plan, own.get(node, ()), answered[node])
        for node, judgement in judged.items()
    }


def _answered_demands(
    executions: Iterable[Execution], nodes: Collection[str]
) -> defaultdict[str, set[Demanded]]:
    answered = defaultdict[str, set[Demanded]](set)
    for execution in executions:
        if execution.final and execution.ended in ANSWERED and not execution.result.cut_short:
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
        is_lost = any(verdict.code == LOST for verdict in missing)
        of_fabric = {w.benchmark for w in plan.crossing if missing and not is_lost}
        owed = of_fabric or {benchmark for benchmark, _ in questions}
    return tuple(sorted(owed))


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
