"""Learning a criterion from a fleet's samples, and judging a sample by it.

Learning is Algorithm 2 of the ANUBIS paper with the medoid as centre: find the sample most like
all others, set aside what has similarity <= alpha to it, look again, until nothing changes.
Learning is two-sided (what is unusual), judging one-sided (what is worse): a faster node is no
defect. A criterion that cannot be trusted says so in `refusal`, and judging by it answers unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from anubis.core.errors import CriteriaError
from anubis.core.judging.ecdf import goodness
from anubis.core.records import Criterion, CriterionKey, Direction, MetricSpec, Policy, Samples

if TYPE_CHECKING:
    from anubis.core.judging import medoid

MOST_ROUNDS = 100
TIGHTEST = 0.999  # a proposed alpha: where all are equal, the next may still differ in a digit
FEWEST_FOR_ALPHA = 20  # healthy units, before their spread says anything about 1 in 10,000


@dataclass(frozen=True)
class Healthy:
    """What learning settled on: who was kept, who is the centre, how alike the kept are."""

    kept: npt.NDArray[np.int64]
    medoid: int
    repeatability: float | None
    refusal: str


def learn(
    samples: Sequence[Samples] | Samples,
    *,
    key: CriterionKey,
    metric: MetricSpec,
    nodes: int,
    policy: Policy,
    votes: Sequence[int] | None = None,
    from_repeats: bool = False,
    start: Criterion | None = None,
) -> Criterion:
    """The criterion of one key from the samples of comparable units, in their measured unit.

    `votes` are positions in `samples`; a sample may have several votes or none: a good pair of
    nodes speaks for both of them. `start` is what was learned before, from fewer days.
    """
    if len(samples) == 0:
        raise CriteriaError(f"nothing to learn {key.workload} {key.metric} from: no samples")
    voters = np.arange(len(samples)) if votes is None else np.asarray(votes)
    fleet = comparable(samples, metric.direction, key)
    begin = None if start is None else goodness(start.reference, start.direction)
    healthy = settle(fleet, voters, alpha=policy.alpha, tail=policy.tail, start=begin)
    refusal = healthy.refusal
    if voters.size < policy.min_units:
        refusal = f"learned from {voters.size} of the {policy.min_units} units it takes"
    reference = fleet[voters[healthy.medoid]].copy()
    kept = fleet.subset(voters[healthy.kept])
    rate = policy.false_alarm_rate
    if metric.direction == "either":
        rate /= 2  # a healthy unit may fall outside on two sides
    proposed = propose_alpha(kept, reference, policy.tail, rate)
    own = policy.own_alpha or metric.direction == "either"  # there a small change matters
    alpha = max(policy.alpha, proposed) if own and proposed else policy.alpha
    return Criterion(
        key=key,
        unit=metric.unit,
        direction=metric.direction,
        reference=goodness(reference, metric.direction),  # its own inverse
        alpha=alpha,
        proposed_alpha=proposed,
        tail=policy.tail,
        units=voters.size,
        healthy=len(healthy.kept),
        nodes=nodes,
        repeatability=healthy.repeatability,
        refusal=refusal,
        from_repeats=from_repeats,
    )


def settle(
    samples: medoid.Bundle,
    votes: npt.NDArray[np.int64],
    *,
    alpha: float,
    tail: float,
    start: Samples | None = None,
) -> Healthy:
    """Algorithm 2 on samples in goodness: the votes that are kept, their medoid, how alike.

    It begins with what is like `start`, where that is a majority, else with all. The sums of the
    first round are kept, and corrected for each sample that is later set aside or taken back.
    """
    from anubis.core.judging import medoid

    fleet = samples.subset(votes)
    kept = np.ones(len(fleet), dtype=np.bool_)
    if start is not None:
        like = 1 - medoid.distances_to(fleet, start, tail, worse=False) > alpha
        kept = like if 2 * np.sum(like) > len(fleet) else kept
    sums = medoid.distance_sums(fleet, tail, among=kept)
    seen = {kept.tobytes()}
    refusal = ""
    for _ in range(MOST_ROUNDS):
        least = sums[kept].min() * (1 + 1e-9) + 1e-12
        centre = int(
            np.argmax(kept & (sums <= least))
        )  # of equals the first, whatever the rounding
        similarity = 1 - medoid.distances_to(fleet, fleet[centre], tail, worse=False)
        again = similarity > alpha
        if np.array_equal(again, kept):
            break
        if again.tobytes() in seen:
            refusal = "learning went round in circles: no set of similar units is stable"
            break
        seen.add(again.tobytes())
        if np.any(kept & ~again):
            sums = sums - medoid.distance_sums(fleet, tail, among=kept & ~again)
        if np.any(again & ~kept):
            sums = sums + medoid.distance_sums(fleet, tail, among=again & ~kept)
        kept = again
    else:
        refusal = f"learning did not settle in {MOST_ROUNDS} rounds"
    positions = np.flatnonzero(kept)
    majority = 2 * positions.size > len(fleet)
    if majority:
        repeatability = _mean_similarity(sums[kept], votes[kept])
    else:  # say how alike all are
        repeatability = _mean_similarity(medoid.distance_sums(fleet, tail), votes)
    if not refusal and not majority:
        refusal = (
            f"only {positions.size} of {len(fleet)} units are alike (similarity above {alpha:g}): "
            "there is no majority to learn from"
        )
    elif not refusal and repeatability is None:
        refusal = "learned from a single measurement: there is nothing to compare it with"
    elif not refusal and repeatability is not None and repeatability < alpha:
        refusal = f"not repeatable enough: units agree to {repeatability:.3f}, alpha is {alpha:g}"
    return Healthy(kept=positions, medoid=centre, repeatability=repeatability, refusal=refusal)


def _mean_similarity(sums: Samples, votes: npt.NDArray[np.int64]) -> float | None:
    """Over all pairs of different measurements: a sample always agrees with itself."""
    votes_each = np.bincount(votes)
    pairs = votes.size**2 - int(np.sum(votes_each**2))
    return 1 - max(0.0, float(sums.sum())) / pairs if pairs else None


def propose_alpha(
    healthy: medoid.Bundle, reference: Samples, tail: float, false_alarm_rate: float
) -> float | None:
    """The similarity below which a healthy unit falls no more often than the rate.

    By how much a unit is worse than the reference, minus by how much it is better, scatters evenly
    around zero; the limit is the prediction interval of Student's t for one more such unit. The
    one-sided distances to both sides add up to the two-sided one, so one gives the other. A unit
    further out, on either side, than the outermost of all is in one fleet of a hundred is left
    out as atypical, and the limit computed again.
    """
    from scipy.special import stdtrit

    from anubis.core.judging import medoid

    if len(healthy) < FEWEST_FOR_ALPHA:
        return None
    worse = medoid.distances_to(healthy, reference, tail, worse=True)
    both = medoid.distances_to(healthy, reference, tail, worse=False)
    balance = 2 * worse - both
    while True:
        n, middle, spread = balance.size, balance.mean(), balance.std(ddof=1)
        inside = np.abs(balance - middle) <= stdtrit(n - 1, 1 - 0.005 / n) * spread + 1e-12
        if np.all(inside) or np.sum(inside) < FEWEST_FOR_ALPHA:
            break
        balance = balance[inside]
    quantile = float(stdtrit(n - 1, 1 - false_alarm_rate))
    limit = float(middle + quantile * spread * math.sqrt(1 + 1 / n))
    return min(TIGHTEST, max(0.0, 1 - limit))


def similarities(samples: Sequence[Samples] | Samples, criterion: Criterion) -> Samples:
    """1 for a sample that is nowhere worse than the reference, and less the worse it is.

    If either direction is worse, 1 only for a sample that is the same.
    """
    from anubis.core.judging import medoid

    reference = goodness(criterion.reference, criterion.direction)
    fleet = comparable(samples, criterion.direction, criterion.key)
    worse = criterion.direction != "either"
    return 1 - medoid.distances_to(fleet, reference, criterion.tail, worse=worse)


def comparable(
    samples: Sequence[Samples] | Samples, direction: Direction, key: CriterionKey
) -> medoid.Bundle:
    """Samples as learning and judging compare them: all of them, in goodness."""
    from anubis.core.judging import medoid

    try:
        if isinstance(samples, np.ndarray) or len({len(sample) for sample in samples}) == 1:
            return medoid.Bundle.of(goodness(np.asarray(samples), direction))  # one sort, one check
        return medoid.Bundle.of([goodness(sample, direction) for sample in samples])
    except CriteriaError:
        refuse_unusable(samples, key)
        raise


def refuse_unusable(samples: Iterable[Samples], key: CriterionKey) -> None:
    """Say which of the samples, counted from 1, cannot be compared, and of what it is one."""
    for number, sample in enumerate(samples, 1):
        try:
            goodness(sample, "higher")
        except CriteriaError as error:
            raise CriteriaError(
                f"{key.workload} {key.metric} of {key.sku}, unit {number}: {error}"
            ) from None
