"""Verdicts on units, single or in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.judge.criteria import worst_slow_samples
from anubis.core.judge.sentences import Finding, Shortfall, find_shortfall, find_slow_samples
from anubis.core.judge.units import Unit, Units
from anubis.core.records import (
    BatchVerdict,
    Criterion,
    CriterionKey,
    Judgement,
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
