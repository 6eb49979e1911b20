"""A campaign as a state machine: events in, commands out. It has no effects itself.

Its invariants hold for any order of events, and are tested with saboteurs. Every step is settled
exactly once. No node runs two exclusive programs. No step is launched on a node that was found
defective or lost. A phase begins when the one before it has been judged. A step without an answer
is given up at its deadline, so the machine always ends. No node is blamed for time in which the
driver did not look, or for a silence of most nodes.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType

from anubis.core.campaign.planning import extra_parameters, replacement_steps, steps
from anubis.core.network.pairing import pair_test_of
from anubis.core.network.sharing import NEVER, SHARED, CableUse, Room, Ways
from anubis.core.network.traffic import chance_of_turn
from anubis.core.records import Ended, Execution, ParameterValue, Plan, Result, Step, Workload

# --- events: from the world ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _OfStep:
    step_id: str
    attempt: int
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Started(_OfStep):
    """The step has started: its time limit counts from here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptWaiting(_OfStep):
    """The step ran into its limit because others use its processors: it gets the time in which it
    waited for them."""

    waited_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EndOfStep(_OfStep):
    """The end of a program, and the nodes on which a process of it outlived SIGKILL: they are lost.

    If one device of several failed or hung, the result has the measurements of the others.
    """

    reason: str = ""
    lost: tuple[str, ...] = ()
    result: Result = Result()


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured(EndOfStep):
    """The program reached its end and left a valid document (which may report "not applicable")."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed(EndOfStep):
    """The program could not measure. Only infrastructure failures are tried again."""

    infrastructure: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedOut(EndOfStep):
    """The program gave no answer within its limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLost:
    """The node, or Anubis' agent on it, no longer answers. Its steps end with it."""

    node: str
    at: float
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The answer to `Judge`: the nodes that are defective after this phase, and excluded from the
    next.

    Or the steps that follow first, in the same phase, because the results ask for them.
    """

    phase: int
    defective: frozenset[str]
    more: tuple[Step, ...] = ()
    handed_back: frozenset[str] = frozenset()  # nodes that are well and needed no more


@dataclass(frozen=True, kw_only=True, slots=True)
class TimePassed:
    """The driver looked, and has reported all that it saw."""

    at: float


CampaignEvent = (
    Started | KeptWaiting | Measured | Failed | TimedOut | NodeLost | Judged | TimePassed
)

# --- commands: to the world ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    step: Step
    attempt: int
    arguments: Mapping[str, ParameterValue] = field(default_factory=dict)  # beside its workload's
    crosses_fabric: bool = False  # its measurements tell about the fabric

    @property
    def parameters(self) -> dict[str, ParameterValue]:
        return {**self.step.workload.program_arguments, **self.arguments}


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    step_id: str
    attempt: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Store this execution permanently, before anything that follows."""

    execution: Execution


@dataclass(frozen=True, kw_only=True, slots=True)
class Judge:
    """Every step of the phase is settled: find the defective nodes, and answer with `Judged`."""

    phase: int
    turn: int  # 0 after the planned steps, 1 after those that followed, and so on


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Halt:
    """Stop here: the event says nothing about the nodes. The campaign can be resumed."""

    reason: str


Command = Launch | Kill | Record | Judge | Finish | Halt

# --- the machine ---------------------------------------------------------------------------

INATTENTIVE_S = 5.0  # longer than this, a driver that looks every second was stopped
AT_ONCE_S = 60.0  # nodes lost within this time probably have one reason

MOST_IN_VAIN = 3  # good partners that waited for a node in vain: then it is asked no more

HANDED_BACK = "handed back"
REPEATABLE = frozenset({Ended.LOST, Ended.SKIPPED})  # ends that a resumed campaign tries again


@dataclass(slots=True)
class _Run:
    step: Step
    attempt: int
    started_at: float
    deadline: float


def are_most(lost: int, fit: int) -> bool:
    """True if most nodes are lost. A single one is never most: then the cause is uncertain, and the
    node is named."""
    return lost > max(1, fit)


def no_blame_reason(sign: str, reasons: Sequence[str], fit: int) -> str:
    """The reason why no node is blamed although most of them show this sign."""
    ((commonest, _),) = Counter(reasons).most_common(1)
    return (
        f"{len(reasons)} of {len(reasons) + fit} nodes {sign}: until shown otherwise, this"
        f" machine, the network or Ray is at fault, and no node; most reported:"
        f' "{commonest}"; mend that, then go on: nodes that are still silent count as lost'
    )


class CampaignMachine:
    """Call `start`, then `handle` for every event; carry out the returned commands in order."""

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
        """Build a machine. `history` has the executions that an earlier run settled; `absent` gives
        the reason for each absent node."""
        self._plan = plan
        self._nodes = {node.name for node in plan.nodes}
        self._retries = retries
        self._parallel_nodes = parallel_nodes
        self._silence_s = silence_s  # a step may be silent so long past its limit
        self._settled: set[str] = set()
        self._turns_of: Counter[Workload] = Counter()  # turns in which each ran
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
        self.unwatched_s = 0.0  # the driver did not look, while steps ran
        self.excluded: dict[str, str] = dict(absent)  # node -> why it no longer takes part
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
        self._use = CableUse(plan.fabric) if plan.fabric else None  # the cables of this turn
        self._network: Room | None = None  # the pairs of this turn
        self._waiting: dict[int, dict[str, None]] = {}  # nodes that wait for room on a cable
        self._met: set[str] = set()  # nodes that measured with a partner in this phase
        self._in_vain: dict[str, set[str]] = {}  # node -> partners with which it ran out of time

    @property
    def running(self) -> int:
        return len(self._running)

    def remaining(self) -> Iterator[tuple[Step, float | None]]:
        """Yield the steps of this phase that have not ended, with the time when each began; None if
        it has not."""
        yield from ((step, None) for step in self._pending.values())
        yield from ((run.step, run.started_at) for run in self._running.values())

    def start(self, at: float) -> list[Command]:
        self.now = self._looked_at = at
        return self._begin_next_phase()

    def next_deadline(self) -> float | None:
        """The latest time for the next `TimePassed`."""
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
            return self._handle_judged(event)
        commands = self._handle_other(event)
        if self._most_are_lost():
            return [*commands, self._halt()]
        return [*commands, *self._go_on()]

    def _handle_other(
        self, event: Started | KeptWaiting | Measured | Failed | TimedOut | NodeLost | TimePassed
    ) -> list[Command]:
        self.now = max(self.now, event.at)
        match event:
            case Started():
                self._handle_started(event)
            case KeptWaiting():
                self._handle_kept_waiting(event)
            case Measured():
                return self._handle_measured(event)
            case Failed():
                return self._handle_failed(event)
            case TimedOut():
                settled = self._settle(event, Ended.TIMED_OUT, event.reason)
                return [*settled, *self._stop_asking()]
            case NodeLost():
                return self._lose((event.node,), event.reason)
            case TimePassed():
                self._allow_for_gap(event.at)
                return self._give_up_silent()
        return []

    def next_try(self, step_id: str, failed: int) -> tuple[int, int] | None:
        """The number of the try after the failed one, and the number of tries; None if it was the
        last."""
        following = self._attempts.get(step_id, 0)
        number = following - self._first_attempt.get(step_id, 1) + 1
        return (number, self._retries + 1) if following > failed else None

    # --- events ----------------------------------------------------------------------------

    def _handle_started(self, event: Started) -> None:
        run = self._run_of(event.step_id, event.attempt)
        if run:
            run.started_at = event.at
            self._give_time(run)

    def _handle_kept_waiting(self, event: KeptWaiting) -> None:
        run = self._run_of(event.step_id, event.attempt)
        if run:
            limit_s = run.step.timeout_s + event.waited_s + self._silence_s
            self._give_until(run, max(run.deadline, run.started_at + limit_s))

    def _handle_measured(self, event: Measured) -> list[Command]:
        absent = event.result.not_applicable
        ended = Ended.NOT_APPLICABLE if absent else Ended.MEASURED
        return self._settle(event, ended, event.reason or absent)

    def _handle_failed(self, event: Failed) -> list[Command]:
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

    def _handle_judged(self, event: Judged) -> list[Command]:
        if not self._judging or event.phase != self.phase:
            return []
        self._judging = False
        for node in sorted(event.handed_back):
            self.excluded.setdefault(node, HANDED_BACK)
        able = [step for step in event.more if step.id in self._settled or self._may_meet(step)]
        if able:  # without this, the same would be asked for again and again
            self.turn += 1
            workloads = {step.workload for step in able}
            across = workloads & self._plan.across
            turns = max(self._turns_of[workload] for workload in across or workloads)
            self._make_room(chance_of_turn(turns, across=bool(across)))
            self._turns_of.update(workloads)
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
            *(self._drop(step, (node,), reason) for step in waiting),
        ]
        for step in (*running, *waiting):
            replacements = replacement_steps(self._plan, step, self.excluded)
            new = (candidate for candidate in replacements if not self._knows(candidate))
            if (first := next(new, None)) is not None:
                self._enqueue(first)
        return commands

    def _cut_short(self, step: Step, lost: str, reason: str) -> Iterator[Command]:
        """End a step whose node is lost. If others take part in it, their programs are killed."""
        run = self._running[step.id]
        if len(step.participants) > 1:
            yield Kill(step_id=step.id, attempt=run.attempt, reason=reason)
        yield self._end(run, Ended.LOST, reason, lost=(lost,))

    def _drop(self, step: Step, lost: tuple[str, ...], reason: str) -> Record:
        """Drop a step that waits, because nodes of it are lost or answer nobody."""
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
                lost=lost,
            )
        )

    def _allow_for_gap(self, at: float) -> None:
        """Extend the deadlines of running steps by the time in which the driver was stopped,
        suspended or kept busy."""
        gap_s, self._looked_at = at - self._looked_at, max(at, self._looked_at)
        if gap_s > INATTENTIVE_S and self._running:
            self.unwatched_s += gap_s
            for run in self._running.values():
                self._give_until(run, max(run.deadline + gap_s, at + self._silence_s))

    def _most_are_lost(self) -> bool:
        """True if most fit nodes were lost at once, or all participants one by one."""
        fit = len(self._nodes) - len(self.excluded)
        return are_most(len(self._recent_losses()), fit) or 1 < len(self._losses) == self._present

    def _recent_losses(self) -> list[str]:
        return [reason for at, reason in self._losses if at > self.now - AT_ONCE_S]

    def _halt(self) -> Halt:
        self.finished = True
        fit = len(self._nodes) - len(self.excluded)
        reasons = self._recent_losses() if fit else [reason for _, reason in self._losses]
        return Halt(reason=no_blame_reason("fell silent", reasons, fit))

    def _give_up_silent(self) -> list[Command]:
        """Give up steps without an answer long after their limit. Their nodes are lost as well,
        because the program may still run there."""
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
        is_pair = len(step.participants) == 2 and step.workload in self._plan.crossing
        in_vain = is_pair and any(map(self._answers_nobody, step.participants))
        return not in_vain and self.excluded.keys().isdisjoint(step.participants)

    def _run_of(self, step_id: str, attempt: int) -> _Run | None:
        """The run that an event is about; None if the event is late, repeated or unknown."""
        run = self._running.get(step_id)
        return run if run and run.attempt == attempt else None

    def _settle(self, event: Measured | TimedOut, ended: Ended, reason: str) -> list[Command]:
        run = self._run_of(event.step_id, event.attempt)
        if run is None:
            return []
        if len(run.step.participants) == 2 and run.step.workload in self._plan.crossing:
            self._note_pair(run.step.participants, ended)
        record = self._end(run, ended, reason, at=event.at, lost=event.lost, result=event.result)
        return [record, *self._lose(event.lost, event.reason)]

    def _note_pair(self, pair: Sequence[str], ended: Ended) -> None:
        if ended is Ended.MEASURED:
            self._met.update(pair)
        elif ended is Ended.TIMED_OUT:
            for node, partner in (pair, pair[::-1]):
                self._in_vain.setdefault(node, set()).add(partner)

    def _answers_nobody(self, node: str) -> bool:
        """True if a node ran out of time with several partners that measure with others, and
        measured with none itself. Each further pair would take its whole limit."""
        partners = self._in_vain.get(node, set())
        return node not in self._met and len(partners & self._met) >= MOST_IN_VAIN

    def _stop_asking(self) -> Iterator[Record]:
        """Drop the pairs of nodes that answer nobody."""
        for node in filter(self._answers_nobody, list(self._in_vain)):
            reason = f"{node} gave no answer to {len(self._in_vain[node])} partners"
            for step in list(self._queues.get(node, ())):
                if len(step.participants) == 2 and step.workload in self._plan.crossing:
                    yield self._drop(step, (), f"{reason}: it is asked no more")

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
        """Launch each step that is next on every participant, if all of them are free and the bound
        allows it."""
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
                continue  # it is ready again when a participant is freed or moves on
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
            cable = self._network.crowded_cable(self._ways(step))
            if cable is not None:
                self._waiting.setdefault(cable, {})[step.participants[0]] = None
                return False
        return True

    def _ways(self, step: Step) -> Ways:
        """The cables that a pair may take; none for larger groups, which are to load the network
        together."""
        pair_test = pair_test_of(step) if step.workload in self._plan.crossing else None
        return self._use.find_ways(pair_test) if self._use and pair_test else ()

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
            arguments=extra_parameters(self._plan, step),
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

    def _make_room(self, shared: float = SHARED) -> None:
        """Begin a turn of pairs. Undisturbed ones take turns as if no route were known: tables that
        are older than the cables, or switches that choose paths on the fly, would let them share a
        cable, and so blame it."""
        fabric = self._plan.fabric
        if fabric is None or self._use is None:
            return
        routes = None if shared == NEVER else fabric.routes
        if self._use.fabric.routes is not routes:
            self._use = CableUse(replace(fabric, routes=routes))
        self._network = Room(self._use, shared)

    def _begin_next_phase(self) -> list[Command]:
        """Begin the next phase with any steps; after the last, the campaign is finished."""
        while self.phase + 1 < len(self._plan.phases):
            self.phase += 1
            self.turn = self.planned = self.done = 0
            self._make_room()
            if self._plan.non_blocking:
                self._network = None
            self._queues.clear()
            self._ready.clear()
            self._met.clear()
            self._in_vain.clear()
            fit = self._nodes - self.excluded.keys()
            planned = list(steps(self._plan, self.phase, fit))
            self._turns_of.update({step.workload for step in planned})
            if self._take_up(planned):
                return self._go_on()
        self.phase = len(self._plan.phases)
        self.finished = True
        return [Finish()]

    def _take_up(self, planned: Iterable[Step]) -> bool:
        """Queue the steps that an earlier run did not settle; return False if the phase has no
        steps."""
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


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The input from which a machine is built, and the time of its start."""

    campaign: str
    at: float
    plan: Plan
    retries: int
    parallel_nodes: int | None
    absent: Mapping[str, str]  # absent nodes, with the reason
    history: tuple[Execution, ...]  # settled by earlier runs

    def machine(self) -> CampaignMachine:
        return CampaignMachine(
            self.plan,
            retries=self.retries,
            parallel_nodes=self.parallel_nodes,
            history=self.history,
            absent=self.absent,
        )


Witness = Callable[[Opening | CampaignEvent], None]


def replay(
    opening: Opening, events: Iterable[CampaignEvent]
) -> Iterator[tuple[Opening | CampaignEvent, list[Command]]]:
    """Yield each event, with the commands that the machine gave in response: it has no clock and no
    randomness, so the same opening and events give the same commands."""
    machine = opening.machine()
    yield opening, machine.start(opening.at)
    for event in events:
        yield event, machine.handle(event)
