"""What the keeper of a fleet is told: facts with the time at which they became true.

They may come late, twice and in any order, or not at all. Events that are kept come as notices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from anubis.core.history.events import Notice
from anubis.core.history.maintenance import Window
from anubis.core.keep.life import OpenIncident, Proof
from anubis.core.keep.reasons import is_ours
from anubis.core.records import Judgement


@dataclass(frozen=True, kw_only=True)
class _Timed:
    at: float


@dataclass(frozen=True, kw_only=True)
class Concluded:
    """What a test came to on a node."""

    judgement: Judgement
    code: str = ""
    reason: str = ""
    proof: Proof | None = None  # what it is worth to be healthy there; None: nothing
    about: str = ""  # the category of which it is proof
    is_fit: bool = False  # the history holds no defect against the node any more
    owes: bool = False  # by the history, there is a test that it did not answer

    @property
    def counts(self) -> bool:
        return self.is_fit or self.proof is not None


@dataclass(frozen=True, kw_only=True)
class VerdictReached(_Timed):
    campaign: str
    began: float
    verdicts: Mapping[str, Concluded]
    test: str = ""  # which `Prove` it answers; empty: somebody else asked for it


@dataclass(frozen=True, kw_only=True)
class TestRefused(_Timed):
    """What was asked for could not begin: somebody holds the nodes, or nothing could measure."""

    __test__ = False

    test: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class SeenNode:
    """A node as its orchestrator shows it."""

    sku: str = ""
    state: str = ""  # in its orchestrator's own words
    meaning: str = ""  # that state for a person; empty: the node may simply serve
    is_up: bool = True  # it answers its orchestrator
    is_free: bool = True  # nobody keeps it for something else, though no job is shown there
    jobs: tuple[str, ...] = ()  # what runs there, by id
    cordon: str = ""  # the reason it shows; empty: jobs may begin there
    cordoned_by: str = ""  # who gave that reason, where it is known
    cordoned_at: float | None = None

    @property
    def by_anubis(self) -> bool:
        return is_ours(self.cordon)


@dataclass(frozen=True, kw_only=True)
class SeenJob:
    """A job as its orchestrator shows it."""

    owner: str  # empty: somebody whom it does not show
    nodes: tuple[str, ...]
    started_at: float | None = None
    ends_by: float = math.inf  # its limit of time


@dataclass(frozen=True, kw_only=True)
class SeenWindow:
    """A maintenance as its orchestrator shows it: one that goes on, or is planned."""

    nodes: tuple[str, ...]
    begin: float
    end: float = math.inf  # infinite: until its owner takes it back
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class FleetSeen(_Timed):
    """All that the orchestrator shows. A node that is missing, or does not answer it, is lost; one
    that comes back after a while may have other parts, and has to prove itself."""

    nodes: Mapping[str, SeenNode]
    jobs: Mapping[str, SeenJob] = field(default_factory=dict)  # by id
    windows: Mapping[str, SeenWindow] = field(default_factory=dict)  # by name


@dataclass(frozen=True, kw_only=True)
class Waited(_Timed):
    """Time has passed: what waits for it may begin."""

    risk: Mapping[str, float] = field(default_factory=dict)  # how likely an incident is, by node
    watched: frozenset[str] = frozenset()  # nodes that the history knows
    unproven: frozenset[str] = frozenset()  # those of them where nothing was passed that counts
    proven: frozenset[str] = frozenset()  # where something was
    owes: frozenset[str] | None = None  # that did not answer a test; None: nobody looked
    unreachable: frozenset[str] = frozenset()  # somebody measures there, or they are down
    incidents: Mapping[str, tuple[OpenIncident, ...]] = field(default_factory=dict)  # by node
    ended: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # when, by category
    maintained: Mapping[str, Window] = field(default_factory=dict)  # nodes under maintenance


LifeEvent = Notice | VerdictReached | TestRefused | FleetSeen | Waited
