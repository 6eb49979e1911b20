"""Judge units that were measured again, because they fell short, by both times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from anubis.core.arrays import Flags, Ints
from anubis.core.fabric import Fabric
from anubis.core.judge.criteria import Shortfalls, shortfalls, to_similarity
from anubis.core.judge.siblings import number_nodes
from anubis.core.judge.slow_steps import tail_chances
from anubis.core.judge.units import Unit, Units
from anubis.core.network.rails import Rails
from anubis.core.network.sharing import LEAST_LOST, CableUse
from anubis.core.records import Criterion, Samples, SlowShare

GOOD = 2 / 3  # of the limit: a unit that is no further off was good that time
BY_CHANCE = 0.05  # the probability above which chance explains so many units that are bad twice
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


def judge_by_both_times(
    alike: Units,
    criterion: Criterion,
    planned_runs: int,
    similarity: Samples,
    shared: SharedCables | None,
) -> tuple[dict[int, str], Flags]:
    """The doubts about units that were measured again and fell short, and flags for those that are
    excused. In `similarity`, that of both times replaces the first.

    A unit is in doubt if it was bad one time and good the other, if chance explains that it was bad
    twice, or if the healthy nodes measured beside it fell short the second time too. A pair that is
    good undisturbed is excused, and judged by that time, if it may have shared a cable before. One
    on a known fabric that is bad each time stays bad: the parts that it crosses are judged by all
    pairs and times (`core/network/repetition.py`).
    """
    excused = np.zeros(len(alike), dtype=bool)
    again = np.flatnonzero(np.diff(alike.firsts) > planned_runs)
    if not again.size:
        return {}, excused
    planned, repeated = judge_each_time([alike[i] for i in again.tolist()], criterion, planned_runs)
    limit = 1 - criterion.alpha
    first, second = (
        to_similarity(short.suspicion(criterion), criterion) for short in (planned, repeated)
    )
    alone = np.array([len(alike.participants[i]) == 1 for i in again])
    controls = alone & (1 - first <= GOOD * limit)
    of_all = learn_from_controls(criterion, repeated, controls)
    similarity[again] = to_similarity(planned.together(repeated, of_all), criterion)
    upset = again[controls & (1 - second >= limit)]
    equal_chances = count_equal_chances(planned, repeated, criterion, len(alike))
    doubts = {}
    for i, at_first, at_second, as_bad_once in zip(
        again.tolist(), first, second, equal_chances.tolist(), strict=True
    ):
        pair = alike.participants[i], alike.devices[i]
        if 1 - at_first > LEAST_LOST and at_second > criterion.alpha:
            excused[i] = shared is not None and shared.are_possible(*pair)
        if excused[i]:
            similarity[i] = at_second
        elif 1 - at_second <= GOOD * limit:
            doubts[i] = "good when it was measured again"
        elif 1 - at_first <= GOOD * limit:
            doubts[i] = "good when it was measured first"
        elif upset.size and upset.size == controls.sum():
            beside = ", ".join(alike.participants[upset[0]])
            doubts[i] = f"when it was measured again, {beside} fell short too"
        elif as_bad_once > 0 and not (shared and shared.rails.pair_test(*pair)):
            doubts[i] = (
                "bad twice, which may be chance: "
                f"{as_bad_once} of {len(alike)} were as bad once and good the other time"
            )
    return doubts, excused


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


def count_equal_chances(
    first: Shortfalls, second: Shortfalls, criterion: Criterion, units: int
) -> Ints:
    """Count, for each unit that chance may have made bad twice, the units that were as bad once and
    good the other time. 0 if chance does not explain it, by level, by slow steps or by the
    worse of both; -1 if the unit was good once."""
    views = (
        (first.level, second.level),
        (first.slow_suspicion(criterion), second.slow_suspicion(criterion)),
        (first.suspicion(criterion), second.suspicion(criterion)),
    )
    by_view = np.array([_count_equal_chances(*view, units) for view in views])
    counts: Ints = np.where(np.any(by_view == 0, axis=0), 0, by_view.max(axis=0))
    return counts


def _count_equal_chances(first: Samples, second: Samples, units: int) -> Ints:
    """The same by one shortfall, in units of the limit.

    The units that come and go show the chance of a healthy unit to be so bad once; to be so bad
    twice, the chance is the square of that. Chance explains a unit if, in more than one fleet of
    twenty, it makes as many units so bad twice.

    If units often come and go, their levels are those of runs, and the few that went say too little
    of the chance. Then it is known from all units at first, and from the good ones the second time.
    """
    from scipy.special import pdtrc

    both = np.minimum(first, second)
    counts = np.full(both.size, -1)
    bad = np.flatnonzero(both > GOOD)
    limit = both[bad, None]
    passes = np.minimum(limit, 1.0)
    went = np.sum((first >= passes) & (second < passes), axis=1)
    beyond = (1 - np.sqrt(np.maximum(0.0, 1 - 4 * went / units))) / 2  # p (1 - p) come and go
    once = np.sum((first >= limit) & (second < passes), axis=1)
    twice = np.sum(both >= limit, axis=1)
    expected = (once / (1 - beyond)) ** 2 / units
    explained = pdtrc(twice - 1, expected) > BY_CHANCE
    were_good = first < GOOD
    controls = int(np.sum(were_good))
    came = np.sum(were_good & (second >= limit), axis=1)
    often = np.maximum(once / units, came / max(1, controls)) ** 2 > OF_THE_GOOD
    for i in np.flatnonzero(often & ~explained).tolist():
        at_first, runs = int(np.sum(first >= limit[i])), units + controls
        share = (at_first + int(came[i])) / runs
        share_of_runs = SlowShare(times=1.0, share=share, steps=runs, correlation=0.0)
        explained[i] = tail_chances(at_first, share_of_runs)[twice[i]] > BY_CHANCE
    counts[bad] = np.where(explained, once + came, 0)
    return counts


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
