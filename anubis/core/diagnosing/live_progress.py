"""A job that is asked again and again while it runs: whether it stands still, and how long its
steps take, by nothing but when its ranks launched their collectives.

Clocks of hosts must agree better than a step is long; those of one host do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from anubis.core.diagnosing.evidence import Call, JobEvidence, Pulse, StepTime

STILL_S = 6.0  # nothing moves, and somebody waits: it hangs
STILL_PAUSES = 5.0  # that, or so many times the longest pause that was seen so far
LONGEST_STILL_S = 60.0
WARM_UP = 10  # collectives: starting up takes as long as it takes
PARTS = 6  # into which recent collectives are divided, each counted as one step
FEWEST_IN_PART = 2
RECENT = 600  # collectives


@dataclass
class Standstill:
    """Told evidence in the order of time. It says since when nothing moved, or None."""

    _counts: Mapping[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    _moved_at: float | None = None
    _looked_at: float = 0.0
    _longest_pause_s: float = 0.0  # over which looks saw no move
    _out: frozenset[int] = frozenset()  # did not answer when they were asked last

    @property
    def quiet_s(self) -> float:
        """For how long nothing has moved, by the last look."""
        return 0.0 if self._moved_at is None else self._looked_at - self._moved_at

    def since(self, evidence: JobEvidence) -> float | None:
        out = frozenset(
            process.rank for process in evidence.processes if process.pulse is not Pulse.ANSWERS
        )
        twice, self._out = out & self._out, out
        counts = {
            (advance.rank, advance.communicator): (advance.enqueued, advance.completed)
            for advance in evidence.advances
        }
        moves = any(self._counts.get(key) != count for key, count in counts.items())
        is_warm = any(completed >= WARM_UP for _, completed in counts.values())
        if self._moved_at is None or moves or not (is_warm or twice):
            if is_warm and self._moved_at is not None:
                pause_s = self._looked_at - self._moved_at
                self._longest_pause_s = max(self._longest_pause_s, pause_s)
            self._counts = {**self._counts, **counts}
            self._moved_at = self._looked_at = evidence.at
            return None
        self._looked_at = evidence.at
        waits = any(enqueued > completed for enqueued, completed in counts.values())
        limit_s = max(STILL_S, min(STILL_PAUSES * self._longest_pause_s, LONGEST_STILL_S))
        if twice or (waits and evidence.at - self._moved_at >= limit_s):
            return self._moved_at
        return None


def steps_of(calls: Iterable[Call]) -> Iterator[StepTime]:
    """Of the communicator with the most calls, in parts of as many collectives. A collective lasts
    until its last rank has launched it: what passes from then on is own time of each rank, until
    it launches the next; then it waits."""
    launches = _launches(calls)
    if not launches:
        return
    ranks = frozenset().union(*launches.values())
    entire = [number for number in sorted(launches) if launches[number].keys() == ranks]
    pairs = [pair for pair in pairwise(entire[-RECENT:]) if pair[1] == pair[0] + 1]
    length = len(pairs) // PARTS
    if len(ranks) < 2 or length < FEWEST_IN_PART:
        return
    for part in range(PARTS):
        own, waits = _part(launches, pairs[part * length : (part + 1) * length])
        mean = fmean(waits.values())
        for rank in sorted(ranks):
            yield StepTime(
                rank=rank,
                step=part,
                duration_s=own[rank] + waits[rank],
                own_s=own[rank],
                collective_s=waits[rank],
                group_s=mean,
            )


def _launches(calls: Iterable[Call]) -> dict[int, dict[int, float]]:
    """Of the busiest communicator: number of the collective → rank → when it launched it."""
    grouped: dict[str, dict[int, dict[int, float]]] = {}
    counts: dict[str, int] = {}
    for call in calls:
        if not call.point_to_point and call.launched is not None:
            counts[call.communicator] = counts.get(call.communicator, 0) + 1
            of_call = grouped.setdefault(call.communicator, {}).setdefault(call.sequence, {})
            of_call[call.rank] = call.launched
    return grouped[max(counts, key=lambda name: (counts[name], name))] if counts else {}


def _part(
    launches: Mapping[int, Mapping[int, float]], pairs: Sequence[tuple[int, int]]
) -> tuple[dict[int, float], dict[int, float]]:
    own: dict[int, float] = {}
    waits: dict[int, float] = {}
    for before, after in pairs:
        begin, end = max(launches[before].values()), max(launches[after].values())
        for rank, launched in launches[after].items():
            own[rank] = own.get(rank, 0.0) + max(0.0, launched - begin)
            waits[rank] = waits.get(rank, 0.0) + end - launched
    return own, waits
