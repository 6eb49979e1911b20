"""Limits from the scatter of a metric: how far off a healthy unit may be, and which loss shows.

The balance of a unit is the amount by which it is worse than the reference, less the amount by
which it is better. Balances of healthy units scatter evenly around a middle. Units that no such
scatter explains are left out. Of the others, the worst eighth to half is ignored, so that defects
too small to be odd cannot widen the limit. A line through the normal quantiles of the rest gives
the scatter of all, and Student's t says how far off one more healthy unit may be.

With fewer than 20 units, each number of bad ones is tried by itself: the worst unit against all
others, the worst two against the rest, and so on. Units that chance does not put so far off are
left out, and Student's t is that of the rest.

Several units of one node scatter on two levels: nodes differ, and so do the units within one. Each
level has its own scatter, and the sum of both variances the degrees of freedom by Satterthwaite.

Fewer than 20 units say little of how much the next one may differ, and Student's t is wide. There
the policy is a prior: healthy units scatter by half of what alpha allows, which is worth 8 degrees
of freedom. The scatter of earlier campaigns is a second one (earlier_scatter.py). The limit is that
with a prior or without one, whichever is strictest. If earlier campaigns mislead, a healthy unit is
beyond it five times as often as it may be, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from anubis.core.arrays import Flags, Ints
from anubis.core.judge import siblings
from anubis.core.records import KnownScatter, Samples

if TYPE_CHECKING:
    from anubis.core.judge import ecdf

FEWEST = 8  # units; fewer do not show how much the next one may differ
FEWEST_WITH_PRIOR = 3  # units, if the policy states a prior
SMALL = 20  # units; with fewer, each number of bad ones is tried by itself
ONE_MORE = 0.15  # the share of the rate for one more bad unit, relative to the share for one less
MANY = 64  # better units, which show the scatter well enough
TIGHTEST = 0.999  # an alpha: if all are equal, the next may still differ in a digit
LEAST_SPREAD = 1e-6  # equal samples have none, and a deviation is a ratio to it
ODD_FLEETS = 0.01  # share of fleets whose outermost healthy unit is left out as odd
TWO_GROUPS = 0.8  # 1 for units on two levels only, about a half for an even scatter
FOUND = 0.9  # a loss shows if this share of healthy units would be called defective with it
TRIED = 128  # healthy units that are slowed down to see this
OF_PRIOR = 0.5  # of what alpha allows: the scatter of healthy units as far as the policy says,
PLAUSIBLE = 0.05  # how seldom units scatter by so much more than all of their kind
PRIOR_DEGREES = 8  # and the degrees of freedom that this is worth
CONTRADICTED = 0.05  # a scatter that a prior explains so seldom
MISLED = 5  # times the rate, the most that a prior of other fleets may cost in false alarms
LARGEST_LOSS = 0.95  # nothing is left to measure beyond it
LOSSES = 1024  # are tried up to it
MOST_REPEATS = 100  # more cost so much that the metric is better left out


@dataclass(frozen=True, kw_only=True)
class Strictness:
    """The aim of a limit: a loss to be seen, and how often a healthy unit may be beyond it."""

    alpha: float
    rate: float
    two_sided: bool = False
    least: float = LEAST_SPREAD  # no scatter is smaller: that of rounding, if values are rounded,
    least_typical: float = LEAST_SPREAD  # and no scatter of typical losses

    @property
    def policy_prior(self) -> Prior:
        return Prior(spread=OF_PRIOR * (1 - self.alpha), degrees=PRIOR_DEGREES)


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What is known of a scatter before it is measured: an inverse gamma distribution of the
    variance."""

    spread: float
    degrees: float

    def moderate(self, spread: float, degrees: float) -> tuple[float, float]:
        """The spread and the degrees of freedom by both, prior and measurement (Smyth 2004).

        A prior never makes less of a scatter than was measured. It is dropped if the scatter is
        larger than it explains, in one case of twenty (Fisher's F).
        """
        from scipy.special import fdtri

        share = (spread / self.spread) ** 2
        if share > fdtri(degrees, self.degrees, 1 - CONTRADICTED):
            return spread, degrees
        both = self.degrees + degrees
        return self.spread * math.sqrt(max(share, (self.degrees + degrees * share) / both)), both


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The distances that a healthy unit exceeds no more often than the rate, by all together."""

    tail: float
    limit: float  # of the distance with this tail resolution
    typical: float | None = None  # of the typical loss
    scatter: KnownScatter | None  # of the mean loss, by these units alone,
    typical_scatter: KnownScatter | None = None  # and of the typical one
    least: float | None = None  # no smaller limit is plausible; None: not asked of so few or many
    usual: Ints  # the units that it was learned from
    in_two_groups: bool  # units on two levels: the difference is no scatter

    @property
    def alpha(self) -> float:
        return alpha_of(self.limit)


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """How losses of healthy units scatter, and the units from which this was learned."""

    middle: float
    spread: float
    degrees: float
    uncertainty: float  # of the middle, a standard deviation
    usual: Ints

    def limit(self, rate: float) -> float:
        """The loss of one more healthy unit that is exceeded at this rate: Student's prediction
        interval."""
        return self.middle + self.student(rate) * math.hypot(self.spread, self.uncertainty)

    @property
    def known(self) -> KnownScatter:
        return KnownScatter(spread=float(f"{self.spread:.4g}"), degrees=round(self.degrees, 1))

    def student(self, rate: float) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(self.degrees, 1 - rate))


@dataclass(frozen=True, kw_only=True)
class Priors:
    """The scatter of mean and typical loss by earlier campaigns; None where nothing is known."""

    mean: Prior | None = None
    typical: Prior | None = None


UNKNOWN = Priors()


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The loss that one more healthy unit may have, and what it follows from."""

    loss: float
    usual: Ints  # units
    scatter: Scatter


def alpha_of(limit: float) -> float:
    return min(TIGHTEST, max(0.0, 1 - limit))


def calibrate_tail(
    fleet: ecdf.Bundle,
    votes: Ints,
    reference: Samples,
    tail: float,
    strictness: Strictness,
    owners: Ints | None = None,
    priors: Priors = UNKNOWN,
) -> Calibration:
    """The calibration for one tail resolution from all units, in goodness."""
    balance, distance = _balance_and_distance(fleet, reference, tail, strictness.two_sided)
    if strictness.two_sided:
        usual, scatter, least = usual_units(balance, votes), None, None
        reach = _reach(usual.size - 1, usual.size, strictness.rate / 2)
        limit = max(_limit_at(losses[usual], reach) for losses in (balance, distance))
    else:  # a unit that is worse and better at once shows in the distance only
        usual = usual_units(balance, votes, strictness.least)
        bound = _bound(balance, usual, votes, strictness, owners, priors.mean)
        limit, usual = bound.loss, bound.usual
        scatter, least = bound.scatter.known, _least_limit((balance,), owners, strictness)
        if owners is None:
            apart = distance[usual]
            by_distance = _bound_of_moments(apart, balance.size, strictness, priors.mean)
        else:
            by_distance = _bound_of_nested(distance, owners, strictness, priors.mean)
        limit = max(limit, by_distance.loss)
    return Calibration(
        tail=tail,
        limit=limit,
        scatter=scatter,
        least=least,
        usual=usual,
        in_two_groups=has_two_levels(balance[usual]),
    )


def calibrate_together(
    fleet: ecdf.Bundle,
    votes: Ints,
    reference: Samples,
    strictness: Strictness,
    owners: Ints | None = None,
    priors: Priors = UNKNOWN,
) -> Calibration:
    """The calibration for mean and typical loss, which share the rate."""
    from anubis.core.judge import ecdf

    balance, _ = _balance_and_distance(fleet, reference, 1.0, False)
    typical = ecdf.typical_losses(fleet, reference)
    of_mean, of_typical = _common_bounds((balance, typical), votes, strictness, owners, priors)
    return Calibration(
        tail=1.0,
        limit=of_mean.loss,
        typical=of_typical.loss,
        scatter=of_mean.scatter.known,
        typical_scatter=of_typical.scatter.known,
        least=_least_limit((balance, typical), owners, strictness),
        usual=of_mean.usual,
        in_two_groups=has_two_levels(balance[of_mean.usual]),
    )


def calibrate_lags(
    lags: Samples, owners: Ints, rate: float, least: float = LEAST_SPREAD
) -> float | None:
    """The share by which one more healthy unit may be worse than its siblings; None if units are
    too few. As lags of one node are relative to each other, it knows one less than it has."""
    counted = np.flatnonzero(siblings.have_siblings(owners))
    nodes = np.unique(owners[counted]).size
    if counted.size < FEWEST or nodes < 2:
        return None
    lags, votes = lags[counted], np.arange(counted.size)
    scatter = _scatter_of(lags, usual_units(lags, votes, least), votes, rate, least)
    return replace(scatter, degrees=scatter.degrees * (1 - nodes / counted.size)).limit(rate)


def _common_bounds(
    losses: tuple[Samples, Samples],
    votes: Ints,
    strictness: Strictness,
    owners: Ints | None = None,
    priors: Priors = UNKNOWN,
) -> tuple[Bound, Bound]:
    """The limits of mean and typical loss. A healthy unit is beyond any of them no more often than
    the rate. If the two losses are correlated, they cost little more than one."""
    leasts = strictness.least, strictness.least_typical
    usual = [usual_units(loss, votes, least) for loss, least in zip(losses, leasts, strict=True)]
    of_both = np.intersect1d(usual[0], usual[1])
    correlation = _correlation(*(loss[of_both] for loss in losses))
    rate = strictness.rate / _independent_count(correlation, strictness.rate)
    of_mean, of_typical = (replace(strictness, rate=rate, least=least) for least in leasts)
    return (
        _bound(losses[0], usual[0], votes, of_mean, owners, priors.mean),
        _bound(losses[1], usual[1], votes, of_typical, owners, priors.typical),
    )


def _bound(
    losses: Samples,
    usual: Ints,
    votes: Ints,
    strictness: Strictness,
    owners: Ints | None = None,
    earlier: Prior | None = None,
) -> Bound:
    """The distance that one more healthy unit may be off."""
    if owners is not None:
        return _bound_of_nested(losses, owners, strictness, earlier)

    def bound_by(prior: Prior | None, rate: float) -> Bound:
        scatter = _scatter_of(losses, usual, votes, rate, strictness.least, prior)
        return Bound(loss=scatter.limit(rate), usual=scatter.usual, scatter=scatter)

    return _strictest(bound_by, losses.size, strictness, earlier)


def _bound_of_moments(
    losses: Samples, units: int, strictness: Strictness, earlier: Prior | None
) -> Bound:
    """The same by mean and standard deviation of usual units, of so many."""
    every = np.arange(losses.size)

    def bound_by(prior: Prior | None, rate: float) -> Bound:
        scatter = _scatter_by_moments(losses, every, strictness.least, prior)
        return Bound(loss=scatter.limit(rate), usual=every, scatter=scatter)

    return _strictest(bound_by, units, strictness, earlier)


def _strictest(
    bound_by: Callable[[Prior | None, float], Bound],
    units: int,
    strictness: Strictness,
    earlier: Prior | None,
) -> Bound:
    """The strictest of the limits by what is known before so many units are measured: nothing and,
    of few, what the policy says and what earlier campaigns showed.

    Earlier campaigns may have nothing to do with this one. So their limit is not stricter than that
    of the units alone which healthy units are beyond five times as often as the rate.
    """
    alone = bound_by(None, strictness.rate)
    if units >= SMALL:
        return alone
    bounds = [alone, bound_by(strictness.policy_prior, strictness.rate / 2)]
    if earlier:
        least = bound_by(None, MISLED * strictness.rate)
        bounds.append(max(bound_by(earlier, strictness.rate / 2), least, key=_loss_of))
    return replace(min(bounds, key=_loss_of), scatter=alone.scatter)


def _loss_of(bound: Bound) -> float:
    return bound.loss


def _scatter_of(
    losses: Samples, usual: Ints, votes: Ints, rate: float, least: float, prior: Prior | None = None
) -> Scatter:
    """The scatter of independent units. If nodes vote for groups, half of few groups may be bad,
    and only the votes tell which."""
    if losses.size < SMALL and np.array_equal(votes, np.arange(losses.size)):
        usual = _usual_of_few(losses, usual, rate, least, prior)
        return _scatter_by_moments(losses, usual, least, prior)
    return _scatter_around(usual, *_scatter(losses, usual, least))


def _scatter_by_moments(losses: Samples, usual: Ints, least: float, prior: Prior | None) -> Scatter:
    return _scatter_around(usual, *_moments(losses[usual], least, prior))


def _scatter_around(usual: Ints, middle: float, spread: float, degrees: float) -> Scatter:
    uncertainty = spread / math.sqrt(usual.size)
    return Scatter(
        middle=middle, spread=spread, degrees=degrees, uncertainty=uncertainty, usual=usual
    )


def _moments(losses: Samples, least: float, prior: Prior | None) -> tuple[float, float, float]:
    """Mean, standard deviation and its degrees of freedom."""
    measured = max(least, float(losses.std(ddof=1))), losses.size - 1.0
    spread, degrees = prior.moderate(*measured) if prior else measured
    return float(losses.mean()), spread, degrees


def _bound_of_nested(
    losses: Samples, owners: Ints, strictness: Strictness, earlier: Prior | None = None
) -> Bound:
    """The same if nodes have several units. The larger the share of the nodes in the scatter, the
    more often all units of a node are beyond the limit together. A prior is of nodes."""
    nodes = int(owners.max()) + 1
    on_each = losses.size / nodes

    def bound_by(prior: Prior | None, of_a_unit: float) -> Bound:
        of_a_node = min(0.5, of_a_unit * on_each)
        units, of_nodes = _nested_scatter(losses, owners, of_a_node, prior, strictness.least)
        between = (of_nodes.spread / units.spread) ** 2
        rate = of_a_node / _independent_units(between, on_each, of_a_node)
        return Bound(loss=units.limit(rate), usual=units.usual, scatter=of_nodes)

    return _strictest(bound_by, nodes, strictness, earlier)


def _nested_scatter(
    losses: Samples,
    owners: Ints,
    rate: float,
    prior: Prior | None = None,
    least: float = LEAST_SPREAD,
) -> tuple[Scatter, Scatter]:
    """The scatter of units if nodes have several, and that of nodes.

    It has two parts: that of the medians of nodes, of which the prior is, and that of units around
    the median of their node. Satterthwaite (1946) gives the degrees of freedom of the sum of their
    variances.
    """
    medians = siblings.medians_of_nodes(losses, owners)
    every_node, every_unit = np.arange(medians.size), np.arange(losses.size)
    usual_nodes = usual_units(medians, every_node, least)
    nodes = _scatter_of(medians, usual_nodes, every_node, rate, least, prior)
    apart = losses - medians[owners]
    units = _scatter_of(apart, usual_units(apart, every_unit, least), every_unit, rate, least)
    between, within = nodes.spread**2, units.spread**2
    degrees = units.degrees * (1 - medians.size / losses.size)
    both = Scatter(
        middle=nodes.middle,
        spread=math.sqrt(between + within),
        degrees=(between + within) ** 2 / (between**2 / nodes.degrees + within**2 / degrees),
        uncertainty=nodes.uncertainty,
        usual=units.usual[np.isin(owners[units.usual], nodes.usual)],
    )
    return both, nodes


def _least_limit(
    losses: Sequence[Samples], owners: Ints | None, strictness: Strictness
) -> float | None:
    """The limit that many more such nodes would show if the worst of these few is bad, and the
    others scatter more than all of their kind: by the smallest scatter that they do not contradict.
    The larger one of several losses. Nodes with several units count by their medians."""
    from scipy.special import chdtri, ndtri

    limits = []
    for of_units in losses:
        of_nodes = of_units if owners is None else siblings.medians_of_nodes(of_units, owners)
        if not FEWEST <= of_nodes.size < SMALL:
            return None
        usual = usual_units(of_nodes, np.arange(of_nodes.size), strictness.least)
        better = np.sort(of_nodes[usual])[:-1]
        middle, spread, degrees = _moments(better, strictness.least, None)
        smallest = spread * math.sqrt(degrees / float(chdtri(degrees, PLAUSIBLE)))
        limits.append(middle + float(ndtri(1 - strictness.rate)) * smallest)
    return max(limits)


def _independent_units(correlation: float, units: float, rate: float) -> float:
    """The number of independent units, from 1 to all, that equally correlated ones amount to: how
    often any of these normal deviates is beyond the limit, relative to how often one is."""
    from scipy.special import ndtr, ndtri

    common = np.linspace(-8, 8, 321)
    weights = np.exp(-(common**2) / 2)
    own = math.sqrt(max(1e-9, 1 - correlation))
    within = ndtr((ndtri(1 - rate) - math.sqrt(correlation) * common) / own)
    return float((1 - within**units) @ weights / ((1 - within) @ weights))


def _usual_of_few(
    losses: Samples, usual: Ints, rate: float, least: float, prior: Prior | None = None
) -> Ints:
    """The units without the bad ones: as many of the worst as chance puts so far off less often
    than their share of the rate. Units that are odd because they are better are left out first."""
    order = np.argsort(losses, kind="stable")
    order = order[losses[order] >= losses[usual].min()]
    for bad in range(order.size - losses.size // 2 - 1, 0, -1):
        rest = losses[order[:-bad]]
        mean, spread, degrees = _moments(rest, least, prior)
        spread *= math.sqrt(1 + 1 / rest.size)
        deviation = (float(losses[order[-bad]]) - mean) / spread
        share = (1 - ONE_MORE) * ONE_MORE ** (bad - 1)
        if is_rarer(share * rate, deviation, bad, rest.size, degrees):
            return np.sort(order[:-bad])
    return np.sort(order)


def is_rarer(rate: float, deviation: float, bad: int, rest: int, degrees: float) -> bool:
    """True if the chance of a call is at most the rate. All of several deviate at least as often as
    if they were independent, so most calls need no integral."""
    from scipy.special import stdtr

    least = math.comb(rest + bad - 1, bad - 1) * float(stdtr(degrees, -deviation)) ** bad
    if least > rate or bad == 1:
        return least <= rate
    return chance_of_call(deviation, bad, rest, degrees) <= rate


def chance_of_call(deviation: float, bad: int, rest: int, degrees: float | None = None) -> float:
    """The probability that a healthy unit is by chance among the worst `bad`, all of which deviate
    from the mean of the rest by `deviation` or more (in deviations of the rest, which have so many
    degrees of freedom). An upper bound; exact if `bad` is 1.

    Given mean and deviation of the rest, the others are independent; both are integrated over.
    """
    from scipy.special import ndtr

    means, spreads = np.linspace(-5, 5, 25), np.linspace(0, 3, 61)[1:]
    far = deviation * spreads * math.sqrt(1 + 1 / rest) + means[:, None] / math.sqrt(rest)
    by_mean = np.exp(-(means**2) / 2)
    degrees = rest - 1 if degrees is None else degrees
    by_spread = np.exp(degrees * (np.log(spreads) - spreads**2 / 2)) / spreads
    all_so_far = by_mean @ ndtr(-far) ** bad @ by_spread / (by_mean.sum() * by_spread.sum())
    return math.comb(rest + bad - 1, bad - 1) * float(all_so_far)


def _correlation(first: Samples, second: Samples) -> float:
    """The correlation of two losses; 0 if one of them does not scatter."""
    of_both = np.cov(first, second)
    scatters = math.sqrt(of_both[0, 0] * of_both[1, 1])
    return float(of_both[0, 1]) / scatters if scatters else 0.0


def _independent_count(correlation: float, rate: float) -> float:
    """The number of independent losses, from 1 (identical) to 2, that these two amount to: how
    often any of two normal deviates is beyond the limit, relative to how often one is (Owen
    1956)."""
    from scipy.special import ndtri, owens_t

    together = min(1.0, max(0.0, correlation))
    apart = math.sqrt((1 - together) / (1 + together))
    return 1 + 2 * float(owens_t(ndtri(1 - rate), apart)) / rate


def _scatter(losses: Samples, usual: Ints, least: float) -> tuple[float, float, float]:
    """Mean, standard deviation and degrees of freedom of all usual units, by a straight line
    through all but the worst in a normal quantile plot (positions by Blom 1958).

    The formula of the degrees was found by simulation, with 8 to 1,024 units.
    """
    from scipy.special import ndtri

    n, ordered = usual.size, np.sort(losses[usual])
    odd_ones = int(np.sum(losses > ordered[-1]))
    ignored = min(n // 2, max(0, _ignored_count(losses.size) - odd_ones))
    better = ordered[: n - ignored]
    expected = ndtri((np.arange(1, better.size + 1) - 0.375) / (n + 0.25))
    centred = expected - expected.mean()
    spread = max(least, float(better @ centred / (centred @ centred)))
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
    units: ecdf.Bundle, reference: Samples, tail: float, two_sided: bool
) -> tuple[Samples, Samples]:
    """The balance and the distance of each unit. The one-sided distances to both sides add up to
    the two-sided one, so one gives the other."""
    from anubis.core.judge import ecdf

    worse = ecdf.distances_to(units, reference, tail, worse=True)
    both = ecdf.distances_to(units, reference, tail, worse=False)
    return 2 * worse - both, both if two_sided else worse


def usual_units(balance: Samples, votes: Ints, least: float = 0.0) -> Ints:
    """The units without the odd ones, which are further out than the scatter of all nearer ones
    explains. In a healthy fleet the outermost unit is called odd once in a hundred fleets.

    Generalised extreme studentised deviates (Rosner 1983), from the middle of the votes outwards.
    Of several gaps the innermost that leaves most votes inside counts, so that odd units do not
    hide each other.
    """
    from scipy.special import ndtri, stdtrit

    n = balance.size
    middle = float(np.median(balance[votes]))
    order = _order(np.abs(balance - middle))
    voices = np.cumsum(np.bincount(votes, minlength=n)[order])
    nearest = max(3, int(np.searchsorted(2 * voices, votes.size, side="right")) + 1)
    inside = np.arange(nearest, n)  # the number of units nearer than the examined one
    if inside.size == 0:
        return np.arange(n)
    x = balance[order] - middle
    mean = np.cumsum(x)[nearest - 1 : -1] / inside
    square = np.cumsum(x**2)[nearest - 1 : -1] - inside * mean**2
    spread = np.sqrt(np.maximum(least**2, square / (inside - 1)) * (1 + 1 / inside))
    deviation, likely = (np.abs(x[nearest:] - mean) - 1e-9, 1 - ODD_FLEETS / 2 / n)
    for far in np.flatnonzero(deviation > ndtri(likely) * spread):  # Student's t is never nearer
        if deviation[far] > stdtrit(inside[far] - 1.0, likely) * spread[far]:
            return np.sort(order[: inside[far]])
    return np.arange(n)


def _order(distances: Samples) -> Ints:
    """The order of distances from a median, of equal ones as they are. A plain sort is four times
    as fast, and few are equal but the first two: the median is often halfway between these."""
    order = np.argsort(distances)
    ordered = distances[order]
    plain = (ordered[2:] > ordered[1:-1]).all()
    return order if plain else np.argsort(distances, kind="stable")


def has_two_levels(scatter: Samples) -> bool:
    """True if the values have two levels: (skewness² + 1) / kurtosis is 1 only for two levels
    (Pearson 1916), and less for all else."""
    x = scatter - scatter.mean()
    square = x * x
    second, third, fourth = (float(np.mean(power)) for power in (square, square * x, square**2))
    if second <= 1e-18:
        return False
    return (third**2 / second**3 + 1) * second**2 / fourth > TWO_GROUPS


def repeats_needed(
    fleet: ecdf.Bundle,
    halves: tuple[ecdf.Bundle, ecdf.Bundle],
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


def sample_healthy(units: ecdf.Bundle, usual: Ints) -> ecdf.Bundle:
    """Healthy units, enough to try on them which losses show."""
    return units.subset(usual[:: -(-usual.size // TRIED)])


def smallest_loss(
    healthy: ecdf.Bundle, called: Callable[[ecdf.Bundle], Flags], borderline: float
) -> float:
    """The smallest loss of all samples with which nine units of ten are called defective; 1 if
    nothing suffices. The search begins where their mean would be at the borderline."""
    from anubis.core.judge import ecdf

    def shows(loss: float) -> bool:
        slowed = ecdf.Bundle(healthy.values * (1 - loss), healthy.lengths)
        return float(np.mean(called(slowed))) >= FOUND

    means = np.sort(np.add.reduceat(healthy.values, healthy.starts[:-1]) / healthy.lengths)
    likely = 1 - borderline / float(means[math.ceil(FOUND * means.size) - 1])
    tried = min(LOSSES, max(1, math.ceil(likely / LARGEST_LOSS * LOSSES)))
    low, high, stride = 0, LOSSES + 1, 1
    while high - low > 1:
        if shows(LARGEST_LOSS * tried / LOSSES):
            high, tried = tried, tried - stride
        else:
            low, tried = tried, tried + stride
        stride *= 2
        if not low < tried < high:
            tried = (low + high) // 2
    return round(LARGEST_LOSS * high / LOSSES, 3) if high <= LOSSES else 1.0
