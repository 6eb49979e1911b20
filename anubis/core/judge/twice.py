"""Judge units that were measured again, because they fell short, by both times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.fabric import Fabric
from anubis.core.judge.criteria import Shortfalls, shortfalls, to_similarity
from anubis.core.judge.units import Unit, Units
from anubis.core.network.rails import Rails
from anubis.core.network.sharing import LEAST_LOST, CableUse
from anubis.core.records import Criterion, Samples

GOOD = 2 / 3  # of the limit: a unit that is no further off was good that time


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

    A unit is in doubt if it was bad one time and good the other, or if the healthy nodes measured
    beside it fell short the second time too. A pair that is good undisturbed is excused, and judged
    by that time, if it may have shared a cable before.
    """
    excused = np.zeros(len(alike), dtype=bool)
    again = np.flatnonzero(np.diff(alike.firsts) > planned_runs)
    if not again.size:
        return {}, excused
    first, second, both = judge_each_time(
        [alike[i] for i in again.tolist()], criterion, planned_runs
    )
    similarity[again] = both
    limit = 1 - criterion.alpha
    alone = np.array([len(alike.participants[i]) == 1 for i in again])
    controls = alone & (1 - first <= GOOD * limit)
    upset = again[controls & (1 - second >= limit)]
    doubts = {}
    for i, at_first, at_second in zip(again.tolist(), first, second, strict=True):
        if 1 - at_first > LEAST_LOST and at_second > criterion.alpha:
            pair = alike.participants[i], alike.devices[i]
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
    return doubts, excused


def judge_each_time(
    again: Sequence[Unit], criterion: Criterion, planned_runs: int
) -> tuple[Samples, Samples, Samples]:
    """The similarities of the planned runs, of those repeated because the unit fell short, and of
    both together."""
    planned = [np.concatenate(unit.repeats[:planned_runs]) for unit in again]
    repeated = [np.concatenate(unit.repeats[planned_runs:]) for unit in again]
    first, second = (shortfalls(samples, criterion) for samples in (planned, repeated))
    at_first, at_second, both = (
        to_similarity(shortfall, criterion)
        for shortfall in (
            first.suspicion(criterion),
            second.suspicion(criterion),
            first.together(second, criterion),
        )
    )
    return at_first, at_second, both


def find_suspects(
    alike: Units, criterion: Criterion, planned_runs: int, short: Shortfalls
) -> Flags:
    """Flags for units with so many slow steps that a second measurement is worth its time: single
    nodes that were measured once."""
    if max(map(len, alike.participants)) > 1:
        return np.zeros(len(alike), dtype=bool)
    suspects: Flags = short.suspicion(criterion) >= 1
    return suspects & (np.diff(alike.firsts) <= planned_runs)
