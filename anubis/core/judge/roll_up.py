"""From verdicts on units to one verdict per node: the worst counts, in one sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from anubis.core.judge.sentences import metric_words, node_sentence
from anubis.core.judge.unanswered import unanswered_benchmarks
from anubis.core.judge.verdicts import HOW_EXCUSED, WITHIN
from anubis.core.records import BatchVerdict, Execution, Judgement, NodeVerdict, Plan, Verdict

DevicesMeasured = defaultdict[tuple[str, str], set[str]]  # devices, by node and benchmark


def roll_up(
    plan: Plan,
    alone: Iterable[Verdict],
    batch_verdicts: Iterable[BatchVerdict],
    attributed: Iterable[Verdict],
    executions: Iterable[Execution],
) -> tuple[NodeVerdict, ...]:
    """The worst verdict of each node, with the benchmarks that it left unanswered. A good group
    counts for all its nodes. Partners that no test needed are left out."""
    batch_verdicts = tuple(batch_verdicts)
    own: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in (v for v in (*attributed, *alone) if len(v.participants) == 1):
        own[verdict.participants[0]].append(verdict)
    passed: Counter[str] = Counter()
    how: dict[str, None] = {}
    for batch_verdict in batch_verdicts:
        if batch_verdict.judgement is Judgement.HEALTHY:
            passed.update(chain.from_iterable(batch_verdict.participants))
            how[_strip_excuse(batch_verdict.reason)] = None
        elif len(batch_verdict.participants[0]) == 1:
            for verdict in batch_verdict:
                own[verdict.participants[0]].append(verdict)
    measured = _devices_measured(own, batch_verdicts)
    tested = {name for p in plan.phases for e in p.entries for name in e.nodes or ()}
    partners = set(plan.partners) - tested
    unmet = {name for name in partners if not own[name] and not passed[name]}
    verdicts = [
        _node_verdict(node.name, own[node.name], passed[node.name], tuple(how), measured)
        for node in plan.nodes
        if node.name not in unmet
    ]
    owed = unanswered_benchmarks(plan, verdicts, own, executions)
    return tuple(
        replace(verdict, owes=owed[verdict.node]) if verdict.node in owed else verdict
        for verdict in verdicts
    )


def _node_verdict(
    node: str, own: Sequence[Verdict], passed: int, how: Sequence[str], measured: DevicesMeasured
) -> NodeVerdict:
    counted = {judgement: [v for v in own if v.judgement is judgement] for judgement in Judgement}
    if counted[Judgement.DEFECTIVE]:
        worst = counted[Judgement.DEFECTIVE]
    elif counted[Judgement.UNKNOWN]:
        worst = counted[Judgement.UNKNOWN]
    elif passed:
        counted_metrics = f"all {passed} metrics are" if passed > 1 else "1 metric is"
        good = " or ".join(sorted(how)).replace(
            WITHIN, "within their limits" if passed > 1 else WITHIN
        )
        return NodeVerdict(
            node=node, judgement=Judgement.HEALTHY, code="OK", reason=f"{counted_metrics} {good}"
        )
    elif counted[Judgement.NOT_APPLICABLE]:
        worst = counted[Judgement.NOT_APPLICABLE]
    else:
        return NodeVerdict(
            node=node,
            judgement=Judgement.UNKNOWN,
            code="NOT-MEASURED",
            reason="nothing was measured on this node",
        )
    first = min(worst, key=lambda verdict: verdict.similarity or 0.0)
    return NodeVerdict(
        node=node,
        judgement=first.judgement,
        code=first.code,
        reason=_sentence(first, worst, measured[node, first.benchmark]),
        cause=first.cause or f"{_program(first)}{first.reason}",
    )


def _sentence(first: Verdict, worst: Sequence[Verdict], measured: Collection[str]) -> str:
    program = _program(first)
    if first.judgement is not Judgement.DEFECTIVE or not first.metric:
        more = f" (and {len(worst) - 1} more)" if len(worst) > 1 else ""
        return f"{program}{first.reason}{more}"
    short = {v.device for v in worst if v.metric and v.benchmark == first.benchmark}
    further = len({(v.benchmark, v.parameters, v.metric) for v in worst}) - 1
    return program + node_sentence(first.reason, first.device, short, measured, further)


def _strip_excuse(reason: str) -> str:
    for excuse in HOW_EXCUSED:
        reason = reason.removesuffix(excuse)
    return reason


def _program(verdict: Verdict) -> str:
    """The program, to begin a sentence with; empty if there are words for what it measured."""
    has_words = verdict.metric and metric_words(verdict.benchmark, verdict.metric)
    return f"{verdict.benchmark}: " if verdict.benchmark and not has_words else ""


def _devices_measured(
    own: Mapping[str, Sequence[Verdict]], batch_verdicts: Iterable[BatchVerdict]
) -> DevicesMeasured:
    """Devices that each benchmark measured, of nodes with a defect only: a fleet is large."""
    measured: DevicesMeasured = defaultdict(set)
    for node, verdicts in own.items():
        if any(verdict.judgement is Judgement.DEFECTIVE for verdict in verdicts):
            for verdict in verdicts:
                measured[node, verdict.benchmark].add(verdict.device)
    bad = {node for node, _ in measured}
    for batch_verdict in batch_verdicts if bad else ():
        for names, device in zip(batch_verdict.participants, batch_verdict.devices, strict=True):
            if len(names) == 1 and names[0] in bad:
                measured[names[0], batch_verdict.benchmark].add(device)
    return measured
