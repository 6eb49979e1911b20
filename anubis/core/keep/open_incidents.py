"""Open incidents of the history, and the ends of others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np

from anubis.core.history.tracks import IncidentColumns
from anubis.core.keep.life import OpenIncident


def open_incidents(incidents: IncidentColumns, at: float) -> dict[str, tuple[OpenIncident, ...]]:
    """Open incidents of each node, the earliest first."""
    incidents = incidents.select_begun(at)
    rows = np.flatnonzero(incidents.end > at)
    by_node: defaultdict[str, list[OpenIncident]] = defaultdict(list)
    for row in rows[np.argsort(incidents.start[rows], kind="stable")].tolist():
        incident = OpenIncident(category=incidents.category[row], at=float(incidents.start[row]))
        by_node[incidents.node[row]].append(incident)
    return {node: tuple(of_node) for node, of_node in by_node.items()}


def last_ends(
    incidents: IncidentColumns, nodes: Collection[str], at: float
) -> dict[str, dict[str, float]]:
    """Time of the last end of an incident, by node and category. An incident dated later than now
    counts as over now: a clock was wrong."""
    by_node: dict[str, dict[str, float]] = {}
    for incident in incidents.select_nodes(nodes) if nodes else ():
        if incident.end is not None and (incident.end <= at or incident.start > at):
            end, ends = min(incident.end, at), by_node.setdefault(incident.node, {})
            ends[incident.category] = max(end, ends.get(incident.category, end))
    return by_node
