"""Actions: a keeper's commands, stored before they are sent and followed until they take effect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter

from anubis.core.keep.commands import (
    CloseTicket,
    Cordon,
    DoPeriodicTask,
    EndSuspicion,
    LifeCommand,
    Mode,
    ModedCommand,
    OpenTicket,
    Prove,
    Release,
    Swap,
)
from anubis.core.keep.life import Life


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


def first_stage(command: LifeCommand) -> Stage:
    """Stage of a new command. Only cordons, releases, tests and periodic work have an effect
    outside the history."""
    if isinstance(command, ModedCommand) and command.mode is Mode.PROPOSE:
        return Stage.PROPOSED
    return (
        Stage.KEPT if isinstance(command, Cordon | Release | Prove | DoPeriodicTask) else Stage.DONE
    )


def subjects(command: LifeCommand) -> tuple[str, ...]:
    """Nodes that a command is about, or the scope of a breaker, or the periodic work."""
    match command:
        case Cordon() | Release() | Swap() | OpenTicket() | CloseTicket() | EndSuspicion():
            return (command.node,)
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
    return False


def is_moot(command: LifeCommand, lives: Mapping[str, Life]) -> bool:
    """Return whether a proposal has nothing left to do."""
    match command:
        case Cordon(node=node, code=code):
            life = lives[node]
            return life.is_out_as(code) or not life.is_kept_out
        case Release(node=node):
            return not lives[node].cordon
        case Prove():
            return not any(lives[node].owed for node in command.owed)
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
    return newer.kind == older.kind or {newer.kind, older.kind} == {Cordon.kind, Release.kind}


def _meaning(command: LifeCommand) -> tuple[object, ...]:
    """Key of what a command asks for, without its id, mode and order of nodes."""
    if isinstance(command, Prove):
        owed = {node: frozenset(of_node) for node, of_node in command.owed.items()}
        return command.kind, command.proof, command.about, owed
    cells = (getattr(command, field.name) for field in fields(command) if field.name != "mode")
    return command.kind, *cells
