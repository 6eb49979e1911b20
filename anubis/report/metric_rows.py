"""Rows of metrics: what was measured, what judges it, and how many units failed.

The terminal's table, the page's table and its plots are all drawn from these rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt

from anubis.core.judge.device_models import match_models
from anubis.core.judge.device_places import place_remark, split_by_place
from anubis.core.judge.limits import limit_of, limits_by_metric
from anubis.core.judge.node_kinds import split_by_kind, undecided_remark
from anubis.core.judge.units import Units, latest_executions, units
from anubis.core.records import (
    WORST_FIRST,
    Assessment,
    Criterion,
    CriterionKey,
    Direction,
    Judgement,
    Limit,
    Samples,
    Workload,
)
from anubis.report.view import CampaignView
from anubis.text.wording import share

FEW_STALLS = 0.1  # share of the samples that may be half as good without anybody being told
UNSAID = WORST_FIRST.index(Judgement.UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    measured: Units
    criterion: Criterion | None
    limit: Limit | None
    judgements: npt.NDArray[np.int8]  # of each unit, as a position in WORST_FIRST
    similarities: Samples  # of each unit; NaN where it was compared with nothing

    @property
    def key(self) -> CriterionKey:
        return self.measured.key

    @property
    def unit(self) -> str:
        return self.measured.metric.unit

    @property
    def direction(self) -> Direction:
        return self.measured.metric.direction

    @property
    def is_fact(self) -> bool:
        """True if only a limit judges it: there is no reference to compare with."""
        return self.measured.metric.judged_by == "limit"

    @property
    def judged(self) -> int:
        return len(self.measured)

    @property
    def defective(self) -> int:
        return int(np.sum(self.judgements == WORST_FIRST.index(Judgement.DEFECTIVE)))

    def having(self, judgement: Judgement) -> npt.NDArray[np.int64]:
        """Return the positions of the units with that judgement."""
        return np.flatnonzero(self.judgements == WORST_FIRST.index(judgement))

    @cached_property
    def medians(self) -> Samples:
        return self.measured.medians

    @property
    def median_of_healthy(self) -> float | None:
        """Median of the healthy units; of all units if none is judged, as facts are shown for
        each."""
        counts_all = self.is_fact and not self.limit
        healthy = self.medians if counts_all else self.medians[self.having(Judgement.HEALTHY)]
        return float(np.median(healthy)) if healthy.size else None

    @property
    def refusal(self) -> str:
        """Reason why nothing is judged by this metric; empty if something is."""
        if self.is_fact:
            return "" if self.limit else "a fact, for which the policy has no limit"
        return self.criterion.refusal if self.criterion else "no criterion to judge it by"

    @property
    def note(self) -> str:
        """Reservation that a reader must know before believing this row; empty if there is none."""
        if self.refusal:
            return f"not judged: {self.refusal}"
        criterion = self.criterion
        if criterion is None:
            return ""
        notes = (
            place_remark(self.key),
            reservation(criterion),
            undecided_remark(self.measured, criterion),
        )
        return "; ".join(note for note in notes if note)


def reservation(criterion: Criterion) -> str:
    """Say which losses a trusted criterion cannot show, or which healthy units it calls
    defective."""
    proposed = criterion.proposed_alpha
    if proposed is None:
        return ""
    if proposed < criterion.alpha:
        return (
            f"healthy units vary widely: alpha {share(proposed)} would suit them; at "
            f"{criterion.alpha:g} some are called defective"
        )
    if criterion.shows is None:
        return ""
    hidden = _hidden_stalls(criterion)
    if criterion.repeats == 1:
        return hidden
    loss = f"too noisy for the policy's alpha: a loss shows from {criterion.shows:.1%} on"
    return f"{loss}, {hidden}{_remedy(criterion)}" if hidden else loss + _remedy(criterion)


def _hidden_stalls(criterion: Criterion) -> str:
    """Say which stalls a metric shows, if stalls in a tenth of the samples are too few."""
    stalls = criterion.stalls
    if stalls is None or stalls <= FEW_STALLS:
        return ""
    if stalls == 1:
        return "samples that are half as good do not show"
    return f"samples that are half as good show only if they are {stalls:.0%} of all"


def _remedy(criterion: Criterion) -> str:
    if criterion.repeats is None:
        return ""
    if criterion.repeats == 0:
        return "; more repeats do not help, the units themselves differ"
    return f"; alpha takes about {criterion.repeats} times as many repeats"


def metric_rows(view: CampaignView) -> list[MetricRow]:
    """Return a row for each metric that was measured; those with most defects first."""
    criteria = {c.key: c for chosen in view.criteria for c in chosen.criteria}
    limits = limits_by_metric(view.campaign.policy.limits)
    statements = _statements(view.assessment)
    rows = []
    every = match_models(
        units(latest_executions(view.executions), view.campaign.plan), view.criteria
    )
    for measured in split_by_place(split_by_kind(every, view.kinds), view.criteria):
        key = measured.key
        place = (key.workload.benchmark, key.workload.parameters, key.metric)
        about = (statements[*place, kind] for kind in _device_kinds(measured.devices))
        judgements, similarities = _unit_judgements(measured, chain.from_iterable(about))
        rows.append(
            MetricRow(
                measured=measured,
                criterion=criteria.get(key),
                limit=limit_of(key.workload.benchmark, key.metric, limits),
                judgements=judgements,
                similarities=similarities,
            )
        )
    return sorted(rows, key=lambda row: -row.defective)


Subject = tuple[str, str, str, str]  # benchmark, parameters, metric, kind of device
Statement = tuple[Judgement, tuple[tuple[str, ...], ...], tuple[str, ...], Samples]


def _statements(assessment: Assessment) -> defaultdict[Subject, list[Statement]]:
    """Group every verdict and every batch verdict by its subject."""
    statements: defaultdict[Subject, list[Statement]] = defaultdict(list)
    for batch_verdict in assessment.batch_verdicts:
        similarities = batch_verdict.similarities
        if similarities is None:
            similarities = np.full(len(batch_verdict), np.nan)
        place = (batch_verdict.benchmark, batch_verdict.parameters, batch_verdict.metric)
        statement = (
            batch_verdict.judgement,
            batch_verdict.participants,
            batch_verdict.devices,
            similarities,
        )
        for kind in _device_kinds(batch_verdict.devices):
            statements[*place, kind].append(statement)
    for verdict in assessment.alone:
        similarity = np.nan if verdict.similarity is None else verdict.similarity
        place = (verdict.benchmark, verdict.parameters, verdict.metric)
        statement = (
            verdict.judgement,
            (verdict.participants,),
            (verdict.device,),
            np.array([similarity]),
        )
        for kind in _device_kinds((verdict.device,)):
            statements[*place, kind].append(statement)
    return statements


def _device_kinds(devices: Iterable[str]) -> list[str]:
    return sorted({device.partition(":")[0] for device in devices})


def _unit_judgements(
    measured: Units, statements: Iterable[Statement]
) -> tuple[npt.NDArray[np.int8], Samples]:
    judgements = np.full(len(measured), UNSAID, dtype=np.int8)
    similarities = np.full(len(measured), np.nan)
    position: dict[tuple[tuple[str, ...], str], int] = {}
    for judgement, participants, devices, compared in statements:
        if (participants, devices) == (measured.participants, measured.devices):
            at = np.arange(len(measured))
        else:
            if not position:
                names = zip(measured.participants, measured.devices, strict=True)
                position = {name: i for i, name in enumerate(names)}
            names = zip(participants, devices, strict=True)
            at = np.array([position.get(name, -1) for name in names])  # -1: of another sku or kind
        judgements[at[at >= 0]] = WORST_FIRST.index(judgement)
        similarities[at[at >= 0]] = compared[at >= 0]
    return judgements, similarities


def benchmark_labels(keys: Collection[CriterionKey]) -> dict[CriterionKey, str]:
    """Name each benchmark, with whatever the keys do not all share."""
    skus = {key.sku for key in keys}
    kinds = {key.device_kind for key in keys}
    workloads: defaultdict[str, set[Workload]] = defaultdict(set)
    for key in keys:
        workloads[key.workload.benchmark].add(key.workload)
    labels = {}
    for key in keys:
        parts = [key.workload.benchmark]
        parts += [key.sku] if len(skus) > 1 else []
        parts += [key.device_kind] if len(kinds) > 1 else []
        parts += key.workload.distinct_from(workloads[key.workload.benchmark])
        labels[key] = " ".join(parts)
    return labels
