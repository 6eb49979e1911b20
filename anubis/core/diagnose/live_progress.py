"""Progress of a job that is sampled repeatedly while it runs: whether it moves, and how long its
steps take, only by how many collectives its ranks launched and finished, and when.

Clocks of different hosts must agree to less than the length of a step; ranks on one host share a
clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean

from anubis.core.diagnose.evidence import Call, JobEvidence, Pulse, Rise, StepTime

STILL_S = 6.0  # nothing moves for so long and a rank waits: the job hangs
STILL_PAUSES = 5.0  # or so many times the longest pause so far
LONGEST_STILL_S = 60.0  # the upper limit, also for a job that only begins
WARM_UP = 10  # collectives at the start, whose pauses are not typical
FRESH_S = 3.0  # a job that moved within so long moves, or within its longest pause
VOUCHES_S = 60.0  # for so long after the last look a move proves that the job moves
PARTS = 6  # of the recent collectives, each counted as one step
FEWEST_IN_PART = 2  # collectives: the waits of one are chance
RECENT = 600  # collectives

OUT = frozenset({Pulse.STOPPED, Pulse.GONE, Pulse.UNHEARD})

Counts = dict[tuple[int, str], tuple[int, int]]  # rank and communicator: launched, finished


@dataclass(frozen=True, kw_only=True)
class RankCount:
    """Collectives that a rank had finished at the first and at the last look."""

    rank: int
    before: int
    after: int
    since: float  # the first look
    until: float  # the last look at which it had risen


def progress_of(counts: Iterable[RankCount], at: float, fresh_s: float) -> Iterator[Rise]:
    """Rise of each rank's count; no rise for a rank that had not moved just before `at`."""
    for count in counts:
        yield Rise(
            what="collectives",
            before=count.before,
            after=count.after if at - count.until <= fresh_s else count.before,
            since=count.since,
            until=at,
            vouches_s=VOUCHES_S,
            ranks=frozenset({count.rank}),
        )


@dataclass
class Standstill:
    """Receives evidence in the order of time and decides since when nothing has moved."""

    _counts: Counts = field(default_factory=dict)
    _by_rank: dict[int, RankCount] = field(default_factory=dict)
    _moved_at: float | None = None
    _still_since: float = 0.0  # the first look with the present counts
    _looked_at: float = 0.0
    _longest_pause_s: float = 0.0  # between two looks that saw a move
    _recorded_pause_s: float = 0.0  # in the records from before the first look
    _out: frozenset[int] = frozenset()  # ranks that did not answer the last look

    @property
    def quiet_s(self) -> float:
        """Seconds without a move, by the last look."""
        return 0.0 if self._moved_at is None else self._looked_at - self._moved_at

    @property
    def is_settled(self) -> bool:
        """Return whether further looks would add nothing: the job moves, or there is no count."""
        return not self._counts or self.quiet_s <= self.fresh_s

    @property
    def counts(self) -> tuple[RankCount, ...]:
        return tuple(self._by_rank[rank] for rank in sorted(self._by_rank))

    @property
    def fresh_s(self) -> float:
        """Time after its last move for which a job still counts as moving: its longest pause so
        far."""
        return max(FRESH_S, self._longest_pause_s)

    def observe(self, evidence: JobEvidence) -> float | None:
        """Take in the next evidence. Return the time since which the job stands still, or None."""
        out = frozenset(process.rank for process in evidence.processes if process.pulse in OUT)
        twice, self._out = out & self._out, out
        counts: Counts = {
            (advance.rank, advance.communicator): (advance.enqueued, advance.completed)
            for advance in evidence.advances
        }
        moves = any(self._counts.get(key) != count for key, count in counts.items())
        is_warm = any(completed >= WARM_UP for _, completed in counts.values())
        self._note(counts, evidence.at)
        if self._moved_at is None:
            self._recorded_pause_s = _longest_pause(evidence.calls)
            moved_at = _last_launch(evidence)
        elif moves:
            if is_warm:
                pause_s = self._looked_at - self._moved_at
                self._longest_pause_s = max(self._longest_pause_s, pause_s)
            moved_at = evidence.at
        else:
            moved_at = self._moved_at
        is_first = self._moved_at is None
        self._counts = {**self._counts, **counts}
        self._moved_at, self._looked_at = moved_at, evidence.at
        if is_first or moves:
            self._still_since = evidence.at
            return None
        waits = any(enqueued > completed for enqueued, completed in counts.values())
        is_seen = evidence.at - self._still_since >= STILL_S
        is_long = is_seen and evidence.at - self._moved_at >= self._limit_s(is_warm)
        return self._moved_at if twice or (waits and is_long) else None

    def _limit_s(self, is_warm: bool) -> float:
        """Seconds without a move that count as a standstill. The usual pauses are known only of a
        job that has worked for a while."""
        pause_s = max(self._longest_pause_s, self._recorded_pause_s)
        usual_s = min(STILL_PAUSES * pause_s, LONGEST_STILL_S)
        return max(STILL_S, usual_s) if is_warm else LONGEST_STILL_S

    def _note(self, counts: Counts, at: float) -> None:
        finished: dict[int, int] = {}
        for (rank, _), (_, completed) in {**self._counts, **counts}.items():
            finished[rank] = finished.get(rank, 0) + completed
        for rank, after in finished.items():
            count = self._by_rank.get(rank)
            if count is None:
                count = RankCount(rank=rank, before=after, after=after, since=at, until=at)
            elif after != count.after:
                count = replace(count, after=after, until=at)
            self._by_rank[rank] = count


def _last_launch(evidence: JobEvidence) -> float:
    """Last launch by the recorders' own clocks: the job may have stopped long before the first
    look."""
    launches = (call.launched for call in evidence.calls if call.launched is not None)
    return min(max(launches, default=evidence.at), evidence.at)


def _longest_pause(calls: Iterable[Call]) -> float:
    """Longest time between two launches of a rank, without the warm-up."""
    launches: dict[int, list[float]] = {}
    for call in calls:
        if call.launched is not None:
            launches.setdefault(call.rank, []).append(call.launched)
    pauses = (
        after - before
        for of_rank in launches.values()
        for before, after in pairwise(sorted(of_rank)[WARM_UP:])
    )
    return max(pauses, default=0.0)


def steps_of(calls: Iterable[Call]) -> Iterator[StepTime]:
    """Steps of each rank, as equal parts of the busiest communicator's recent collectives. A
    collective lasts until its last rank has launched it. The time from then until a rank launches
    the next one is its own time; after that it waits."""
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
    """Launch times of the busiest communicator: number of the collective → rank → time."""
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
