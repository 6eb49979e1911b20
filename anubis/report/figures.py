"""The distributions of one metric, thinned to what an eye can tell apart, as plain values.

A curve is {"n": how many samples, "x": a few of them in order}: the i-th of m kept samples has
the rank round(i (n - 1) / (m - 1)), so the page can draw its true height without being sent it.
The smallest and the largest are always kept, because defects live in the tails.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.records import Judgement, Samples
from anubis.report.metrics import MetricRow

POINTS = 48  # per curve
REFERENCE_POINTS = 160
HEALTHY = 40  # curves that stand for all the healthy
DEFECTIVE = 10  # curves that are drawn bold and named
UNKNOWN = 20


def figure_of(row: MetricRow) -> dict[str, Any]:
    """Everything the page needs to draw one metric."""
    defective, healthy, unknown = map(
        row.having, (Judgement.DEFECTIVE, Judgement.HEALTHY, Judgement.UNKNOWN)
    )
    defective = defective[np.argsort(row.similarities[defective], kind="stable")]
    alone = len(set(row.measured.devices)) < 2
    return {
        "unit": row.unit,
        "direction": row.direction,
        "reference": _reference(row),
        "healthy": [_curve(row, i) for i in _spread(row, healthy, HEALTHY)],
        "unknown": [_curve(row, i) for i in _spread(row, unknown, UNKNOWN)],
        "defective": [_named(row, i, alone) for i in defective[:DEFECTIVE]],
        "counts": {
            "healthy": healthy.size,
            "unknown": unknown.size,
            "defective": defective.size,
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


def _curve(row: MetricRow, i: int) -> dict[str, Any]:
    return thinned(np.sort(row.measured[i].samples))


def _named(row: MetricRow, i: int, alone: bool) -> dict[str, Any]:
    name = ", ".join(row.measured.participants[i])
    return {**_curve(row, i), "name": name if alone else f"{name} {row.measured.devices[i]}"}


def _spread(row: MetricRow, chosen: Ints, limit: int) -> Ints:
    """The slowest, the fastest and an even choice between them, rather than a lucky draw."""
    if chosen.size <= limit:
        return chosen
    ordered = chosen[np.argsort(row.medians[chosen], kind="stable")]
    return ordered[_ranks(chosen.size, limit)]
