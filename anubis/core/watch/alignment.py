"""Resample irregular samples onto a grid that all nodes share.

A point of the grid takes the nearest sample within half a step; of equally near ones, the one
reported last. A point without a sample takes the nearer of the samples before and after it, if
these two are no further apart than the gap; else it is unknown. No value is carried beyond the
first and the last sample. Values that are not finite count as not sampled. Clocks are not
corrected: a node whose clock is seconds off is seconds off on the grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.arrays import Flags, Floats, Floats32, Ints
from anubis.core.watch.telemetry import Telemetry, WatchedMetric

GAP_S = 15.0  # the time between samples further apart is missing
PATIENT_STEPS = 1.5  # a scrape that is a little late is no gap, however long the step
ROUND_STEPS_S = (
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    60.0,
    120.0,
    300.0,
)  # at which monitors scrape
NEARLY = 0.1  # a step this close to a round one is that one
LARGEST = float(np.finfo(np.float32).max)
SERIES_LOOKED_AT = 50  # to find out the step


@dataclass(frozen=True, kw_only=True)
class Grid:
    start: float
    step_s: float
    points: int

    @property
    def end(self) -> float:
        return self.start + self.step_s * max(0, self.points - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledSeries:
    """Samples of one metric, in the order of their report."""

    rows: Ints  # row of the node of each sample
    times: Floats
    values: Floats | Floats32


def grid_over(start: float, end: float, step_s: float) -> Grid:
    """Grid whose points are multiples of the step, so that grids of one step fit on each other."""
    first, last = math.ceil(start / step_s - 1e-9), math.floor(end / step_s + 1e-9)
    return Grid(start=first * step_s, step_s=step_s, points=max(0, last - first + 1))


def gap_of(step_s: float) -> float:
    return max(GAP_S, PATIENT_STEPS * step_s)


def align(
    samples: Mapping[str, SampledSeries],
    metrics: Sequence[WatchedMetric],
    nodes: Sequence[str],
    grid: Grid,
) -> Telemetry:
    values = np.full((len(metrics), len(nodes), grid.points), np.nan, dtype=np.float32)
    cells: dict[tuple[int, int], _Cells] = {}  # shared by all metrics of a wide table
    for place, metric in enumerate(metrics):
        if metric.name in samples:
            of_metric = samples[metric.name]
            shared = id(of_metric.rows), id(of_metric.times)
            if shared not in cells:
                cells[shared] = _cells(of_metric, len(nodes), grid)
            values[place] = _fill(cells[shared], of_metric.values, len(nodes), grid)
    return Telemetry(
        metrics=tuple(metrics),
        nodes=tuple(nodes),
        start=grid.start,
        step_s=grid.step_s,
        values=values,
    )


def resample(samples: SampledSeries, nodes: int, grid: Grid) -> Floats32:
    """Values on the grid, nodes x points."""
    return _fill(_cells(samples, nodes, grid), samples.values, nodes, grid)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cells:
    """Cells that samples fall into, and the distances from their points, in steps."""

    cells: Ints
    offsets: Floats32
    used: Flags | None  # the samples that fall on the grid; None: all of them
    alone: bool  # no two of them fall into one cell


def _cells(samples: SampledSeries, nodes: int, grid: Grid) -> _Cells:
    with np.errstate(invalid="ignore", over="ignore"):
        positions = (samples.times - grid.start) / grid.step_s
        points = np.rint(positions)
        inside = (points >= 0) & (points < grid.points)
    inside &= (samples.rows >= 0) & (samples.rows < nodes)
    rows, used = samples.rows, None
    if not inside.all():
        used = inside
        rows, points, positions = rows[used], points[used], positions[used]
    cells = rows * grid.points + points.astype(np.int64)
    occupied = np.zeros(nodes * grid.points, dtype=np.bool_)
    occupied[cells] = True
    return _Cells(
        cells=cells,
        offsets=(positions - points).astype(np.float32),
        used=used,
        alone=bool(len(cells) == np.count_nonzero(occupied)),
    )


def _fill(places: _Cells, series: Floats | Floats32, nodes: int, grid: Grid) -> Floats32:
    numbers = series if places.used is None else series[places.used]
    cells, offsets = places.cells, places.offsets
    with np.errstate(invalid="ignore"):
        finite = np.abs(numbers) <= LARGEST
    if not finite.all():
        cells, offsets, numbers = cells[finite], offsets[finite], numbers[finite]
    if not places.alone:
        nearest = _nearest(cells, offsets, nodes * grid.points)
        cells, offsets, numbers = cells[nearest], offsets[nearest], numbers[nearest]
    values = np.full(nodes * grid.points, np.nan, dtype=np.float32)
    values[cells] = numbers
    holes = np.flatnonzero(np.isnan(values))
    if len(holes) and len(cells):
        beside = np.zeros(len(values), dtype=np.float32)
        beside[cells] = offsets
        _bridge(values, holes, beside, grid)
    return values.reshape(nodes, grid.points)


def _nearest(cells: Ints, offsets: Floats32, size: int) -> Flags:
    """Flags of the samples nearest to the point of their cell. Of equally near ones, the later
    write wins."""
    distances = np.abs(offsets)
    least = np.full(size, np.inf, dtype=np.float32)
    np.minimum.at(least, cells, distances)
    nearest: Flags = distances == least[cells]
    return nearest


def _bridge(values: Floats32, holes: Ints, beside: Floats32, grid: Grid) -> None:
    """Fill the points between two samples that are close enough."""
    reported = np.flatnonzero(~np.isnan(values))
    following = np.searchsorted(reported, holes)
    inside = (following > 0) & (following < len(reported))
    holes, following = holes[inside], following[inside]
    left, right = reported[following - 1], reported[following]
    same_node = (left // grid.points == holes // grid.points) & (
        right // grid.points == holes // grid.points
    )
    holes, left, right = holes[same_node], left[same_node], right[same_node]
    before = holes - (left + beside[left].astype(np.float64))
    after = (right + beside[right].astype(np.float64)) - holes
    close = (before + after) * grid.step_s <= gap_of(grid.step_s) + 1e-6
    source = np.where(before <= after, left, right)
    values[holes[close]] = values[source[close]]


def step_of(samples: Sequence[SampledSeries]) -> float:
    """Interval at which nodes were sampled: the longest over the metrics of the median time between
    samples, so that no point is padding. NaN: too few samples."""
    steps = [step for step in map(_median_step, samples) if step > 0]
    return round_step(max(steps)) if steps else math.nan


def round_step(step_s: float) -> float:
    closest = min(ROUND_STEPS_S, key=lambda step: abs(step - step_s) / step)
    if step_s < ROUND_STEPS_S[0] or abs(closest - step_s) <= NEARLY * closest:
        return closest
    return round(step_s, 3)


def _median_step(samples: SampledSeries) -> float:
    """Median time between samples of some nodes: those of the first samples."""
    first = np.unique(samples.rows[: 100 * SERIES_LOOKED_AT])[:SERIES_LOOKED_AT]
    gaps = [np.diff(np.unique(samples.times[samples.rows == row])) for row in first]
    together = np.concatenate([np.zeros(0), *gaps])
    together = together[np.isfinite(together)]
    return float(np.median(together)) if len(together) else math.nan


def rates(counters: SampledSeries, gap_s: float = GAP_S) -> SampledSeries:
    """Rate of a counter per second, at the later of two samples. A counter that fell began again at
    zero; across a gap the rate is unknown."""
    finite = np.isfinite(counters.values) & np.isfinite(counters.times)
    rows, times, counts = counters.rows[finite], counters.times[finite], counters.values[finite]
    order = np.lexsort((times, rows))
    rows, times, counts = rows[order], times[order], counts[order]
    is_last = np.ones(len(rows), dtype=np.bool_)  # of the samples of one moment
    is_last[:-1] = (rows[1:] != rows[:-1]) | (times[1:] != times[:-1])
    rows, times, counts = rows[is_last], times[is_last], counts[is_last]
    seconds, rise = np.diff(times), np.diff(counts)
    rise = np.where(rise < 0, counts[1:], rise)
    usable = (rows[1:] == rows[:-1]) & (seconds > 0) & (seconds <= gap_s)
    return SampledSeries(
        rows=rows[1:][usable], times=times[1:][usable], values=rise[usable] / seconds[usable]
    )
