"""Verdicts on units, single or in batches, and from these one verdict on each node: the worst
counts, in one sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.judge.criteria import worst_slow_samples
from anubis.core.judge.sentences import (
    Finding,
    Shortfall,
    find_shortfall,
    find_slow_samples,
    metric_words,
    node_sentence,
)
from anubis.core.judge.unanswered import unanswered_benchmarks
from anubis.core.judge.units import Unit, Units
from anubis.core.records import (
    BatchVerdict,
    Criterion,
    CriterionKey,
    Execution,
    Judgement,
    MetricSpec,
    NodeVerdict,
    Plan,
    Samples,
    Verdict,
)

WITHIN = "within its limit"
EXCUSED = " when measured again; before, it may have shared a cable with another pair"
UNDISTURBED = " when other programs left it its processors"
HOW_EXCUSED = (EXCUSED, UNDISTURBED)  # what follows the reason of a unit that was good only once
ASPECTS: dict[str, Callable[[CriterionKey], str]] = {  # of a key; the first to differ is named
    "version": lambda key: key.workload.version,
    "sku": lambda key: key.sku,
    "parameters": lambda key: key.workload.parameters,
    "device": lambda key: key.device_kind,
    "metric": lambda key: key.metric,
}


def judge_shortfall(
    unit: Unit,
    criterion: Criterion,
    similarity: float,
    doubt: str,
    of_siblings: float | None = None,
    code_of_doubt: str = "UNSTABLE",
) -> Verdict:
    """The verdict on a unit that falls short; `of_siblings` is what is normal among its siblings,
    if it falls short of them and not of the fleet."""
    finding = _shortcoming(unit, criterion, similarity, of_siblings)
    judgement, code = Judgement.DEFECTIVE, code_of(unit.key)
    if doubt:
        judgement, code = Judgement.UNKNOWN, code_of_doubt
        finding = finding.cast_doubt(doubt)
    return verdict_on(unit, judgement, code, finding, similarity, criterion.alpha)


def verdict_on(
    unit: Unit,
    judgement: Judgement,
    code: str,
    finding: Finding,
    similarity: float | None = None,
    alpha: float | None = None,
) -> Verdict:
    return Verdict(
        participants=unit.participants,
        benchmark=unit.key.workload.benchmark,
        parameters=unit.key.workload.parameters,
        metric=unit.key.metric,
        device=unit.device,
        judgement=judgement,
        code=code,
        reason=finding.reason,
        cause=finding.cause,
        similarity=similarity,
        alpha=alpha,
    )


def batch_verdict_on(
    alike: Units,
    judgement: Judgement,
    code: str,
    reason: str,
    similarities: Samples | None = None,
    alpha: float | None = None,
    chosen: Ints | None = None,
) -> BatchVerdict:
    participants, devices = alike.participants, alike.devices
    if chosen is not None and chosen.size < len(alike):
        participants = tuple(participants[i] for i in chosen)
        devices = tuple(devices[i] for i in chosen)
        similarities = None if similarities is None else similarities[chosen]
    return BatchVerdict(
        benchmark=alike.key.workload.benchmark,
        parameters=alike.key.workload.parameters,
        metric=alike.key.metric,
        judgement=judgement,
        code=code,
        reason=reason,
        alpha=alpha,
        participants=participants,
        devices=devices,
        similarities=similarities,
    )


def code_of(key: CriterionKey) -> str:
    """The stable code of a (benchmark, metric), for machines that act on it."""
    return spelled_code(key.workload.benchmark, key.metric)


def spelled_code(benchmark: str, metric: str) -> str:
    return f"{benchmark}.{metric}".upper().replace(":", ".")


def _shortcoming(
    unit: Unit, criterion: Criterion, similarity: float, of_siblings: float | None
) -> Finding:
    short = Shortfall(
        benchmark=unit.key.workload.benchmark,
        metric=unit.key.metric,
        unit=criterion.unit,
        direction=criterion.direction,
        device=unit.device,
        measured=float(np.median(unit.samples)),
        normal=float(np.median(criterion.reference)),
        similarity=similarity,
        alpha=criterion.alpha,
    )
    if of_siblings is not None:
        return find_shortfall(replace(short, normal=of_siblings, than="its siblings"))
    slow = worst_slow_samples(unit.samples, criterion)
    if slow and slow.number:
        return find_slow_samples(
            short,
            number=slow.number,
            samples=slow.samples,
            measured=slow.measured,
            usual=slow.usual,
            share=slow.share,
        )
    return find_shortfall(short)


def missing_criterion_reason(key: CriterionKey, keys: Iterable[CriterionKey]) -> str:
    """The reason why no criterion applies: how the nearest one differs."""
    nearest = [k for k in keys if k.workload.benchmark == key.workload.benchmark]
    if not nearest:
        return f"the criteria do not cover {key.workload.benchmark}"
    for aspect, of in ASPECTS.items():
        alike = [k for k in nearest if of(k) == of(key)]
        if not alike:
            covered = '", "'.join(sorted({of(k) for k in nearest}))
            return f'the criteria are for {aspect} "{covered}", this is "{of(key)}"'
        nearest = alike
    raise AssertionError(f"{key} is known")


def difference_of_meaning(criterion: Criterion, metric: MetricSpec) -> str:
    """The reason why values in one unit say nothing about those in another; "" if the criterion has
    the metric's own unit and direction."""
    taught = replace(metric, unit=criterion.unit, direction=criterion.direction)
    if taught.meaning == metric.meaning:
        return ""
    return f"the criteria are in {taught.meaning}, this is in {metric.meaning}"


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
    """The program, to begin a sentence with; empty if the sentence says what it measured."""
    program = verdict.benchmark
    is_named = verdict.reason.startswith(f"{program} ")
    has_words = verdict.metric and metric_words(program, verdict.metric)
    return "" if not program or is_named or has_words else f"{program}: "


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
