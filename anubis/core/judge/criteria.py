"""Learn a criterion from a fleet's samples, and judge a sample by it.

Learning is Algorithm 2 of the ANUBIS paper with the medoid as centre: find the sample most like
all others, set aside the samples with similarity <= alpha to it, and repeat until nothing changes.
Learning is two-sided (unusual samples), judging one-sided (worse samples): a faster node is no
defect. A criterion that cannot be trusted has a `refusal`, and judging by it answers unknown.

By a calibrated policy, slow steps are counted (slow_steps.py), and the level of a run is judged
without them. If nodes have several units, each is compared with its siblings as well (siblings.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from anubis.core.arrays import Flags, Ints
from anubis.core.errors import CriteriaError
from anubis.core.judge import rounding, siblings
from anubis.core.judge.calibration import (
    FEWEST,
    FEWEST_WITH_PRIOR,
    FOUND,
    LEAST_SPREAD,
    Calibration,
    Priors,
    Strictness,
    alpha_of,
    calibrate_lags,
    calibrate_tail,
    calibrate_together,
    repeats_needed,
    sample_healthy,
    smallest_loss,
)
from anubis.core.judge.earlier_scatter import fit_priors
from anubis.core.judge.ecdf import goodness
from anubis.core.records import (
    Criterion,
    CriterionKey,
    Direction,
    MetricSpec,
    Policy,
    Samples,
    SlowSteps,
)

if TYPE_CHECKING:
    from anubis.core.judge import ecdf
    from anubis.core.judge.slow_steps import SlowSamples

DIGITS = 9  # of repeatability: processors add up vectors of different lengths, in another order
MOST_ROUNDS = 100  # a fleet whose kept units alternate for ever is refused
OF_SLOW_STEPS = 0.3  # share of the rate of false alarms; the rest is for mean and typical step
OF_SIBLINGS = 0.3  # share of the rest, for the comparison of a unit with its siblings
# of what alpha allows: nodes of a job slow each other in slow steps, and a unit that is slower than
# its siblings costs less if it is hardly slower than the fleet
OF_LOSS = 0.5
MEAN = 1.0  # the tail resolution with which a loss counts by its mean
USEFUL_LOSS = 0.5  # a limit that is looser than this judges no unit,
USEFUL_RISE = 0.9  # or none by a count of events: ten times as many
# More times as good as normal is not believed. Hosts that shared two cores when they taught the
# criteria may have them alone later.
BELIEVED = 20.0
KIND_COUNTS = ("gpus", "nvlinks", "xgmi_links", "cpus")  # more of them than on any are another kind


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
    owners: Ints | None = None,
    from_repeats: bool = False,
    start: Criterion | None = None,
    together: float = 1.0,
    count_slow: bool = True,
    earlier: Sequence[Criterion] = (),
) -> Criterion:
    """The criterion of one key from the samples of comparable units, in their measured unit.

    `votes` are positions in `samples`. A sample may have several votes or none: a good pair of
    nodes votes for both of them. `owners` has the number of the node of each unit, if nodes have
    several. `start` is an earlier criterion, learned from fewer days.
    `earlier` criteria of the key, from other measurements, tell how healthy nodes scatter.
    `together` metrics of one program judge a node, each with its share of the rate of false alarms.
    Without `count_slow`, slow steps count by how slow they are, as warm-up does when it is tuned.
    """
    from anubis.core.judge import slow_steps

    if len(samples) == 0:
        raise CriteriaError(f"nothing to learn {key.workload} {key.metric} from: no samples")
    voters = np.arange(len(samples)) if votes is None else np.asarray(votes)
    measured = as_measured(samples, metric.direction, key)
    two_sided = metric.direction == "either"
    of_things = metric.is_count and metric.direction == "higher" and rounding.are_fixed(samples)
    may_be_rounded = policy.calibrated and not (two_sided or of_things)
    rounded = rounding.find_rounding(samples) if may_be_rounded else rounding.NONE
    if metric.is_count and rounded is not rounding.NONE:
        rounded = rounding.allow_chance(rounded, samples)
    strictness = Strictness(
        alpha=policy.alpha,
        rate=policy.false_alarm_rate / together,
        two_sided=two_sided,
        least=rounded.of_mean,
        least_typical=rounded.of_typical,
    )
    if two_sided or not policy.calibrated:
        owners = None
    witnesses = len(samples) if owners is None else int(owners.max()) + 1
    single_nodes = not (two_sided or from_repeats) and votes is None
    few = witnesses < FEWEST and single_nodes
    slow = None
    if count_slow and policy.calibrated and not two_sided:
        slow = _learn_slow_steps(measured.subset(voters), policy, strictness.rate, rounded.of_steps)
    level = slow_steps.set_aside(measured, slow).level if slow else measured
    fleet = level.sort_each()
    begin = None if start is None else goodness(start.reference, start.direction)
    taught = _Class(
        fleet=fleet,
        voters=voters,
        begin=begin,
        policy=policy,
        strictness=strictness,
        counts_slow=slow is not None,
        owners=owners,
        few=few,
        of_events=metric.is_count and metric.direction == "lower",
        priors=fit_priors(earlier),
    )
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
        slow_steps=slow,
        siblings_alpha=taught.siblings_alpha(learned.healthy),
    )
    if learned.calibration:
        criterion = taught.add_limits(criterion, learned.calibration)
        criterion = replace(criterion, earlier=len(earlier))
        doubtful = [policy.alpha] if few else []
        if single_nodes and learned.calibration.least is not None:
            doubtful.append(min(policy.alpha, alpha_of(learned.calibration.least)))
        if not few and rounded is not rounding.NONE:
            fine = replace(strictness, least=LEAST_SPREAD, least_typical=LEAST_SPREAD)
            doubtful.append(_choose(replace(taught, strictness=fine)).alpha)
        strictest = max(doubtful, default=0.0)
        if _has_loose_limit(criterion, strictest):
            criterion = replace(criterion, doubt_alpha=strictest)
        criterion = _add_sensitivity(criterion, taught, learned.calibration, measured, level)
    return replace(criterion, refusal=_refusal(criterion, taught))


def _learn_slow_steps(
    units: ecdf.Bundle, policy: Policy, rate: float, half_a_step: float
) -> SlowSteps | None:
    """The slow steps of a fleet. If suspects are measured again, a healthy unit may be beyond the
    limit of either measurement as often as the root of the rate for both. Slow steps that cost
    little are no defect unless stricter limits are welcome."""
    from anubis.core.judge import slow_steps

    both = rate * OF_SLOW_STEPS
    once = math.sqrt(both) if policy.confirm else both
    least = 0.0 if policy.own_alpha else OF_LOSS * (1 - policy.alpha)
    return slow_steps.learn_slow_steps(units, once, both, least, half_a_step)


def _refusal(criterion: Criterion, taught: _Class) -> str:
    policy = taught.policy
    if criterion.units < policy.min_units:
        return f"learned from {criterion.units} of the {policy.min_units} units it takes"
    if criterion.refusal or not criterion.shows:
        return criterion.refusal
    if not _is_loosened(criterion, policy.alpha):
        return ""
    if taught.few:  # what is beyond alpha is unknown, so it only takes a majority that is alike
        return taught.settle(policy.alpha, criterion.tail).refusal
    if criterion.shows <= (USEFUL_RISE if taught.of_events else USEFUL_LOSS):
        return ""
    return (
        f"healthy units differ so widely that only a loss of {criterion.shows:.0%} is sure to show"
    )


def _is_loosened(criterion: Criterion, alpha: float) -> bool:
    """True if no limit of the criterion sees a loss of all samples as strictly as asked for."""
    return max(criterion.alpha, criterion.typical_alpha or 0.0) < alpha


def _has_loose_limit(criterion: Criterion, alpha: float) -> bool:
    """True if any limit of the criterion lets more pass than alpha."""
    typical = criterion.typical_alpha
    return min(criterion.alpha, criterion.alpha if typical is None else typical) < alpha


def _add_sensitivity(
    criterion: Criterion,
    taught: _Class,
    calibration: Calibration,
    measured: ecdf.Bundle,
    level: ecdf.Bundle,
) -> Criterion:
    """The criterion with the losses that it shows and, if its limit is looser than alpha, with the
    repeats that alpha would take."""
    from anubis.core.judge import slow_steps

    strictness, slow = taught.strictness, criterion.slow_steps
    healthy = sample_healthy(taught.fleet, calibration.usual)
    reference = goodness(criterion.reference, criterion.direction)

    def find_defective(units: ecdf.Bundle) -> Flags:
        return _level_shortfalls(units, criterion, reference=reference) >= 1

    repeats: int | None = 1
    if _is_loosened(criterion, strictness.alpha):
        halves = halve(level)
        repeats = (
            repeats_needed(taught.fleet, halves, reference, calibration, strictness)
            if halves
            else None
        )
    return replace(
        criterion,
        shows=smallest_loss(healthy, find_defective, criterion.alpha * float(reference.mean())),
        stalls=slow_steps.smallest_stalls(sample_healthy(measured, calibration.usual), slow, FOUND)
        if slow
        else None,
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

    fleet: ecdf.Bundle
    voters: npt.NDArray[np.int64]
    begin: Samples | None
    policy: Policy
    strictness: Strictness
    counts_slow: bool  # steps, apart from the level of a run
    owners: Ints | None  # the node of each unit, if nodes have several
    few: bool  # too few nodes to show how much the next may differ
    of_events: bool  # counts, the fewer the better
    priors: Priors  # the scatter in earlier campaigns

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

    @property
    def fleet_rate(self) -> float:
        """The rate of false alarms for the comparison with the fleet."""
        return self.strictness.rate * (1.0 if self.owners is None else 1 - OF_SIBLINGS)

    @property
    def strictest(self) -> float:
        """No limit is stricter than the policy unless that is welcome."""
        return 1.0 if self.stricter_is_welcome else self.policy.alpha

    @property
    def is_calibrated(self) -> bool:
        return len(self.fleet) >= (FEWEST_WITH_PRIOR if self.few else FEWEST)

    def calibrate_tail(self, healthy: Healthy) -> Calibration | None:
        if not self.is_calibrated:
            return None
        return calibrate_tail(
            self.fleet,
            self.voters,
            self.reference(healthy),
            self.policy.tail,
            replace(self.strictness, rate=self.fleet_rate),
            self.owners,
            self.priors,
        )

    def calibrate_together(self, healthy: Healthy) -> Calibration | None:
        if not self.is_calibrated:
            return None
        rate = self.fleet_rate * (1 - OF_SLOW_STEPS)
        strictness = replace(self.strictness, rate=rate)
        reference = self.reference(healthy)
        return calibrate_together(
            self.fleet, self.voters, reference, strictness, self.owners, self.priors
        )

    def siblings_alpha(self, healthy: Healthy) -> float | None:
        """The limit of a unit beside its siblings; None if they are not compared."""
        from anubis.core.judge import ecdf

        if self.owners is None:
            return None
        losses = ecdf.typical_losses(self.fleet, self.reference(healthy))
        limit = calibrate_lags(
            siblings.lags(losses, self.owners),
            self.owners,
            self.strictness.rate * OF_SIBLINGS,
            self.strictness.least_typical,
        )
        return None if limit is None else min(self.strictest, alpha_of(limit))

    def add_limits(self, criterion: Criterion, own: Calibration) -> Criterion:
        """The criterion with its own limits, none of which is stricter than the policy unless that
        is welcome."""
        typical = None if own.typical is None else min(self.strictest, alpha_of(own.typical))
        apart = None if typical == criterion.alpha else typical
        criterion = replace(criterion, proposed_alpha=own.alpha, typical_alpha=apart)
        if own.in_two_groups:
            return criterion
        return replace(criterion, scatter=own.scatter, typical_scatter=own.typical_scatter)


def _choose(taught: _Class) -> _Learned:
    """Learn by alpha, and by the limits of the fleet's own scatter if alpha is too strict for it or
    if stricter limits are welcome.

    If slow steps are counted, or if the finest tail resolution does not carry alpha, the mean and
    the typical step of a run are judged. Otherwise the finest one is, because it sees every loss.
    """
    policy, tail = taught.policy, MEAN if taught.counts_slow else taught.policy.tail
    plain = _Learned(taught.settle(policy.alpha, tail), tail, policy.alpha)
    if not (policy.calibrated or taught.stricter_is_welcome):
        return plain
    calibrate = taught.calibrate_together if taught.counts_slow else taught.calibrate_tail
    calibration = calibrate(plain.healthy)
    if calibration is None:
        return plain
    learned = replace(plain, calibration=calibration)
    carries = calibration.alpha >= policy.alpha and not plain.healthy.refusal
    if carries and not taught.stricter_is_welcome:
        return learned
    if taught.counts_slow or not (policy.calibrated and taught.has_steps):
        return _apply_own_limit(taught, learned, learned, calibrate)
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
    samples: ecdf.Bundle,
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
    from anubis.core.judge import ecdf

    fleet = samples.subset(votes)
    kept = np.ones(len(fleet), dtype=np.bool_)
    if start is not None:
        like = 1 - ecdf.distances_to(fleet, start, tail, worse=False) > alpha
        kept = like if 2 * np.sum(like) > len(fleet) else kept
    sums = ecdf.distance_sums(fleet, tail, among=kept)
    seen = {kept.tobytes()}
    refusal = ""
    for _ in range(MOST_ROUNDS):
        least = sums[kept].min() * (1 + 1e-9) + 1e-12
        centre = int(
            np.argmax(kept & (sums <= least))
        )  # of equals the first, whatever the rounding
        similarity = 1 - ecdf.distances_to(fleet, fleet[centre], tail, worse=False)
        again = similarity > alpha
        if np.array_equal(again, kept):
            break
        if again.tobytes() in seen:
            refusal = "learning went round in circles: no set of similar units is stable"
            break
        seen.add(again.tobytes())
        if np.any(kept & ~again):
            sums = sums - ecdf.distance_sums(fleet, tail, among=kept & ~again)
        if np.any(again & ~kept):
            sums = sums + ecdf.distance_sums(fleet, tail, among=again & ~kept)
        kept = again
    else:
        refusal = f"learning did not settle in {MOST_ROUNDS} rounds"
    positions = np.flatnonzero(kept)
    majority = 2 * positions.size > len(fleet)
    if majority:
        repeatability = _mean_similarity(sums[kept], votes[kept])
    else:  # say how alike all are
        repeatability = _mean_similarity(ecdf.distance_sums(fleet, tail), votes)
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
    return round(1 - max(0.0, float(sums.sum())) / pairs, DIGITS) if pairs else None


def halve(measured: ecdf.Bundle) -> tuple[ecdf.Bundle, ecdf.Bundle] | None:
    """The earlier and the later half of each unit, sorted; None for single values."""
    from anubis.core.judge import ecdf

    if measured.lengths.min() < 2:
        return None
    cuts = measured.lengths // 2
    earlier = [steps[:cut] for steps, cut in zip(measured, cuts, strict=True)]
    later = [steps[cut:] for steps, cut in zip(measured, cuts, strict=True)]
    return (
        ecdf.Bundle.from_samples(earlier).sort_each(),
        ecdf.Bundle.from_samples(later).sort_each(),
    )


@dataclass(frozen=True)
class Shortfalls:
    """How far units fall short of a criterion, in units of its limits: 1 is at the limit."""

    level: Samples
    slow: Ints  # the slow steps of each unit, a row for each share
    lost: Samples  # the time that each unit loses in them, relative to its usual time
    steps: Ints  # of each unit

    def __getitem__(self, chosen: slice) -> Shortfalls:
        return Shortfalls(
            self.level[chosen], self.slow[:, chosen], self.lost[chosen], self.steps[chosen]
        )

    def suspicion(self, criterion: Criterion) -> Samples:
        """The shortfall by the limit of one of two measurements."""
        return self._combine(criterion, lambda slow: slow.once)

    def slow_suspicion(self, criterion: Criterion) -> Samples:
        """The same by the slow steps alone."""
        return replace(self, level=np.zeros_like(self.level)).suspicion(criterion)

    def shortfall(self, criterion: Criterion) -> Samples:
        """The shortfall by the limit of all that was measured."""
        return self._combine(criterion, lambda slow: slow.both)

    def together(self, again: Shortfalls, criterion: Criterion) -> Samples:
        """The shortfall of two measurements of the same units: the mean of their levels, and all
        slow steps."""
        steps = self.steps + again.steps
        both = Shortfalls(
            level=(self.level + again.level) / 2,
            slow=self.slow + again.slow,
            lost=(self.lost * self.steps + again.lost * again.steps) / steps,
            steps=steps,
        )
        return both._combine(criterion, lambda slow: slow.both, first=self)

    def _combine(
        self,
        criterion: Criterion,
        limit: Callable[[SlowSteps], float],
        first: Shortfalls | None = None,
    ) -> Samples:
        from anubis.core.judge import slow_steps

        slow = criterion.slow_steps
        if slow is None:
            return self.level
        own = (first.slow, first.steps) if first else None
        chance = slow_steps.chances(self.slow, self.steps, slow, own)
        short = slow_steps.surprise(chance, limit(slow))
        if slow.least:
            short = np.minimum(short, slow_steps.costs(self.lost, slow) / slow.least)
        larger: Samples = np.maximum(self.level, short)
        return larger


def shortfalls(
    samples: Sequence[Samples] | Samples, criterion: Criterion, owners: Ints | None = None
) -> Shortfalls:
    """The shortfalls of units. With `owners`, the numbers of their nodes, siblings are compared
    too."""
    from anubis.core.judge import slow_steps

    measured = as_measured(samples, criterion.direction, criterion.key)
    slow = criterion.slow_steps
    if slow is None:
        nothing = np.zeros(len(measured))
        level, counts, lost = measured, np.zeros((0, len(measured)), dtype=np.int64), nothing
    else:
        apart = slow_steps.set_aside(measured, slow, _pace_of(criterion, slow))
        level, counts, lost = apart.level, apart.slow, apart.lost
    short = _level_shortfalls(level.sort_each(), criterion, owners)
    return Shortfalls(short, counts, lost, measured.lengths)


def _pace_of(criterion: Criterion, slow: SlowSteps) -> float:
    from anubis.core.judge import slow_steps

    return slow_steps.pace_of(goodness(criterion.reference, criterion.direction), slow)


def similarities(samples: Sequence[Samples] | Samples, criterion: Criterion) -> Samples:
    """The similarity of each sample: 1 if it is nowhere worse than the reference, and less the
    worse it is. If either direction is worse, only an identical sample has 1.

    The limit that a sample exceeds most, or is nearest to, counts. Other limits than alpha are
    brought to its scale, so that a sample is beyond any of them if its similarity is not above
    alpha.
    """
    return to_similarity(shortfalls(samples, criterion).shortfall(criterion), criterion)


def to_similarity(shortfall: Samples, criterion: Criterion) -> Samples:
    similarity: Samples = np.maximum(0.0, 1 - shortfall * (1 - criterion.alpha))
    return similarity


def are_too_good(samples: Sequence[Samples] | Samples, criterion: Criterion) -> Flags:
    """Units that cannot have been measured right: their mean is many times as good as normal. Their
    program did not do the work, or reports another unit. A few samples that are too good change
    little. A node with more parts than any of its kind is of another kind; a port that came up is
    no part."""
    if criterion.direction == "either":
        return np.zeros(len(samples), dtype=bool)
    measured = as_measured(samples, criterion.direction, criterion.key)
    means = measured.lengths / np.add.reduceat(1.0 / measured.values, measured.starts[:-1])
    normal = np.median(goodness(criterion.reference, criterion.direction))
    is_count = criterion.unit == "1" and criterion.key.metric in KIND_COUNTS
    flags: Flags = means > (criterion.reference.max() + 0.5 if is_count else BELIEVED * normal)
    return flags


def doubtful(
    samples: Sequence[Samples] | Samples, criterion: Criterion, owners: Ints | None
) -> tuple[Criterion, Samples]:
    """The criterion by the alpha of doubt, and the similarity of each unit by it. A unit that falls
    short of it, and is within the limits of few nodes or of coarse values, may be bad or not."""
    strict = replace(criterion, alpha=criterion.doubt_alpha or criterion.alpha, typical_alpha=None)
    return strict, to_similarity(shortfalls(samples, strict, owners).level, strict)


def worst_slow_samples(samples: Samples, criterion: Criterion) -> SlowSamples | None:
    """The slow steps of a unit, in its measured unit; None if it falls short more by its level."""
    from anubis.core.judge import slow_steps

    short = shortfalls([samples], criterion)
    if criterion.slow_steps is None or short.shortfall(criterion)[0] <= short.level[0]:
        return None
    measured = as_measured([samples], criterion.direction, criterion.key)
    slow = criterion.slow_steps
    worst = slow_steps.worst_of(measured, slow, _pace_of(criterion, slow))
    if criterion.direction == "lower":
        return replace(worst, measured=1 / worst.measured, usual=1 / worst.usual)
    return worst


def median_of_siblings(samples: Sequence[Samples], unit: int, criterion: Criterion) -> float | None:
    """The usual median of the siblings of one of these units of a node, in the measured unit; None
    if the unit does not fall short of them, or falls short of the fleet by itself."""
    if criterion.siblings_alpha is None or len(samples) < siblings.FEWEST:
        return None
    alone, beside = (
        shortfalls(samples, criterion, owners).shortfall(criterion)[unit]
        for owners in (None, np.zeros(len(samples), dtype=np.int64))
    )
    if alone >= 1 or beside <= alone:
        return None
    return float(np.median([np.median(s) for i, s in enumerate(samples) if i != unit]))


def _level_shortfalls(
    units: ecdf.Bundle,
    criterion: Criterion,
    owners: Ints | None = None,
    reference: Samples | None = None,  # of the criterion, in goodness
) -> Samples:
    """The amount by which sorted units are worse, by the limit that they exceed most."""
    from anubis.core.judge import ecdf

    if reference is None:
        reference = goodness(criterion.reference, criterion.direction)
    worse = criterion.direction != "either"
    distance = ecdf.distances_to(units, reference, criterion.tail, worse=worse)
    shortfall = distance / (1 - criterion.alpha)
    by_typical = criterion.slow_steps is not None or criterion.typical_alpha is not None
    by_siblings = owners is not None and criterion.siblings_alpha is not None
    if not (by_typical or by_siblings):
        return shortfall
    loss = ecdf.typical_losses(units, reference)
    if by_typical:
        alpha = criterion.alpha if criterion.typical_alpha is None else criterion.typical_alpha
        shortfall = np.maximum(shortfall, loss / (1 - alpha))
    if owners is not None and criterion.siblings_alpha is not None:
        lag = np.minimum(siblings.lags(loss, owners), loss / OF_LOSS)
        shortfall = np.maximum(shortfall, lag / (1 - criterion.siblings_alpha))
    return shortfall


def as_measured(
    samples: Sequence[Samples] | Samples, direction: Direction, key: CriterionKey
) -> ecdf.Bundle:
    """All samples in goodness, in the order of measuring."""
    from anubis.core.judge import ecdf

    if isinstance(samples, np.ndarray) or len({len(sample) for sample in samples}) == 1:
        bundle = ecdf.Bundle.from_samples(np.asarray(samples, dtype=np.float64))
    else:
        bundle = ecdf.Bundle.from_samples(samples)
    values = bundle.values
    # NaN is not above 0
    if bundle.lengths.min() == 0 or not (values.min() > 0 and values.max() < np.inf):
        refuse_unusable(samples, key)
    return ecdf.Bundle(1.0 / values, bundle.lengths) if direction == "lower" else bundle


def refuse_unusable(samples: Iterable[Samples], key: CriterionKey) -> None:
    """Report the first sample that cannot be compared, with its number (from 1) and its key."""
    for number, sample in enumerate(samples, 1):
        try:
            goodness(sample, "higher")
        except CriteriaError as error:
            raise CriteriaError(
                f"{key.workload} {key.metric} of {key.sku}, unit {number}: {error}"
            ) from None
