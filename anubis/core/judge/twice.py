"""Judge units that were measured again, because they fell short, by both times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.fabric import Fabric
from anubis.core.judge.criteria import similarities
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
    excused. In `similarity`, the mean of both times replaces the first.

    A unit is in doubt if it was bad one time and good the other, or if the healthy nodes measured
    beside it fell short the second time too. A pair that is good undisturbed is excused, and judged
    by that time, if it may have shared a cable before.
    """
    again = np.flatnonzero(np.diff(alike.firsts) > planned_runs).tolist()
    times = {i: _similarity_of_each_time(alike[i], criterion, planned_runs) for i in again}
    limit = 1 - criterion.alpha
    alone = [i for i in again if len(alike.participants[i]) == 1]
    controls = [i for i in alone if 1 - times[i][0] <= GOOD * limit]
    upset = [i for i in controls if 1 - times[i][1] >= limit]
    doubts, excused = {}, np.zeros(len(alike), dtype=bool)
    for i, (first, second) in times.items():
        similarity[i] = (first + second) / 2
        if 1 - first > LEAST_LOST and second > criterion.alpha:
            pair = alike.participants[i], alike.devices[i]
            excused[i] = shared is not None and shared.are_possible(*pair)
        if excused[i]:
            similarity[i] = second
        elif 1 - second <= GOOD * limit:
            doubts[i] = "good when it was measured again"
        elif 1 - first <= GOOD * limit:
            doubts[i] = "good when it was measured first"
        elif upset and len(upset) == len(controls):
            beside = ", ".join(alike.participants[upset[0]])
            doubts[i] = f"when it was measured again, {beside} fell short too"
    return doubts, excused


def _similarity_of_each_time(
    unit: Unit, criterion: Criterion, planned_runs: int
) -> tuple[float, float]:
    """The similarity of the planned runs, and of those repeated because the unit fell short."""
    planned, again = unit.repeats[:planned_runs], unit.repeats[planned_runs:]
    samples = [np.concatenate(planned), np.concatenate(again)]
    first, second = similarities(samples, criterion).tolist()
    return first, second
