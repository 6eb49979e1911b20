"""Commands of a fleet's keeper, and the actions that they become.

Each command may be sent twice; its effect is seen later. An action is a command that is stored
before it is sent, and followed until it takes effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import ClassVar, get_args

from anubis.core.history.events import Debt
from anubis.core.keep.life import Life, Owed, Proof
from anubis.core.keep.periodic_tasks import PeriodicTask
from anubis.core.keep.reasons import LOST, SUSPECTED


class Mode(StrEnum):
    PROPOSE = "propose"  # only report what would be done
    ACT = "act"


@dataclass(frozen=True, kw_only=True)
class _OfMode:
    mode: Mode


@dataclass(frozen=True, kw_only=True)
class Cordon(_OfMode):
    """Let no further job begin on the node; running jobs may end."""

    kind: ClassVar[str] = "cordon"
    node: str
    code: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Release(_OfMode):
    """Take back a cordon of Anubis."""

    kind: ClassVar[str] = "release"
    node: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Requeue(_OfMode):
    """Put a job that runs on the node back into the queue, from which it begins without the
    node."""

    kind: ClassVar[str] = "requeue"
    node: str
    job: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TryRepair(_OfMode):
    """Run a command of the site that may repair the node, and answer with `RepairRan`."""

    kind: ClassVar[str] = "repair"
    node: str
    code: str  # what it is the remedy for
    words: tuple[str, ...]  # the command, as a person approves it
    limit_s: float  # how long it may take


@dataclass(frozen=True, kw_only=True)
class Prove(_OfMode):
    """Measure what these nodes have to prove, and answer with `VerdictReached` or `TestRefused`."""

    kind: ClassVar[str] = "prove"
    id: str
    proof: Proof
    about: str  # the category of the incident
    owed: Mapping[str, tuple[Owed, ...]]  # by node

    @property
    def follows_repair(self) -> bool:
        return any(owed.debt is Debt.REPAIR for debts in self.owed.values() for owed in debts)


@dataclass(frozen=True, kw_only=True)
class Swap(_OfMode):
    """Bring a spare into service for a node that is taken out."""

    kind: ClassVar[str] = "swap"
    node: str
    spare: str


@dataclass(frozen=True, kw_only=True)
class OpenTicket(_OfMode):
    kind: ClassVar[str] = "open-ticket"
    ticket: str
    node: str
    code: str
    reason: str
    campaign: str


@dataclass(frozen=True, kw_only=True)
class CloseTicket(_OfMode):
    """Close a ticket because the repair was proven."""

    kind: ClassVar[str] = "close-ticket"
    ticket: str
    node: str
    campaign: str


@dataclass(frozen=True, kw_only=True)
class DoPeriodicTask(_OfMode):
    """Do periodic work, or put its result in use."""

    kind: ClassVar[str] = "periodic-task"
    task: PeriodicTask
    due: float
    reason: str
    proposal: str = ""  # the result to put in use; empty: do the work itself


class Outcome(StrEnum):
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    GIVEN_UP = "given-up"


@dataclass(frozen=True, kw_only=True)
class EndSuspicion:
    """End a suspicion. The track record of its source is updated with the outcome."""

    kind: ClassVar[str] = "end-suspicion"
    id: str
    node: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, kw_only=True)
class Notify:
    """Inform a person."""

    kind: ClassVar[str] = "notify"
    subject: str
    sentence: str


ModedCommand = (
    Cordon
    | Release
    | Requeue
    | TryRepair
    | Prove
    | Swap
    | OpenTicket
    | CloseTicket
    | DoPeriodicTask
)
LifeCommand = ModedCommand | EndSuspicion | Notify
OwnerOrder = Cordon | Release | Requeue  # what the owner of the nodes is asked to do
LongWork = Prove | TryRepair  # one process carries it out, while turns go on
COMMANDS: dict[str, type[LifeCommand]] = {kind.kind: kind for kind in get_args(LifeCommand)}


class Stage(StrEnum):
    PROPOSED = "proposed"  # a person may approve it
    KEPT = "kept"  # stored, to be sent
    SENT = "sent"  # its effect was not seen yet
    DONE = "done"
    FAILED = "failed"  # the keeper asks again if it still wants it
    WITHDRAWN = "withdrawn"  # a proposal that a newer one replaced


OPEN = (Stage.PROPOSED, Stage.KEPT, Stage.SENT)


@dataclass(frozen=True, kw_only=True)
class LifeAction:
    id: int
    at: float
    command: LifeCommand
    stage: Stage
    changed_at: float
    campaign: str = ""  # that runs the test
    note: str = ""  # what went wrong, or the result
    ordered_by: str = ""  # empty: not approved so far

    def may_still_run(self, at: float) -> bool:
        """Return whether a repair that was sent may run at this time, even if the process that ran
        its command died."""
        command = self.command
        is_sent = self.stage is Stage.SENT
        return is_sent and isinstance(command, TryRepair) and at < self.changed_at + command.limit_s


def first_stage(command: LifeCommand) -> Stage:
    """Stage of a new command. Only orders, tests, repairs and periodic work have an effect outside
    the history."""
    if isinstance(command, ModedCommand) and command.mode is Mode.PROPOSE:
        return Stage.PROPOSED
    has_effect = isinstance(command, OwnerOrder | LongWork | DoPeriodicTask)
    return Stage.KEPT if has_effect else Stage.DONE


def subjects(command: LifeCommand) -> tuple[str, ...]:
    """Nodes that a command is about, or the scope of a breaker, or the periodic work."""
    match command:
        case Cordon() | Release() | Requeue() | TryRepair() | Swap() | OpenTicket() | CloseTicket():
            return (command.node,)
        case EndSuspicion(node=node):
            return (node,)
        case Prove():
            return tuple(command.owed)
        case DoPeriodicTask():
            return (command.task.value,)
    return (command.subject,)


def nodes_of(command: LifeCommand) -> tuple[str, ...]:
    """Nodes whose lives a command belongs to; names of other things if it is about no node."""
    return (command.node, command.spare) if isinstance(command, Swap) else subjects(command)


def has_shown(command: LifeCommand, life: Life) -> bool:
    """Return whether the orchestrator shows the effect of a command."""
    match command:
        case Cordon(code=code):
            return life.is_out_as(code)
        case Release():
            return not life.cordon
        case Requeue(job=job):
            return job not in life.jobs
    return False


def is_moot(command: LifeCommand, lives: Mapping[str, Life]) -> bool:
    """Return whether a proposal has nothing left to do."""
    match command:
        case Cordon(node=node, code=code):
            life = lives[node]
            is_suspect = code == SUSPECTED and life.owes(Debt.SUSPICION)
            is_lost = code == LOST and life.is_lost
            return life.is_out_as(code) or not (life.is_kept_out or is_suspect or is_lost)
        case Release(node=node):
            return not lives[node].cordon
        case Requeue(node=node, job=job):
            return job not in lives[node].jobs or not lives[node].must_be_out
        case TryRepair(node=node, code=code):
            return lives[node].repair is not None or lives[node].cause != code
        case Swap(node=node, spare=spare):
            return not (lives[node].awaits_spare and lives[spare].is_ready)
        case Prove(proof=Proof.TOGETHER, owed=nodes):
            return not any(lives[node].owes(Debt.UNEXPLAINED) for node in nodes)
        case Prove(owed=nodes):
            return not any(lives[node].owed_alone for node in nodes)
    return False


class Docket:
    """Open or failed actions by subject."""

    def __init__(self, actions: Iterable[LifeAction]) -> None:
        self._about: defaultdict[str, list[LifeAction]] = defaultdict(list)
        for action in actions:
            for subject in subjects(action.command):
                self._about[subject].append(action)

    def earlier_action(self, command: LifeCommand) -> LifeAction | None:
        """The last action with the same meaning, or None."""
        meaning = _meaning(command)
        same = [a for a in self._similar_actions(command) if _meaning(a.command) == meaning]
        return max(same, key=attrgetter("id"), default=None)

    def outdated_proposals(self, command: LifeCommand) -> list[LifeAction]:
        """Proposals for the same nodes with another or the opposite meaning."""
        proposed = [a for a in self._similar_actions(command) if a.stage is Stage.PROPOSED]
        meaning = _meaning(command)
        return [action for action in proposed if _meaning(action.command) != meaning]

    def _similar_actions(self, command: LifeCommand) -> list[LifeAction]:
        about = {a.id: a for name in subjects(command) for a in self._about.get(name, ())}
        return [action for action in about.values() if _is_kin(command, action.command)]


def _is_kin(newer: LifeCommand, older: LifeCommand) -> bool:
    if isinstance(newer, Requeue) and isinstance(older, Requeue):
        return newer.job == older.job
    if isinstance(newer, Prove) and isinstance(older, Prove):
        return (newer.proof is Proof.TOGETHER) == (older.proof is Proof.TOGETHER)
    return newer.kind == older.kind or {newer.kind, older.kind} == {Cordon.kind, Release.kind}


def _meaning(command: LifeCommand) -> tuple[object, ...]:
    """Key of what a command asks for, without its id, mode and order of nodes."""
    if isinstance(command, Prove):
        owed = {node: frozenset(of_node) for node, of_node in command.owed.items()}
        return command.kind, command.proof, command.about, owed
    cells = (getattr(command, field.name) for field in fields(command) if field.name != "mode")
    return command.kind, *cells
