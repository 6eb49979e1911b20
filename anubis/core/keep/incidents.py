"""Which incidents of the history are not over, and when others ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np

from anubis.core.history.tracks import IncidentColumns
from anubis.core.keep.life import OpenIncident


def open_incidents(incidents: IncidentColumns, at: float) -> dict[str, tuple[OpenIncident, ...]]:
    """By node, those that began first coming first."""
    incidents = incidents.begun(at)
    rows = np.flatnonzero(incidents.end > at)
    by_node: defaultdict[str, list[OpenIncident]] = defaultdict(list)
    for row in rows[np.argsort(incidents.start[rows], kind="stable")].tolist():
        incident = OpenIncident(category=incidents.category[row], at=float(incidents.start[row]))
        by_node[incidents.node[row]].append(incident)
    return {node: tuple(of_node) for node, of_node in by_node.items()}


def last_ends(
    incidents: IncidentColumns, nodes: Collection[str], at: float
) -> dict[str, dict[str, float]]:
    """Of these nodes: when the last incident of each category was over. One that is dated later
    than now is over now: a clock was wrong."""
    by_node: dict[str, dict[str, float]] = {}
    for incident in incidents.about(nodes) if nodes else ():
        if incident.end is not None and (incident.end <= at or incident.start > at):
            end, ends = min(incident.end, at), by_node.setdefault(incident.node, {})
            ends[incident.category] = max(end, ends.get(incident.category, end))
    return by_node
