"""Events for the keeper of a fleet: facts with the time at which they became true.

Events may arrive late, twice, in any order, or not at all. Stored events arrive as event records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from anubis.core.history.events import EventRecord
from anubis.core.history.maintenance import Window
from anubis.core.keep.life import OpenIncident, Proof
from anubis.core.keep.reasons import is_ours
from anubis.core.records import Judgement


@dataclass(frozen=True, kw_only=True)
class _Timed:
    at: float


@dataclass(frozen=True, kw_only=True)
class Concluded:
    """Verdict of a test on a node."""

    judgement: Judgement
    code: str = ""
    reason: str = ""
    proof: Proof | None = None  # what the verdict healthy proves; None: nothing
    about: str = ""  # the category that it is proof for
    is_fit: bool = False  # the history has no open defect of the node any more
    owes: bool = False  # according to the history a test has no answer

    @property
    def counts(self) -> bool:
        return self.is_fit or self.proof is not None


@dataclass(frozen=True, kw_only=True)
class VerdictReached(_Timed):
    campaign: str
    began: float
    verdicts: Mapping[str, Concluded]
    test: str = ""  # id of the `Prove` that it answers; empty: requested by others


@dataclass(frozen=True, kw_only=True)
class TestRefused(_Timed):
    """A requested test could not begin: the nodes are in use, or nothing could measure."""

    __test__ = False

    test: str
    reason: str
    are_nodes_busy: bool = False  # it begins once they are free


@dataclass(frozen=True, kw_only=True)
class SeenNode:
    """A node as its orchestrator shows it."""

    sku: str = ""
    state: str = ""  # in the orchestrator's words
    meaning: str = ""  # of that state, for a person; empty: an ordinary state
    is_up: bool = True  # it answers its orchestrator
    is_free: bool = True  # False: reserved for others, although it shows no job
    jobs: tuple[str, ...] = ()  # ids of its running jobs
    cordon: str = ""  # the reason shown; empty: jobs may begin
    cordoned_by: str = ""  # author of that reason, if known
    cordoned_at: float | None = None

    @property
    def is_cordoned_by_anubis(self) -> bool:
        return is_ours(self.cordon)


@dataclass(frozen=True, kw_only=True)
class SeenJob:
    """A job as its orchestrator shows it."""

    owner: str  # empty: not shown
    nodes: tuple[str, ...]
    started_at: float | None = None
    ends_by: float = math.inf  # its limit of time
    has_begun: bool = True  # no: it holds its nodes while a prolog runs, which may put it back


@dataclass(frozen=True, kw_only=True)
class SeenWindow:
    """A maintenance as its orchestrator shows it: under way, or planned."""

    nodes: tuple[str, ...]
    begin: float
    end: float = math.inf  # infinite: until its owner ends it
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class FleetSeen(_Timed):
    """Everything that the orchestrator shows. A node that is missing or does not answer is lost. A
    node that returns after a while may have other parts, and has to prove itself."""

    nodes: Mapping[str, SeenNode]
    jobs: Mapping[str, SeenJob] = field(default_factory=dict)  # by id
    windows: Mapping[str, SeenWindow] = field(default_factory=dict)  # by name


@dataclass(frozen=True, kw_only=True)
class Waited(_Timed):
    """Passage of time: what waits for time may begin."""

    risk: Mapping[str, float] = field(default_factory=dict)  # chance of an incident by node
    watched: frozenset[str] = frozenset()  # nodes that the history knows
    unproven: frozenset[str] = frozenset()  # those of them without a pass that counts
    proven: frozenset[str] = frozenset()  # those of them with one
    owes: frozenset[str] | None = None  # nodes with an unanswered test; None: not checked
    unreachable: frozenset[str] = frozenset()  # others measure on them, or they are down
    incidents: Mapping[str, tuple[OpenIncident, ...]] = field(default_factory=dict)  # by node
    ended: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # times by category
    maintained: Mapping[str, Window] = field(default_factory=dict)  # nodes under maintenance


LifeEvent = EventRecord | VerdictReached | TestRefused | FleetSeen | Waited
