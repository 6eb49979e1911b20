"""Find which ranks hold up the others, from the records that ranks made of their collectives.

A rank waits in the first operation that it launched and did not finish; without records of single
operations, in each communicator with an unfinished one. It waits for the ranks that have not
launched the same operation. A rank that is absent because it waits elsewhere is a victim: the
search goes on from there to its end. If all ranks launched the operation and some finished it, the
others are stuck themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from anubis.core.diagnose.evidence import Advance, Call, CallState

Ranks = frozenset[int]
NO_RANKS: Ranks = frozenset()


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A rank in an operation that it did not finish, the ranks it waits for, and the ranks stuck in
    it."""

    rank: int
    communicator: str
    sequence: int
    operation: str
    group: int  # how many take part
    peer: int | None = None  # of a send or receive
    absent: Ranks = NO_RANKS  # have not launched it
    unrecorded: Ranks = NO_RANKS  # left no record
    elsewhere: Ranks = NO_RANKS  # launched it, and wait in an earlier one
    late: Ranks = NO_RANKS  # launched it, and did not finish or begin it as the others did

    @property
    def blockers(self) -> Ranks:
        """Ranks that this one waits for. Ranks without a record count only if no rank is known to
        be absent."""
        return self.absent or self.unrecorded or self.elsewhere

    @property
    def is_own(self) -> bool:
        return not self.blockers and self.rank in self.late


@dataclass(frozen=True)
class Root:
    """A rank that holds up others and that no rank holds up, with a wait that shows it."""

    rank: int
    wait: Wait
    is_stuck: bool  # it launched the operation, and did not finish
    has_record: bool = True


@dataclass(frozen=True, kw_only=True)
class _Meeting:
    """The ranks of a group at one operation."""

    members: Ranks
    absent: Ranks  # have not launched it
    unrecorded: Ranks
    ended: Ranks
    elsewhere: Ranks  # wait in another operation
    begun: Ranks  # their device began it


def _drop(ranks: Ranks, rank: int) -> Ranks:
    return ranks - {rank} if rank in ranks else ranks


@dataclass(frozen=True)
class Waiting:
    advances: tuple[Advance, ...]
    calls: tuple[Call, ...]

    @cached_property
    def ranks(self) -> Ranks:
        return self.recorded_ranks.union(*self.members.values())

    @cached_property
    def recorded_ranks(self) -> Ranks:
        return frozenset(
            (*(advance.rank for advance in self.advances), *(call.rank for call in self.calls))
        )

    @cached_property
    def members(self) -> Mapping[str, Ranks]:
        groups: dict[str, set[int]] = {}
        for advance in self.advances:
            group = groups.setdefault(advance.communicator, set())
            group.update((advance.rank, *advance.members))
        return {communicator: frozenset(ranks) for communicator, ranks in groups.items()}

    @cached_property
    def progress(self) -> Mapping[str, Mapping[int, Advance]]:
        """Progress of the ranks of each communicator."""
        progress: dict[str, dict[int, Advance]] = {}
        for advance in self.advances:
            progress.setdefault(advance.communicator, {})[advance.rank] = advance
        return progress

    @cached_property
    def begun_calls(self) -> frozenset[tuple[str, int, int]]:
        """Communicators, operations and ranks whose device began the operation, if it was
        recorded."""
        return frozenset(
            (call.communicator, call.sequence, call.rank)
            for call in self.calls
            if call.state is CallState.STARTED
        )

    @cached_property
    def open_calls(self) -> Mapping[int, Call]:
        """First unfinished operation of each rank, by the order of launches."""
        first: dict[int, Call] = {}
        for call in self._unfinished:
            earlier = first.setdefault(call.rank, call)
            if _order(call) < _order(earlier):
                first[call.rank] = call
        return first

    @cached_property
    def _unfinished(self) -> list[Call]:
        return [call for call in self.calls if self._is_open(call)]

    @cached_property
    def open_messages(self) -> Mapping[int, tuple[Call, ...]]:
        """Sends and receives of each rank that were launched together with its first unfinished
        operation, if that is one of them."""
        messages: dict[int, tuple[Call, ...]] = {}
        for call in self._unfinished:
            first = self.open_calls[call.rank]
            if call.point_to_point and first.point_to_point and _place(call) == _place(first):
                messages[call.rank] = (*messages.get(call.rank, ()), call)
        return messages

    def _is_open(self, call: Call) -> bool:
        if call.state is CallState.FINISHED:
            return False
        advance = self.progress.get(call.communicator, {}).get(call.rank)
        return call.point_to_point or advance is None or call.sequence > advance.completed

    @cached_property
    def waits(self) -> Mapping[int, tuple[Wait, ...]]:
        return {rank: tuple(self._waits(rank)) for rank in self.ranks}

    def _waits(self, rank: int) -> Iterator[Wait]:
        if (call := self.open_calls.get(rank)) is not None:
            if call.point_to_point:
                yield self._pair_wait(self.open_messages[rank])
            else:
                yield self._group_wait(rank, call.communicator, call.sequence, call.operation)
            return
        for advance in self._own.get(rank, ()):
            if advance.enqueued > advance.completed:
                sequence = advance.completed + 1
                yield self._group_wait(rank, advance.communicator, sequence, advance.operation)

    @cached_property
    def _own(self) -> Mapping[int, list[Advance]]:
        own: dict[int, list[Advance]] = {}
        for advance in self.advances:
            own.setdefault(advance.rank, []).append(advance)
        return own

    def _pair_wait(self, messages: Sequence[Call]) -> Wait:
        """Wait in messages that were launched together. Some of them may have arrived, so the one
        counts whose peer is known to hold it up."""
        waits = [self._message_wait(call) for call in messages]
        return max(waits, key=lambda wait: (bool(wait.late), self._is_for_idle(wait)))

    def _is_for_idle(self, wait: Wait) -> bool:
        """Return whether a rank waits for one that waits for nothing itself."""
        return any(
            self.open_calls.get(rank) is None
            and all(seen.enqueued <= seen.completed for seen in self._own.get(rank, ()))
            for rank in wait.blockers
        )

    def _message_wait(self, call: Call) -> Wait:
        """Wait in a message: for a peer that did not come to it, or that came to it and, unlike
        this rank, did not begin."""
        peer = frozenset(() if call.peer is None else (call.peer,))
        ends = [call, *self._other_ends(call)]
        has_come = len(ends) > 1
        late = frozenset(end.rank for end in ends if end.state is not CallState.STARTED)
        late = late if has_come and len(late) == 1 else NO_RANKS
        return Wait(
            rank=call.rank,
            communicator=call.communicator,
            sequence=call.sequence,
            operation=call.operation,
            group=2,
            peer=call.peer,
            absent=NO_RANKS if has_come else peer & self.recorded_ranks,
            unrecorded=peer - self.recorded_ranks,
            elsewhere=late - {call.rank},
            late=late,
        )

    def _other_ends(self, call: Call) -> list[Call]:
        """The peer's unfinished receive of what this rank sends, or the reverse."""
        messages = self.open_messages.get(-1 if call.peer is None else call.peer, ())
        return [
            end
            for end in messages
            if end.peer == call.rank and ("send" in end.operation) != ("send" in call.operation)
        ][:1]

    def _group_wait(self, rank: int, communicator: str, sequence: int, operation: str) -> Wait:
        met = self._meeting(rank, communicator, sequence)
        unrecorded = _drop(met.unrecorded, rank)
        late = elsewhere = NO_RANKS
        if not met.absent and not unrecorded:
            if met.ended:
                late = met.members - met.ended
            elif elsewhere := _drop(met.elsewhere, rank):
                pass
            elif met.begun:
                late = met.members - met.begun
                elsewhere = late if rank in met.begun else NO_RANKS
        return Wait(
            rank=rank,
            communicator=communicator,
            sequence=sequence,
            operation=operation,
            group=len(met.members),
            absent=met.absent,
            unrecorded=unrecorded,
            elsewhere=elsewhere,
            late=late,
        )

    def _meeting(self, rank: int, communicator: str, sequence: int) -> _Meeting:
        """The ranks of a group at an operation: for all of them the same, and so found once."""
        members = self.members.get(communicator, NO_RANKS)
        if rank not in members:
            members |= {rank}
        return self._meetings(members, communicator, sequence)

    @cached_property
    def _meetings(self) -> Callable[[Ranks, str, int], _Meeting]:
        return cache(self._find_meeting)

    def _find_meeting(self, members: Ranks, communicator: str, sequence: int) -> _Meeting:
        progress = self.progress.get(communicator, {})
        return _Meeting(
            members=members,
            absent=frozenset(rank for rank, seen in progress.items() if seen.enqueued < sequence),
            unrecorded=members - self.recorded_ranks,
            ended=frozenset(rank for rank, seen in progress.items() if seen.completed >= sequence),
            elsewhere=self._ranks_elsewhere(members, communicator, sequence),
            begun=self._ranks_begun(members, communicator, sequence),
        )

    def _ranks_elsewhere(self, members: Ranks, communicator: str, sequence: int) -> Ranks:
        met = {member: self.open_calls.get(member) for member in members}
        return frozenset(
            member
            for member, call in met.items()
            if call and (call.communicator, call.sequence) != (communicator, sequence)
        )

    def _ranks_begun(self, members: Ranks, communicator: str, sequence: int) -> Ranks:
        progress = self.progress.get(communicator, {})
        counted = {member for member, seen in progress.items() if (seen.started or 0) >= sequence}
        return frozenset(
            member
            for member in members
            if member in counted or (communicator, sequence, member) in self.begun_calls
        )

    @cached_property
    def roots(self) -> tuple[Root, ...]:
        """Ranks that hold up the others; none if they are no minority, because then the fault is
        not theirs, nor if most other ranks wait for nothing either, because then the job does not
        wait. A rank without a record counts only if no other rank is known to hold up the job."""
        stuck = {root.rank: root for root in self._stuck()}
        idle = {root.rank: root for root in self._idle() if root.rank not in stuck}
        recorded = {rank: root for rank, root in idle.items() if root.has_record}
        roots = {**recorded, **stuck} or idle
        few = len(roots) == 1 or 2 * len(roots) < len(self.ranks)
        at_ease = [rank for rank in self.recorded_ranks - roots.keys() if not self.waits[rank]]
        waits = 2 * len(at_ease) < len(self.ranks)
        return tuple(roots[rank] for rank in sorted(roots)) if few and waits else ()

    @cached_property
    def half_met(self) -> Wait | None:
        """Operation in which ranks wait for so many others that none of these is a root: at least
        half of its group did not come, and waits for nothing."""
        waits = (wait for waits in self.waits.values() for wait in waits)
        half_met = [
            wait
            for wait in waits
            if wait.peer is None
            and 2 * sum(not self.waits[member] for member in wait.absent) >= wait.group
        ]
        return max(half_met, key=lambda wait: (wait.group, -wait.rank), default=None)

    def _idle(self) -> Iterator[Root]:
        """Ranks that others wait for and that wait for nothing, by the largest such wait."""
        waits = (wait for rank in self.ranks for wait in self.waits[rank])
        for wait in sorted(waits, key=lambda wait: (wait.group, -wait.rank)):
            idle = [member for member in wait.blockers if not self.waits[member]]
            if 2 * len(idle) <= wait.group:
                for member in idle:
                    has_record = member in self.recorded_ranks
                    yield Root(member, wait, member in wait.late, has_record)

    def _stuck(self) -> Iterator[Root]:
        for rank, waits in self.waits.items():
            if waits and all(wait.is_own for wait in waits):
                wait = min(waits, key=lambda wait: len(wait.late))
                if 2 * len(wait.late) <= wait.group:
                    yield Root(rank, wait, is_stuck=True)

    @cached_property
    def rings(self) -> tuple[tuple[int, ...], ...]:
        """Ranks that wait for each other in a circle, each circle once."""
        return tuple(self._rings())

    def _rings(self) -> Iterable[tuple[int, ...]]:
        passed: set[int] = set()
        for start in sorted(self.ranks):
            path: list[int] = []
            rank: int | None = start
            while rank is not None and rank not in passed:
                passed.add(rank)
                path.append(rank)
                onward = (member for wait in self.waits[rank] for member in wait.blockers)
                rank = min(onward, default=None)
            if rank in path:
                yield tuple(path[path.index(rank) :])

    def waiters(self, wait: Wait) -> tuple[Wait, ...]:
        """Waits in the same operation."""
        return tuple(
            waiter
            for waits in self.waits.values()
            for waiter in waits
            if (waiter.communicator, waiter.sequence) == (wait.communicator, wait.sequence)
        )


def _place(call: Call) -> tuple[str, int]:
    return call.communicator, call.sequence


def _order(call: Call) -> tuple[float, int]:
    return (float("inf") if call.launched is None else call.launched, call.sequence)
