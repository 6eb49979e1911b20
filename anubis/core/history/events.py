"""What an orchestrator, a person or a watcher tells us of nodes.

Some events are facts that change what is known of a node, whoever asks next: these can be kept. A
tick only asks what to do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal, get_args

from anubis.core.history.status import Incident
from anubis.core.history.tracks import IncidentColumns


@dataclass(frozen=True, kw_only=True)
class NodeAdded:
    kind: ClassVar[str] = "node-added"
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NodeRemoved:
    """It left the fleet: nobody need look after it."""

    kind: ClassVar[str] = "node-removed"
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FleetUpgraded:
    """Other software or parts: what was measured before says nothing any more."""

    kind: ClassVar[str] = "fleet-upgraded"
    nodes: tuple[str, ...]
    criteria: Literal["learned", "refused"] = "learned"  # again, since the upgrade


@dataclass(frozen=True, kw_only=True)
class JobAllocated:
    kind: ClassVar[str] = "job-allocated"
    nodes: tuple[str, ...]
    duration_s: float
    job: str = ""  # its id; empty: somebody only asks

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < float("inf"):
            raise ValueError(f"a job of {self.duration_s:g} s, expected a duration above 0")


@dataclass(frozen=True, kw_only=True)
class JobEnded:
    kind: ClassVar[str] = "job-ended"
    nodes: tuple[str, ...]
    job: str
    failed: bool = False  # which may be its own fault: its nodes are checked, none is suspected


@dataclass(frozen=True, kw_only=True)
class JobStalled:
    """It runs and comes no further. Why and through whom is for a diagnosis to say."""

    kind: ClassVar[str] = "job-stalled"
    nodes: tuple[str, ...]
    job: str
    source: str = "operator"  # who says so
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class IncidentReported:
    kind: ClassVar[str] = "incident-reported"
    nodes: tuple[str, ...]
    category: str

    def __post_init__(self) -> None:
        if not self.category:
            raise ValueError("a reported incident has no category, expected a word such as gpu")


@dataclass(frozen=True, kw_only=True)
class SuspicionRaised:
    """Something says that nodes may be bad. Only a test makes a verdict of it."""

    kind: ClassVar[str] = "suspicion-raised"
    nodes: tuple[str, ...]
    category: str  # of the defect that is to be expected; with a mix, the likeliest
    source: str  # who suspects them
    reason: str = ""
    mix: Mapping[str, float] = field(default_factory=dict, hash=False)  # none: its category alone
    confidence: float | None = None  # how likely it is right; as it is told, by its source alone

    def __post_init__(self) -> None:
        if not self.category:
            raise ValueError("a suspicion has no category, expected a word such as gpu")
        if self.mix and not (all(0 <= share <= 1 for share in self.mix.values()) and self._total):
            raise ValueError(
                "a suspicion's mix has shares that are not from 0 to 1, or all 0; expected one such"
                " as gpu 0.7 and host 0.3"
            )
        if self.confidence is not None and not 0 <= self.confidence <= 1:
            raise ValueError(f"a confidence of {self.confidence:g}, expected one from 0 to 1")

    @property
    def _total(self) -> float:
        return sum(self.mix.values())

    @property
    def shares(self) -> Mapping[str, float]:
        """How likely each category is; they add up to 1."""
        if not self.mix:
            return {self.category: 1.0}
        return {category: share / self._total for category, share in self.mix.items()}


@dataclass(frozen=True, kw_only=True)
class RepairBegun:
    kind: ClassVar[str] = "repair-begun"
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RepairDone:
    """It is not believed until a test has proven it."""

    kind: ClassVar[str] = "repair-done"
    nodes: tuple[str, ...]
    action: str = ""  # what was done


@dataclass(frozen=True, kw_only=True)
class MaintenancePlanned:
    """Somebody works on these nodes, or will: they are left alone from begin to end."""

    kind: ClassVar[str] = "maintenance"
    nodes: tuple[str, ...]
    begin: float
    end: float  # infinite: until its owner takes it back
    name: str = ""  # told again under it, it replaces what was told before; empty: another one
    reason: str = ""
    source: str = "operator"  # who says so

    def __post_init__(self) -> None:
        if not math.isfinite(self.begin):
            raise ValueError(f"a maintenance that begins at {self.begin}, expected a time")
        if not self.begin < self.end:  # NaN is neither
            raise ValueError("a maintenance that ends before it begins: expected a later end")


@dataclass(frozen=True, kw_only=True)
class MaintenanceEnded:
    """It is over before its time. What was changed meanwhile is told by itself."""

    kind: ClassVar[str] = "maintenance-ended"
    nodes: tuple[str, ...]
    name: str = ""  # of the window; empty: all of these nodes


class Order(StrEnum):
    RETIRE = "retire"  # these nodes leave the fleet for good
    RETURN = "return"  # retired nodes belong to it again, unproven
    CLOSE = "close-breaker"  # nodes may be taken out again


@dataclass(frozen=True, kw_only=True)
class OperatorSaid:
    kind: ClassVar[str] = "operator-said"
    order: Order
    nodes: tuple[str, ...] = ()
    scope: str = ""  # of the breaker to be closed


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Time has passed; these nodes are idle."""

    kind: ClassVar[str] = "tick"
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NodesSuspected:
    """Nodes are to be tested for what they are suspected of, each for its own."""

    kind: ClassVar[str] = SuspicionRaised.kind
    nodes: tuple[str, ...]
    mixes: Mapping[str, Mapping[str, float]] = field(hash=False)  # by node: categories
    confidences: Mapping[str, float] = field(hash=False)  # by node: how likely it is that bad

    @property
    def mix(self) -> Mapping[str, float]:
        """Of all nodes, the likeliest category first."""
        shares: defaultdict[str, float] = defaultdict(float)
        for node in self.nodes:
            for category, share in self.mixes[node].items():
                shares[category] += share / len(self.nodes)
        return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


DefectPresumed = NodeAdded | FleetUpgraded | IncidentReported | SuspicionRaised | RepairDone
OfJob = JobAllocated | JobStalled | JobEnded
OfMaintenance = MaintenancePlanned | MaintenanceEnded
KeptEvent = DefectPresumed | NodeRemoved | OfJob | RepairBegun | OfMaintenance | OperatorSaid
FleetEvent = (  # to be decided
    NodeAdded | FleetUpgraded | JobAllocated | IncidentReported | NodesSuspected | Tick
)
KEPT: dict[str, type[KeptEvent]] = {event.kind: event for event in get_args(KeptEvent)}


@dataclass(frozen=True, kw_only=True)
class Notice:
    """An event that is kept. Some let a defect be presumed on its nodes until they pass a test."""

    id: str  # told twice, it is one
    at: float
    event: KeptEvent

    @property
    def presumes_defect(self) -> bool:
        return isinstance(self.event, DefectPresumed)


def reports(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """Of incidents."""
    return tuple(notice for notice in notices if isinstance(notice.event, IncidentReported))


def reported_incidents(
    notices: Iterable[Notice], imported: Iterable[Incident] = ()
) -> list[Incident]:
    """Those that only an event told. A report of an incident that is known tells nothing new."""
    reports = [
        (notice.at, notice.event.category, node)
        for notice in notices
        if isinstance(notice.event, IncidentReported)
        for node in notice.event.nodes
    ]
    stretches: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in IncidentColumns.of(imported).about({node for *_, node in reports}):
        stretches[incident.node].append(incident)
    return [
        Incident(node=node, category=category, start=at)
        for at, category, node in reports
        if not any(incident.covers(at) for incident in stretches[node])
    ]
