"""One plan carried out, as a state machine: events in, commands out. It touches nothing itself.

What holds at all times, whatever order events come in, and is tested with saboteurs:
every step is settled exactly once; no node runs two exclusive programs; no step is launched on a
node that was found defective or lost; a phase begins when the one before it has been judged;
a step that nobody answers for is given up at its deadline; so it always ends.
Time in which the driver did not look blames nobody, and neither does a silence of most nodes.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

from anubis.core.campaign.planning import instead, steps, told_beside
from anubis.core.network.pairing import meeting_of
from anubis.core.network.sharing import CableUse, Room, Ways
from anubis.core.records import Ended, Execution, ParameterValue, Plan, Result, Step

# --- events: what the world tells ----------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _OfStep:
    step_id: str
    attempt: int
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Started(_OfStep):
    """Its time runs from here on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EndOfStep(_OfStep):
    """How a program ended, and on which nodes a process of it outlived SIGKILL: they are lost.

    Where one device of several failed or hung, the result has what the others measured.
    """

    reason: str = ""
    lost: tuple[str, ...] = ()
    result: Result = Result()


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured(EndOfStep):
    """The program reached its end and left a valid document (which may say: not applicable)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed(EndOfStep):
    """The program could not measure. Infrastructure failures are worth another try; others not."""

    infrastructure: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedOut(EndOfStep):
    """It gave no answer within its limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLost:
    """The node, or Anubis' agent on it, no longer answers. Its steps end with it."""

    node: str
    at: float
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The answer to `Judge`: who is defective after this phase, and must not meet the next.

    Or what is to follow first, in the same phase: more steps, that what was measured asks for.
    """

    phase: int
    defective: frozenset[str]
    more: tuple[Step, ...] = ()
    handed_back: frozenset[str] = frozenset()  # nodes that are well and needed no more


@dataclass(frozen=True, kw_only=True, slots=True)
class TimePassed:
    """The driver looked, and everything that it saw has been told."""

    at: float


CampaignEvent = Started | Measured | Failed | TimedOut | NodeLost | Judged | TimePassed

# --- commands: what the world is to do -----------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    step: Step
    attempt: int
    arguments: Mapping[str, ParameterValue] = field(default_factory=dict)  # beside its workload
    crosses_fabric: bool = False  # what it measures says something of the fabric

    @property
    def parameters(self) -> dict[str, ParameterValue]:
        """All that the program is told."""
        return {**self.step.workload.told, **self.arguments}


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    step_id: str
    attempt: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Keep this execution for good, before anything that follows."""

    execution: Execution


@dataclass(frozen=True, kw_only=True, slots=True)
class Judge:
    """Every step of the phase is settled: say who is defective, and answer with `Judged`."""

    phase: int
    turn: int  # 0 after the planned steps, 1 after those that followed, and so on


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Halt:
    """Stop here: what happened says nothing about the nodes. The campaign can be resumed."""

    reason: str


Command = Launch | Kill | Record | Judge | Finish | Halt

# --- the machine ---------------------------------------------------------------------------

INATTENTIVE_S = 5.0  # a driver that looks every second was kept from it
AT_ONCE_S = 60.0  # nodes that are lost within this time probably have one reason

HANDED_BACK = "handed back"
REPEATABLE = frozenset({Ended.LOST, Ended.SKIPPED})  # ends that a resumed campaign tries again


@dataclass(slots=True)
class _Run:
    step: Step
    attempt: int
    started_at: float
    deadline: float


def are_most(lost: int, fit: int) -> bool:
    """One alone never is: then nobody can tell whose fault it is, and the node is named."""
    return lost > max(1, fit)


def not_their_fault(sign: str, reasons: Sequence[str], fit: int) -> str:
    """Why nothing is said of nodes most of which show this sign, for these reasons."""
    ((commonest, _),) = Counter(reasons).most_common(1)
    return (
        f"{len(reasons)} of {len(reasons) + fit} nodes {sign}: until shown otherwise the fault is"
        " this machine's, the network's or Ray's, and no node is blamed; said of most:"
        f' "{commonest}"; look there, then go on: who is silent still counts as lost'
    )


class CampaignMachine:
    """Feed it `start`, then every event; carry out what it returns, in order."""

    def __init__(
        self,
        plan: Plan,
        *,
        retries: int,
        parallel_nodes: int | None = None,
        silence_s: float = 30.0,
        history: Iterable[Execution] = (),
        absent: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`history` is what an earlier run settled; `absent` the nodes that are not there, why."""
        self._plan = plan
        self._nodes = {node.name for node in plan.nodes}
        self._retries = retries
        self._parallel_nodes = parallel_nodes
        self._silence_s = silence_s  # how long past its limit a step may go without any word
        self._settled: set[str] = set()
        self._first_attempt: dict[str, int] = {}
        for execution in history:
            if execution.final and execution.ended not in REPEATABLE:
                self._settled.add(execution.step.id)
            tried = self._first_attempt.get(execution.step.id, 1)
            self._first_attempt[execution.step.id] = max(tried, execution.attempt + 1)

        self.now = 0.0
        self.phase = -1
        self.turn = 0
        self.planned = 0  # steps of this phase, settled ones included
        self.done = 0
        self.finished = False
        self.unwatched_s = 0.0  # while something ran and the driver did not look
        self.excluded: dict[str, str] = dict(absent)  # node -> why it takes no further part
        self._present = len(self._nodes - self.excluded.keys())
        self._losses: list[tuple[float, str]] = []  # when and why
        self._looked_at = 0.0
        self._judging = False
        self._pending: dict[str, Step] = {}
        self._running: dict[str, _Run] = {}
        self._attempts: dict[str, int] = {}
        self._queues: dict[str, deque[Step]] = {}
        self._on_node: dict[str, list[Step]] = {}
        self._ready: dict[str, None] = {}  # nodes whose next step may be possible; ordered
        self._deadlines: list[tuple[float, str, int]] = []
        self._use = CableUse(plan.fabric) if plan.fabric else None
        self._network: Room | None = None  # of the pairs of this turn
        self._waiting: dict[int, dict[str, None]] = {}  # nodes that wait for room on a cable

    @property
    def running(self) -> int:
        return len(self._running)

    def start(self, at: float) -> list[Command]:
        self.now = self._looked_at = at
        return self._begin_next_phase()

    def next_deadline(self) -> float | None:
        """When `TimePassed` is due at the latest."""
        while self._deadlines:
            deadline, step_id, attempt = self._deadlines[0]
            run = self._running.get(step_id)
            if run and run.attempt == attempt and run.deadline == deadline:
                return deadline
            heapq.heappop(self._deadlines)
        return None

    def handle(self, event: CampaignEvent) -> list[Command]:
        if self.finished:
            return []
        if isinstance(event, Judged):
            return self._judged(event)
        commands = self._heard(event)
        if self._most_are_lost():
            return [*commands, self._halt()]
        return [*commands, *self._go_on()]

    def _heard(
        self, event: Started | Measured | Failed | TimedOut | NodeLost | TimePassed
    ) -> list[Command]:
        self.now = max(self.now, event.at)
        match event:
            case Started():
                self._started(event)
            case Measured():
                return self._measured(event)
            case Failed():
                return self._failed(event)
            case TimedOut():
                return self._settle(event, Ended.TIMED_OUT, event.reason)
            case NodeLost():
                return self._lose((event.node,), event.reason)
            case TimePassed():
                self._allow_for_gap(event.at)
                return self._give_up_silent()
        return []

    def next_try(self, step_id: str, failed: int) -> tuple[int, int] | None:
        """Which try of how many follows the one that failed; None: it was the last."""
        following = self._attempts.get(step_id, 0)
        number = following - self._first_attempt.get(step_id, 1) + 1
        return (number, self._retries + 1) if following > failed else None

    # --- events ----------------------------------------------------------------------------

    def _started(self, event: Started) -> None:
        run = self._run_of(event.step_id, event.attempt)
        if run:
            run.started_at = event.at
            self._give_time(run)

    def _measured(self, event: Measured) -> list[Command]:
        absent = event.result.not_applicable
        ended = Ended.NOT_APPLICABLE if absent else Ended.MEASURED
        return self._settle(event, ended, event.reason or absent)

    def _failed(self, event: Failed) -> list[Command]:
        run = self._run_of(event.step_id, event.attempt)
        if run is None:
            return []
        first = self._first_attempt.get(event.step_id, 1)
        again = event.infrastructure and event.attempt - first < self._retries
        ended = Ended.NOT_RUN if event.infrastructure else Ended.FAILED
        record = self._end(
            run,
            ended,
            event.reason,
            at=event.at,
            lost=event.lost,
            result=event.result,
            final=not again,
        )
        if again:
            self._attempts[run.step.id] = event.attempt + 1
            self._pending[run.step.id] = run.step
            for name in run.step.participants:
                self._queues[name].appendleft(run.step)
        return [record, *self._lose(event.lost, event.reason)]

    def _judged(self, event: Judged) -> list[Command]:
        if not self._judging or event.phase != self.phase:
            return []
        self._judging = False
        for node in sorted(event.handed_back):
            self.excluded.setdefault(node, HANDED_BACK)
        able = [step for step in event.more if step.id in self._settled or self._may_meet(step)]
        if able:  # or the same would be asked for again and again
            self.turn += 1
            self._network = Room(self._use, undisturbed=True) if self._use else None
            self._take_up(able)
            return self._go_on()
        for node in sorted(event.defective):
            self.excluded.setdefault(node, f"found defective in {self._phase_name()}")
        return self._begin_next_phase()

    def _lose(self, nodes: Iterable[str], reason: str) -> list[Command]:
        new = [node for node in nodes if node in self._nodes - self.excluded.keys()]
        self.excluded.update(dict.fromkeys(new, reason))
        self._losses += [(self.now, reason)] * len(new)
        return [command for node in new for command in self._give_up(node, reason)]

    def _give_up(self, node: str, reason: str) -> list[Command]:
        """End or drop every step of a node; larger groups go on without it."""
        running = list(self._on_node.get(node, ()))
        waiting = list(self._queues.get(node, ()))
        commands = [
            *chain.from_iterable(self._cut_short(step, node, reason) for step in running),
            *(self._drop(step, node, reason) for step in waiting),
        ]
        for step in (*running, *waiting):
            replacements = instead(self._plan, step, self.excluded)
            new = (candidate for candidate in replacements if not self._knows(candidate))
            if (first := next(new, None)) is not None:
                self._enqueue(first)
        return commands

    def _cut_short(self, step: Step, lost: str, reason: str) -> Iterator[Command]:
        """Its node is gone; where others take part, their programs are ended."""
        run = self._running[step.id]
        if len(step.participants) > 1:
            yield Kill(step_id=step.id, attempt=run.attempt, reason=reason)
        yield self._end(run, Ended.LOST, reason, lost=(lost,))

    def _drop(self, step: Step, lost: str, reason: str) -> Record:
        """A step that waits for a node that is gone."""
        for name in step.participants:
            self._queues[name].remove(step)
            self._ready[name] = None
        del self._pending[step.id]
        self.done += 1
        return Record(
            execution=Execution(
                step=step,
                attempt=self._attempts[step.id],
                ended=Ended.SKIPPED,
                final=True,
                reason=reason,
                lost=(lost,),
            )
        )

    def _allow_for_gap(self, at: float) -> None:
        """What runs gets the time again in which the driver was stopped, suspended or kept busy."""
        gap_s, self._looked_at = at - self._looked_at, max(at, self._looked_at)
        if gap_s > INATTENTIVE_S and self._running:
            self.unwatched_s += gap_s
            for run in self._running.values():
                self._give_until(run, max(run.deadline + gap_s, at + self._silence_s))

    def _most_are_lost(self) -> bool:
        """Most of those that were fit at once, or one by one everybody who took part."""
        fit = len(self._nodes) - len(self.excluded)
        return are_most(len(self._lost_at_once()), fit) or 1 < len(self._losses) == self._present

    def _lost_at_once(self) -> list[str]:
        """Why nodes were lost lately."""
        return [reason for at, reason in self._losses if at > self.now - AT_ONCE_S]

    def _halt(self) -> Halt:
        self.finished = True
        fit = len(self._nodes) - len(self.excluded)
        reasons = self._lost_at_once() if fit else [reason for _, reason in self._losses]
        return Halt(reason=not_their_fault("fell silent", reasons, fit))

    def _give_up_silent(self) -> list[Command]:
        """Nobody answered for a step long after its limit: its nodes are lost with it, for the
        program may still run there."""
        commands: list[Command] = []
        while (deadline := self.next_deadline()) is not None and deadline <= self.now:
            _, step_id, attempt = heapq.heappop(self._deadlines)
            run = self._running[step_id]
            reason = (
                f"no word of {run.step.workload.benchmark} {self._silence_s:g} s past its limit"
            )
            silent = run.step.participants
            commands.append(Kill(step_id=step_id, attempt=attempt, reason=reason))
            commands.append(self._end(run, Ended.LOST, reason, lost=silent))
            commands += self._lose(silent, reason)
        return commands

    # --- steps -----------------------------------------------------------------------------

    def _knows(self, step: Step) -> bool:
        return step.id in self._settled or step.id in self._attempts

    def _may_meet(self, step: Step) -> bool:
        return self.excluded.keys().isdisjoint(step.participants)

    def _run_of(self, step_id: str, attempt: int) -> _Run | None:
        """The run an event speaks of; None when it is late, repeated or never was."""
        run = self._running.get(step_id)
        return run if run and run.attempt == attempt else None

    def _settle(self, event: Measured | TimedOut, ended: Ended, reason: str) -> list[Command]:
        run = self._run_of(event.step_id, event.attempt)
        if run is None:
            return []
        record = self._end(run, ended, reason, at=event.at, lost=event.lost, result=event.result)
        return [record, *self._lose(event.lost, event.reason)]

    def _end(
        self,
        run: _Run,
        ended: Ended,
        reason: str,
        *,
        at: float | None = None,
        lost: tuple[str, ...] = (),
        result: Result | None = None,
        final: bool = True,
    ) -> Record:
        step = run.step
        del self._running[step.id]
        for name in step.participants:
            on_node = self._on_node[name]
            on_node.remove(step)
            if not on_node:
                del self._on_node[name]
            self._ready[name] = None
        if self._network:
            for cable in self._network.leave(self._ways(step)):
                self._ready |= self._waiting.pop(cable, {})
        if final:
            self._settled.add(step.id)
            self.done += 1
        return Record(
            execution=Execution(
                step=step,
                attempt=run.attempt,
                ended=ended,
                final=final,
                reason=reason,
                lost=lost,
                started_at=run.started_at,
                duration_s=max(0.0, (self.now if at is None else at) - run.started_at),
                result=result or Result(),
            )
        )

    def _enqueue(self, step: Step) -> None:
        self.planned += 1
        self._pending[step.id] = step
        self._attempts[step.id] = self._first_attempt.get(step.id, 1)
        for name in step.participants:
            self._queues.setdefault(name, deque()).append(step)
            self._ready[name] = None

    def _go_on(self) -> list[Command]:
        launches = self._dispatch()
        return [*launches, *self._close_phase()]

    def _dispatch(self) -> list[Command]:
        """Launch what can be: its turn on every participant, all of them free, within the bound."""
        launches: list[Command] = []
        held: list[str] = []
        while self._ready:
            room = self._room()
            if room == 0:
                break
            name = next(iter(self._ready))
            del self._ready[name]
            queue = self._queues.get(name)
            if not queue:
                continue
            step = queue[0]
            if not self._may_run(step):
                continue  # comes back to ready when a participant is freed or moves on
            newly_used = sum(p not in self._on_node for p in step.participants)
            if room is not None and newly_used > room and self._on_node:
                held.append(name)
                continue
            launches.append(self._launch(step))
        for name in held:
            self._ready[name] = None
        return launches

    def _room(self) -> int | None:
        if not self._parallel_nodes:
            return None
        return max(0, self._parallel_nodes - len(self._on_node))

    def _may_run(self, step: Step) -> bool:
        for name in step.participants:
            if self._queues[name][0] is not step:
                return False
            beside = self._on_node.get(name)
            if beside and (step.exclusive or beside[0].exclusive):
                return False
        if self._network:
            cable = self._network.crowded(self._ways(step))
            if cable is not None:
                self._waiting.setdefault(cable, {})[step.participants[0]] = None
                return False
        return True

    def _ways(self, step: Step) -> Ways:
        """The cables that a pair may take; larger groups are to load the network together."""
        meeting = meeting_of(step) if step.workload in self._plan.crossing else None
        return self._use.of(meeting) if self._use and meeting else ()

    def _launch(self, step: Step) -> Launch:
        del self._pending[step.id]
        attempt = self._attempts[step.id]
        run = _Run(step=step, attempt=attempt, started_at=self.now, deadline=0.0)
        self._running[step.id] = run
        self._give_time(run)
        for name in step.participants:
            self._queues[name].popleft()
            self._on_node.setdefault(name, []).append(step)
            self._ready[name] = None
        if self._network:
            self._network.enter(self._ways(step))
        return Launch(
            step=step,
            attempt=attempt,
            arguments=told_beside(self._plan, step),
            crosses_fabric=step.workload in self._plan.crossing,
        )

    def _give_time(self, run: _Run) -> None:
        self._give_until(run, self.now + run.step.timeout_s + self._silence_s)

    def _give_until(self, run: _Run, deadline: float) -> None:
        run.deadline = deadline
        heapq.heappush(self._deadlines, (run.deadline, run.step.id, run.attempt))

    # --- phases ----------------------------------------------------------------------------

    def _phase_name(self) -> str:
        return self._plan.phases[self.phase].name

    def _begin_next_phase(self) -> list[Command]:
        """The next one with anything to do; after the last, the campaign is finished."""
        while self.phase + 1 < len(self._plan.phases):
            self.phase += 1
            self.turn = self.planned = self.done = 0
            self._network = Room(self._use) if self._use else None
            self._queues.clear()
            self._ready.clear()
            fit = self._nodes - self.excluded.keys()
            if self._take_up(steps(self._plan, self.phase, fit)):
                return self._go_on()
        self.phase = len(self._plan.phases)
        self.finished = True
        return [Finish()]

    def _take_up(self, planned: Iterable[Step]) -> bool:
        """Queue what an earlier run did not settle; False if there is nothing at all."""
        resumed = 0
        for step in planned:
            if step.id in self._settled:
                resumed += 1
            else:
                self._enqueue(step)
        self.planned += resumed
        self.done += resumed
        return bool(self._pending or resumed)

    def _close_phase(self) -> list[Command]:
        if self._pending or self._running or self._judging:
            return []
        self._judging = True
        return [Judge(phase=self.phase, turn=self.turn)]
