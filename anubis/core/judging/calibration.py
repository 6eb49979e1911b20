"""What a metric can show: how far off a healthy unit may be, by how much the units of this very
metric differ, and from which loss on a unit is sure to be beyond that.

By how much a unit is worse than the reference, less by how much it is better, is its balance: it
scatters evenly around a middle. Units that no such scatter explains are left out, and Student's t
says how far off one more healthy unit may be. Of few units little is known, so their limit is wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.records import Samples

if TYPE_CHECKING:
    from anubis.core.judging import medoid

MANY = 128  # units, of which half say enough of the scatter
FEWEST = 8  # units; fewer say next to nothing of how much the next one may differ
TIGHTEST = 0.999  # an alpha: where all are equal, the next may still differ in a digit
ODD_FLEETS = 0.01  # share of fleets whose outermost healthy unit is left out as odd
TWO_GROUPS = 0.8  # 1 for units that lie on two levels only, about a half for an even scatter
FOUND = 0.9  # a loss shows if so many healthy units would be called defective with it
TRIED = 128  # healthy units that are slowed down to see that
LARGEST_LOSS = 0.95
PRECISE = 1e-3
MOST_REPEATS = 100


@dataclass(frozen=True, kw_only=True)
class Strictness:
    """What a limit is for: a loss to be seen, and how often a healthy unit may be beyond it."""

    alpha: float
    rate: float
    two_sided: bool = False


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What a metric can show with one tail resolution."""

    tail: float
    limit: float  # the distance that a healthy unit exceeds no more often than the rate
    usual: Ints  # the units that it was learned from
    in_two_groups: bool  # what lies between these is no scatter

    @property
    def alpha(self) -> float:
        return min(TIGHTEST, max(0.0, 1 - self.limit))


def calibrate(
    fleet: medoid.Bundle, votes: Ints, reference: Samples, tail: float, strictness: Strictness
) -> Calibration | None:
    """From all units, in goodness; None if they are too few."""
    if len(fleet) < FEWEST:
        return None
    balance, distance = _balance_and_distance(fleet, reference, tail, strictness.two_sided)
    usual = usual_units(balance, votes)
    reach = _reach(usual.size, strictness)
    scatters = balance[usual], distance[usual]  # what is worse and better at once is in the second
    if usual.size >= MANY and not strictness.two_sided:
        scatters = _mirrored(*scatters)
        reach = _reach(usual.size // 2, strictness)
    limit = max(float(scatter.mean() + reach * scatter.std(ddof=1)) for scatter in scatters)
    return Calibration(
        tail=tail,
        limit=limit,
        usual=usual,
        in_two_groups=in_two_groups(balance[usual]),
    )


def _mirrored(balance: Samples, shortfall: Samples) -> tuple[Samples, Samples]:
    """The better half and its mirror image in place of the worse half: only there, defects too
    small to be odd may widen the scatter."""
    middle = float(np.median(balance))
    better = balance <= middle
    mirror = 2 * middle - balance[better]
    mirrored_shortfall = shortfall[better] - balance[better]  # by how much it is better
    return (
        np.concatenate((balance[better], mirror)),
        np.concatenate((shortfall[better], mirrored_shortfall)),
    )


def _reach(units: int, strictness: Strictness) -> float:
    """How many standard deviations off one more unit may be: Student's prediction interval."""
    from scipy.special import stdtrit

    rate = strictness.rate / 2 if strictness.two_sided else strictness.rate
    return float(stdtrit(units - 1, 1 - rate)) * math.sqrt(1 + 1 / units)


def _balance_and_distance(
    units: medoid.Bundle, reference: Samples, tail: float, two_sided: bool
) -> tuple[Samples, Samples]:
    """The one-sided distances to both sides add up to the two-sided one, so one gives the other."""
    from anubis.core.judging import medoid

    worse = medoid.distances_to(units, reference, tail, worse=True)
    both = medoid.distances_to(units, reference, tail, worse=False)
    return 2 * worse - both, both if two_sided else worse


def usual_units(balance: Samples, votes: Ints) -> Ints:
    """The units without those that are odd: further out than the scatter of all nearer ones lets
    the outermost of a healthy fleet be, in all but one fleet of a hundred.

    Generalised extreme studentised deviates (Rosner 1983), from the middle of the votes outwards:
    of several gaps the innermost counts that leaves most votes inside, so that odd units do not
    hide each other.
    """
    from scipy.special import ndtri, stdtrit

    n = balance.size
    middle = float(np.median(balance[votes]))
    order = np.argsort(np.abs(balance - middle), kind="stable")
    voices = np.cumsum(np.bincount(votes, minlength=n)[order])
    nearest = max(3, int(np.searchsorted(2 * voices, votes.size, side="right")) + 1)
    inside = np.arange(nearest, n)  # so many are nearer than the one that is looked at
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


def in_two_groups(scatter: Samples) -> bool:
    """(skewness² + 1) / kurtosis is 1 only for two levels (Pearson 1916), and less for all else."""
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
    """How many times as many measurements let the limit be as strict as wanted; 0: no number does.

    What the earlier and the later half of a unit differ by is noise of measuring, which more of it
    averages out: four times the variance of the all_steps. The rest is between units, and stays.
    """
    usual, tail = calibration.usual, calibration.tail
    all_steps, earlier, later = (
        _balance_and_distance(part.subset(usual), reference, tail, False)[0]
        for part in (fleet, *halves)
    )
    noise = float((earlier - later).var(ddof=1)) / 4
    stays = max(0.0, float(all_steps.var(ddof=1)) - noise)
    room = 1 - strictness.alpha - float(all_steps.mean())
    allowed = max(0.0, room / _reach(usual.size, strictness)) ** 2
    if allowed <= stays:
        return 0
    repeats = math.ceil(noise / (allowed - stays))
    return repeats if repeats <= MOST_REPEATS else 0


def smallest_loss(
    fleet: medoid.Bundle,
    reference: Samples,
    calibration: Calibration,
    strictness: Strictness,
    limit: float,
) -> float:
    """By how much all samples of a usual unit must be worse, for nine units of ten to be beyond
    the limit; 1 if nothing suffices."""
    from anubis.core.judging import medoid

    usual, tail = calibration.usual, calibration.tail
    units = fleet.subset(usual[:: -(-usual.size // TRIED)])

    def shown(loss: float) -> bool:
        slowed = medoid.Bundle(units.values * (1 - loss), units.lengths)
        distance = medoid.distances_to(slowed, reference, tail, worse=not strictness.two_sided)
        return float(np.mean(distance >= limit)) >= FOUND

    if not shown(LARGEST_LOSS):
        return 1.0
    low, high = 0.0, LARGEST_LOSS
    while high - low > PRECISE:
        loss = (low + high) / 2
        low, high = (low, loss) if shown(loss) else (loss, high)
    return round(high, 3)
