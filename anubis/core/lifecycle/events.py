"""What the keeper of a fleet is told: facts with the time at which they became true.

They may come late, twice and in any order, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from anubis.core.lifecycle.reasons import is_ours
from anubis.core.records import Judgement


@dataclass(frozen=True, kw_only=True)
class _Told:
    at: float


@dataclass(frozen=True, kw_only=True)
class NodeSeen(_Told):
    """It joined the fleet, or came back to it: perhaps with other parts."""

    node: str
    sku: str


@dataclass(frozen=True, kw_only=True)
class NodeGone(_Told):
    node: str


@dataclass(frozen=True, kw_only=True)
class JobBegun(_Told):
    job: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class JobEnded(_Told):
    job: str
    nodes: tuple[str, ...]
    has_failed: bool = False


@dataclass(frozen=True, kw_only=True)
class IncidentTold(_Told):
    node: str
    category: str


@dataclass(frozen=True, kw_only=True)
class SuspicionRaised(_Told):
    """Something says that a node may be bad. Only a test makes a verdict of it."""

    id: str
    node: str
    source: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class NodesUpgraded(_Told):
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Concluded:
    """What a test came to on a node. Healthy proves something only if `enough` was measured."""

    judgement: Judgement
    code: str = ""
    reason: str = ""
    enough: bool = False  # all that the node had to prove when the test began


@dataclass(frozen=True, kw_only=True)
class VerdictReached(_Told):
    campaign: str
    began: float
    verdicts: Mapping[str, Concluded]
    test: str = ""  # which `Prove` it answers; empty: somebody else asked for it


@dataclass(frozen=True, kw_only=True)
class TestRefused(_Told):
    """What was asked for could not begin: somebody holds the nodes, or nothing could measure."""

    __test__ = False

    test: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RepairBegun(_Told):
    node: str


@dataclass(frozen=True, kw_only=True)
class RepairDone(_Told):
    node: str


class Order(StrEnum):
    """What a person may say."""

    RETIRE = "retire"  # the node leaves the fleet for good
    RETURN = "return"  # a retired node belongs to it again, unproven
    CLOSE = "close"  # the breaker of `subject`: nodes may be taken out again


@dataclass(frozen=True, kw_only=True)
class OperatorSaid(_Told):
    order: Order
    subject: str  # a node, or the scope of a breaker


@dataclass(frozen=True, kw_only=True)
class SeenNode:
    """A node as its orchestrator shows it."""

    sku: str = ""
    state: str = ""  # in its orchestrator's own words
    is_up: bool = True  # it answers its orchestrator
    jobs: tuple[str, ...] = ()  # what runs there, by id
    held: bool = False  # somebody measures there
    cordon: str = ""  # the reason it shows; empty: jobs may begin there
    cordoned_by: str = ""  # who gave that reason, where it is known
    cordoned_at: float | None = None

    @property
    def by_anubis(self) -> bool:
        return is_ours(self.cordon)


@dataclass(frozen=True, kw_only=True)
class SeenJob:
    """A job as its orchestrator shows it."""

    owner: str
    nodes: tuple[str, ...]
    started_at: float
    ends_by: float = math.inf  # its limit of time


@dataclass(frozen=True, kw_only=True)
class FleetSeen(_Told):
    """All that the orchestrator shows. A node that is missing is gone."""

    nodes: Mapping[str, SeenNode]
    jobs: Mapping[str, SeenJob] = field(default_factory=dict)  # by id


@dataclass(frozen=True, kw_only=True)
class Waited(_Told):
    """Time has passed: what waits for it may begin."""

    risk: Mapping[str, float] = field(default_factory=dict)  # how likely an incident is, by node


LifeEvent = (
    NodeSeen
    | NodeGone
    | JobBegun
    | JobEnded
    | IncidentTold
    | SuspicionRaised
    | NodesUpgraded
    | VerdictReached
    | TestRefused
    | RepairBegun
    | RepairDone
    | OperatorSaid
    | FleetSeen
    | Waited
)
