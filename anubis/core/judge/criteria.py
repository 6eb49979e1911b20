"""Learn a criterion from a fleet's samples, and judge a sample by it.

Learning is Algorithm 2 of the ANUBIS paper with the medoid as centre: find the sample most like
all others, set aside the samples with similarity <= alpha to it, and repeat until nothing changes.
Learning is two-sided (unusual samples), judging one-sided (worse samples): a faster node is no
defect. A criterion that cannot be trusted has a `refusal`, and judging by it answers unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from anubis.core.arrays import Flags
from anubis.core.errors import CriteriaError
from anubis.core.judge.calibration import (
    Calibration,
    Strictness,
    alpha_of,
    calibrate_tail,
    calibrate_together,
    repeats_needed,
    sample_healthy,
    smallest_loss,
    smallest_stalls,
)
from anubis.core.judge.ecdf import goodness
from anubis.core.records import Criterion, CriterionKey, Direction, MetricSpec, Policy, Samples

if TYPE_CHECKING:
    from anubis.core.judge import medoid

MOST_ROUNDS = 100
MEAN = 1.0  # the tail resolution with which a loss counts by its mean
USEFUL_LOSS = 0.5  # a limit that is looser than this judges no unit


@dataclass(frozen=True)
class Healthy:
    """The result of learning: the votes kept, the centre, and how alike the kept ones are."""

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

    `votes` are positions in `samples`. A sample may have several votes or none: a good pair of
    nodes votes for both of them. `start` is an earlier criterion, learned from fewer days.
    `together` metrics of one program judge a node, each with its share of the rate of false alarms.
    """
    if len(samples) == 0:
        raise CriteriaError(f"nothing to learn {key.workload} {key.metric} from: no samples")
    voters = np.arange(len(samples)) if votes is None else np.asarray(votes)
    fleet = make_comparable(samples, metric.direction, key)
    begin = None if start is None else goodness(start.reference, start.direction)
    two_sided = metric.direction == "either"
    strictness = Strictness(
        alpha=policy.alpha, rate=policy.false_alarm_rate / together, two_sided=two_sided
    )
    taught = _Class(fleet, voters, begin, policy, strictness)
    learned = _choose(taught)
    criterion = Criterion(
        key=key,
        unit=metric.unit,
        direction=metric.direction,
        reference=goodness(taught.reference(learned.healthy), metric.direction),  # its own inverse
        units=voters.size,
        healthy=len(learned.healthy.kept),
        nodes=nodes,
        repeatability=learned.healthy.repeatability,
        refusal=learned.healthy.refusal,
        from_repeats=from_repeats,
        alpha=learned.alpha,
        tail=learned.tail,
    )
    if learned.calibration:
        criterion = taught.add_limits(criterion, learned.calibration)
        halves = halve(samples, metric.direction)
        criterion = _add_sensitivity(criterion, taught, learned.calibration, halves)
    return replace(criterion, refusal=_refusal(criterion, policy))


def _refusal(criterion: Criterion, policy: Policy) -> str:
    if criterion.units < policy.min_units:
        return f"learned from {criterion.units} of the {policy.min_units} units it takes"
    if criterion.refusal or not criterion.shows:
        return criterion.refusal
    if _is_loosened(criterion, policy.alpha) and criterion.shows > USEFUL_LOSS:
        return (
            f"healthy units differ so widely that only a loss of {criterion.shows:.0%} is sure "
            "to show"
        )
    return ""


def _is_loosened(criterion: Criterion, alpha: float) -> bool:
    """True if no limit of the criterion sees a loss of all samples as strictly as asked for."""
    return max(criterion.alpha, criterion.typical_alpha or 0.0) < alpha


def _add_sensitivity(
    criterion: Criterion,
    taught: _Class,
    calibration: Calibration,
    halves: tuple[medoid.Bundle, medoid.Bundle] | None,
) -> Criterion:
    """The criterion with the losses that it shows and, if its limit is looser than alpha, with the
    repeats that alpha would take."""
    strictness = taught.strictness
    healthy = sample_healthy(taught.fleet, calibration.usual)

    def find_defective(units: medoid.Bundle) -> Flags:
        return _similarities(units, criterion) <= criterion.alpha

    repeats: int | None = 1
    if _is_loosened(criterion, strictness.alpha):
        reference = goodness(criterion.reference, criterion.direction)
        repeats = (
            repeats_needed(taught.fleet, halves, reference, calibration, strictness)
            if halves
            else None
        )
    return replace(
        criterion,
        shows=smallest_loss(healthy, find_defective),
        stalls=smallest_stalls(healthy, find_defective),
        repeats=repeats,
    )


@dataclass(frozen=True)
class _Learned:
    """The result of learning with one tail resolution."""

    healthy: Healthy
    tail: float
    alpha: float
    calibration: Calibration | None = None  # None: not asked for, or too few units


@dataclass(frozen=True)
class _Class:
    """The units to learn from, and what is asked of the criterion."""

    fleet: medoid.Bundle
    voters: npt.NDArray[np.int64]
    begin: Samples | None
    policy: Policy
    strictness: Strictness

    @property
    def stricter_is_welcome(self) -> bool:
        return self.policy.own_alpha or self.strictness.two_sided

    @property
    def has_steps(self) -> bool:
        """True if several limits say more than one, which is not so for single values."""
        return self.fleet.lengths.max() > 1 and not self.strictness.two_sided

    def settle(self, alpha: float, tail: float) -> Healthy:
        return settle(self.fleet, self.voters, alpha=alpha, tail=tail, start=self.begin)

    def reference(self, healthy: Healthy) -> Samples:
        return self.fleet[self.voters[healthy.medoid]].copy()

    def calibrate_tail(self, healthy: Healthy) -> Calibration | None:
        reference = self.reference(healthy)
        return calibrate_tail(self.fleet, self.voters, reference, self.policy.tail, self.strictness)

    def calibrate_together(self, healthy: Healthy) -> Calibration | None:
        reference = self.reference(healthy)
        return calibrate_together(
            self.fleet, self.voters, reference, self.policy.tail, self.strictness
        )

    def add_limits(self, criterion: Criterion, own: Calibration) -> Criterion:
        """The criterion with its own limits, none of which is stricter than the policy unless that
        is welcome."""
        strictest = 1.0 if self.stricter_is_welcome else self.policy.alpha
        typical, fine = (
            None if limit is None else min(strictest, alpha_of(limit))
            for limit in (own.typical, own.fine)
        )
        return replace(
            criterion,
            proposed_alpha=own.alpha,
            typical_alpha=typical,
            fine_tail=None if fine is None else self.policy.tail,
            fine_alpha=fine,
        )


def _choose(taught: _Class) -> _Learned:
    """Learn with the finest tail resolution if it carries alpha, because it sees every loss. If it
    does not, or if a stricter limit is welcome, learn several limits."""
    policy = taught.policy
    plain = _Learned(taught.settle(policy.alpha, policy.tail), policy.tail, policy.alpha)
    if not (policy.calibrated or taught.stricter_is_welcome):
        return plain
    calibration = taught.calibrate_tail(plain.healthy)
    if calibration is None:
        return plain
    learned = replace(plain, calibration=calibration)
    carries = calibration.alpha >= policy.alpha and not plain.healthy.refusal
    if carries and not taught.stricter_is_welcome:
        return learned
    if not (policy.calibrated and taught.has_steps):
        return _apply_own_limit(taught, learned, learned, taught.calibrate_tail)
    healthy = taught.settle(policy.alpha, MEAN)
    together = _Learned(healthy, MEAN, policy.alpha, taught.calibrate_together(healthy))
    return _apply_own_limit(taught, together, learned, taught.calibrate_together)


def _apply_own_limit(
    taught: _Class,
    learned: _Learned,
    plain: _Learned,
    calibrate: Callable[[Healthy], Calibration | None],
) -> _Learned:
    """The learned criterion with the limit that its units carry. If learning refuses units in two
    groups, no limit is loosened over them."""
    policy, own = taught.policy, learned.calibration
    if own is None:
        return plain
    if own.alpha >= policy.alpha:
        return replace(learned, alpha=own.alpha) if taught.stricter_is_welcome else learned
    if not policy.calibrated or (learned.healthy.refusal and own.in_two_groups):
        return plain
    healthy = taught.settle(own.alpha, learned.tail)
    again = calibrate(healthy) or own
    return _Learned(healthy, learned.tail, min(policy.alpha, again.alpha), again)


def settle(
    samples: medoid.Bundle,
    votes: npt.NDArray[np.int64],
    *,
    alpha: float,
    tail: float,
    start: Samples | None = None,
) -> Healthy:
    """Algorithm 2 on samples in goodness: the votes that are kept, their medoid, and how alike they
    are.

    It begins with the samples like `start` if they are a majority, else with all. The sums of the
    first round are kept, and corrected for each sample that is later set aside or taken back.
    """
    from anubis.core.judge import medoid

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
    """The mean similarity of all pairs of different measurements; None if there is no pair. (A
    sample always agrees with itself.)"""
    votes_each = np.bincount(votes)
    pairs = votes.size**2 - int(np.sum(votes_each**2))
    return 1 - max(0.0, float(sums.sum())) / pairs if pairs else None


def halve(
    samples: Sequence[Samples] | Samples, direction: Direction
) -> tuple[medoid.Bundle, medoid.Bundle] | None:
    """The earlier and the later half of each sample, in goodness; None for single values."""
    from anubis.core.judge import medoid

    if min(len(sample) for sample in samples) < 2:
        return None
    cuts = [len(sample) // 2 for sample in samples]
    earlier = [goodness(sample[:cut], direction) for sample, cut in zip(samples, cuts, strict=True)]
    later = [goodness(sample[cut:], direction) for sample, cut in zip(samples, cuts, strict=True)]
    return medoid.Bundle.from_samples(earlier), medoid.Bundle.from_samples(later)


def similarities(samples: Sequence[Samples] | Samples, criterion: Criterion) -> Samples:
    """The similarity of each sample: 1 if it is nowhere worse than the reference, and less the
    worse it is. If either direction is worse, only an identical sample has 1.

    The limit that a sample exceeds most, or is nearest to, counts. Other limits than alpha are
    brought to its scale, so that a sample is beyond any of them if its similarity is not above
    alpha.
    """
    return _similarities(make_comparable(samples, criterion.direction, criterion.key), criterion)


def _similarities(units: medoid.Bundle, criterion: Criterion) -> Samples:
    shortfall: Samples = np.max(list(_shortfalls(units, criterion).values()), axis=0)
    similarity: Samples = np.maximum(0.0, 1 - shortfall * (1 - criterion.alpha))
    return similarity


def is_slow_at_times(samples: Samples, criterion: Criterion) -> bool:
    """True if a sample falls short most by its slowest steps."""
    units = make_comparable([samples], criterion.direction, criterion.key)
    shortfalls = _shortfalls(units, criterion)
    return "fine" in shortfalls and max(shortfalls, key=lambda name: shortfalls[name][0]) == "fine"


def _shortfalls(units: medoid.Bundle, criterion: Criterion) -> dict[str, Samples]:
    """The amount by which samples are worse, by each limit of a criterion and in units of that
    limit."""
    from anubis.core.judge import medoid

    reference = goodness(criterion.reference, criterion.direction)
    worse = criterion.direction != "either"
    distance = medoid.distances_to(units, reference, criterion.tail, worse=worse)
    shortfalls = {"all": distance / (1 - criterion.alpha)}
    if criterion.typical_alpha is not None:
        loss = medoid.typical_losses(units, reference)
        shortfalls["typical"] = loss / (1 - criterion.typical_alpha)
    if criterion.fine_tail is not None and criterion.fine_alpha is not None:
        distance = medoid.distances_to(units, reference, criterion.fine_tail, worse=True)
        shortfalls["fine"] = distance / (1 - criterion.fine_alpha)
    return shortfalls


def make_comparable(
    samples: Sequence[Samples] | Samples, direction: Direction, key: CriterionKey
) -> medoid.Bundle:
    """Samples in the form in which learning and judging compare them: all of them, in goodness."""
    from anubis.core.judge import medoid

    try:
        if isinstance(samples, np.ndarray) or len({len(sample) for sample in samples}) == 1:
            return medoid.Bundle.from_samples(
                goodness(np.asarray(samples), direction)
            )  # one sort, one check
        return medoid.Bundle.from_samples([goodness(sample, direction) for sample in samples])
    except CriteriaError:
        refuse_unusable(samples, key)
        raise


def refuse_unusable(samples: Iterable[Samples], key: CriterionKey) -> None:
    """Report the first sample that cannot be compared, with its number (from 1) and its key."""
    for number, sample in enumerate(samples, 1):
        try:
            goodness(sample, "higher")
        except CriteriaError as error:
            raise CriteriaError(
                f"{key.workload} {key.metric} of {key.sku}, unit {number}: {error}"
            ) from None
