"""The distributions of one metric, thinned to what an eye can tell apart, as plain values.

A curve is {"n": how many samples, "x": a few of them in order}: the i-th of m kept samples has
the rank round(i (n - 1) / (m - 1)), so the page can draw its true height without being sent it.
The smallest and the largest are always kept, because defects live in the tails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anubis.core.records import Judgement, Samples
from anubis.report.metrics import Curve, MetricRow

POINTS = 48  # per curve
REFERENCE_POINTS = 160
HEALTHY = 40  # curves that stand for all the healthy
DEFECTIVE = 10  # curves that are drawn bold and named
UNKNOWN = 20


def figure_of(row: MetricRow) -> dict[str, Any]:
    """Everything the page needs to draw one metric."""
    defective = sorted(_judged(row, Judgement.DEFECTIVE), key=_similarity)
    healthy = _judged(row, Judgement.HEALTHY)
    unknown = _judged(row, Judgement.UNKNOWN)
    alone = len({curve.device for curve in row.curves}) < 2
    return {
        "unit": row.unit,
        "direction": row.direction,
        "reference": _reference(row),
        "healthy": [thinned(c.samples) for c in _spread(healthy, HEALTHY)],
        "unknown": [thinned(c.samples) for c in _spread(unknown, UNKNOWN)],
        "defective": [_named(c, alone) for c in defective[:DEFECTIVE]],
        "counts": {
            "healthy": len(healthy),
            "unknown": len(unknown),
            "defective": len(defective),
        },
    }


def thinned(samples: Samples, points: int = POINTS) -> dict[str, Any]:
    """Keeps at most `points` of the sorted samples, evenly by rank, ends included."""
    count = len(samples)
    ranks = range(count) if count <= points else _ranks(count, points)
    return {"n": count, "x": [float(f"{samples[rank]:.6g}") for rank in ranks]}


def _ranks(count: int, points: int) -> list[int]:
    # floor(x + 1/2), as the page's Math.round; Python's round would differ at halves
    return [int(i * (count - 1) / (points - 1) + 0.5) for i in range(points)]


def _reference(row: MetricRow) -> dict[str, Any] | None:
    if row.criterion is None or not len(row.criterion.reference):
        return None
    return {**thinned(row.criterion.reference, REFERENCE_POINTS), "alpha": row.criterion.alpha}


def _named(curve: Curve, alone: bool) -> dict[str, Any]:
    name = ", ".join(curve.participants)
    return {**thinned(curve.samples), "name": name if alone else f"{name} {curve.device}"}


def _judged(row: MetricRow, judgement: Judgement) -> list[Curve]:
    return [curve for curve in row.curves if curve.judgement is judgement]


def _similarity(curve: Curve) -> float:
    similarity = curve.verdict.similarity if curve.verdict else None
    return 1.0 if similarity is None else similarity


def _spread(curves: Sequence[Curve], limit: int) -> list[Curve]:
    """The slowest, the fastest and an even choice between them, rather than a lucky draw."""
    if len(curves) <= limit:
        return list(curves)
    ordered = sorted(curves, key=lambda curve: curve.median)
    return [ordered[rank] for rank in _ranks(len(ordered), limit)]
