"""Limits from the scatter of a metric: how far off a healthy unit may be, and which loss shows.

The balance of a unit is the amount by which it is worse than the reference, less the amount by
which it is better. Balances of healthy units scatter evenly around a middle. Units that no such
scatter explains are left out. Of the others, the worst eighth to half is ignored, so that defects
too small to be odd cannot widen the limit. A line through the normal quantiles of the rest gives
the scatter of all, and Student's t says how far off one more healthy unit may be.

With fewer than 20 units, each number of bad ones is tried by itself: the worst unit against all
others, the worst two against the rest, and so on. Units that chance does not put so far off are
left out, and Student's t is that of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anubis.core.arrays import Flags, Ints
from anubis.core.records import Samples

if TYPE_CHECKING:
    from anubis.core.judge import medoid

FEWEST = 8  # units; fewer do not show how much the next one may differ
SMALL = 20  # units; with fewer, each number of bad ones is tried by itself
ONE_MORE = 0.15  # the share of the rate for one more bad unit, relative to the share for one less
MANY = 64  # better units, which show the scatter well enough
TIGHTEST = 0.999  # an alpha: where all are equal, the next may still differ in a digit
LEAST_SPREAD = 1e-6  # equal samples have none, and a deviation is a ratio to it
ODD_FLEETS = 0.01  # share of fleets whose outermost healthy unit is left out as odd
TWO_GROUPS = 0.8  # 1 for units on two levels only, about a half for an even scatter
FOUND = 0.9  # a loss shows if this share of healthy units would be called defective with it
TRIED = 128  # healthy units that are slowed down to see this
LARGEST_LOSS = 0.95  # nothing is left to measure beyond it
PRECISE = 1e-3  # of a loss, as reports show it
MOST_REPEATS = 100  # more cost so much that the metric is better left out


@dataclass(frozen=True, kw_only=True)
class Strictness:
    """The aim of a limit: a loss to be seen, and how often a healthy unit may be beyond it."""

    alpha: float
    rate: float
    two_sided: bool = False


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The distances that a healthy unit exceeds no more often than the rate, by all together."""

    tail: float
    limit: float  # of the distance with this tail resolution
    typical: float | None = None  # of the typical loss
    usual: Ints  # the units that it was learned from
    in_two_groups: bool  # units on two levels: the difference is no scatter

    @property
    def alpha(self) -> float:
        return alpha_of(self.limit)


def alpha_of(limit: float) -> float:
    return min(TIGHTEST, max(0.0, 1 - limit))


def calibrate_tail(
    fleet: medoid.Bundle, votes: Ints, reference: Samples, tail: float, strictness: Strictness
) -> Calibration | None:
    """The calibration for one tail resolution from all units, in goodness; None if they are too
    few."""
    if len(fleet) < FEWEST:
        return None
    balance, distance = _balance_and_distance(fleet, reference, tail, strictness.two_sided)
    if strictness.two_sided:
        usual = usual_units(balance, votes)
        reach = _reach(usual.size - 1, usual.size, strictness.rate / 2)
        limit = max(_limit_at(scatter[usual], reach) for scatter in (balance, distance))
    else:  # a unit that is worse and better at once shows in the distance only
        usual = usual_units(balance, votes)
        limit, usual = _limit_and_usual(balance, usual, votes, strictness.rate)
        reach = _reach(usual.size - 1, usual.size, strictness.rate)
        limit = max(limit, _limit_at(distance[usual], reach))
    return Calibration(
        tail=tail, limit=limit, usual=usual, in_two_groups=has_two_levels(balance[usual])
    )


def calibrate_together(
    fleet: medoid.Bundle, votes: Ints, reference: Samples, rate: float
) -> Calibration | None:
    """The calibration for mean and typical loss, which share the rate."""
    from anubis.core.judge import medoid

    if len(fleet) < FEWEST:
        return None
    balance, _ = _balance_and_distance(fleet, reference, 1.0, False)
    typical = medoid.typical_losses(fleet, reference)
    (of_mean, usual), (of_typical, _) = _common_limits((balance, typical), votes, rate)
    return Calibration(
        tail=1.0,
        limit=of_mean,
        typical=of_typical,
        usual=usual,
        in_two_groups=has_two_levels(balance[usual]),
    )


def _common_limits(
    losses: tuple[Samples, Samples], votes: Ints, rate: float
) -> list[tuple[float, Ints]]:
    """The limits of two kinds of loss, each with its usual units. A healthy unit is beyond any of
    them no more often than the rate. If the two losses are correlated, they cost little more than
    one."""
    usual_of = [usual_units(loss, votes) for loss in losses]
    of_both = np.intersect1d(usual_of[0], usual_of[1])
    rate /= _independent_count(_correlation(*(loss[of_both] for loss in losses)), rate)
    return [
        _limit_and_usual(loss, usual, votes, rate)
        for loss, usual in zip(losses, usual_of, strict=True)
    ]


def _limit_and_usual(losses: Samples, usual: Ints, votes: Ints, rate: float) -> tuple[float, Ints]:
    """The distance that one more healthy unit may be off, and the units from which it was learned.
    If nodes vote for groups, half of few groups may be bad, and only the votes tell which."""
    if losses.size < SMALL and np.array_equal(votes, np.arange(losses.size)):
        usual = _usual_of_few(losses, usual, rate)
        return _limit_at(losses[usual], _reach(usual.size - 1, usual.size, rate)), usual
    middle, spread, degrees = _scatter(losses, usual)
    return middle + _reach(degrees, usual.size, rate) * spread, usual


def _usual_of_few(losses: Samples, usual: Ints, rate: float) -> Ints:
    """The units without the bad ones: as many of the worst as chance puts so far off less often
    than their share of the rate. Units that are odd because they are better are left out first."""
    order = np.argsort(losses, kind="stable")
    order = order[losses[order] >= losses[usual].min()]
    for bad in range(order.size - losses.size // 2 - 1, 0, -1):
        rest = losses[order[:-bad]]
        spread = max(LEAST_SPREAD, float(rest.std(ddof=1))) * math.sqrt(1 + 1 / rest.size)
        deviation = (float(losses[order[-bad]]) - float(rest.mean())) / spread
        share = (1 - ONE_MORE) * ONE_MORE ** (bad - 1)
        if chance_of_call(deviation, bad, rest.size) <= share * rate:
            return np.sort(order[:-bad])
    return np.sort(order)


def chance_of_call(deviation: float, bad: int, rest: int) -> float:
    """The probability that a healthy unit is by chance among the worst `bad`, all of which deviate
    from the mean of the rest by `deviation` or more (in deviations of the rest). An upper bound;
    exact if `bad` is 1.

    Given mean and deviation of the rest, the others are independent; both are integrated over.
    """
    from scipy.special import ndtr

    means, spreads = np.linspace(-5, 5, 25), np.linspace(0, 3, 61)[1:]
    far = deviation * spreads * math.sqrt(1 + 1 / rest) + means[:, None] / math.sqrt(rest)
    by_mean = np.exp(-(means**2) / 2)
    by_spread = np.exp((rest - 1) * (np.log(spreads) - spreads**2 / 2)) / spreads
    all_so_far = by_mean @ ndtr(-far) ** bad @ by_spread / (by_mean.sum() * by_spread.sum())
    return math.comb(rest + bad - 1, bad - 1) * float(all_so_far)


def _correlation(first: Samples, second: Samples) -> float:
    """The correlation of two losses; 0 if one of them does not scatter."""
    of_both = np.cov(first, second)
    scatters = math.sqrt(of_both[0, 0] * of_both[1, 1])
    return float(of_both[0, 1]) / scatters if scatters else 0.0


def _independent_count(correlation: float, rate: float) -> float:
    """The number of independent losses, from 1 (identical) to 2, that these two amount to: how
    often one of two normal deviates is beyond the limit of one (Owen 1956)."""
    from scipy.special import ndtri, owens_t

    together = min(1.0, max(0.0, correlation))
    apart = math.sqrt((1 - together) / (1 + together))
    return 1 + 2 * float(owens_t(ndtri(1 - rate), apart)) / rate


def _scatter(losses: Samples, usual: Ints) -> tuple[float, float, float]:
    """Mean, standard deviation and degrees of freedom of all usual units, by a straight line
    through all but the worst in a normal quantile plot (positions by Blom 1958).

    The formula of the degrees was found by simulation, with 8 to 1,024 units.
    """
    from scipy.special import ndtri

    n, ordered = usual.size, np.sort(losses[usual])
    odd_ones = int(np.sum(losses > ordered[-1]))
    better = ordered[: n - max(0, _ignored_count(losses.size) - odd_ones)]
    expected = ndtri((np.arange(1, better.size + 1) - 0.375) / (n + 0.25))
    centred = expected - expected.mean()
    spread = max(LEAST_SPREAD, float(better @ centred / (centred @ centred)))
    degrees = (better.size - 1) ** 2 / (n - 1)
    return float(better.mean() - spread * expected.mean()), spread, degrees


def _ignored_count(units: int) -> int:
    """The number of worst units to ignore, because small defects may be among them."""
    return max(units // 8, min(units // 2, units - MANY))


def _limit_at(scatter: Samples, reach: float) -> float:
    return float(scatter.mean() + reach * scatter.std(ddof=1))


def _reach(degrees: float, units: int, rate: float) -> float:
    """The number of standard deviations that one more unit may be off: Student's prediction
    interval."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 1 - rate)) * math.sqrt(1 + 1 / units)


def _balance_and_distance(
    units: medoid.Bundle, reference: Samples, tail: float, two_sided: bool
) -> tuple[Samples, Samples]:
    """The balance and the distance of each unit. The one-sided distances to both sides add up to
    the two-sided one, so one gives the other."""
    from anubis.core.judge import medoid

    worse = medoid.distances_to(units, reference, tail, worse=True)
    both = medoid.distances_to(units, reference, tail, worse=False)
    return 2 * worse - both, both if two_sided else worse


def usual_units(balance: Samples, votes: Ints) -> Ints:
    """The units without the odd ones, which are further out than the scatter of all nearer ones
    explains. In a healthy fleet the outermost unit is called odd once in a hundred fleets.

    Generalised extreme studentised deviates (Rosner 1983), from the middle of the votes outwards.
    Of several gaps the innermost that leaves most votes inside counts, so that odd units do not
    hide each other.
    """
    from scipy.special import ndtri, stdtrit

    n = balance.size
    middle = float(np.median(balance[votes]))
    order = np.argsort(np.abs(balance - middle), kind="stable")
    voices = np.cumsum(np.bincount(votes, minlength=n)[order])
    nearest = max(3, int(np.searchsorted(2 * voices, votes.size, side="right")) + 1)
    inside = np.arange(nearest, n)  # the number of units nearer than the examined one
    if inside.size == 0:
        return np.arange(n)
    x = balance[order] - middle
    mean = np.cumsum(x)[inside - 1] / inside
    square = np.cumsum(x**2)[inside - 1] - inside * mean**2
    spread = np.sqrt(np.maximum(0.0, square) / (inside - 1) * (1 + 1 / inside))
    deviation, likely = (
        np.abs(x[inside] - mean) - 1e-9,
        1 - ODD_FLEETS / 2 / n,
    )
    far = np.flatnonzero(deviation > ndtri(likely) * spread)  # Student's t is never nearer
    odd = far[deviation[far] > stdtrit(inside[far] - 1, likely) * spread[far]]
    return np.sort(order[: inside[odd[0]]]) if odd.size else np.arange(n)


def has_two_levels(scatter: Samples) -> bool:
    """True if the values have two levels: (skewness² + 1) / kurtosis is 1 only for two levels
    (Pearson 1916), and less for all else."""
    x = scatter - scatter.mean()
    second, third, fourth = (float(np.mean(x**power)) for power in (2, 3, 4))
    if second <= 1e-18:
        return False
    return (third**2 / second**3 + 1) * second**2 / fourth > TWO_GROUPS


def repeats_needed(
    fleet: medoid.Bundle,
    halves: tuple[medoid.Bundle, medoid.Bundle],
    reference: Samples,
    calibration: Calibration,
    strictness: Strictness,
) -> int:
    """The factor by which to measure more so that the limit can be as strict as wanted; 0 if no
    number suffices.

    The difference between the earlier and the later half of a unit is noise of measuring, with four
    times the variance of all steps; more measurements average it out. The rest is a difference
    between units, and stays.
    """
    usual, tail = calibration.usual, calibration.tail
    all_steps, earlier, later = (
        _balance_and_distance(part.subset(usual), reference, tail, False)[0]
        for part in (fleet, *halves)
    )
    noise = float((earlier - later).var(ddof=1)) / 4
    stays = max(0.0, float(all_steps.var(ddof=1)) - noise)
    room = 1 - strictness.alpha - float(all_steps.mean())
    allowed = max(0.0, room / _reach(usual.size - 1, usual.size, strictness.rate)) ** 2
    if allowed <= stays:
        return 0
    repeats = math.ceil(noise / (allowed - stays))
    return repeats if repeats <= MOST_REPEATS else 0


def sample_healthy(units: medoid.Bundle, usual: Ints) -> medoid.Bundle:
    """Healthy units, enough to try on them which losses show."""
    return units.subset(usual[:: -(-usual.size // TRIED)])


def smallest_loss(healthy: medoid.Bundle, called: Callable[[medoid.Bundle], Flags]) -> float:
    """The smallest loss of all samples with which nine units of ten are called defective; 1 if
    nothing suffices."""
    from anubis.core.judge import medoid

    def shows(loss: float) -> bool:
        slowed = medoid.Bundle(healthy.values * (1 - loss), healthy.lengths)
        return float(np.mean(called(slowed))) >= FOUND

    if not shows(LARGEST_LOSS):
        return 1.0
    low, high = 0.0, LARGEST_LOSS
    while high - low > PRECISE:
        loss = (low + high) / 2
        low, high = (low, loss) if shows(loss) else (loss, high)
    return round(high, 3)
