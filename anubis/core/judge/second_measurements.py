"""Judge units that were measured again, because they fell short, by both times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from anubis.core.arrays import Flags, Ints
from anubis.core.fabric import Fabric
from anubis.core.judge.criteria import Shortfalls, shortfalls, to_similarity
from anubis.core.judge.siblings import number_nodes
from anubis.core.judge.units import Unit, Units
from anubis.core.network.rails import Rails
from anubis.core.network.sharing import LEAST_LOST, CableUse
from anubis.core.records import Criterion, Samples

GOOD = 2 / 3  # of the limit: a unit that is no further off was good that time
BY_CHANCE = 0.05  # the probability above which chance explains so many units that are bad twice
SECOND = 2  # measurement; a third one follows if chance explains both,
FEW = 8  # or if fewer nodes were measured: they hardly show how often runs are slow
OF_THE_GOOD = 0.005  # that are bad twice: the goal for false alarms allows so many


@dataclass(frozen=True)
class SharedCables:
    """The pairs that may have been slow because another pair used the same cable."""

    use: CableUse
    rails: Rails

    @classmethod
    def from_units(cls, fabric: Fabric, measured: Iterable[Units]) -> SharedCables:
        devices = chain.from_iterable(alike.devices for alike in measured)
        return cls(CableUse(fabric), Rails.from_devices(fabric, devices))

    def are_possible(self, participants: Sequence[str], device: str) -> bool:
        pair_test = self.rails.pair_test(participants, device)
        return pair_test is not None and self.use.is_shared_by_chance(pair_test)


@dataclass(frozen=True)
class Doubts:
    """What is said of units that were measured again, and fell short."""

    reasons: Mapping[int, str]  # why it may be no defect, by position
    excused: Flags
    to_repeat: Flags  # one more measurement may tell them from chance


def judge_by_both_times(
    alike: Units,
    criterion: Criterion,
    planned_runs: int,
    similarity: Samples,
    shared: SharedCables | None,
) -> Doubts:
    """The doubts about units that were measured again. In `similarity`, that of both times replaces
    the first.

    A unit is in doubt if it was bad one time and good the other, if chance explains that it was bad
    each time, or if the healthy nodes measured beside it fell short the second time too. One of few
    nodes is in doubt until it was bad three times. A pair
    that is good undisturbed is excused, and judged by that time, if it may have shared a cable
    before. One on a known fabric that is bad each time stays bad: the parts that it crosses are
    judged by all pairs and times (`core/network/repetition.py`).
    """
    excused, to_repeat = np.zeros((2, len(alike)), dtype=bool)
    again = np.flatnonzero(np.diff(alike.firsts) > planned_runs)
    if not again.size:
        return Doubts({}, excused, to_repeat)
    measured_again = [alike[i] for i in again.tolist()]
    planned, repeated = judge_each_time(measured_again, criterion, planned_runs)
    limit = 1 - criterion.alpha
    first, second = (
        to_similarity(short.suspicion(criterion), criterion) for short in (planned, repeated)
    )
    alone = np.array([len(unit.participants) == 1 for unit in measured_again])
    controls = alone & (1 - first <= GOOD * limit)
    of_all = learn_from_controls(criterion, repeated, controls)
    similarity[again] = to_similarity(planned.together(repeated, of_all), criterion)
    upset = again[controls & (1 - second >= limit)]
    times = RepeatedShortfalls.from_units(measured_again, criterion, planned_runs)
    nodes = _count_nodes(alike)
    equal_chances = times.count_equal_chances(nodes)
    reasons = {}
    for i, runs, at_first, at_second, came_and_went in zip(
        again.tolist(),
        times.made.tolist(),
        first,
        second,
        equal_chances.tolist(),
        strict=True,
    ):
        pair = alike.participants[i], alike.devices[i]
        is_bad_twice = runs == SECOND and min(1 - at_first, 1 - at_second) > GOOD * limit
        if 1 - at_first > LEAST_LOST and at_second > criterion.alpha:
            excused[i] = shared is not None and shared.are_possible(*pair)
        if excused[i]:
            similarity[i] = at_second
        elif 1 - at_second <= GOOD * limit:
            reasons[i] = "good when it was measured again"
        elif 1 - at_first <= GOOD * limit:
            reasons[i] = "good when it was measured first"
        elif upset.size and upset.size == controls.sum():
            beside = ", ".join(alike.participants[upset[0]])
            reasons[i] = f"when it was measured again, {beside} fell short too"
        elif came_and_went > 0 and not (shared and shared.rails.pair_test(*pair)):
            often = "twice" if runs == SECOND else f"{runs} times"
            reasons[i] = (
                f"bad {often}, which may be chance: "
                f"{came_and_went} of {nodes} were bad once and good another time"
            )
        elif is_bad_twice and len(pair[0]) == 1 and nodes < FEW:
            few = "one node does" if nodes == 1 else f"{nodes} nodes do"
            reasons[i] = f"bad twice, which may be chance: {few} not show how often runs are bad"
        to_repeat[i] = i in reasons and is_bad_twice and len(pair[0]) == 1
    return Doubts(reasons, excused, to_repeat)


def _count_nodes(alike: Units) -> int:
    """The number of nodes, or of groups."""
    owners = number_nodes(alike.participants)
    return len(alike) if owners is None else int(owners.max()) + 1


def learn_from_controls(criterion: Criterion, again: Shortfalls, controls: Flags) -> Criterion:
    """The criterion with the slow steps of good units that were measured again as well. Of few
    nodes the steps of one measurement are too few to say how rare a slow one is."""
    slow = criterion.slow_steps
    if slow is None or not controls.any():
        return criterion
    more, steps = again.slow[:, controls].sum(axis=1), int(again.steps[controls].sum())
    shares = tuple(
        replace(
            share,
            share=(share.share * share.steps + int(hits)) / (share.steps + steps),
            steps=share.steps + steps,
        )
        for share, hits in zip(slow.shares, more, strict=True)
    )
    return replace(criterion, slow_steps=replace(slow, shares=shares))


def judge_each_time(
    again: Sequence[Unit], criterion: Criterion, planned_runs: int
) -> tuple[Shortfalls, Shortfalls]:
    """The shortfalls of the planned runs, and of those repeated because the unit fell short."""
    planned = [np.concatenate(unit.repeats[:planned_runs]) for unit in again]
    repeated = [_best_time(unit, criterion, planned_runs) for unit in again]
    owners = number_nodes([unit.participants for unit in again])
    return shortfalls(planned, criterion, owners), shortfalls(repeated, criterion, owners)


@dataclass(frozen=True)
class RepeatedShortfalls:
    """The shortfalls of units that were measured again: a row for each time, NaN if a unit was not
    measured then. Each view judges by another shortfall, in units of the limit."""

    by_level: Samples
    by_slow_steps: Samples
    by_worse: Samples  # of both
    owners: Ints | None  # the node of each unit, if nodes have several

    @classmethod
    def from_shortfalls(
        cls,
        shorts: Sequence[Shortfalls],
        measured: Sequence[Flags],
        criterion: Criterion,
        owners: Ints | None = None,
    ) -> RepeatedShortfalls:
        """`measured`: the units of which each time has the shortfalls."""
        views = np.full((3, len(shorts), measured[0].size), np.nan)
        for time, (flags, short) in enumerate(zip(measured, shorts, strict=True)):
            views[0, time, flags] = short.level
            views[1, time, flags] = short.slow_suspicion(criterion)
            views[2, time, flags] = short.suspicion(criterion)
        level, slow_steps, worse = views
        return cls(level, slow_steps, worse, owners)

    @classmethod
    def from_units(
        cls, again: Sequence[Unit], criterion: Criterion, planned_runs: int
    ) -> RepeatedShortfalls:
        runs = np.array([len(unit.repeats) for unit in again])
        measured = [runs > start for start in range(0, int(runs.max()), planned_runs)]
        shorts = []
        for time, flags in enumerate(measured):
            units = [again[i] for i in np.flatnonzero(flags).tolist()]
            part = slice(time * planned_runs, (time + 1) * planned_runs)
            samples = [np.concatenate(unit.repeats[part]) for unit in units]
            owners = number_nodes([unit.participants for unit in units])
            shorts.append(shortfalls(samples, criterion, owners))
        owners = number_nodes([unit.participants for unit in again])
        return cls.from_shortfalls(shorts, measured, criterion, owners)

    @property
    def made(self) -> Ints:
        """The number of times that each unit was measured."""
        number: Ints = np.isfinite(self.by_level).sum(axis=0)
        return number

    def count_equal_chances(self, nodes: int) -> Ints:
        """Count, for each unit that chance may have made bad each time, the nodes that were bad
        once and good another time. 0 if chance does not explain it, by level, by slow steps or by
        the worse of both; -1 if the unit was good once."""
        views = self.by_level, self.by_slow_steps, self.by_worse
        by_view = np.array([_count_equal_chances(runs, self.owners, nodes) for runs in views])
        counts: Ints = np.where(np.any(by_view == 0, axis=0), 0, by_view.max(axis=0))
        return counts


def _count_equal_chances(of_units: Samples, owners: Ints | None, nodes: int) -> Ints:
    """The same by one shortfall.

    The nodes that come and go show the chance of a healthy one to be so bad once; to be so bad
    twice, the chance is the square of that. Chance explains a node if, in more than one fleet of
    twenty, it makes as many so bad twice.

    If nodes often come and go, their levels are those of runs, whose distribution is unknown. Then
    only the order of all runs counts.
    """
    from scipy.special import pdtrc

    runs = of_units if owners is None else _worst_of_nodes(of_units, owners)
    first, again = runs[0], np.nanmin(runs[1:], axis=0)
    best = np.nanmin(of_units, axis=0)
    counts = np.full(best.size, -1)
    bad = np.flatnonzero(best > GOOD)
    limit = best[bad, None]
    passes = np.minimum(limit, 1.0)
    went = np.sum((first >= passes) & (again < passes), axis=1)
    beyond = (1 - np.sqrt(np.maximum(0.0, 1 - 4 * went / nodes))) / 2  # p (1 - p) come and go
    once = np.sum((first >= limit) & (again < passes), axis=1)
    twice = np.sum(np.minimum(first, again) >= limit, axis=1)
    expected = (once / (1 - beyond)) ** 2 / nodes
    explained = pdtrc(twice - 1, expected) > BY_CHANCE
    controls = runs[1:, first < GOOD]
    came = np.sum(controls >= passes[..., None], axis=(1, 2))
    often = np.maximum(went / nodes, came / max(1, np.isfinite(controls).sum())) ** 2 > OF_THE_GOOD
    if often.any():
        made = np.isfinite(of_units).sum(axis=0)
        in_order = are_among_the_worst(runs, best[bad], made[bad], nodes)
        explained = np.where(often, ~in_order, explained)
    counts[bad] = np.where(explained, np.where(often, went + came, once), 0)
    return counts


def _worst_of_nodes(runs: Samples, owners: Ints) -> Samples:
    """The worst unit of each node, each time."""
    worst = np.full((len(runs), int(owners.max()) + 1), -np.inf)
    for row, of_units in zip(worst, runs, strict=True):
        np.fmax.at(row, owners, of_units)
    return np.where(np.isfinite(worst), worst, np.nan)


def are_among_the_worst(runs: Samples, best: Samples, made: Ints, nodes: int) -> Flags:
    """Flags for units all of whose runs are among the worst of all, more than chance explains.

    `runs`: of nodes that were measured again; the others were good at their only run. `best`: the
    best run of each unit in question, `made`: the number of its runs. Nodes that are found are left
    out, and the others are compared with each other.
    """
    beyond = np.zeros(best.size, dtype=bool)
    for k in np.unique(made)[::-1].tolist():
        while (level := _find_rare_level(runs, k, nodes)) is not None:
            beyond |= (made >= k) & (best >= level)
            is_beyond = np.nanmin(runs, axis=0) >= level
            is_beyond &= np.isfinite(runs).sum(axis=0) >= k
            runs, nodes = runs[:, ~is_beyond], nodes - int(is_beyond.sum())
    return beyond


def _find_rare_level(runs: Samples, k: int, nodes: int) -> float | None:
    """The highest level beyond which so many nodes have all of their k runs, or more, that chance
    does not explain it.

    If no node is bad, all runs are exchangeable. Of M runs of n nodes the R worst then contain all
    k runs of each of T nodes with a probability of C(n, T) C(R, kT) / C(M, kT) at most. It may be
    n / 200 T, as one of 200 healthy nodes may be called; each T has a share of this.
    """
    from scipy.special import gammaln

    def log_choose(n: Ints | int, chosen: Ints) -> Samples:
        logarithm: Samples = gammaln(np.add(n, 1)) - gammaln(chosen + 1) - gammaln(n - chosen + 1)
        return logarithm

    is_made = np.isfinite(runs)
    made, in_order = is_made.sum(axis=0), np.sort(runs[is_made])
    best = np.sort(np.nanmin(runs[:, made >= k], axis=0))
    every = nodes - made.size + in_order.size
    most_bad = max(1, (nodes - 1) // 2)  # fewer than half of the nodes
    alike = np.arange(min(best.size, most_bad), 0, -1)
    levels = best[best.size - alike]
    of_these = k * alike
    worst = in_order.size - np.searchsorted(in_order, levels)
    chance = log_choose(nodes, alike) + log_choose(worst, of_these) - log_choose(every, of_these)
    share = (1 + 1 / most_bad) / (alike * (alike + 1))
    rare = np.flatnonzero(
        (levels > GOOD)
        & (chance <= np.log(np.minimum(BY_CHANCE, OF_THE_GOOD * nodes / alike * share)))
    )
    return float(levels[rare[-1]]) if rare.size else None


def _best_time(unit: Unit, criterion: Criterion, planned_runs: int) -> Samples:
    """The samples of the repeated runs; if they were repeated several times, of the best time."""
    times = [
        np.concatenate(unit.repeats[start : start + planned_runs])
        for start in range(planned_runs, len(unit.repeats), planned_runs)
    ]
    if len(times) == 1:
        return times[0]
    return times[int(np.argmin(shortfalls(times, criterion).suspicion(criterion)))]


def find_suspects(
    alike: Units, criterion: Criterion, planned_runs: int, short: Shortfalls
) -> Flags:
    """Flags for units with so many slow steps that a second measurement is worth its time: single
    nodes that were measured once."""
    if max(map(len, alike.participants)) > 1:
        return np.zeros(len(alike), dtype=bool)
    suspects: Flags = short.suspicion(criterion) >= 1
    return suspects & (np.diff(alike.firsts) <= planned_runs)
