"""What became of a keeper's commands: kept before they are sent, followed to their effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from anubis.core.lifecycle.commands import (
    CloseTicket,
    Cordon,
    DoChore,
    EndSuspicion,
    LifeCommand,
    Mode,
    ModedCommand,
    OpenTicket,
    Prove,
    Release,
    Swap,
)
from anubis.core.lifecycle.life import Life


class Stage(StrEnum):
    PROPOSED = "proposed"  # a person may have it done
    KEPT = "kept"  # to be sent
    SENT = "sent"  # and its effect not seen yet
    DONE = "done"
    FAILED = "failed"  # the keeper asks again, where it still wants it
    WITHDRAWN = "withdrawn"  # a proposal that something newer took the place of


OPEN = (Stage.PROPOSED, Stage.KEPT, Stage.SENT)


@dataclass(frozen=True, kw_only=True)
class LifeAction:
    id: int
    at: float
    command: LifeCommand
    stage: Stage
    changed_at: float
    campaign: str = ""  # that carries a test out
    note: str = ""  # what went wrong, or who had it done


def first_stage(command: LifeCommand) -> Stage:
    """Only cordons, releases, tests and periodic work reach beyond the history."""
    if isinstance(command, ModedCommand) and command.mode is Mode.PROPOSE:
        return Stage.PROPOSED
    return Stage.KEPT if isinstance(command, Cordon | Release | Prove | DoChore) else Stage.DONE


def subjects(command: LifeCommand) -> tuple[str, ...]:
    """The nodes that it is about, the scope of a breaker, or the periodic work."""
    match command:
        case Cordon() | Release() | Swap() | OpenTicket() | CloseTicket() | EndSuspicion():
            return (command.node,)
        case Prove():
            return tuple(command.owed)
        case DoChore():
            return (command.chore.value,)
    return (command.subject,)


def has_shown(command: LifeCommand, life: Life) -> bool:
    """Whether the orchestrator shows the effect of a command."""
    match command:
        case Cordon(code=code):
            return life.is_out_as(code)
        case Release():
            return not life.cordon
    return False


def is_moot(command: LifeCommand, lives: Mapping[str, Life]) -> bool:
    """Whether a proposal has nothing to do any more."""
    match command:
        case Cordon(node=node, code=code):
            life = lives[node]
            return life.is_out_as(code) or not life.is_kept_out
        case Release(node=node):
            return not lives[node].cordon
        case Prove():
            return not any(lives[node].owed for node in command.owed)
    return False


def replaces(newer: LifeCommand, older: LifeCommand) -> bool:
    """A proposal that says the same of the same nodes, or the opposite."""
    pair = {newer.kind, older.kind}
    is_about_the_same = subjects(newer) == subjects(older)
    return is_about_the_same and (len(pair) == 1 or pair == {Cordon.kind, Release.kind})


def means_the_same(newer: LifeCommand, older: LifeCommand) -> bool:
    """Whoever asks for it, proposed or to be done."""
    return _meaning(newer) == _meaning(older)


def _meaning(command: LifeCommand) -> tuple[object, ...]:
    aside = {"mode", "id"} if isinstance(command, Prove) else {"mode"}
    cells = (getattr(command, field.name) for field in fields(command) if field.name not in aside)
    return command.kind, *cells
