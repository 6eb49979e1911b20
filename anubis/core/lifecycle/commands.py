"""What the keeper of a fleet wants done. Each may be sent twice; what came of it is seen later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from anubis.core.lifecycle.life import Owed


class Mode(StrEnum):
    PROPOSE = "propose"  # say what would be done
    ACT = "act"


@dataclass(frozen=True, kw_only=True)
class _OfMode:
    mode: Mode


@dataclass(frozen=True, kw_only=True)
class Cordon(_OfMode):
    """Let no further job begin there; whatever runs may end."""

    node: str
    code: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Release(_OfMode):
    """Take back a cordon of ours."""

    node: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Prove(_OfMode):
    """Measure what these nodes have to prove, and answer with `VerdictReached` or `TestRefused`."""

    id: str
    owed: Mapping[str, tuple[Owed, ...]]  # by node


@dataclass(frozen=True, kw_only=True)
class Swap(_OfMode):
    """A spare goes into service for a node that is taken out."""

    node: str
    spare: str


@dataclass(frozen=True, kw_only=True)
class OpenTicket(_OfMode):
    ticket: str
    node: str
    code: str
    reason: str
    campaign: str


@dataclass(frozen=True, kw_only=True)
class CloseTicket(_OfMode):
    """The repair was proven."""

    ticket: str
    node: str
    campaign: str


class Outcome(StrEnum):
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    GIVEN_UP = "given-up"


@dataclass(frozen=True, kw_only=True)
class EndSuspicion:
    """Its source learns from it how far to be trusted."""

    id: str
    node: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, kw_only=True)
class Notify:
    """A person should know."""

    subject: str
    sentence: str


LifeCommand = Cordon | Release | Prove | Swap | OpenTicket | CloseTicket | EndSuspicion | Notify
