"""Distances between empirical distributions: the one primitive of learning and judging, for two
samples, and summed over a whole fleet, exact and without the double loop.

    F_S(x)     = share of S that is <= x
    d(A, B)    = 1/X  integral from 0 to X of |F_A - F_B| / max(F_A, F_B, tail)      X = max(A u B)
    d1(obs, r) = the same of max(0, F_obs - F_r): only what is worse
    typical    = 1 - mean of the middle half of the ratios of values at the same rank

Samples are in *goodness*: sorted, positive, finite, larger is better. `goodness` converts them.
`tail` is the share of a sample below which a slow tail counts in proportion and above which it
counts in full; 0 is the formula of the ANUBIS paper. For single values d is 1 - smaller/larger.

`distance_sums` gives, for each sample, the sum of `distance` to all others. Two ideas:

1. The amount that a sample on level F = k pays per unit of x to one on level b is a sum of two
   products of a factor of k and a factor of b, one pair of factors below k and another above. So
   sums of the factors of b, in a tree over all levels that occur, give what k pays to all units.
   A sample that climbs at x changes the sums of one path; the same sums times x give the integral.
   If levels are few, a table of what each pays is faster: a climb changes it all, a bill is read.
2. The scale X of a pair is the larger of the two maxima. Order samples by their maximum and
   divide: between a lower and an upper half the scale is always the upper one's, so it becomes a
   weight. Halves that are small enough are compared pair by pair.

The cost is O(N m log N log L) for N samples of m values on L levels. The tests compare the result
with the double loop. The loops are compiled (compiled_ecdf.py); a few samples are compared by the
definition, long before numba would be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np

from anubis.core.errors import CriteriaError
from anubis.core.records import Direction, Samples


def goodness(samples: Samples, direction: Direction) -> Samples:
    """Sort samples so that larger is better: reciprocals if lower is better. A matrix is converted
    row by row.

    Reciprocals, and not "max with min replaced", because a node that is 100 x slower on 5 % of its
    steps would otherwise keep a similarity of 0.95.
    """
    if samples.size == 0:
        raise CriteriaError("no samples: expected at least one number")
    ordered = np.sort(samples, axis=-1)
    lowest, highest = ordered[..., 0].min(), ordered[..., -1].max()
    if not (lowest > 0 and highest < np.inf):  # NaN sorts last and is not below infinity
        offender = lowest if not lowest > 0 else highest
        raise CriteriaError(f'samples must be positive and finite, found "{offender}"')
    return 1.0 / ordered[..., ::-1] if direction == "lower" else ordered


def distance(a: Samples, b: Samples, tail: float = 0.0) -> float:
    """The difference between two samples, from 0 to 1; symmetric."""
    x, f_a, f_b = _levels(a, b)
    return _mean_gap(x, np.abs(f_a - f_b), f_a, f_b, tail)


def shortfall(observed: Samples, reference: Samples, tail: float = 0.0) -> float:
    """The amount by which `observed` is worse than `reference`, from 0 to 1; better counts as
    equal."""
    x, f_observed, f_reference = _levels(observed, reference)
    gap = np.maximum(0.0, f_observed - f_reference)
    return _mean_gap(x, gap, f_observed, f_reference, tail)


def typical_loss(observed: Samples, reference: Samples) -> float:
    """The share by which the steps of `observed` are usually slower; negative if they are faster.

    It is the mean of the middle half of the ratios of values at the same rank. Rare steps, warm-up
    and the shares of several modes do not show in it.
    """
    ranks = (np.arange(observed.size) + 0.5) / observed.size * reference.size - 0.5
    ratios = np.sort(observed / np.interp(ranks, np.arange(reference.size), reference))
    cut = ratios.size // 4
    return 1 - float(ratios[cut : ratios.size - cut].mean())


def _levels(a: Samples, b: Samples) -> tuple[Samples, Samples, Samples]:
    """All values in order, and both distribution functions from each value to the next."""
    x = np.sort(np.concatenate((a, b)))
    f_a = np.searchsorted(a, x, side="right") / a.size
    f_b = np.searchsorted(b, x, side="right") / b.size
    return x, f_a, f_b


def _mean_gap(x: Samples, gap: Samples, f_a: Samples, f_b: Samples, tail: float) -> float:
    scale = np.maximum(np.maximum(f_a, f_b), tail)  # never 0: x starts at the smallest value
    return float(np.dot(gap[:-1] / scale[:-1], np.diff(x)) / x[-1])


Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Rungs = np.ndarray[tuple[int], np.dtype[np.int32]]

FEW = 7  # samples; with more, limits are calibrated, which takes hundreds of comparisons
FEW_LEVELS = 150  # with more, a climb changes fewer numbers in a tree than in a table
PAIRWISE = 128  # times the height of the tree: with fewer samples comparing pairs is cheaper
BY_MERGING = 40  # times as long as comparing a pair so, value by value


class Bundle:
    """Many sorted samples end to end, in the form that compiled code needs."""

    def __init__(self, values: Samples, lengths: Positions) -> None:
        self.values = values
        self.lengths = lengths

    @classmethod
    def from_samples(cls, samples: Sequence[Samples] | Samples) -> Bundle:
        """Bundle a list of samples, or a matrix with one in each row."""
        if isinstance(samples, np.ndarray) and samples.ndim == 2:
            n, m = samples.shape
            return cls(np.ascontiguousarray(samples).reshape(-1), np.full(n, m, dtype=np.int64))
        lengths = np.array([sample.size for sample in samples], dtype=np.int64)
        return cls(np.concatenate(samples).astype(np.float64, copy=False), lengths)

    def __len__(self) -> int:
        return int(self.lengths.size)

    def __getitem__(self, i: int) -> Samples:
        return self.values[self.starts[i] : self.starts[i + 1]]

    def __iter__(self) -> Iterator[Samples]:
        return map(self.__getitem__, range(len(self)))

    def subset(self, chosen: Positions) -> Bundle:
        if chosen.size == len(self) and np.array_equal(chosen, np.arange(len(self))):
            return self
        if np.all(self.lengths == self.lengths[0]):
            return Bundle.from_samples(self.values.reshape(len(self), -1)[chosen])
        return Bundle.from_samples([self[int(i)] for i in chosen])

    def sort_each(self) -> Bundle:
        if np.all(self.lengths == self.lengths[0]):
            return Bundle.from_samples(np.sort(self.values.reshape(len(self), -1), axis=1))
        return Bundle.from_samples([np.sort(sample) for sample in self])

    @cached_property
    def starts(self) -> Positions:
        return np.concatenate(([0], np.cumsum(self.lengths)))

    @cached_property
    def maxima(self) -> Samples:
        maxima: Samples = self.values[self.starts[1:] - 1]
        return maxima

    @cached_property
    def breakpoints(self) -> Positions:
        """The positions of all values, in the order of the values."""
        return np.argsort(self.values)  # of equal values in any order

    @cached_property
    def maximum_order(self) -> tuple[Positions, Bundle]:
        """The order of the samples by their largest value, and the samples in that order."""
        order = np.argsort(self.maxima, kind="stable")
        return order, self.subset(order)


def distances_to(bundle: Bundle, reference: Samples, tail: float, *, worse: bool) -> Samples:
    """The distance of every sample to the reference; with `worse`, the one-sided shortfall."""
    if bundle.lengths.max() == reference.size == 1:  # the definition, for all at once
        gaps = reference - bundle.values
        gaps = np.maximum(0.0, gaps) if worse else np.abs(gaps)
        losses: Samples = gaps / np.maximum(bundle.values, reference)
        return losses
    if len(bundle) <= FEW:
        compare = shortfall if worse else distance
        return np.array([compare(sample, reference, tail) for sample in bundle])
    from anubis.core.judge import compiled_ecdf

    out = np.empty(len(bundle))
    compiled_ecdf.distances_to(bundle.values, bundle.starts, reference, tail, worse, out)
    return out


def typical_losses(bundle: Bundle, reference: Samples) -> Samples:
    """`typical_loss` of every sample."""
    if bundle.lengths.max() == reference.size == 1:
        return 1 - bundle.values / reference
    if len(bundle) <= FEW:
        return np.array([typical_loss(sample, reference) for sample in bundle])
    from anubis.core.judge import compiled_ecdf

    out = np.empty(len(bundle))
    compiled_ecdf.typical_losses(bundle.values, bundle.starts, reference, out)
    return out


def distance_sums(bundle: Bundle, tail: float, among: Mask | None = None) -> Samples:
    """The sum of each sample's distances to all others, or to those `among` them."""
    counted = np.ones(len(bundle), dtype=np.bool_) if among is None else among
    if bundle.lengths.max() == 1:
        return _single_value_sums(bundle.values, bundle.breakpoints, counted)
    if len(bundle) <= FEW:
        return _sums_of_pairs(bundle, tail, counted)
    from anubis.core.judge import compiled_ecdf

    few = PAIRWISE * np.log2(1 + bundle.lengths.max())
    if BY_MERGING * np.sum(counted) < min(len(bundle), 2 * few):
        sums = np.zeros(len(bundle))
        for i in np.flatnonzero(counted).tolist():
            sums += distances_to(bundle, bundle[i], tail, worse=False)
        return sums
    order, ordered = bundle.maximum_order
    rank = np.empty(len(bundle), dtype=np.int32)
    rank[order] = np.arange(len(bundle))
    points = bundle.breakpoints
    climbs = np.repeat(rank, bundle.lengths)[points], bundle.values[points]
    of_samples = ordered.values, ordered.starts, tail, counted[order]
    sums = np.zeros(len(bundle))
    if len(bundle) <= few:
        compiled_ecdf.add_pairs(*climbs, 0, len(bundle), *of_samples, sums)
    else:
        levels, rungs, first_rung = _ladder(ordered.lengths)
        ladder = rungs, first_rung, _costs(levels, tail), *_factors(levels, tail)
        few = max(1.0, PAIRWISE * np.log2(levels.size))
        compiled_ecdf.divide(*climbs, *of_samples, ladder, few, sums)
    return sums[rank]


def compile_loops() -> None:
    """Have numba compile the loops, which takes seconds, and keep them in its cache on disk."""
    fleet = Bundle.from_samples(1.0 + np.arange(1024.0).reshape(512, 2))  # enough to be divided
    distance_sums(fleet, 0.05)
    distances_to(fleet, fleet[0], 0.05, worse=True)
    typical_losses(fleet, fleet[0])


def _single_value_sums(values: Samples, order: Positions, counted: Mask) -> Samples:
    """The sums over all others of 1 - smaller/larger, by two running sums. Equal values have equal
    sums, in any order."""
    v, counts = values[order], counted[order].astype(np.float64)
    inverse = 1 / v
    weighed, inverses = counts * v, counts * inverse
    below = np.cumsum(weighed) - weighed
    above = inverses.sum() - np.cumsum(inverses)
    sums = np.empty_like(v)
    sums[order] = counts.sum() - counts - below * inverse - above * v
    return sums


def _sums_of_pairs(bundle: Bundle, tail: float, counted: Mask) -> Samples:
    sums = np.zeros(len(bundle))
    for a, b in combinations(range(len(bundle)), 2):
        apart = distance(bundle[a], bundle[b], tail)
        sums[a] += apart * counted[b]
        sums[b] += apart * counted[a]
    return sums


def _ladder(lengths: Positions) -> tuple[Samples, Rungs, Positions]:
    """All levels that occur; the level to which each value lifts F, for each length; the begin of
    each sample's rungs.

    Quotients of whole numbers are rounded alike, so 1/3 and 2/6 are one level.
    """
    sizes, kind = np.unique(lengths, return_inverse=True)
    shares = np.concatenate([[0.0], *(np.arange(1, size + 1) / size for size in sizes)])
    levels, rungs = np.unique(shares, return_inverse=True)
    begins = np.concatenate(([1], 1 + np.cumsum(sizes)))
    return levels, rungs.astype(np.int32), begins[kind]


def _costs(levels: Samples, tail: float) -> Samples:
    """The table of what levels pay to each other; empty if a tree is faster."""
    if levels.size > FEW_LEVELS:
        return np.empty((0, 0))
    larger = np.maximum(np.maximum.outer(levels, levels), tail)
    apart = np.abs(np.subtract.outer(levels, levels))
    return np.divide(apart, larger, out=np.zeros_like(apart), where=larger > 0)


def _factors(levels: Samples, tail: float) -> tuple[Samples, Samples]:
    """The factors of samples on a level as (below or above, level, product), and those of the price
    that a level pays.

    With s = max(level, tail) the cost |k - b| / max(k, b, tail) is k/s(k) 1 - 1/s(k) b for a level
    b below k, and 1 b/s(b) - k 1/s(b) for one above.
    """
    scale = np.maximum(levels, tail)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    share = np.divide(levels, scale, out=np.zeros_like(scale), where=scale > 0)
    ones = np.ones_like(levels)
    mass = np.stack((np.stack((ones, levels), 1), np.stack((share, inverse), 1)))
    price = np.stack((np.stack((share, -inverse), 1), np.stack((ones, -levels), 1)))
    return mass, price
