"""A job that is asked again and again while it runs: whether it moves or stands still, and how long
its steps take, by nothing but how many collectives its ranks launched and finished, and when.

Clocks of hosts must agree better than a step is long; those of one host do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean

from anubis.core.diagnose.evidence import Call, JobEvidence, Pulse, Rise, StepTime

STILL_S = 6.0  # nothing moves, and somebody waits: it hangs
STILL_PAUSES = 5.0  # that, or so many times the longest pause that was seen so far
LONGEST_STILL_S = 60.0  # and never longer: also of a job that only begins
WARM_UP = 10  # collectives, while which pauses are of no length that is usual
FRESH_S = 3.0  # what moved so lately moves, or as lately as it paused before
VOUCHES_S = 60.0  # a job that moved when the look ended is asked about no later
PARTS = 6  # into which recent collectives are divided, each counted as one step
FEWEST_IN_PART = 2
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
    until: float  # after which look it rose no more


def progress_of(counts: Iterable[RankCount], at: float, fresh_s: float) -> Iterator[Rise]:
    """Of each rank; of one that had not moved just before `at`, none."""
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
    """Told evidence in the order of time. It says since when nothing moved, or None."""

    _counts: Counts = field(default_factory=dict)
    _by_rank: dict[int, RankCount] = field(default_factory=dict)
    _moved_at: float | None = None
    _still_since: float = 0.0  # the first look that saw it as it is now
    _looked_at: float = 0.0
    _longest_pause_s: float = 0.0  # over which looks saw no move
    _recorded_pause_s: float = 0.0  # that recorders had seen before anybody looked
    _out: frozenset[int] = frozenset()  # did not answer when they were asked last

    @property
    def quiet_s(self) -> float:
        """For how long nothing has moved, by the last look."""
        return 0.0 if self._moved_at is None else self._looked_at - self._moved_at

    @property
    def is_told(self) -> bool:
        """Whether more looks would say no more: it moves, or no count shows whether it does."""
        return not self._counts or self.quiet_s <= self.fresh_s

    @property
    def counts(self) -> tuple[RankCount, ...]:
        return tuple(self._by_rank[rank] for rank in sorted(self._by_rank))

    @property
    def fresh_s(self) -> float:
        """What moved so lately moves: it never paused for longer while it was looked at."""
        return max(FRESH_S, self._longest_pause_s)

    def since(self, evidence: JobEvidence) -> float | None:
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
        """Standing still is a matter of time. How long pauses are that are none is known of a job
        that has worked for a while."""
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
    """By the recorders' own clock: a job may have stood still since long before the first look."""
    launches = (call.launched for call in evidence.calls if call.launched is not None)
    return min(max(launches, default=evidence.at), evidence.at)


def _longest_pause(calls: Iterable[Call]) -> float:
    """Between two launches of a rank, once it was at work."""
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
