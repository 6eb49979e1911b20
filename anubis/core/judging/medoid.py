"""Sums of distances over a whole fleet, exact and without the double loop.

`distance_sums` gives, for each sample, the sum of `ecdf.distance` to all others. Two ideas:

1. What a sample on level F = k pays per unit of x to one on level b is a sum of two products of
   a factor of k and a factor of b, one pair of factors below k and another above. So sums of the
   factors of b, in a tree over all levels that occur, give what k pays to everybody; a sample
   that climbs at x changes the sums of one path, and the same sums times x give the integral.
2. The pair's own scale X is the larger of the two maxima. Order samples by their maximum and
   divide: between a lower and an upper half the scale is always the upper one's, so it becomes a
   weight. Halves that are small enough are compared pair by pair.

O(N m log N log L) for N samples of m values on L levels, however long each sample is. The double
loop stays in the tests as judge. Compiled with numba on first use and cached on disk; this module
is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numba
import numpy as np

from anubis.core.records import Samples

Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Rungs = np.ndarray[tuple[int], np.dtype[np.int32]]

PAIRWISE = 4  # times the height of the tree: below so many samples pairs are cheaper


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


def typical_losses(bundle: Bundle, reference: Samples) -> Samples:
    """`ecdf.typical_loss` of every sample."""
    out = np.empty(len(bundle))
    _typical_losses(bundle.values, bundle.starts, reference, out)
    return out


def distance_sums(bundle: Bundle, tail: float, among: Mask | None = None) -> Samples:
    """For each sample the sum of its distances to all others, or to those `among` them."""
    counted = np.ones(len(bundle), dtype=np.bool_) if among is None else among
    if bundle.lengths.max() == 1:
        return _single_value_sums(bundle.values, counted)
    order, ordered = bundle.by_maximum
    rank = np.empty(len(bundle), dtype=np.int32)
    rank[order] = np.arange(len(bundle))
    points = bundle.breakpoints
    owner = np.repeat(rank, bundle.lengths)[points]
    levels, rungs, first_rung = _ladder(ordered.lengths)
    sums = np.zeros(len(bundle))
    _divide(
        owner,
        bundle.values[points],
        ordered.values,
        ordered.starts,
        (rungs, first_rung, *_factors(levels, tail)),
        tail,
        counted[order],
        PAIRWISE,
        sums,
    )
    return sums[rank]


def _single_value_sums(values: Samples, counted: Mask) -> Samples:
    """Sum over others of 1 - smaller/larger, by sorting and two running sums."""
    order = np.argsort(values, kind="stable")
    v, counts = values[order], counted[order]
    below = np.concatenate(([0.0], np.cumsum(v * counts)[:-1]))
    above = np.concatenate((np.cumsum((counts / v)[::-1])[::-1][1:], [0.0]))
    sums = np.empty_like(v)
    sums[order] = np.sum(counts) - counts - below / v - above * v
    return sums


def _ladder(lengths: Positions) -> tuple[Samples, Rungs, Positions]:
    """All levels that occur; the one that each value lifts F to, for each length; where the
    rungs of each sample's length begin.

    Quotients of whole numbers are rounded alike, so 1/3 and 2/6 are one level.
    """
    sizes, kind = np.unique(lengths, return_inverse=True)
    shares = np.concatenate([[0.0], *(np.arange(1, size + 1) / size for size in sizes)])
    levels, rungs = np.unique(shares, return_inverse=True)
    begins = np.concatenate(([1], 1 + np.cumsum(sizes)))
    return levels, rungs.astype(np.int32), begins[kind]


def _factors(levels: Samples, tail: float) -> tuple[Samples, Samples]:
    """What stands on a level as (below or above, level, product), and what a level pays for it.

    With s = max(level, tail) the cost |k - b| / max(k, b, tail) is k/s(k) 1 - 1/s(k) b for a
    level b below k, and 1 b/s(b) - k 1/s(b) for one above.
    """
    scale = np.maximum(levels, tail)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    share = np.divide(levels, scale, out=np.zeros_like(scale), where=scale > 0)
    ones = np.ones_like(levels)
    mass = np.stack((np.stack((ones, levels), 1), np.stack((share, inverse), 1)))
    price = np.stack((np.stack((share, -inverse), 1), np.stack((ones, -levels), 1)))
    return mass, price


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
def _typical_losses(values, starts, reference, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        sample = values[starts[i] : starts[i + 1]]
        ratios = np.empty(sample.size)
        for j in range(sample.size):
            rank = (j + 0.5) / sample.size * reference.size - 0.5
            rank = min(max(rank, 0.0), reference.size - 1.0)
            below = int(rank)
            above = min(below + 1, reference.size - 1)
            expected = reference[below] + (rank - below) * (reference[above] - reference[below])
            ratios[j] = sample[j] / expected
        ratios.sort()
        cut = sample.size // 4
        out[i] = 1.0 - ratios[cut : sample.size - cut].mean()


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
def _climb(tree, root, old, new, mass, weight, x):  # type: ignore[no-untyped-def]
    """Move a weight from plain level to another at x, in all sums that it is part of.

    A left child is below whoever reads it, a right child above.
    """
    left = tree.shape[0] // 4 + old
    reached = left - old + new
    while left != reached:
        a, b = left & 1, reached & 1
        _add(tree, root + left, -weight * mass[a, old, 0], -weight * mass[a, old, 1], x)
        _add(tree, root + reached, weight * mass[b, new, 0], weight * mass[b, new, 1], x)
        left >>= 1
        reached >>= 1
    while left > 1:  # from here on the old and the new level have the same sums
        a = left & 1
        plain, scaled = mass[a, new, 0] - mass[a, old, 0], mass[a, new, 1] - mass[a, old, 1]
        _add(tree, root + left, weight * plain, weight * scaled, x)
        left >>= 1


@numba.njit(cache=True)
def _add(tree, node, plain, scaled, x):  # type: ignore[no-untyped-def]
    tree[node, 0] += plain
    tree[node, 1] += scaled
    tree[node, 2] += plain * x
    tree[node, 3] += scaled * x


@numba.njit(cache=True)
def _bill(tree, root, level, price, x):  # type: ignore[no-untyped-def]
    """What a sample that always stood on this level would have paid up to x."""
    node = tree.shape[0] // 4 + level
    total = 0.0
    while node > 1:
        beside = node ^ 1
        side, at = beside & 1, root + beside
        total += price[side, level, 0] * (tree[at, 0] * x - tree[at, 2])
        total += price[side, level, 1] * (tree[at, 1] * x - tree[at, 3])
        node >>= 1
    return total


@numba.njit(cache=True)
def _add_between_halves(owner, x, low, mid, high, values, starts, ladder, counted, sums):  # type: ignore[no-untyped-def]
    """Add d(A, B) for every A of [low, mid) and B of [mid, high), whose maximum is the scale.

    A sample pays, for each level that it stood on, the bill at leaving less the one at coming.
    """
    rungs, first_rung, mass, price = ladder
    leaves = _leaves(mass.shape[1])
    tree = np.zeros((4 * leaves, 4))  # the lower half's, then the upper's, over its maxima
    level = np.zeros(high - low, dtype=np.int64)
    step = np.zeros(high - low, dtype=np.int64)
    weight = np.zeros(high - low)
    paid = np.zeros(high - low)
    for s in range(low, high):
        if counted[s]:
            weight[s - low] = 1.0 if s < mid else 1.0 / values[starts[s + 1] - 1]
    node = leaves  # all begin on level 0, which is below in every sum that it is part of
    while node > 1:
        tree[node, 0] = weight[: mid - low].sum()
        tree[2 * leaves + node, 0] = weight[mid - low :].sum()
        node >>= 1
    for p in range(x.size):
        s = owner[p] - low
        old, new = level[s], rungs[first_rung[owner[p]] + step[s]]
        own = 0 if owner[p] < mid else 2 * leaves
        opposite = 2 * leaves - own
        paid[s] += _bill(tree, opposite, old, price, x[p])
        paid[s] -= _bill(tree, opposite, new, price, x[p])
        if weight[s] > 0.0:
            _climb(tree, own, old, new, mass, weight[s], x[p])
        level[s] = new
        step[s] += 1
    highest = mass.shape[1] - 1  # where all stand now
    end = _bill(tree, 2 * leaves, highest, price, x[-1])
    for s in range(low, mid):
        sums[s] += paid[s - low] + end
    for s in range(mid, high):  # it owed nothing more from its maximum on
        maximum = values[starts[s + 1] - 1]
        sums[s] += (paid[s - low] + _bill(tree, 0, highest, price, maximum)) / maximum


@numba.njit(cache=True)
def _leaves(levels):  # type: ignore[no-untyped-def]
    """The first power of two that has room for all levels."""
    leaves = 1
    while leaves < levels:
        leaves *= 2
    return leaves


@numba.njit(cache=True)
def _divide(owner, x, values, starts, ladder, tail, counted, pairwise, sums):  # type: ignore[no-untyped-def]
    """Halve [0, N) again and again; breakpoints stay in order of x within each half."""
    spare_owner, spare_x = np.empty_like(owner), np.empty_like(x)
    few = max(1, pairwise * np.log2(_leaves(ladder[2].shape[1])))
    stack = [(0, sums.size, 0, x.size)]
    while len(stack) > 0:
        low, high, first, last = stack.pop()
        if not counted[low:high].any():
            continue
        if high - low <= few:
            _add_pairs(low, high, values, starts, tail, counted, sums)
            continue
        mid = (low + high) // 2
        _add_between_halves(
            owner[first:last],
            x[first:last],
            low,
            mid,
            high,
            values,
            starts,
            ladder,
            counted,
            sums,
        )
        kept = first
        moved = 0
        for p in range(first, last):
            if owner[p] < mid:
                owner[kept], x[kept] = owner[p], x[p]
                kept += 1
            else:
                spare_owner[moved], spare_x[moved] = owner[p], x[p]
                moved += 1
        owner[kept:last] = spare_owner[:moved]
        x[kept:last] = spare_x[:moved]
        stack.append((low, mid, first, kept))
        stack.append((mid, high, kept, last))
