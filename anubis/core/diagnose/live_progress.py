"""Progress of a job that is sampled repeatedly while it runs: whether it moves, and how long its
steps take.

Ranks' counts of launched and finished collectives say both. If nothing counts, as for messages by
gloo and before the first collective, the programs say whether the job moves: a rank takes a turn if
its program is at another place than at the look before, or went to sleep and woke up again. A job
whose ranks all rest, or half of them for long, stands still.

Clocks of different hosts must agree to less than the length of a step; ranks on one host share a
clock.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from statistics import fmean

from anubis.core.diagnose.evidence import (
    Call,
    JobEvidence,
    JobPace,
    PastPart,
    ProcessState,
    Pulse,
    Rise,
    StepTime,
)

COMMUNICATION = (  # parts of the files of calls in which ranks wait for each other
    "torch/distributed/",
    "torch/nn/parallel/distributed.py",
    "deepspeed/comm/",
    "megatron/core/pipeline_parallel/p2p_communication.py",
    "mpi4py/",
)
ALONE = (
    "torch/distributed/checkpoint/",
    "torch/distributed/elastic/",
)  # and do not, in spite of that
BACKWARD = "_engine_run_backward ("  # the hooks of gradients communicate in it
DISPATCH = ("torch/_ops.py:", "torch/_library/")  # files that lead from a call into C


def is_waiting(frames: Sequence[str]) -> bool:
    """Return whether a stack ends in a call in which ranks wait for each other, as of tensor
    parallel in an operation of C that it calls."""
    calls = (frame for frame in reversed(frames) if not any(part in frame for part in DISPATCH))
    last = next(calls, "")
    if any(part in last for part in ALONE):
        return False
    return last.startswith(BACKWARD) or any(part in last for part in COMMUNICATION)


STILL_S = 6.0  # nothing moves for so long: it stands still now, if it does
STILL_PAUSES = 5.0  # a rank waits for so many times the longest pause so far: the job hangs
LONGEST_STILL_S = 60.0  # the upper limit, also for a job that begins, or of which a rank works
WARM_UP = 10  # collectives at the start, whose pauses are not typical
REST_S = 20.0  # the lower limit; all ranks rest for so long: the job hangs without records too
MUTE_S = 15.0  # a rank does not answer for so long while all others rest: the job hangs
HALF_REST_S = LONGEST_STILL_S  # the same of half of the ranks: others may only work for long
FEWEST_SLEEPS = 2  # of a program between two looks, that show that it was woken up
SEVERAL_PLACES = 2  # lines at which a program was within RECENT_S: it works
ALONE_S = 600.0  # for so long one rank may work and all others wait for it, as in an evaluation
OF_THREADS = ("/threading.py:", "/concurrent/futures/")  # files of calls that wait for a thread,
THREADS_RUN = 0.2  # which runs, or would if it got a processor: share of the time
SOON_S = 12.0  # after the first look; by then the kernel's counts show how long threads ran
OVERCOME = 1.5  # a pause that is so many times the longest one before is a standstill
STORES_RATE = 100_000  # bytes a second: of logs a program writes far less
TURNS_FRESH_S = 6.0  # a rank that took a turn within so long moves
FRESH_S = 3.0  # a job that moved within so long moves, or within its longest pause
VOUCHES_S = 60.0  # for so long after the last look a move proves that the job moves
FRESH_LOOKS = 2.0  # or within so many looks: a rank may have been too slow to answer the last
MOST_FRESH_S = 9.0  # the same at most
PARTS = 6  # of the recent collectives, each counted as one step
FEWEST_IN_PART = 2  # collectives: the waits of one are chance
ENOUGH = 8 * PARTS  # collectives that show it
RECENT_S = 20.0  # of which older ones count only if there are too few: a rank may have become slow
PACE_PARTS = 20  # of all recorded collectives, whose paces are compared
EARLY_PARTS = 8  # of them at least, the first, that show how fast the job was
LATE_PARTS = 4  # of them at least, the last, that show how fast it is
SHORTEST_S = 1e-6  # between two collectives
LEAST_DATED_S = 10.0  # of a part of the steps of a log: a second more or less is then a tenth
KEPT = 0.9  # share of the earlier parts that were as fast

OUT = frozenset({Pulse.STOPPED, Pulse.GONE, Pulse.UNHEARD})

COLLECTIVES, TURNS = "collectives", "turns of its program"

Counts = dict[tuple[int, str], tuple[int, int]]  # rank and communicator: launched, finished


@dataclass(frozen=True, kw_only=True)
class RankCount:
    """Collectives that a rank had finished at the first and at the last look, or other work."""

    rank: int
    before: int
    after: int
    since: float  # the first look
    until: float  # the last look at which it had risen
    what: str = COLLECTIVES

    def is_fresh(self, at: float, fresh_s: float) -> bool:
        """Return whether it had risen just before `at`."""
        limit_s = fresh_s if self.what == COLLECTIVES else max(fresh_s, TURNS_FRESH_S)
        return self.after > self.before and at - self.until <= limit_s


def progress_of(counts: Iterable[RankCount], at: float, fresh_s: float) -> Iterator[Rise]:
    """Rise of each rank's count; no rise for a rank that had not moved just before `at`."""
    for count in counts:
        yield Rise(
            what=count.what,
            before=count.before,
            after=count.after if count.is_fresh(at, fresh_s) else count.before,
            since=count.since,
            until=at,
            vouches_s=VOUCHES_S,
            ranks=frozenset({count.rank}),
        )


@dataclass
class TurnCounter:
    """Receives looks in the order of time and counts the turns of each rank."""

    by_rank: dict[int, RankCount] = field(default_factory=dict)
    _places: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _sleeps: dict[int, int] = field(default_factory=dict)
    _have_communicated: bool = False  # some rank was seen to leave a call of communication
    _changed_at: float | None = None  # the last look at which any rank was at another place
    times_seen: Counter[int] = field(default_factory=Counter)  # ranks: looks at its main thread,
    times_at_work: Counter[int] = field(default_factory=Counter)  # those without a wait for ranks

    def same_s(self, at: float) -> float:
        """Seconds for which all programs have been at the same places, some of them in a call of
        communication; 0: none is."""
        is_any = any(map(is_waiting, self._places.values()))
        return at - self._changed_at if is_any and self._changed_at is not None else 0.0

    def observe(self, evidence: JobEvidence) -> None:
        if self._changed_at is None and evidence.stacks:
            self._changed_at = evidence.at
        for stack in evidence.stacks:
            if stack.thread:
                continue
            self.times_seen[stack.rank] += 1
            self.times_at_work[stack.rank] += not is_waiting(stack.frames)
            before = self._places.get(stack.rank)
            if before not in (None, stack.frames):
                self._count(stack.rank, evidence.at)
                self._changed_at = evidence.at
                self._have_communicated |= is_waiting(before or ()) != is_waiting(stack.frames)
            self._places[stack.rank] = stack.frames
        for process in evidence.processes:
            if process.sleeps is None:
                continue
            slept = process.sleeps - self._sleeps.get(process.rank, process.sleeps)
            if slept >= FEWEST_SLEEPS and process.rests_s == 0.0:
                self._count(process.rank, evidence.at)
            self._sleeps[process.rank] = process.sleeps
            self.by_rank.setdefault(
                process.rank,
                RankCount(
                    rank=process.rank,
                    before=0,
                    after=0,
                    since=evidence.at,
                    until=evidence.at,
                    what=TURNS,
                ),
            )

    def _count(self, rank: int, at: float) -> None:
        if (count := self.by_rank.get(rank)) is not None:
            self.by_rank[rank] = replace(count, after=count.after + 1, until=at)

    @property
    def proofs(self) -> Mapping[int, RankCount]:
        """Turns of each rank. They prove nothing of programs that only turn in circles: one of them
        must have communicated."""
        if self._have_communicated:
            return self.by_rank
        return {rank: replace(count, after=count.before) for rank, count in self.by_rank.items()}


def rest_of(processes: Iterable[ProcessState]) -> float:
    """Seconds for which the ranks of a job have rested, if that shows that it stands still; or
    0."""
    rests = sorted(
        process.rests_s
        for process in processes
        if process.pulse not in (Pulse.GONE, Pulse.STOPPED) and process.rests_s is not None
    )
    if not rests:
        return 0.0
    if rests[0] >= REST_S:
        return rests[0]
    of_half = rests[len(rests) // 2] if len(rests) > 1 else 0.0
    return of_half if of_half >= HALF_REST_S else 0.0


@dataclass
class Standstill:
    """Receives evidence in the order of time and decides since when nothing has moved."""

    _counts: Counts = field(default_factory=dict)
    _by_rank: dict[int, RankCount] = field(default_factory=dict)
    _moved_at: float | None = None
    _still_since: float = 0.0  # the first look with the present counts
    _looked_at: float = 0.0
    _longest_pause_s: float = 0.0  # between two looks that saw a move
    _longest_look_s: float = 0.0  # between two looks
    _recorded_pause_s: float = 0.0  # in the records from before the first look
    _out: frozenset[int] = frozenset()  # ranks that did not answer the last look
    _mute_since: dict[int, float] = field(default_factory=dict)
    _begun_at: float = 0.0  # the first look
    _turns: TurnCounter = field(default_factory=TurnCounter)
    _rest_s: float = 0.0
    limit_s: float = REST_S  # without a move, that count as a standstill
    _moved_bytes: dict[int, int] = field(default_factory=dict)
    _stored_at: dict[int, float] = field(default_factory=dict)  # when a rank last moved much
    _places: dict[int, dict[tuple[str, ...], float]] = field(default_factory=dict)  # last seen at
    _busy_at: dict[int, float] = field(default_factory=dict)  # ranks that visibly worked

    @property
    def quiet_s(self) -> float:
        """Seconds without a move, by the last look."""
        quiet_s = 0.0 if self._moved_at is None else self._looked_at - self._moved_at
        return min(quiet_s if self._counts else self._rest_s, self._unstored_s(self._looked_at))

    @property
    def storing(self) -> tuple[int, ...]:
        """Ranks that read or write much, as for a checkpoint: others may wait for them for long."""
        begun = self._looked_at - STILL_S
        return tuple(sorted(rank for rank, at in self._stored_at.items() if at > begun))

    @property
    def alone(self) -> tuple[int, ...]:
        """Ranks that visibly work, as in an evaluation: others may wait for them for long."""
        if self._moved_at is None or self._looked_at - self._moved_at >= ALONE_S:
            return ()
        busy = {rank for rank, at in self._busy_at.items() if self._looked_at - at <= RECENT_S}
        busy |= {rank for rank, places in self._places.items() if len(places) >= SEVERAL_PLACES}
        return tuple(sorted(busy))

    def _note_work(self, evidence: JobEvidence) -> None:
        """Note which programs visibly work, and where they were lately: by their places, by the
        memory they touch, and by the threads and programs for which they wait."""
        states = {state.rank: state for state in evidence.processes}
        main = {stack.rank: stack.frames for stack in evidence.stacks if not stack.thread}
        for rank, state in states.items():
            frames = main.get(rank, ())
            if state.pulse in OUT or is_waiting(frames):
                self._places.pop(rank, None)
                self._busy_at.pop(rank, None)
                continue
            rests = (state.rests_s or 0.0) >= STILL_S
            by_thread = any(part in frame for frame in frames[-2:] for part in OF_THREADS)
            is_unknown = state.work_ran is None and evidence.at - self._begun_at < SOON_S
            wants = (state.work_ran or 0.0) + (state.work_waits or 0.0)
            if state.is_busy or (by_thread and (is_unknown or wants > THREADS_RUN)):
                self._busy_at[rank] = evidence.at
            elif by_thread:
                self._busy_at.pop(rank, None)
            places = self._places.setdefault(rank, {})
            if rests:
                places.clear()
            elif frames:
                places[frames] = evidence.at
            for place in [at for at, seen in places.items() if evidence.at - seen > RECENT_S]:
                del places[place]

    def _unstored_s(self, at: float) -> float:
        return at - max(self._stored_at.values(), default=-math.inf)

    @property
    def times_seen(self) -> Mapping[int, int]:
        return self._turns.times_seen

    @property
    def times_at_work(self) -> Mapping[int, int]:
        return self._turns.times_at_work

    @property
    def rest_s(self) -> float:
        """Seconds for which the programs have rested, if that shows that the job stands still."""
        return self._rest_s

    @property
    def is_settled(self) -> bool:
        """Return whether further looks would add nothing: the job moves, or nothing shows it."""
        if self._counts and self.quiet_s <= self.fresh_s:
            return True
        return all(count.is_fresh(self._looked_at, self.fresh_s) for count in self.counts)

    @property
    def counts(self) -> tuple[RankCount, ...]:
        """Count of each rank: of its collectives, or of its turns if they alone show that it
        moves."""
        turns = self._turns.proofs
        counts = {**turns, **self._by_rank}
        for rank, count in counts.items():
            if rank in turns and not count.is_fresh(self._looked_at, self.fresh_s):
                counts[rank] = turns[rank]
        return tuple(counts[rank] for rank in sorted(counts))

    @property
    def late(self) -> tuple[int, ...]:
        """Ranks that did not answer the last look, but answered an earlier one less than MUTE_S
        ago: their machine may be busy."""
        long_s = min(MUTE_S, self._looked_at - self._begun_at)
        since = self._mute_since.items()
        return tuple(sorted(rank for rank, at in since if self._looked_at - at < long_s))

    @property
    def fresh_s(self) -> float:
        """Time after its last move for which a job still counts as moving: its longest pause so
        far, or two looks."""
        look_s = min(FRESH_LOOKS * self._longest_look_s, MOST_FRESH_S)
        return max(FRESH_S, self._longest_pause_s, look_s)

    def observe(self, evidence: JobEvidence) -> float | None:
        """Take in the next evidence. Return the time since which the job stands still, or None."""
        out = frozenset(process.rank for process in evidence.processes if process.pulse in OUT)
        twice, self._out = out & self._out, out
        self._turns.observe(evidence)
        self._note_bytes(evidence)
        self._note_work(evidence)
        mute_s = self._mute_s(evidence)
        self._rest_s = rest_of(evidence.processes) or mute_s
        if (same_s := self._turns.same_s(evidence.at)) >= LONGEST_STILL_S:
            self._rest_s = self._rest_s or same_s
        if self._unstored_s(evidence.at) < REST_S or self.alone:
            self._rest_s = 0.0
        if self._moved_at is not None:
            self._longest_look_s = max(self._longest_look_s, evidence.at - self._looked_at)
        counts: Counts = {
            (advance.rank, advance.communicator): (advance.enqueued, advance.completed)
            for advance in evidence.advances
        }
        moves = any(self._counts.get(key) != count for key, count in counts.items())
        is_warm = _is_warm(counts)
        self._note(counts, evidence.at)
        if self._moved_at is None:
            self._recorded_pause_s = _longest_pause(evidence.calls)
            moved_at = _last_launch(evidence)
        elif moves:
            if _is_warm(self._counts):
                pause_s = self._looked_at - self._moved_at
                self._longest_pause_s = max(self._longest_pause_s, pause_s)
            moved_at = evidence.at
        else:
            moved_at = self._moved_at
        is_first = self._moved_at is None
        if is_first:
            self._begun_at = evidence.at
        self._counts = {**self._counts, **counts}
        self._moved_at, self._looked_at = moved_at, evidence.at
        if is_first or moves:
            self._still_since = evidence.at
            return None
        waits = any(enqueued > completed for enqueued, completed in counts.values())
        is_seen = evidence.at - self._still_since >= STILL_S
        still_s = min(evidence.at - self._moved_at, self._unstored_s(evidence.at))
        self.limit_s = self._limit_s(is_warm, evidence.processes)
        is_long = is_seen and still_s >= self.limit_s
        if twice or (waits and is_long):
            return self._moved_at
        is_new = still_s >= self.overcome_s or not self._counts
        return evidence.at - self._rest_s if is_seen and is_new and self._rest_s else None

    def _note_bytes(self, evidence: JobEvidence) -> None:
        """Note whether a rank read or wrote much since the look before."""
        passed_s = evidence.at - self._looked_at
        for process in evidence.processes:
            if process.moved_bytes is None:
                continue
            before = self._moved_bytes.get(process.rank, process.moved_bytes)
            if process.moved_bytes - before > STORES_RATE * passed_s:
                self._stored_at[process.rank] = evidence.at
            self._moved_bytes[process.rank] = process.moved_bytes

    def _mute_s(self, evidence: JobEvidence) -> float:
        """Seconds for which a rank has not answered while all others rested; 0: too few. Programs
        that only start keep their interpreter to themselves for a while, too, and those that
        compute in C for longer."""
        mute = {state.rank for state in evidence.processes if state.pulse is Pulse.MUTE}
        self._mute_since = {rank: self._mute_since.get(rank, evidence.at) for rank in mute}
        rests = [s.rests_s or 0.0 for s in evidence.processes if s.rank not in mute]
        since = min(self._mute_since.values(), default=evidence.at)
        rest_s = min([evidence.at - since, *rests])
        of_mute = [s.rests_s for s in evidence.processes if s.rank in mute]
        runs = any(of_one is not None and of_one < STILL_S for of_one in of_mute)
        limit_s = LONGEST_STILL_S if runs else MUTE_S
        return rest_s if rest_s >= limit_s and rests else 0.0

    def _limit_s(self, is_warm: bool, processes: Iterable[ProcessState]) -> float:
        """Seconds without a move that count as a standstill. The usual pauses are known only of a
        job that has worked for a while, and a rank that runs may do so for long alone, for longer
        if it visibly works."""
        if self.alone:
            return ALONE_S
        there = (Pulse.ANSWERS, Pulse.MUTE)
        rests = [state.rests_s for state in processes if state.pulse in there]
        if not is_warm or any(rest_s is not None and rest_s < STILL_S for rest_s in rests):
            return max(LONGEST_STILL_S, self.overcome_s)
        usual_s = min(STILL_PAUSES * self._pause_s, LONGEST_STILL_S)
        return max(REST_S, usual_s, self.overcome_s)

    @property
    def _pause_s(self) -> float:
        return max(self._longest_pause_s, self._recorded_pause_s)

    @property
    def overcome_s(self) -> float:
        """Seconds that a pause may last because the job has overcome one that was as long."""
        return min(OVERCOME * self._pause_s, ALONE_S)

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


def _is_warm(counts: Counts) -> bool:
    """Return whether a job has worked for a while, so that its pauses are typical."""
    return any(completed >= WARM_UP for _, completed in counts.values())


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
    """Steps of each rank, as equal parts of the time of the recent collectives. A collective lasts
    until the last rank of its group has launched it. A rank waits from its own launch until then,
    in whichever group; the rest of the time is its own. Waits for messages have no such end: who
    sends some has no known time of its own."""
    calls = list(calls)
    waits = _waits(calls)
    marks = _marks(waits) if len(waits) > 1 else []
    senders = {call.rank for call in calls if call.point_to_point}
    for part, (begin, end) in enumerate(pairwise(marks)):
        waited = {rank: _time_within(of_rank, begin, end) for rank, of_rank in waits.items()}
        mean = fmean(waited.values())
        for rank in sorted(waits):
            yield StepTime(
                rank=rank,
                step=part,
                duration_s=end - begin,
                own_s=None if rank in senders else end - begin - waited[rank],
                collective_s=waited[rank],
                group_s=mean,
            )


_Span = tuple[float, float]  # begin and end


def _waits(calls: Iterable[Call]) -> dict[int, list[_Span]]:
    """Waits of each rank in collectives that all of their group launched, by time and without
    overlaps."""
    waits: dict[int, list[_Span]] = {}
    for of_group in _launches(calls).values():
        group = frozenset[int]().union(*of_group.values())
        for launches in of_group.values():
            if launches.keys() == group and len(group) > 1:
                end = max(launches.values())
                for rank, launched in launches.items():
                    waits.setdefault(rank, []).append((launched, end))
    return {rank: list(_apart(sorted(of_rank))) for rank, of_rank in waits.items()}


def _apart(waits: Iterable[_Span]) -> Iterator[_Span]:
    """Leave out what an earlier wait includes: some collectives are launched before others end."""
    until = -math.inf
    for begin, end in waits:
        yield max(begin, until), max(end, until)
        until = max(end, until)


def _marks(waits: Mapping[int, Sequence[_Span]]) -> list[float]:
    """Ends of collectives that divide the recent time, which all ranks recorded, into equal parts;
    none if a rank has too few in them. Older ones count only if there are too few late ones."""
    since = max(of_rank[0][1] for of_rank in waits.values())
    until = min(of_rank[-1][1] for of_rank in waits.values())
    enough = min(of_rank[-min(ENOUGH + 1, len(of_rank))][1] for of_rank in waits.values())
    since = max(since, min(enough, until - RECENT_S))
    ends = [[end for _, end in of_rank if since <= end <= until] for of_rank in waits.values()]
    fewest = min(ends, key=len)
    length = (len(fewest) - 1) // PARTS
    return fewest[::length][: PARTS + 1] if length >= FEWEST_IN_PART else []


def _time_within(waits: Sequence[_Span], begin: float, end: float) -> float:
    first = bisect_right(waits, begin, key=itemgetter(1))
    last = bisect_left(waits, end, key=itemgetter(0))
    return sum(min(until, end) - max(since, begin) for since, until in waits[first:last])


def pace_of(calls: Iterable[Call]) -> JobPace | None:
    """Pace of a job earlier and lately, in equal parts of its recorded collectives, divided where
    they differ most. Pauses such as checkpoints fall into few parts: earlier is what most parts
    kept, lately what all later ones took at least."""
    groups = _launches(calls).values()
    launches = max(groups, key=lambda group: sum(map(len, group.values())), default={})
    ends = [max(launches[number].values()) for number in sorted(launches)][WARM_UP:]
    length = (len(ends) - 1) // PACE_PARTS
    if length < FEWEST_IN_PART:
        return None
    marks = ends[len(ends) - 1 - length * PACE_PARTS :: length]
    parts = [(after - before) / length for before, after in pairwise(marks)]
    return _divide(parts, marks)


def pace_of_messages(past: Sequence[PastPart]) -> JobPace | None:
    """Return the same by a rank's own notes of its messages."""
    parts = [part.length_s / part.messages if part.messages else math.inf for part in past]
    return _divide(parts, [part.until - part.length_s for part in past])


def pace_of_steps(marks: Sequence[tuple[int, float]]) -> JobPace | None:
    """Return the same by the numbers of steps and the times of their lines, which may be of whole
    seconds."""
    length = (len(marks) - 1) // PACE_PARTS
    if length < FEWEST_IN_PART:
        return None
    ends = marks[len(marks) - 1 - length * PACE_PARTS :: length]
    if min(after[1] - before[1] for before, after in pairwise(ends)) < LEAST_DATED_S:
        return None
    parts = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(ends)]
    pace = _divide(parts, [at for _, at in ends[:-1]])
    return replace(pace, what="steps") if pace else None


def _divide(parts: Sequence[float], begins: Sequence[float]) -> JobPace | None:
    """Divide parts where their paces differ most. None: there are too few."""
    paces = (
        JobPace(
            earlier_s=sorted(parts[:start])[int(KEPT * start)],
            lately_s=min(parts[start:]),
            since=begins[start],
        )
        for start in range(EARLY_PARTS, len(parts) - LATE_PARTS + 1)
    )
    finite = [pace for pace in paces if math.isfinite(pace.earlier_s + pace.lately_s)]
    return max(
        finite, key=lambda pace: pace.lately_s / max(pace.earlier_s, SHORTEST_S), default=None
    )


def _launches(calls: Iterable[Call]) -> dict[str, dict[int, dict[int, float]]]:
    """Launch times: communicator → number of the collective → rank → time."""
    grouped: dict[str, dict[int, dict[int, float]]] = {}
    for call in calls:
        if not call.point_to_point and call.launched is not None:
            of_call = grouped.setdefault(call.communicator, {}).setdefault(call.sequence, {})
            of_call[call.rank] = call.launched
    return grouped


# --- proof that a job moves --------------------------------------------------------------------
# Counts of its work that rose between two looks, up to the moment of the question. Without this
# proof no diagnosis may say that nothing is wrong.

AHEAD_S = 5.0  # the most that clocks of two machines differ; a later date proves nothing


def proof(evidence: JobEvidence) -> tuple[Rise, ...]:
    """Rises that show that all ranks move. Empty: no such proof was read."""
    there = (Pulse.ANSWERS, Pulse.MUTE)  # one that is slow to answer may move
    are_there = all(process.pulse in there for process in evidence.processes)
    if evidence.is_past or evidence.alive is False or evidence.stall or not are_there:
        return ()
    rises = evidence.progress
    if not all(_is_proof(rise, evidence.at) for rise in rises):
        return ()  # one count that does not rise outweighs others that do
    if any(not rise.ranks for rise in rises):
        return rises
    moving = frozenset[int]().union(*(rise.ranks for rise in rises))
    return rises if rises and all_ranks(evidence) <= moving else ()


def all_ranks(evidence: JobEvidence) -> frozenset[int]:
    """Ranks that any collector reported; if there are none, those of the rank map."""
    groups = {advance.members for advance in evidence.advances}  # once each: ranks share them
    processes = (process.rank for process in evidence.processes)
    return frozenset(processes).union(*groups) or frozenset(evidence.ranks.nodes)


def _is_proof(rise: Rise, at: float) -> bool:
    is_one = rise.after > rise.before and rise.until > rise.since
    return is_one and -AHEAD_S <= at - rise.until <= rise.vouches_s
