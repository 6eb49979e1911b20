"""Find nodes that left their peers, measured by the job's own past. This needs no watch model.

In blocks of eight seconds a node's contrast is its difference from the median of its peers. A node
is apart if its contrast, and the change of its contrast since the first minutes, are on one side
and exceed twice what is usual for it and for its peers, for all of the continuity. Usual is what
nodes did in the first minutes, or do since then if they drift apart. If more nodes are apart than
one look may suspect, the job works so, and none is named; nor is a node without a past. The same is
done in blocks of 40 seconds, which show smaller changes: steps, and the moments at which values are
taken, make short blocks differ. A block in which the node left, or returned, counts in part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from anubis.core.arrays import Flags, Floats, Floats32, Ints
from anubis.core.watch.medians import medians
from anubis.core.watch.telemetry import Side, Span, Telemetry, WatchedMetric

PAST = 1 / 3  # of what is known: what the last look could not name yet began after it
LEAST_PAST = 8  # blocks: fewer do not show what is usual
USUAL = 0.95  # quantile of a node's changes in its past
TIMES = 2.0  # a change must exceed the usual ones so many times: four deviations of even noise
DEVIATION = 1.4826  # times the median change of all nodes: a deviation, of even noise
OF_RANGE = 0.01  # of the metric's range: less is rounding
OF_LEVEL = 0.15  # of its peers' level: less holds up no job
BUSIER = ("cpu",)  # families in which a fault may show on the other side: a processor taken away
NEARLY = 0.8  # of the usual change in a run: more is all of it
ENTIRE = 0.9  # share of the continuity for which it must be apart, blocks in part counted in part
AT_WORK = 0.75  # share of the blocks that must not be pauses
ROUNDING = 1e-9  # so that 240.0000001 s are no block more than 240
SIDES = {-1: Side.LOW, 1: Side.HIGH}


@dataclass(frozen=True)
class Grain:
    block_s: float
    steady: float  # share of the blocks in which it must be apart, without those in which all pause


SHORT = Grain(block_s=8.0, steady=0.95)  # as long as a window of samples a second
LONG = Grain(block_s=40.0, steady=0.8)  # a pause falls into one of the six blocks of four minutes


@dataclass(frozen=True)
class Contrast:
    """A node that is apart in a metric, between two points of the telemetry."""

    row: int
    first: int
    last: int
    smoothed: int  # points whose mean shows it; 1: each point does
    score: float  # its median change, in usual ones
    as_faults_do: bool  # on the side on which faults are expected


@dataclass(frozen=True)
class _Blocks:
    means: Floats  # nodes x blocks, NaN if half of the samples are missing; the last ends the data
    begin: int  # the first point of the first block
    size: int  # points


@dataclass(frozen=True)
class _Compared:
    """Nodes, compared with their peers and with their own past in blocks of one grain."""

    metric: WatchedMetric
    grain: Grain
    blocks: _Blocks
    needed: int  # blocks for which a node must be apart
    changes: Floats
    limits: Floats
    pauses: Flags

    def is_side_of_faults(self, sign: int) -> bool:
        return self.metric.fault in (Side.EITHER, SIDES[sign])

    def runs(self, sign: int) -> Iterator[tuple[int, int, int]]:
        """The newest run of each node that is apart on this side."""
        beyond = sign * self.changes > self.limits
        counted = np.isfinite(self.changes) & (beyond | ~self.pauses)
        return _runs(beyond, counted, self.needed, self.grain.steady)


def contrasts(
    values: Floats32,
    metric: WatchedMetric,
    span: Span,
    peers: Ints,
    needed_s: float,
    step_s: float,
    limit: int,
) -> list[Contrast]:
    """Nodes among `peers` that are apart for so many seconds, if they are not more than `limit`.
    `values`: nodes x times."""
    results = []
    for grain in (SHORT, LONG):
        compared = _compare(values[peers], metric, span, grain, needed_s, step_s)
        for contrast in _apart(compared, limit):
            results.append(replace(contrast, row=int(peers[contrast.row])))
    return results


def restless_rows(
    telemetry: Telemetry,
    spans: Sequence[Span],
    metrics: Iterable[int],
    groups: Sequence[Ints],
    long_s: float,
) -> set[int]:
    """Rows that were apart from their group for so many seconds, on a side on which faults are."""
    return {
        int(peers[row])
        for number, peers, grain in product(metrics, groups, (SHORT, LONG))
        for row in _restless(
            _compare(
                telemetry.values[number][peers],
                telemetry.metrics[number],
                spans[number],
                grain,
                long_s,
                telemetry.step_s,
            )
        )
    }


def _compare(
    values: Floats32,
    metric: WatchedMetric,
    span: Span,
    grain: Grain,
    needed_s: float,
    step_s: float,
) -> _Compared:
    blocks = _blocks(values, size=max(1, round(grain.block_s / step_s)))
    needed = max(1, math.ceil(needed_s / (blocks.size * step_s) - ROUNDING))
    changes, limits, pauses = _changes(blocks.means, metric, span)
    return _Compared(metric, grain, blocks, needed, changes, limits, pauses)


def _restless(compared: _Compared) -> Iterator[int]:
    for sign in SIDES:
        if compared.is_side_of_faults(sign):
            yield from (row for row, _, _ in compared.runs(sign))


def _apart(compared: _Compared, limit: int) -> Iterator[Contrast]:
    blocks = compared.blocks
    for sign in SIDES:
        as_faults_do = compared.is_side_of_faults(sign)
        if not as_faults_do and compared.metric.family not in BUSIER:
            continue
        changes = sign * compared.changes
        runs = [
            run
            for run in compared.runs(sign)
            if _blocks_apart(changes, compared.pauses, *run) >= ENTIRE * compared.needed
        ]
        for row, first, last in runs if len(runs) <= limit else ():
            excess = (changes / compared.limits)[row, first : last + 1]
            yield Contrast(
                row=row,
                first=blocks.begin + first * blocks.size,
                last=blocks.begin + (last + 1) * blocks.size - 1,
                smoothed=1 if compared.grain is SHORT else blocks.size,
                score=TIMES * float(np.nanmedian(excess)),
                as_faults_do=as_faults_do,
            )


def _blocks_apart(changes: Floats, pauses: Flags, row: int, first: int, last: int) -> float:
    """Number of blocks of a run for which a node was apart. One with little of the usual change
    counts in part: the node left, or returned, within it. An unknown block does not count."""
    run = slice(first, last + 1)
    usual = NEARLY * float(np.nanmedian(changes[row, run]))
    shares = np.clip(np.nan_to_num(changes[row, run]) / usual, 0, 1)
    is_pause = pauses[row, run] & (shares < 1)
    return float(np.where(is_pause, 1, shares).sum())


def _blocks(values: Floats32, size: int) -> _Blocks:
    nodes, points = values.shape
    begin = points % size
    cut = values[:, begin:].reshape(nodes, (points - begin) // size, size)
    finite, ones = np.isfinite(cut), np.ones(size, dtype=np.float32)
    if finite.all():
        return _Blocks((cut @ ones).astype(np.float64) / size, begin, size)
    counts = finite.astype(np.float32) @ ones
    sums = (np.where(finite, cut, np.float32(0)) @ ones).astype(np.float64)
    means = np.where(counts * 2 > size, sums / np.maximum(counts, 1), np.nan)
    return _Blocks(means, begin, size)


def _changes(blocks: Floats, metric: WatchedMetric, span: Span) -> tuple[Floats, Floats, Flags]:
    """The smaller of contrast and change of each node and block, signed; the limits of it; and the
    blocks in which the peers do so little that less would not show."""
    middle = medians(blocks)
    contrast = blocks - middle
    past = slice(0, int(PAST * blocks.shape[1]))
    has_past = np.isfinite(contrast[:, past]).sum(axis=1) >= LEAST_PAST
    own = np.where(has_past, quantiles(contrast[:, past], 0.5), np.nan)
    change = contrast - own[:, None]
    usual = quantiles(np.abs(change[:, past]), USUAL)
    usual = np.maximum(usual, np.median(usual[has_past]) if has_past.any() else 0)
    now = DEVIATION * np.nan_to_num(medians(np.abs(change)))
    lately = now[past.stop :]
    usual = np.maximum(usual, 2 * float(np.median(lately)) if lately.size else 0.0)
    level = quantiles(np.abs(middle)[None], 0.5)[0]
    least = max(metric.floor, OF_RANGE * span.width, OF_LEVEL * float(level))
    agreed = np.where(contrast * change > 0, np.minimum(np.abs(contrast), np.abs(change)), 0)
    changes = np.where(np.isfinite(change), np.sign(change) * agreed, np.nan)
    limits = np.maximum(TIMES * np.maximum(usual[:, None], now), least)
    return changes, limits, (middle < 2 * limits) & (metric.fault is Side.LOW)


def quantiles(values: Floats, share: float) -> Floats:
    """Quantile of each row over its known values, 0 if there are none."""
    ranked = np.sort(values, axis=1)  # NaN comes last
    counts = np.isfinite(values).sum(axis=1)
    places = np.maximum(np.ceil(share * counts).astype(np.int64) - 1, 0)
    if not ranked.shape[1]:
        return np.zeros(len(values))
    return np.nan_to_num(np.take_along_axis(ranked, places[:, None], axis=1)[:, 0])


def _runs(
    beyond: Flags, counted: Flags, needed: int, steady: float
) -> Iterator[tuple[int, int, int]]:
    """The newest run of each node: its row, and the first and the last block in which it is
    apart."""
    if beyond.shape[1] < needed:
        return
    fewest = AT_WORK * needed
    fits = _sums(beyond, needed) >= steady * np.maximum(_sums(counted, needed), fewest)
    for row in np.flatnonzero(fits.any(axis=1)):
        last = int(np.flatnonzero(fits[row])[-1])
        before = np.flatnonzero(~fits[row, :last])
        first = int(before[-1]) + 1 if len(before) else 0
        apart = first + np.flatnonzero(beyond[row, first : last + needed])
        yield int(row), int(apart[0]), int(apart[-1])


def _sums(flags: Flags, needed: int) -> Ints:
    so_far = np.cumsum(np.pad(flags, ((0, 0), (1, 0))), axis=1)
    sums: Ints = so_far[:, needed:] - so_far[:, :-needed]
    return sums
