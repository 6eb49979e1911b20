"""Commands of a fleet's keeper. Each may be sent twice; its effect is seen later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, get_args

from anubis.core.keep.life import Owed, Proof
from anubis.core.keep.periodic_tasks import PeriodicTask


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
class Prove(_OfMode):
    """Measure what these nodes have to prove, and answer with `VerdictReached` or `TestRefused`."""

    kind: ClassVar[str] = "prove"
    id: str
    proof: Proof
    about: str  # the category of the incident
    owed: Mapping[str, tuple[Owed, ...]]  # by node


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


ModedCommand = Cordon | Release | Prove | Swap | OpenTicket | CloseTicket | DoPeriodicTask
LifeCommand = ModedCommand | EndSuspicion | Notify
COMMANDS: dict[str, type[LifeCommand]] = {kind.kind: kind for kind in get_args(LifeCommand)}
