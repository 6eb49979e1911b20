"""Per metric: what was measured beside what it is judged by, and how many failed it.

The terminal's table, the page's table and its plots are all drawn from these rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from anubis.core import judgement
from anubis.core.records import (
    Criterion,
    CriterionKey,
    Direction,
    Judgement,
    Samples,
    Verdict,
    Workload,
)
from anubis.report.view import CampaignView


@dataclass(frozen=True, kw_only=True)
class Curve:
    """All samples of one unit of judgement, its repeats pooled, and what was said of it."""

    participants: tuple[str, ...]
    device: str
    samples: Samples  # sorted, finite, at least one
    verdict: Verdict | None

    @property
    def judgement(self) -> Judgement:
        return self.verdict.judgement if self.verdict else Judgement.UNKNOWN

    @property
    def median(self) -> float:
        count = len(self.samples)
        return float(self.samples[(count - 1) // 2] + self.samples[count // 2]) / 2


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    key: CriterionKey
    unit: str
    direction: Direction
    criterion: Criterion | None
    curves: tuple[Curve, ...]

    @property
    def judged(self) -> int:
        return len(self.curves)

    @property
    def defective(self) -> int:
        return sum(curve.judgement is Judgement.DEFECTIVE for curve in self.curves)

    @property
    def median_of_healthy(self) -> float | None:
        healthy = [c.median for c in self.curves if c.judgement is Judgement.HEALTHY]
        return float(np.median(healthy)) if healthy else None

    @property
    def note(self) -> str:
        """Why nothing is judged by this metric; empty when something is."""
        return self.criterion.refusal if self.criterion else "no criterion to judge it by"


def metric_rows(view: CampaignView) -> list[MetricRow]:
    """A row per metric that was measured; those with most defects first."""
    criteria = {c.key: c for chosen in view.criteria for c in chosen.criteria}
    verdicts = {
        (v.participants, v.benchmark, v.parameters, v.metric, v.device): v
        for v in view.assessment.verdicts
    }
    alike: defaultdict[CriterionKey, list[Curve]] = defaultdict(list)
    specs = {}
    for unit in judgement.units(judgement.latest(view.executions), view.campaign.plan):
        finite = unit.samples[np.isfinite(unit.samples)]
        if finite.size:
            who, workload = unit.participants, unit.key.workload
            verdict = verdicts.get(
                (who, workload.benchmark, workload.parameters, unit.key.metric, unit.device)
            )
            samples = np.sort(finite)
            curve = Curve(participants=who, device=unit.device, samples=samples, verdict=verdict)
            alike[unit.key].append(curve)
            specs[unit.key] = unit.metric
    rows = [
        MetricRow(
            key=key,
            unit=specs[key].unit,
            direction=specs[key].direction,
            criterion=criteria.get(key),
            curves=tuple(curves),
        )
        for key, curves in alike.items()
    ]
    return sorted(rows, key=lambda row: -row.defective)


def benchmark_labels(rows: list[MetricRow]) -> dict[CriterionKey, str]:
    """The benchmark, with whatever of its key the rows do not all share."""
    keys = [row.key for row in rows]
    skus = {key.sku for key in keys}
    kinds = {key.device_kind for key in keys}
    workloads: defaultdict[str, set[Workload]] = defaultdict(set)
    for key in keys:
        workloads[key.workload.benchmark].add(key.workload)
    return {
        key: " ".join(
            part
            for part in (
                key.workload.benchmark,
                key.sku if len(skus) > 1 else "",
                key.device_kind if len(kinds) > 1 else "",
                *_peculiar(key.workload, workloads[key.workload.benchmark]),
            )
            if part
        )
        for key in keys
    }


def _peculiar(workload: Workload, siblings: set[Workload]) -> list[str]:
    """The parameters by which a workload differs from others of the same benchmark."""
    return [
        f"{name}={value}"
        for name, value in workload.arguments.items()
        if any(other.arguments.get(name) != value for other in siblings)
    ]
