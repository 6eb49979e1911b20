"""Events that an orchestrator, a person or a watcher reports about nodes.

Some events are facts that change what is known of a node: these can be stored. A tick only asks
what to do.
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
    """The nodes left the fleet and need no further attention."""

    kind: ClassVar[str] = "node-removed"
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FleetUpgraded:
    """Other software or parts: earlier measurements prove nothing any more."""

    kind: ClassVar[str] = "fleet-upgraded"
    nodes: tuple[str, ...]
    criteria: Literal["learned", "refused"] = "learned"  # new ones after the upgrade


@dataclass(frozen=True, kw_only=True)
class JobAllocated:
    kind: ClassVar[str] = "job-allocated"
    nodes: tuple[str, ...]
    duration_s: float
    job: str = ""  # its id; empty: only a question

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < float("inf"):
            raise ValueError(f"a job of {self.duration_s:g} s, expected a duration above 0")


@dataclass(frozen=True, kw_only=True)
class JobEnded:
    kind: ClassVar[str] = "job-ended"
    nodes: tuple[str, ...]
    job: str
    failed: bool = False  # maybe by its own fault: its nodes are checked, not suspected


@dataclass(frozen=True, kw_only=True)
class JobStalled:
    """The job runs and makes no progress. A diagnosis finds the cause and the culprit."""

    kind: ClassVar[str] = "job-stalled"
    nodes: tuple[str, ...]
    job: str
    source: str = "operator"
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
    """A source suspects that nodes are bad. Only a test makes a verdict of it."""

    kind: ClassVar[str] = "suspicion-raised"
    nodes: tuple[str, ...]
    category: str  # of the expected defect; with a mix, the likeliest
    source: str  # of the suspicion
    reason: str = ""
    mix: Mapping[str, float] = field(default_factory=dict, hash=False)  # empty: its category alone
    confidence: float | None = None  # the chance that it is right; as reported, by its source alone

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
        """Share of each category; they add up to 1."""
        if not self.mix:
            return {self.category: 1.0}
        return {category: share / self._total for category, share in self.mix.items()}


@dataclass(frozen=True, kw_only=True)
class RepairBegun:
    kind: ClassVar[str] = "repair-begun"
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RepairDone:
    """A repair ended. It counts only after a test has proven it."""

    kind: ClassVar[str] = "repair-done"
    nodes: tuple[str, ...]
    action: str = ""  # what was done


@dataclass(frozen=True, kw_only=True)
class MaintenancePlanned:
    """People work on these nodes, or will: they are left alone from begin to end."""

    kind: ClassVar[str] = "maintenance"
    nodes: tuple[str, ...]
    begin: float
    end: float  # infinite: until its owner ends it
    name: str = ""  # a later report of the same name replaces it; empty: a new one
    reason: str = ""
    source: str = "operator"

    def __post_init__(self) -> None:
        if not math.isfinite(self.begin):
            raise ValueError(f"a maintenance that begins at {self.begin}, expected a time")
        if not self.begin < self.end:  # NaN is neither
            raise ValueError("a maintenance that ends before it begins: expected a later end")


@dataclass(frozen=True, kw_only=True)
class MaintenanceEnded:
    """A maintenance ended early. Changes made meanwhile are reported by other events."""

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
    """Passage of time; these nodes are idle."""

    kind: ClassVar[str] = "tick"
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NodesSuspected:
    """Nodes to test for what each is suspected of."""

    kind: ClassVar[str] = SuspicionRaised.kind
    nodes: tuple[str, ...]
    mixes: Mapping[str, Mapping[str, float]] = field(hash=False)  # by node: categories
    confidences: Mapping[str, float] = field(hash=False)  # by node: the chance that it is bad

    @property
    def mix(self) -> Mapping[str, float]:
        """Mean mix of all nodes, the likeliest category first."""
        shares: defaultdict[str, float] = defaultdict(float)
        for node in self.nodes:
            for category, share in self.mixes[node].items():
                shares[category] += share / len(self.nodes)
        return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


DefectPresumed = NodeAdded | FleetUpgraded | IncidentReported | SuspicionRaised | RepairDone
OfJob = JobAllocated | JobStalled | JobEnded
OfMaintenance = MaintenancePlanned | MaintenanceEnded
KeptEvent = DefectPresumed | NodeRemoved | OfJob | RepairBegun | OfMaintenance | OperatorSaid
FleetEvent = (  # events that ask for a decision
    NodeAdded | FleetUpgraded | JobAllocated | IncidentReported | NodesSuspected | Tick
)
KEPT: dict[str, type[KeptEvent]] = {event.kind: event for event in get_args(KeptEvent)}


@dataclass(frozen=True, kw_only=True)
class EventRecord:
    """A stored event. Some kinds presume a defect on their nodes until these pass a test."""

    id: str  # two event records with one id are the same
    at: float
    event: KeptEvent

    @property
    def presumes_defect(self) -> bool:
        return isinstance(self.event, DefectPresumed)


def reports(event_records: Iterable[EventRecord]) -> tuple[EventRecord, ...]:
    """Reports of incidents among the event records."""
    return tuple(
        event_record
        for event_record in event_records
        if isinstance(event_record.event, IncidentReported)
    )


def reported_incidents(
    event_records: Iterable[EventRecord], imported: Iterable[Incident] = ()
) -> list[Incident]:
    """Incidents known only from an event. A report within a known incident adds nothing."""
    reports = [
        (event_record.at, event_record.event.category, node)
        for event_record in event_records
        if isinstance(event_record.event, IncidentReported)
        for node in event_record.event.nodes
    ]
    stretches: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in IncidentColumns.from_incidents(imported).select_nodes(
        {node for *_, node in reports}
    ):
        stretches[incident.node].append(incident)
    return [
        Incident(node=node, category=category, start=at)
        for at, category, node in reports
        if not any(incident.covers(at) for incident in stretches[node])
    ]
