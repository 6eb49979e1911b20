"""Slow steps of a run: which they are, and how many of them chance explains.

A healthy node has a slow step now and then: a daemon wakes up, memory is tidied. To a distance
between distributions, one step of 32 that takes twice as long is a heavy tail, and a healthy fleet
would be called defective node by node. So slow steps are counted, and the level of a run is judged
without them.

A step is slow if it takes longer than the fleet's steps at the same place of a run, relative to the
usual step of its own run, by more than six median absolute deviations and by 10 %. Warm-up and
checkpoints are slow on all nodes, and so they are not counted. Steps that take 10 %, 50 % and 200 %
longer are counted apart, so that many small ones do not hide a few large ones.

The fleet's share of slow steps, without the units that have oddly many, gives the chance of so many
slow steps on a healthy unit. The share is known from a limited number of steps; the beta-binomial
distribution allows for that (Jeffreys' prior).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.judge import medoid
from anubis.core.records import Samples, SlowShare, SlowSteps

FEWEST_UNITS = 8  # with fewer, the usual step at one place of a run is not known
FEWEST_STEPS = 8  # with fewer, each is a good part of what is known of a unit, and counts in full
TIMES = (1.1, 1.5, 3.0)  # as long as usual; a step that takes less than 10 % longer is not slow
DEVIATIONS = 6  # median absolute deviations: four standard deviations, one normal step in 30,000
UPPER = 0.75  # quantile of the shares of slow steps; of those above only "at least" is used
ODD_FLEETS = 0.01  # share of healthy fleets in which units are left out because of their count
BY_CHANCE = 0.05  # the chance above which counts vary no more than by chance
INDEPENDENT = 2  # the counts of three kinds of slow steps go together, and amount to two
MOST_ROUNDS = 100  # a bound for counts that converge slowly
SETTLED = 1e-6  # of the share: counts are whole, so less changes no verdict
DIGITS = 5  # of logarithms that are kept
STALL = 2.0  # times as long, the stalls by which the power of a criterion is stated


def learn_slow_steps(units: medoid.Bundle, once: float, both: float) -> SlowSteps | None:
    """The slow steps of a fleet, from goodness in the order of measuring; None if runs are too
    short. `once`, `both`: the chances at which a unit is a suspect, and is called defective."""
    if units.lengths.min() < FEWEST_STEPS:
        return None
    length = run_length(units.lengths)
    usual, scatter = _usual_of_places(_runs(units, length)) if length else _usual_of_all(units)
    slow = SlowSteps(
        usual=tuple(usual.round(DIGITS).tolist()),
        scatter=tuple(scatter.round(DIGITS).tolist()),
        shares=tuple(SlowShare(times=times, share=0.0, steps=0, clump=1.0) for times in TIMES),
        once=once,
        both=both,
    )
    return replace(
        slow,
        shares=tuple(
            learn_share(times, counts, units.lengths)
            for times, counts in zip(TIMES, count_slow(units, slow), strict=True)
        ),
    )


def run_length(lengths: Ints) -> int:
    """The number of steps of a run, of which each unit has one or several; 0 if they differ or are
    too few to compare them place by place."""
    fewest = int(lengths.min())
    if np.any(lengths % fewest) or int(np.sum(lengths // fewest)) < FEWEST_UNITS:
        return 0
    return fewest


def _runs(units: medoid.Bundle, length: int) -> Samples:
    """The logarithm of the time of each step, a row for each run."""
    return -np.log(units.values.reshape(-1, length))


def _usual_of_places(runs: Samples) -> tuple[Samples, Samples]:
    """The usual time at each place of a run, and how much more it may be there by chance."""
    usual = np.zeros(runs.shape[1])
    for _ in range(2):  # the pace of a run depends on what is usual at its places
        usual = np.median(runs - _pace(runs - usual)[:, None], axis=0)
    apart = runs - usual
    deviation = np.median(np.abs(apart - np.median(apart, axis=1)[:, None]), axis=0)
    return usual, DEVIATIONS * np.maximum(deviation, np.median(deviation))


def _pace(runs: Samples) -> Samples:
    """The time in which a quarter of the steps of each run are done: up to three quarters of them
    may be slow."""
    quarter = runs.shape[-1] // 4
    pace: Samples = np.partition(runs, quarter, axis=-1)[..., quarter]
    return pace


def _usual_of_all(units: medoid.Bundle) -> tuple[Samples, Samples]:
    """The same if places cannot be compared: all are alike."""
    runs = [-np.log(steps) for steps in units]
    usual = np.median(np.concatenate([run - _pace(run) for run in runs]))
    apart = np.concatenate([np.abs(run - np.median(run)) for run in runs])
    return np.array([usual]), np.array([DEVIATIONS * float(np.median(apart))])


def _find_excess(units: medoid.Bundle, slow: SlowSteps) -> tuple[Samples, Samples]:
    """The logarithm of how many times as long as usual each step takes, 0 within the scatter; and
    the goodness of the usual step at its place, at the pace of its run."""
    usual, scatter = np.array(slow.usual), np.array(slow.scatter)
    length = usual.size
    if length > 1 and not np.any(units.lengths % length):
        runs = _runs(units, length)
        normal = _pace(runs - usual)[:, None] + usual
        excess = runs - normal
        return np.where(excess > scatter, excess, 0.0).ravel(), np.exp(-normal).ravel()
    of_run = [_pace(-np.log(steps)) for steps in units]
    normal = np.repeat(of_run, units.lengths) + np.median(usual)
    excess = -np.log(units.values) - normal
    return np.where(excess > scatter.max(), excess, 0.0), np.exp(-normal)


def count_slow(units: medoid.Bundle, slow: SlowSteps) -> Ints:
    """The number of slow steps of each unit, a row for each share."""
    return _count(_find_excess(units, slow)[0], units, slow)


def _count(excess: Samples, units: medoid.Bundle, slow: SlowSteps) -> Ints:
    return np.array(
        [
            np.add.reduceat((excess > math.log(share.times)).astype(np.int64), units.starts[:-1])
            for share in slow.shares
        ]
    )


def set_aside(units: medoid.Bundle, slow: SlowSteps) -> tuple[medoid.Bundle, Ints]:
    """The units with the usual step of their run in place of each slow one, and the number of slow
    steps of each."""
    excess, normal = _find_excess(units, slow)
    is_slow = excess > math.log(slow.shares[0].times)
    level = medoid.Bundle(np.where(is_slow, normal, units.values), units.lengths)
    return level, _count(excess, units, slow)


def learn_share(times: float, counts: Ints, lengths: Ints) -> SlowShare:
    """The share of slow steps of the usual units.

    Units with more slow steps than three quarters of the units have count as "at least so many", so
    that a bad quarter hardly moves the share. Units with more slow steps than this share explains
    are odd, and left out.

    Slow steps of one run often have one cause, and so the counts of usual units vary more than
    chance would have it. By that factor, slow steps and all steps count as fewer (quasi-binomial,
    McCullagh and Nelder 1989, section 4.5).
    """
    from scipy.special import bdtrc, pdtrc

    if not counts.any():
        return SlowShare(times=times, share=0.0, steps=int(lengths.sum()), clump=1.0)
    share = _share_of_most(counts, lengths)
    tails = np.where(counts > 0, bdtrc(counts - 1.0, lengths, share), 1.0)
    order = np.argsort(tails, kind="stable")
    too_many = pdtrc(np.arange(counts.size), counts.size * tails[order]) <= ODD_FLEETS
    odd = int(np.flatnonzero(too_many)[-1]) + 1 if too_many.any() else 0
    usual = order[min(odd, (counts.size - 1) // 2) :]
    share = float(counts[usual].sum() / lengths[usual].sum())
    return SlowShare(
        times=times,
        share=share,
        steps=int(lengths[usual].sum()),
        clump=_clump(counts[usual], lengths[usual], share),
    )


def _clump(counts: Ints, lengths: Ints, share: float) -> float:
    """The factor by which counts vary more than by chance, if that is no chance: Pearson's
    statistic by its degrees of freedom."""
    from scipy.special import chdtrc

    if not 0 < share < 1 or counts.size < 2:
        return 1.0
    expected = share * lengths
    statistic = float(((counts - expected) ** 2 / (expected * (1 - share))).sum())
    degrees = counts.size - 1
    return statistic / degrees if chdtrc(degrees, statistic) < BY_CHANCE else 1.0


def _share_of_most(counts: Ints, lengths: Ints) -> float:
    """The most likely share if the upper quarter of the counts is known as "at least" only:
    expectation and maximisation."""
    from scipy.special import bdtrc

    steps = float(lengths.sum())
    cut = np.floor(np.quantile(counts / lengths, UPPER) * lengths + 1e-9) + 1
    above = counts >= cut
    share = max(float(counts.sum()), 0.5) / steps
    for _ in range(MOST_ROUNDS):
        at_least = np.maximum(bdtrc(cut - 1, lengths, share), 1e-300)
        one_less = np.where(cut > 1, bdtrc(np.maximum(cut - 2, 0), lengths - 1, share), 1.0)
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
        cases = np.stack((lengths, of_steps, before), axis=1)
        for length, steps, hits in np.unique(cases, axis=0).tolist():
            here = np.flatnonzero(np.all(cases == (length, steps, hits), axis=1))
            tails = tail_chances(length, share, (hits, steps))
            least[here] = np.minimum(least[here], tails[number[here]])
    return np.minimum(1.0, INDEPENDENT * least)


def tail_chances(length: int, share: SlowShare, own: tuple[float, int] = (0, 0)) -> Samples:
    """The chance of at least 0, 1, ... slow steps among so many: the tail of the beta-binomial
    distribution, by the steps from which the share was learned without a unit's own."""
    from scipy.special import betaln, gammaln

    hits, of_steps = own
    rest = max(0, share.steps - of_steps)
    slow = min(max(0.0, share.share * share.steps - hits), rest)
    a, b = slow / share.clump + 0.5, (rest - slow) / share.clump + 0.5
    independent = math.ceil(length / share.clump)
    k = np.arange(independent + 1)
    ways = gammaln(independent + 1) - gammaln(k + 1) - gammaln(independent - k + 1)
    terms = np.exp(ways + betaln(k + a, independent - k + b) - betaln(a, b))
    tails = np.log(np.clip(np.cumsum(terms[::-1])[::-1], 1e-300, 1.0))
    by_count: Samples = np.exp(np.interp(np.arange(length + 1) / share.clump, k, tails))
    return by_count


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


def worst_of(unit: medoid.Bundle, slow: SlowSteps) -> SlowSamples:
    """The slow steps of the first unit that chance explains least."""
    excess, normal = _find_excess(unit, slow)
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


def smallest_stalls(units: medoid.Bundle, slow: SlowSteps, least: float) -> float | None:
    """The smallest share of the steps of a run that shows if each takes twice as long: at `least`
    that share of these healthy units would be called defective. 1 if half of the steps do not
    suffice, None if units differ in length."""
    length = int(units.lengths[0])
    if np.any(units.lengths != length):
        return None
    counts = count_slow(units, slow)
    seen = np.array([np.log(STALL) > np.log(share.times) for share in slow.shares])
    visible = float(np.mean(np.array(slow.scatter) < math.log(STALL)))

    def shows(stalls: int) -> bool:
        more = np.minimum(counts + seen[:, None] * round(stalls * visible), length)
        lengths = units.lengths
        once = chances(more, lengths, slow) <= slow.once
        both = chances(2 * more, 2 * lengths, slow, own=(more, lengths)) <= slow.both
        return float(np.mean(once & both)) >= least

    return next(
        (round(stalls / length, 3) for stalls in range(1, length // 2 + 1) if shows(stalls)), 1.0
    )
