"""The distributions of one metric against its criterion, as curves that an eye can tell apart.

The smallest and the largest sample of a curve are always kept, because defects live in the tails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.records import Judgement, Samples
from anubis.report.chart import Axis, Chart, Points
from anubis.report.metric_rows import MetricRow
from anubis.report.svg import Element, add, serialize, title

POINTS = 32  # of a curve
REFERENCE_POINTS = 96  # finer than others: a metric has only three such curves
CURVES = {Judgement.HEALTHY: 24, Judgement.UNKNOWN: 12, Judgement.DEFECTIVE: 10}  # at most
WIDTH, HEIGHT = 500.0, 290.0  # pixels: two pictures fit side by side on a page
ROOM = 0.03  # at both ends: a curve on the frame itself is easily overlooked


@dataclass(frozen=True, kw_only=True)
class Distributions:
    row: MetricRow
    drawn: dict[Judgement, Ints]  # units, by their verdict

    @property
    def left_out(self) -> list[tuple[Judgement, int, int]]:
        """Judgements with units that are not drawn: how many are drawn, and how many there are."""
        counts = (
            (judgement, len(units), self.row.having(judgement).size)
            for judgement, units in self.drawn.items()
        )
        return [(judgement, drawn, total) for judgement, drawn, total in counts if drawn < total]

    @property
    def named(self) -> list[str]:
        """Names of the defective units, the worst first."""
        measured = self.row.measured
        several = len(set(measured.devices)) > 1
        return [
            ", ".join(measured.participants[i]) + f" {measured.devices[i]}" * several
            for i in self.drawn[Judgement.DEFECTIVE].tolist()
        ]


def distributions_of(row: MetricRow) -> Distributions:
    """Choose units to draw: the worst of the defective; of the others the slowest, the fastest and
    an even choice between."""
    drawn = {
        judgement: _spread(row, row.having(judgement), limit) for judgement, limit in CURVES.items()
    }
    defective = row.having(Judgement.DEFECTIVE)
    worst = np.argsort(row.similarities[defective], kind="stable")
    drawn[Judgement.DEFECTIVE] = defective[worst[: CURVES[Judgement.DEFECTIVE]]]
    return Distributions(row=row, drawn=drawn)


def picture_of(distributions: Distributions, label: str) -> str:
    row = distributions.row
    curves = {
        judgement: [_curve(row, i) for i in units.tolist()]
        for judgement, units in distributions.drawn.items()
    }
    bands = list(_bands(row))
    chart = _chart(row, [*bands, *(curve for alike in curves.values() for curve in alike)])
    canvas = chart.frame(label)
    for judgement in (Judgement.HEALTHY, Judgement.UNKNOWN):
        if curves[judgement]:
            chart.stairs(canvas, curves[judgement], f"curve {judgement.value}")
    if bands:
        edge, limit, reference = bands
        chart.stairs(canvas, [[*edge, *reversed(limit)]], "tolerated")
        chart.stairs(canvas, [reference], "curve reference")
    for curve, name in zip(curves[Judgement.DEFECTIVE], distributions.named, strict=True):
        title(chart.stairs(canvas, [curve], "curve defective"), name)
    _label(canvas, chart, curves[Judgement.DEFECTIVE], distributions.named)
    return serialize(canvas)


def steps(samples: Samples, points: int = POINTS) -> Points:
    """Return the empirical distribution: up at each kept sample, evenly by rank, ends included."""
    count = len(samples)
    kept = range(count) if count <= points else _ranks(count, points)
    curve, level = [(float(samples[0]), 0.0)], 0.0
    for rank in kept:
        curve.append((float(samples[rank]), level))
        level = (rank + 1) / count
        curve.append((float(samples[rank]), level))
    return curve


def _curve(row: MetricRow, unit: int) -> Points:
    return steps(np.sort(row.measured[unit].samples))


def _bands(row: MetricRow) -> Iterator[Points]:
    """Yield the reference and both edges of what is tolerated; nothing if there is no criterion."""
    criterion = row.criterion
    if criterion is None or not len(criterion.reference) or not criterion.alpha:
        return
    better, worse = {
        "higher": (1.0, criterion.alpha),
        "lower": (1.0, 1 / criterion.alpha),
        "either": (1 / criterion.alpha, criterion.alpha),
    }[row.direction]
    for scale in (better, worse, 1.0):
        yield steps(criterion.reference * scale, REFERENCE_POINTS)


def _chart(row: MetricRow, curves: Sequence[Points]) -> Chart:
    values = np.array([x for curve in curves for x, _ in curve] or [0.0, 1.0])
    low, high = float(values.min()), float(values.max())
    room = (high - low) * ROOM or abs(high) * ROOM or 1.0
    better = "any change is worse" if row.direction == "either" else f"{row.direction} is better"
    across = Axis(
        title=f"{row.unit} ({better})", begin=low - room, end=high + room, spelled="{:,.6g}".format
    )
    up = Axis(title="samples at or below", end=1.0, spelled="{:.0%}".format)
    return Chart(width=WIDTH, height=HEIGHT, across=across, up=up)


def _label(canvas: Element, chart: Chart, curves: Sequence[Points], names: Sequence[str]) -> None:
    """Write names on their curves, each at its own height, on the side that has room."""
    for place, (curve, name) in enumerate(zip(curves, names, strict=True)):
        height = 0.9 - 0.8 * (place + 0.5) / len(curves)
        at = chart.x(next(x for x, level in curve if level >= height))
        left = at > WIDTH / 2
        kind = "named worst before" if left else "named worst"
        add(canvas, "text", name, class_=kind, x=at + (-6 if left else 6), y=chart.y(height))


def _spread(row: MetricRow, chosen: Ints, limit: int) -> Ints:
    if chosen.size <= limit:
        return chosen
    ordered = chosen[np.argsort(row.medians[chosen], kind="stable")]
    return ordered[_ranks(chosen.size, limit)]


def _ranks(count: int, points: int) -> list[int]:
    return [round(i * (count - 1) / (points - 1)) for i in range(points)]
