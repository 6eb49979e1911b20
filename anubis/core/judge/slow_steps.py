"""Slow steps of a run: which they are, and how many of them chance explains.

A healthy node has a slow step now and then: a daemon wakes up, memory is tidied. To a distance
between distributions, one step of 32 that takes twice as long is a heavy tail, and a healthy fleet
would be called defective node by node. So slow steps are counted, and the level of a run is judged
without them.

A step is slow if it takes longer than the fleet's steps at the same place of a run, relative to the
usual step of its own run, by more than six median absolute deviations and by 10 %. Warm-up and
checkpoints are slow on all nodes, and so they are not counted. A run that is faster than the fleet
is compared with the fleet's usual step: what is as fast as that is not slow. Steps that take 10 %,
50 % and 200 % longer are counted apart, so that many small ones do not hide a few large ones.

The fleet's share of slow steps, without the units that have oddly many, gives the chance of so many
slow steps on a healthy unit. The share is known from a limited number of steps, units differ, and
slow steps come together, for instance in pairs; the beta-binomial distribution allows for all three
(Jeffreys' prior).

If many steps take 10 % longer, this is how the program runs, and only slower ones are set aside.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.arrays import Flags, Ints
from anubis.core.judge import ecdf
from anubis.core.records import Samples, SlowShare, SlowSteps

FEWEST_UNITS = 8  # with fewer, the usual step at one place of a run is not known,
FEWEST_IN_STEP = 3  # unless most runs are slow at the same places,
AS_ONE = 1.25  # so many times as long; a mode of the program is seldom so much slower
FEWEST_STEPS = 8  # with fewer, each is a good part of what is known of a unit, and counts in full
TIMES = (1.1, 1.5, 3.0)  # as long as usual; a step that takes less than 10 % longer is not slow
DEVIATIONS = 6  # median absolute deviations: four standard deviations, one normal step in 30,000
MOST = (
    0.75  # of few runs: so many are slow at the same place, and so many are like each other there
)
MOST_NORMAL = 1.706  # the deviation that so many normal ones are within, in median deviations
UPPER = 0.75  # quantile of the shares of slow steps; of those above only "at least" is used
ODD_FLEETS = 0.01  # share of healthy fleets in which units are left out because of their count
NEAR = 3  # steps from one slow step to the next in a group
COMMON = 1 / 8  # of units: if fewer have slow steps in groups, they are measured again instead
FEWEST_IN_GROUPS = 4  # such units; of fewer, two slow steps are often near to each other by chance
NO_CHANCE = 1.5  # so many times as many groups are expected by chance
MOST_IN_GROUP = 3  # steps with one cause; a longer stretch is a condition of the node
BY_CHANCE = 0.05  # the chance above which counts vary no more than by chance
INDEPENDENT = 2  # the counts of three kinds of slow steps go together, and amount to two
USUAL = 0.08  # share of steps: if more are so slow, that is how the program runs
MOST_ALIKE = 0.99  # correlation of the steps of a unit; with 1 its counts would be all or nothing
MOST_ROUNDS = 100  # a bound for counts that converge slowly
SETTLED = 1e-6  # of the share: counts are whole, so less changes no verdict
DIGITS = 5  # of logarithms that are kept
STALL = 2.0  # times as long, the stalls by which the power of a criterion is stated


def learn_slow_steps(
    units: ecdf.Bundle, once: float, both: float, least: float = 0.0, half_a_step: float = 0.0
) -> SlowSteps | None:
    """The slow steps of a fleet, from goodness in the order of measuring; None if runs are too
    short. `once`, `both`: the chances at which a unit is a suspect, and
    is called defective. `least`: the share of a unit's rate that its slow steps cost at least.
    `half_a_step`, by which rounded values are off: no median deviation is smaller."""
    if units.lengths.min() < FEWEST_STEPS:
        return None
    usual, scatter = _usual_of_places(units) or _usual_of_all(units)
    scatter = np.maximum(scatter, DEVIATIONS * half_a_step)
    slow = SlowSteps(
        usual=tuple(usual.round(DIGITS).tolist()),
        scatter=tuple(scatter.round(DIGITS).tolist()),
        shares=tuple(
            SlowShare(times=times, share=0.0, steps=0, correlation=0.0) for times in TIMES
        ),
        lost=0.0,
        least=least,
        once=once,
        both=both,
    )
    apart, normal = _find_apart(units, slow)
    rare = [s for s in slow.shares if float(np.mean(np.abs(apart) > math.log(s.times))) <= USUAL]
    slow = replace(slow, shares=tuple(rare))
    counted = _set_aside(units, slow, apart, normal)
    groups = [_count_groups(apart > math.log(share.times), units) for share in slow.shares]
    return replace(
        slow,
        shares=tuple(
            learn_share(share.times, counts, units.lengths, of_units)
            for share, counts, of_units in zip(slow.shares, counted.slow, groups, strict=True)
        ),
        lost=float(np.median(counted.lost)),
    )


def _runs(units: ecdf.Bundle, length: int) -> Samples | None:
    """The logarithm of the time of each step, a row for each run of this length; None if units are
    no whole number of runs."""
    return None if np.any(units.lengths % length) else -np.log(units.values.reshape(-1, length))


def _usual_of_places(units: ecdf.Bundle) -> tuple[Samples, Samples] | None:
    """The usual time at each place of a run, and how much more it may be there by chance; None if
    runs are too few. Of runs that differ in length, up to the end of the shortest.

    Of few runs the middle deviation at a place is often small by chance: the largest of three
    quarters of them counts as well."""
    fewest = int(units.lengths.min())
    runs = _runs(units, fewest)
    if runs is None:
        runs = -np.log([steps[:fewest] for steps in units])
    few = len(runs) < FEWEST_UNITS
    if few and not _have_slow_places(runs):
        return None
    usual = np.zeros(fewest)
    for _ in range(2):  # the pace of a run depends on what is usual at its places
        usual = np.median(runs - _pace(runs - usual)[:, None], axis=0)
    apart = runs - usual
    off = np.abs(apart - np.median(apart, axis=1)[:, None])
    deviation = np.median(off, axis=0)
    if few:
        deviation = np.maximum(deviation, np.quantile(off, MOST, axis=0) / MOST_NORMAL)
    return usual, DEVIATIONS * np.maximum(deviation, np.median(deviation))


def _have_slow_places(runs: Samples) -> bool:
    """True if most of these runs, three or more, are slow at one place, as by a checkpoint."""
    if len(runs) < FEWEST_IN_STEP:
        return False
    apart = runs - _pace(runs)[:, None]
    least_of_most = np.quantile(apart, 1 - MOST, axis=0, method="lower")
    return bool(np.any(least_of_most > math.log(AS_ONE)))


def _pace(runs: Samples) -> Samples:
    """The time in which a quarter of the steps of each run are done: up to three quarters of them
    may be slow."""
    quarter = runs.shape[-1] // 4
    pace: Samples = np.partition(runs, quarter, axis=-1)[..., quarter]
    return pace


def _usual_of_all(units: ecdf.Bundle) -> tuple[Samples, Samples]:
    """The same if places cannot be compared: all are alike."""
    runs = [-np.log(steps) for steps in units]
    usual = np.median(np.concatenate([run - _pace(run) for run in runs]))
    apart = np.concatenate([np.abs(run - np.median(run)) for run in runs])
    return np.array([usual]), np.array([DEVIATIONS * float(np.median(apart))])


def pace_of(reference: Samples, slow: SlowSteps) -> float:
    """The pace of the fleet, from the goodness of its reference, whose steps are sorted: as if the
    slowest of them were at the place where steps are slowest."""
    times = np.sort(-np.log(reference))
    usual = np.quantile(slow.usual, (np.arange(times.size) + 0.5) / times.size)
    return float(_pace(times - usual))


def _find_apart(
    units: ecdf.Bundle, slow: SlowSteps, fleet_pace: float = -math.inf
) -> tuple[Samples, Samples]:
    """The logarithm of how many times as long as usual each step takes, 0 within the scatter; and
    the goodness of the usual step at its place, at the pace of its run or of the fleet, whichever
    is slower."""
    usual, scatter = np.array(slow.usual), np.array(slow.scatter)
    runs = _runs(units, usual.size) if usual.size > 1 else None
    if runs is not None:
        normal = np.maximum(fleet_pace, _pace(runs - usual))[:, None] + usual
        apart = runs - normal
        return np.where(np.abs(apart) > scatter, apart, 0.0).ravel(), np.exp(-normal).ravel()
    parts = []
    longest = max(usual.size, int(units.lengths.max(initial=0)))
    beyond = longest - usual.size
    of_all = [
        np.concatenate((of_places, np.full(beyond, np.median(of_places))))
        for of_places in (usual, scatter)
    ]
    for steps in units:
        at, far = (of_places[: steps.size] for of_places in of_all)
        run = -np.log(steps)
        normal = np.maximum(fleet_pace, _pace(run - at)) + at
        parts.append((np.where(np.abs(run - normal) > far, run - normal, 0.0), np.exp(-normal)))
    apart, usual_goodness = (np.concatenate(part) for part in zip(*parts, strict=True))
    return apart, usual_goodness


@dataclass(frozen=True)
class SetAside:
    """Units without their slow steps, and what these are."""

    level: ecdf.Bundle  # the usual step of a run in place of each slow one
    slow: Ints  # the number of slow steps of each unit, a row for each share
    lost: Samples  # the time that each unit loses in slow steps, relative to its usual time


def set_aside(units: ecdf.Bundle, slow: SlowSteps, fleet_pace: float = -math.inf) -> SetAside:
    """Set slow steps aside. Without `fleet_pace` the units are the fleet itself."""
    return _set_aside(units, slow, *_find_apart(units, slow, fleet_pace))


def _set_aside(units: ecdf.Bundle, slow: SlowSteps, excess: Samples, normal: Samples) -> SetAside:
    if not slow.shares:
        nothing = np.zeros((0, len(units)), dtype=np.int64)
        return SetAside(level=units, slow=nothing, lost=np.zeros(len(units)))
    is_slow = excess > math.log(slow.shares[0].times)
    level = np.where(is_slow, normal, units.values)
    begins = units.starts[:-1]
    lost = np.add.reduceat(np.where(is_slow, 1 / units.values - 1 / normal, 0.0), begins)
    return SetAside(
        level=ecdf.Bundle(level, units.lengths),
        slow=_count(excess, units, slow),
        lost=lost / np.add.reduceat(1 / normal, begins),
    )


def _count(excess: Samples, units: ecdf.Bundle, slow: SlowSteps) -> Ints:
    return np.array(
        [
            np.add.reduceat((excess > math.log(share.times)).astype(np.int64), units.starts[:-1])
            for share in slow.shares
        ]
    )


def _count_groups(is_slow: Flags, units: ecdf.Bundle) -> Ints:
    """The number of groups of slow steps of each unit: in a group, each is near to the next."""
    at = np.flatnonzero(is_slow)
    unit = np.searchsorted(units.starts, at, side="right") - 1
    begins = np.append(True, (np.diff(at) > NEAR) | (np.diff(unit) > 0))[: at.size]
    return np.bincount(unit[begins], minlength=len(units))


def learn_share(times: float, counts: Ints, lengths: Ints, groups: Ints) -> SlowShare:
    """The share of slow steps of the usual units.

    At first, units with more slow steps than three quarters of the units have count as "at least so
    many", so that a bad quarter hardly moves the share. Units with more slow steps than the share
    explains are odd, and left out. The counts of usual units may vary more than chance would have
    it, because slow steps of one run have one cause, or because units differ. This makes some of
    those that were left out usual, and so on until nothing changes.

    `groups`: the number of groups of slow steps of each unit. If slow steps usually come in groups,
    each group is one event.
    """
    if not counts.any():
        return SlowShare(times=times, share=0.0, steps=int(lengths.sum()), correlation=0.0)
    in_group = _usual_group(counts, lengths, groups)
    one_cause = (in_group - 1) / (float(lengths.mean()) - 1)
    share, usual = _share_of_most(counts / in_group, lengths / in_group), np.arange(0)
    correlation = one_cause
    for _ in range(MOST_ROUNDS):
        now_usual = _usual_units(counts, lengths, share, correlation)
        if now_usual.size <= usual.size:
            break
        usual = now_usual
        share = float(counts[usual].sum() / lengths[usual].sum())
        correlation = max(one_cause, _correlation(counts[usual], lengths[usual], share))
    return SlowShare(
        times=times, share=share, steps=int(lengths[usual].sum()), correlation=correlation
    )


def _usual_units(counts: Ints, lengths: Ints, share: float, correlation: float) -> Ints:
    """The units without those that have more slow steps than chance explains, in one healthy fleet
    of a hundred."""
    from scipy.special import betainc, pdtrc

    varies = 1 + (lengths - 1) * correlation  # the variance, by this factor (quasi-binomial)
    hits, rest = counts / varies, (lengths - counts) / varies
    tails = np.where(counts > 0, betainc(np.maximum(hits, 1e-9), rest + 1, share), 1.0)
    order = np.argsort(tails, kind="stable")
    too_many = pdtrc(np.arange(counts.size), counts.size * tails[order]) <= ODD_FLEETS
    odd = int(np.flatnonzero(too_many)[-1]) + 1 if too_many.any() else 0
    return order[min(odd, (counts.size - 1) // 2) :]


def _correlation(counts: Ints, lengths: Ints, share: float) -> float:
    """The correlation of two steps of one unit by which counts vary more than by chance, if that is
    no chance: from Pearson's statistic by its degrees of freedom."""
    from scipy.special import chdtrc

    if not 0 < share < 1 or counts.size < 2:
        return 0.0
    expected = share * lengths
    statistic = float(((counts - expected) ** 2 / (expected * (1 - share))).sum())
    degrees = counts.size - 1
    if chdtrc(degrees, statistic) >= BY_CHANCE:
        return 0.0
    return min(MOST_ALIKE, (statistic / degrees - 1) / (float(lengths.mean()) - 1))


def _usual_group(counts: Ints, lengths: Ints, groups: Ints) -> float:
    """The number of slow steps in a group, in the middle of the units that have two or more; 1 if
    they are no nearer to each other than by chance, or are so in few units."""
    several = counts > 1
    nearer = _expect_groups(counts[several], lengths[several]) / groups[several]
    grouped = int(np.sum(nearer >= NO_CHANCE))
    if grouped < max(FEWEST_IN_GROUPS, COMMON * counts.size) or np.median(nearer) < NO_CHANCE:
        return 1.0
    return min(MOST_IN_GROUP, float(np.median(counts[several] / groups[several])))


def _expect_groups(counts: Ints, lengths: Ints) -> Samples:
    """The number of groups expected if all places are equally likely: slow steps with no other in
    the places before that are near, which are fewer at the begin of a run."""
    none_before, expected = np.ones(counts.size), np.zeros(counts.size)
    for place in range(NEAR):
        expected += none_before
        none_before = none_before * np.maximum(0, lengths - counts - place) / (lengths - 1 - place)
    groups: Samples = (expected + (lengths - NEAR) * none_before) * counts / lengths
    return groups


def _share_of_most(counts: Samples, lengths: Samples) -> float:
    """The most likely share if the upper quarter of the counts is known as "at least" only:
    expectation and maximisation."""
    from scipy.special import betainc

    steps = float(lengths.sum())
    cut = np.floor(np.quantile(counts / lengths, UPPER) * lengths + 1e-9) + 1
    above = counts >= cut
    share = max(float(counts.sum()), 0.5) / steps
    for _ in range(MOST_ROUNDS):
        at_least = np.maximum(betainc(cut, lengths - cut + 1, share), 1e-300)
        one_less = betainc(np.maximum(cut - 1, SETTLED), lengths - cut + 1, share)
        imputed = lengths * share * one_less / at_least
        better = max(float(np.where(above, imputed, counts).sum()), 0.5) / steps
        if abs(better - share) <= SETTLED * share:
            break
        share = better
    return share


def chances(
    counts: Ints, lengths: Ints, slow: SlowSteps, own: tuple[Ints, Ints] | None = None
) -> Samples:
    """The chance that a healthy unit has so many slow steps, for the least likely of the counts.

    `own`: the slow steps that the unit had when the share was learned, and the number of its steps
    then. They are no evidence for the unit itself; by default they are these very steps.
    """
    first, of_steps = own if own is not None else (counts, lengths)
    least = np.ones(lengths.size)
    for share, number, before in zip(slow.shares, counts, first, strict=True):
        some = np.flatnonzero(number)
        cases = defaultdict(list)
        of_some = (column[some].tolist() for column in (lengths, of_steps, before))
        for unit, case in zip(some.tolist(), zip(*of_some, strict=True), strict=True):
            cases[case].append(unit)
        for (length, steps, hits), here in cases.items():
            tails = tail_chances(length, share, (hits, steps))
            least[here] = np.minimum(least[here], tails[number[here]])
    return np.minimum(1.0, INDEPENDENT * least)


def tail_chances(length: int, share: SlowShare, own: tuple[float, int] = (0, 0)) -> Samples:
    """The chance of at least 0, 1, ... slow steps among so many: the tail of the beta-binomial
    distribution. The share varies between units, and is known from the steps from which it was
    learned, without a unit's own."""
    from scipy.special import betaln

    hits, of_steps = own
    rest = max(0, share.steps - of_steps)
    slow = min(max(0.0, share.share * share.steps - hits), rest)
    independent = (rest + 1) / (1 + (length - 1) * share.correlation)
    alike = min(MOST_ALIKE, share.correlation + 1 / (1 + independent))
    a, b = ((1 / alike - 1) * part / (rest + 1) for part in (slow + 0.5, rest - slow + 0.5))
    k = np.arange(length)
    next_by_this = (length - k) * (a + k) / ((k + 1) * (b + length - k - 1))
    logarithms = np.concatenate(([betaln(a, b + length) - betaln(a, b)], np.log(next_by_this)))
    terms = np.exp(np.cumsum(logarithms))
    tails: Samples = np.clip(np.cumsum(terms[::-1])[::-1], 1e-300, 1.0)
    return tails


def costs(lost: Samples, slow: SlowSteps) -> Samples:
    """The share of a unit's rate that its slow steps cost, beyond what they cost a healthy one."""
    extra = np.maximum(0.0, lost - slow.lost)
    share: Samples = extra / (1 + extra)
    return share


def surprise(chance: Samples, limit: float) -> Samples:
    """The surprise at a chance, in units of that at the limit: 2 at the limit's square."""
    in_limits: Samples = np.log(np.maximum(chance, 1e-300)) / math.log(limit)
    return in_limits


@dataclass(frozen=True)
class SlowSamples:
    """The slow steps of one unit that chance explains least."""

    number: int
    samples: int
    measured: float  # the middle one of them, in goodness,
    usual: float  # and what is usual there
    share: float  # of so slow steps on healthy units


def worst_of(unit: ecdf.Bundle, slow: SlowSteps, fleet_pace: float) -> SlowSamples:
    """The slow steps of the first unit that chance explains least."""
    excess, normal = _find_apart(unit, slow, fleet_pace)
    counts = _count(excess, unit, slow)
    by_share = [
        float(chances(counts[[i]], unit.lengths, replace(slow, shares=(share,)))[0])
        for i, share in enumerate(slow.shares)
    ]
    worst = slow.shares[int(np.argmin(by_share))]
    slowest = excess > math.log(worst.times)
    return SlowSamples(
        number=int(slowest.sum()),
        samples=int(unit.lengths[0]),
        measured=float(np.median(unit.values[slowest])),
        usual=float(np.median(normal[slowest])),
        share=worst.share,
    )


def smallest_stalls(units: ecdf.Bundle, slow: SlowSteps, least: float) -> float | None:
    """The smallest share of the steps of a run that shows if each takes twice as long: at `least`
    that share of these healthy units would be called defective. 1 if half of the steps do not
    suffice, None if units differ in length or if slow steps are usual."""
    length = int(units.lengths[0])
    if np.any(units.lengths != length) or not slow.shares:
        return None
    before = set_aside(units, slow)
    counts = before.slow
    seen = np.array([np.log(STALL) > np.log(share.times) for share in slow.shares])
    visible = float(np.mean(np.array(slow.scatter) < math.log(STALL)))

    def shows(stalls: int) -> bool:
        stalled = round(stalls * visible)
        more = np.minimum(counts + seen[:, None] * stalled, length)
        lost = before.lost + (STALL - 1) * stalled / length
        lengths = units.lengths
        once = chances(more, lengths, slow) <= slow.once
        both = chances(2 * more, 2 * lengths, slow, own=(more, lengths)) <= slow.both
        return float(np.mean(once & both & (costs(lost, slow) >= slow.least))) >= least

    stalls = bisect_left(range(1, length // 2 + 1), True, key=shows) + 1
    return round(stalls / length, 3) if stalls <= length // 2 else 1.0
