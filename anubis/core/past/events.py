"""What an orchestrator tells us of nodes.

Some events are facts that change what is known of a node, whoever asks next: these are kept. The
others only ask what to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from anubis.core.past.status import Incident
from anubis.core.past.tracks import IncidentColumns


@dataclass(frozen=True, kw_only=True)
class NodeAdded:
    kind: ClassVar[str] = "node-added"
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FleetUpgraded:
    """Other software or parts: what was measured before says nothing any more."""

    kind: ClassVar[str] = "fleet-upgraded"
    nodes: tuple[str, ...]
    criteria: Literal["learned", "refused"]  # again, since the upgrade


@dataclass(frozen=True, kw_only=True)
class JobAllocated:
    kind: ClassVar[str] = "job-allocated"
    nodes: tuple[str, ...]
    duration_s: float

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < float("inf"):
            raise ValueError(f"a job of {self.duration_s:g} s, expected a duration above 0")


@dataclass(frozen=True, kw_only=True)
class IncidentReported:
    kind: ClassVar[str] = "incident-reported"
    nodes: tuple[str, ...]
    category: str

    def __post_init__(self) -> None:
        if not self.category:
            raise ValueError("a reported incident has no category, expected a word such as gpu")


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Time has passed; these nodes are idle."""

    kind: ClassVar[str] = "tick"
    nodes: tuple[str, ...]


KeptEvent = NodeAdded | FleetUpgraded | IncidentReported
FleetEvent = KeptEvent | JobAllocated | Tick
KEPT: dict[str, type[KeptEvent]] = {
    event.kind: event for event in (NodeAdded, FleetUpgraded, IncidentReported)
}


@dataclass(frozen=True, kw_only=True)
class Notice:
    """An event that is kept. A defect is presumed on its nodes until they pass a test."""

    id: str  # told twice, it is one
    at: float
    event: KeptEvent


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
