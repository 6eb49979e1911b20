"""Sums of distances over a whole fleet, exact and without the double loop.

`distance_sums` gives, for each sample, the sum of `ecdf.distance` to all others. Two ideas:

1. At any x only the few levels of F occur. Keep how much weight stands on each level, move one
   sample one level at each breakpoint, and read a sample's sum from running integrals per level.
2. The pair's own scale X is the larger of the two maxima. Order samples by their maximum and
   divide: between a lower and an upper half the scale is always the upper one's, so it becomes a
   weight. Halves that are small enough are compared pair by pair.

O(N m (m + log N) log N) for N samples of m values. The double loop stays in the tests as judge.
Compiled with numba on first use and cached on disk; this module is imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numba
import numpy as np

from anubis.core.records import Samples

Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

PAIRWISE = 12  # below this many samples a half is cheaper pair by pair
MOST_LEVELS = 512  # above it (many different lengths) levels cost more than pairs


class Bundle:
    """Many sorted samples end to end, as compiled code wants them."""

    def __init__(self, values: Samples, lengths: Positions) -> None:
        self.values = values
        self.lengths = lengths
        self.starts = np.concatenate(([0], np.cumsum(lengths)))

    @classmethod
    def of(cls, samples: Sequence[Samples] | Samples) -> Bundle:
        """Of a list of samples, or of a matrix with one in each row."""
        if isinstance(samples, np.ndarray) and samples.ndim == 2:
            n, m = samples.shape
            return cls(np.ascontiguousarray(samples).reshape(-1), np.full(n, m, dtype=np.int64))
        lengths = np.array([sample.size for sample in samples], dtype=np.int64)
        return cls(np.concatenate(samples).astype(np.float64, copy=False), lengths)

    def __len__(self) -> int:
        return int(self.lengths.size)

    def __getitem__(self, i: int) -> Samples:
        return self.values[self.starts[i] : self.starts[i + 1]]

    def subset(self, chosen: Positions) -> Bundle:
        if chosen.size == len(self) and np.array_equal(chosen, np.arange(len(self))):
            return self
        if np.all(self.lengths == self.lengths[0]):
            return Bundle.of(self.values.reshape(len(self), -1)[chosen])
        return Bundle.of([self[int(i)] for i in chosen])

    @cached_property
    def maxima(self) -> Samples:
        maxima: Samples = self.values[self.starts[1:] - 1]
        return maxima

    @cached_property
    def breakpoints(self) -> Positions:
        """The positions of all values, in order of the values."""
        return np.argsort(self.values, kind="stable")

    @cached_property
    def by_maximum(self) -> tuple[Positions, Bundle]:
        """The order of the samples by their largest value, and the samples in that order."""
        order = np.argsort(self.maxima, kind="stable")
        return order, self.subset(order)


def distances_to(bundle: Bundle, reference: Samples, tail: float, *, worse: bool) -> Samples:
    """The distance of every sample to the reference; with `worse`, the one-sided shortfall."""
    out = np.empty(len(bundle))
    _distances_to(bundle.values, bundle.starts, reference, tail, worse, out)
    return out


def distance_sums(bundle: Bundle, tail: float, among: Mask | None = None) -> Samples:
    """For each sample the sum of its distances to all others, or to those `among` them."""
    counted = np.ones(len(bundle), dtype=np.bool_) if among is None else among
    if bundle.lengths.max() == 1:
        return _single_value_sums(bundle.values, counted)
    level_of = _common_levels(bundle.lengths)
    if level_of is None:
        sums = np.zeros(len(bundle))
        _add_pairs(0, len(bundle), bundle.values, bundle.starts, tail, counted, sums)
        return sums
    return _sums_by_levels(bundle, *level_of, tail, counted)


def _single_value_sums(values: Samples, counted: Mask) -> Samples:
    """Sum over others of 1 - smaller/larger, by sorting and two running sums."""
    order = np.argsort(values, kind="stable")
    v, counts = values[order], counted[order]
    below = np.concatenate(([0.0], np.cumsum(v * counts)[:-1]))
    above = np.concatenate((np.cumsum((counts / v)[::-1])[::-1][1:], [0.0]))
    sums = np.empty_like(v)
    sums[order] = np.sum(counts) - counts - below / v - above * v
    return sums


def _common_levels(lengths: Positions) -> tuple[Samples, Positions] | None:
    """All levels that occur, and for each value of each sample the level it lifts F to."""
    sizes = [int(size) for size in np.unique(lengths)]
    if sum(sizes) > 4 * MOST_LEVELS:
        return None
    scale = math.lcm(*sizes)  # exact: 1/3 and 2/6 are one level
    ticks = sorted({(k * scale) // size for size in sizes for k in range(size + 1)})
    if len(ticks) > MOST_LEVELS:
        return None
    index = {tick: i for i, tick in enumerate(ticks)}
    steps = {
        size: np.array([index[(k * scale) // size] for k in range(1, size + 1)], dtype=np.int64)
        for size in sizes
    }
    levels = np.array([tick / scale for tick in ticks])
    return levels, np.concatenate([steps[int(size)] for size in lengths])


def _sums_by_levels(
    bundle: Bundle, levels: Samples, lifts: Positions, tail: float, counted: Mask
) -> Samples:
    higher = np.maximum(levels[:, None], levels[None, :])
    gap = np.abs(levels[:, None] - levels[None, :])
    cost = np.divide(gap, np.maximum(higher, tail), out=np.zeros_like(gap), where=gap > 0)

    order, ordered = bundle.by_maximum
    rank = np.empty(len(bundle), dtype=np.int64)
    rank[order] = np.arange(len(bundle))
    points = bundle.breakpoints
    owner = np.repeat(rank, bundle.lengths)[points]
    sums = np.zeros(len(bundle))
    _divide(
        owner,
        bundle.values[points],
        lifts[points],
        ordered.maxima,
        ordered.values,
        ordered.starts,
        cost,
        tail,
        counted[order],
        sums,
    )
    return sums[rank]


@numba.njit(cache=True)
def _distance(a, b, tail, worse):  # type: ignore[no-untyped-def] # numba infers the types
    """`ecdf.distance` (or `shortfall` of a from b) of two sorted arrays, by merging them."""
    i = j = 0
    f_a = f_b = total = 0.0
    x = 0.0
    while i < a.size or j < b.size:
        next_x = a[i] if j >= b.size or (i < a.size and a[i] <= b[j]) else b[j]
        gap = f_a - f_b
        if gap < 0.0:
            gap = 0.0 if worse else -gap
        if gap > 0.0:
            total += gap / max(f_a, f_b, tail) * (next_x - x)
        x = next_x
        while i < a.size and a[i] == x:
            i += 1
        while j < b.size and b[j] == x:
            j += 1
        f_a = i / a.size
        f_b = j / b.size
    return total / x


@numba.njit(cache=True)
def _distances_to(values, starts, reference, tail, worse, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = _distance(values[starts[i] : starts[i + 1]], reference, tail, worse)


@numba.njit(cache=True)
def _add_pairs(low, high, values, starts, tail, counted, sums):  # type: ignore[no-untyped-def]
    for a in range(low, high):
        for b in range(low, a):
            if counted[a] or counted[b]:
                d = _distance(
                    values[starts[a] : starts[a + 1]],
                    values[starts[b] : starts[b + 1]],
                    tail,
                    False,
                )
                sums[a] += d * counted[b]
                sums[b] += d * counted[a]


@numba.njit(cache=True)
def _add_between_halves(owner, x, lift, low, mid, high, maxima, cost, counted, sums):  # type: ignore[no-untyped-def]
    """Add d(A, B) for every A of [low, mid) and B of [mid, high), whose maximum is the scale.

    A sample on level k pays the other half `rate[k]` per unit of x. Rates change only where a
    counted sample of that half moves, so their integral up to x is rate[k] x - moment[k], where
    moment collects (change of rate) x at each change: nothing is done on the way between two
    changes. Only the levels from the lowest to the highest that a half stands on are kept up to
    date; where it climbs higher, the rate is summed anew from the mass on each level.
    """
    n_levels = cost.shape[0]
    rate = np.zeros((2, n_levels))  # 0: to the lower half; 1: to the upper, over its maxima
    moment = np.zeros((2, n_levels))
    mass = np.zeros((2, n_levels))  # of each half on each level: how many are counted, and weighed
    standing = np.zeros((2, n_levels), dtype=np.int64)  # samples of each half on each level
    standing[0, 0], standing[1, 0] = mid - low, high - mid
    for s in range(low, high):
        if counted[s]:
            mass[0 if s < mid else 1, 0] += 1.0 if s < mid else 1.0 / maxima[s]
    lowest = np.zeros(2, dtype=np.int64)
    highest = np.zeros(2, dtype=np.int64)
    level = np.zeros(high - low, dtype=np.int64)
    entered = np.zeros(high - low)  # the integral of its level's rate when a sample entered it
    paid = np.zeros(high - low)
    for p in range(x.size):
        s = owner[p] - low
        own = 0 if owner[p] < mid else 1
        opposite = 1 - own
        old, new, at = level[s], lift[p], x[p]
        level[s] = new
        paid[s] += rate[opposite, old] * at - moment[opposite, old] - entered[s]
        while highest[own] < new:
            highest[own] += 1
            k = highest[own]
            total = 0.0
            for j in range(lowest[opposite], highest[opposite] + 1):
                total += mass[opposite, j] * cost[j, k]
            rate[opposite, k] = total
            moment[opposite, k] = 0.0
        entered[s] = rate[opposite, new] * at - moment[opposite, new]
        standing[own, old] -= 1
        standing[own, new] += 1
        while standing[own, lowest[own]] == 0:
            lowest[own] += 1
        if counted[owner[p]]:
            weight = 1.0 if own == 0 else 1.0 / maxima[owner[p]]
            mass[own, old] -= weight
            mass[own, new] += weight
            for k in range(lowest[opposite], highest[opposite] + 1):
                change = weight * (cost[new, k] - cost[old, k])
                rate[own, k] += change
                moment[own, k] += change * at
    end = x[-1]
    for s in range(high - low):
        opposite = 1 if low + s < mid else 0
        paid[s] += rate[opposite, level[s]] * end - moment[opposite, level[s]] - entered[s]
        sums[low + s] += paid[s] if opposite == 1 else paid[s] / maxima[low + s]


@numba.njit(cache=True)
def _divide(owner, x, lift, maxima, values, starts, cost, tail, counted, sums):  # type: ignore[no-untyped-def]
    """Halve [0, N) again and again; breakpoints stay in order of x within each half."""
    n_points = x.size
    spare_owner, spare_x, spare_lift = np.empty_like(owner), np.empty_like(x), np.empty_like(lift)
    stack = [(0, maxima.size, 0, n_points)]
    while len(stack) > 0:
        low, high, first, last = stack.pop()
        if not counted[low:high].any():
            continue
        if high - low <= PAIRWISE:
            _add_pairs(low, high, values, starts, tail, counted, sums)
            continue
        mid = (low + high) // 2
        _add_between_halves(
            owner[first:last],
            x[first:last],
            lift[first:last],
            low,
            mid,
            high,
            maxima,
            cost,
            counted,
            sums,
        )
        kept = first
        moved = 0
        for p in range(first, last):
            if owner[p] < mid:
                owner[kept], x[kept], lift[kept] = owner[p], x[p], lift[p]
                kept += 1
            else:
                spare_owner[moved], spare_x[moved], spare_lift[moved] = owner[p], x[p], lift[p]
                moved += 1
        owner[kept:last] = spare_owner[:moved]
        x[kept:last] = spare_x[:moved]
        lift[kept:last] = spare_lift[:moved]
        stack.append((low, mid, first, kept))
        stack.append((mid, high, kept, last))
