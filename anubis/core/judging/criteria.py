"""Learning a criterion from a fleet's samples, and judging a sample by it.

Learning is Algorithm 2 of the ANUBIS paper with the medoid as centre: find the sample most like
all others, set aside what has similarity <= alpha to it, look again, until nothing changes.
Learning is two-sided (what is unusual), judging one-sided (what is worse): a faster node is no
defect. A criterion that cannot be trusted says so in `refusal`, and judging by it answers unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from anubis.core.errors import CriteriaError
from anubis.core.judging.calibration import (
    Calibration,
    Strictness,
    calibrate,
    repeats_needed,
    smallest_loss,
)
from anubis.core.judging.ecdf import goodness
from anubis.core.records import Criterion, CriterionKey, Direction, MetricSpec, Policy, Samples

if TYPE_CHECKING:
    from anubis.core.judging import medoid

MOST_ROUNDS = 100
COARSER = (0.2, 1.0)  # tail resolutions for noisy metrics; with 1 a loss counts by its mean
USEFUL_LOSS = 0.5  # a limit that is loosened beyond it judges nobody


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
    together: float = 1.0,
) -> Criterion:
    """The criterion of one key from the samples of comparable units, in their measured unit.

    `votes` are positions in `samples`; a sample may have several votes or none: a good pair of
    nodes speaks for both of them. `start` is what was learned before, from fewer days. `together`
    metrics of one program judge a node, each with its share of the rate of false alarms.
    """
    if len(samples) == 0:
        raise CriteriaError(f"nothing to learn {key.workload} {key.metric} from: no samples")
    voters = np.arange(len(samples)) if votes is None else np.asarray(votes)
    fleet = comparable(samples, metric.direction, key)
    begin = None if start is None else goodness(start.reference, start.direction)
    two_sided = metric.direction == "either"
    strictness = Strictness(
        alpha=policy.alpha, rate=policy.false_alarm_rate / together, two_sided=two_sided
    )
    taught = _Class(fleet, voters, begin, policy, strictness)
    lesson = _choose(taught)
    healthy, calibration = lesson.healthy, lesson.calibration
    reference = fleet[voters[healthy.medoid]].copy()
    shows = repeats = None
    if calibration:
        shows = taught.shows(healthy, calibration, lesson.alpha)
        repeats = 1
    is_loosened = lesson.alpha < policy.alpha
    if calibration and is_loosened:
        halves = halved(samples, metric.direction)
        repeats = (
            repeats_needed(fleet, halves, reference, calibration, strictness) if halves else None
        )
    refusal = healthy.refusal
    if voters.size < policy.min_units:
        refusal = f"learned from {voters.size} of the {policy.min_units} units it takes"
    if not refusal and is_loosened and shows and shows > USEFUL_LOSS:
        refusal = f"healthy units differ so widely that only a loss of {shows:.0%} is sure to show"
    return Criterion(
        key=key,
        unit=metric.unit,
        direction=metric.direction,
        reference=goodness(reference, metric.direction),  # its own inverse
        alpha=lesson.alpha,
        proposed_alpha=calibration.alpha if calibration else None,
        tail=lesson.tail,
        units=voters.size,
        healthy=len(healthy.kept),
        nodes=nodes,
        repeatability=healthy.repeatability,
        refusal=refusal,
        from_repeats=from_repeats,
        shows=shows,
        repeats=repeats,
    )


@dataclass(frozen=True)
class _Lesson:
    """What one tail resolution teaches."""

    healthy: Healthy
    tail: float
    alpha: float
    calibration: Calibration | None = None  # None: nobody asked, or the units are too few


@dataclass(frozen=True)
class _Class:
    """The units that teach, and what is to be learned from them."""

    fleet: medoid.Bundle
    voters: npt.NDArray[np.int64]
    begin: Samples | None
    policy: Policy
    strictness: Strictness

    @property
    def stricter_is_welcome(self) -> bool:
        return self.policy.own_alpha or self.strictness.two_sided

    @property
    def tails(self) -> tuple[float, ...]:
        """Single values have none."""
        finest = self.policy.tail
        if not self.policy.calibrated or self.fleet.lengths.max() == 1:
            return (finest,)
        return (finest, *(tail for tail in COARSER if tail > finest))

    def settle(self, alpha: float, tail: float) -> Healthy:
        return settle(self.fleet, self.voters, alpha=alpha, tail=tail, start=self.begin)

    def calibrate(self, healthy: Healthy, tail: float) -> Calibration | None:
        return calibrate(self.fleet, self.voters, self._reference(healthy), tail, self.strictness)

    def shows(self, healthy: Healthy, calibration: Calibration, alpha: float) -> float:
        reference = self._reference(healthy)
        return smallest_loss(self.fleet, reference, calibration, self.strictness, 1 - alpha)

    def _reference(self, healthy: Healthy) -> Samples:
        return self.fleet[self.voters[healthy.medoid]]


def _choose(taught: _Class) -> _Lesson:
    """The finest tail resolution at which the metric carries alpha; where none does, or where a
    stricter limit is welcome, the one that shows the smallest loss, with the limit of its own."""
    policy = taught.policy
    plain = _Lesson(taught.settle(policy.alpha, policy.tail), policy.tail, policy.alpha)
    if not (policy.calibrated or taught.stricter_is_welcome):
        return plain
    lessons: list[tuple[_Lesson, Calibration]] = []
    for tail in taught.tails:
        healthy = taught.settle(policy.alpha, tail) if lessons else plain.healthy
        calibration = taught.calibrate(healthy, tail)
        if calibration is None:
            return plain
        lesson = _Lesson(healthy, tail, policy.alpha, calibration)
        carries = calibration.alpha >= policy.alpha and not healthy.refusal
        if carries and not taught.stricter_is_welcome:
            return lesson
        lessons.append((lesson, calibration))
    return _with_own_limit(taught, lessons)


def _with_own_limit(taught: _Class, lessons: Sequence[tuple[_Lesson, Calibration]]) -> _Lesson:
    """Where learning refuses units in two groups, no limit is loosened over them."""
    best, own = min(lessons, key=lambda pair: taught.shows(pair[0].healthy, pair[1], pair[1].alpha))
    policy = taught.policy
    if own.alpha >= policy.alpha:
        return replace(best, alpha=own.alpha)
    if not policy.calibrated or (best.healthy.refusal and own.in_two_groups):
        return lessons[0][0]
    healthy = taught.settle(own.alpha, best.tail)
    again = taught.calibrate(healthy, best.tail) or own
    return _Lesson(healthy, best.tail, min(policy.alpha, again.alpha), again)


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


def halved(
    samples: Sequence[Samples] | Samples, direction: Direction
) -> tuple[medoid.Bundle, medoid.Bundle] | None:
    """The earlier and the later half of each sample, in goodness; None for single values."""
    from anubis.core.judging import medoid

    if min(len(sample) for sample in samples) < 2:
        return None
    cuts = [len(sample) // 2 for sample in samples]
    earlier = [goodness(sample[:cut], direction) for sample, cut in zip(samples, cuts, strict=True)]
    later = [goodness(sample[cut:], direction) for sample, cut in zip(samples, cuts, strict=True)]
    return medoid.Bundle.of(earlier), medoid.Bundle.of(later)


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
