"""Find who owns the nodes of a cluster, whose work is on them, and which are under maintenance, as
reported and as their orchestrators show it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from anubis.config import configs
from anubis.core.errors import UsageError, did_you_mean
from anubis.core.history.events import EventRecord, MaintenanceEnded, MaintenancePlanned
from anubis.core.history.maintenance import Window, Windows, windows_told
from anubis.core.keep.keeper_events import FleetSeen, SeenWindow
from anubis.reach.orchestrators.orchestrator import NodeSkus, Orchestrator, orchestrator_kinds
from anubis.store.history import ClusterHistory
from anubis.text import hostlist


def owner_name(cluster: configs.Cluster) -> str:
    """Name of the orchestrator that owns the nodes, for a sentence; empty if only Anubis uses
    them."""
    if isinstance(cluster, configs.SimulatedCluster) or cluster.orchestrator is None:
        return ""
    return orchestrator_kinds()[cluster.orchestrator.kind].title


def orchestrator_of(cluster: configs.Cluster) -> Orchestrator | None:
    """Orchestrator of a cluster; None if only Anubis uses its nodes."""
    if isinstance(cluster, configs.SimulatedCluster):
        return None
    by_node = hostlist.labels(cluster.skus) if isinstance(cluster, configs.RayCluster) else {}
    skus = NodeSkus(by_node=by_node, otherwise=cluster.sku)
    settings = cluster.orchestrator
    return orchestrator_kinds()[settings.kind].open(settings, skus) if settings else None


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    id: str
    nodes: tuple[str, ...]
    owner: str = ""  # empty: the orchestrator does not show it
    started_at: float | None = None


def running_jobs(
    orchestrator: Orchestrator | None, *, least_nodes: int = 1
) -> tuple[RunningJob, ...]:
    """Running jobs; none without an orchestrator: then nodes are named by `--nodes`."""
    if orchestrator is None:
        return ()
    return tuple(
        RunningJob(id=id, nodes=seen.nodes, owner=seen.owner, started_at=seen.started_at)
        for id, seen in sorted(orchestrator.observe().jobs.items())
        if len(seen.nodes) >= least_nodes
    )


def nodes_of(job: str, orchestrator: Orchestrator | None) -> tuple[str, ...]:
    if orchestrator is None:
        raise UsageError(
            f'no source says which nodes job "{job}" has: name them with --nodes, or give the'
            " cluster's file an orchestrator"
        )
    by_id = {running.id: running.nodes for running in running_jobs(orchestrator)}
    if job not in by_id:
        raise UsageError(f'no job "{job}" runs; {did_you_mean(job, by_id)}')
    return by_id[job]


SHOWN = "orchestrator"  # the source of windows that an orchestrator shows


def windows_known(part: ClusterHistory) -> Windows:
    """Windows of maintenance in the history, by node."""
    return windows_told(part.event_records.apart_from_jobs())


def windows_seen(seen: FleetSeen) -> Windows:
    """Windows that an orchestrator shows, by node."""
    windows: defaultdict[str, list[Window]] = defaultdict(list)
    for name, shown in seen.windows.items():
        window = Window(
            name=name, begin=shown.begin, end=shown.end, reason=shown.reason, source=SHOWN
        )
        for node in shown.nodes:
            windows[node].append(window)
    return {node: tuple(shown) for node, shown in windows.items()}


def news_of_windows(seen: FleetSeen, windows: Windows) -> list[EventRecord]:
    """Event records of windows that an orchestrator shows differently from the history: new or
    changed ones, and those that their owner took back."""
    by_name: defaultdict[str, dict[str, Window]] = defaultdict(dict)  # by name, of nodes
    for node, of_node in windows.items():
        for window in of_node:
            if window.source == SHOWN and seen.at < window.end:
                by_name[window.name][node] = window
    event_records = []
    for name, shown in seen.windows.items():
        if shown.end <= seen.at or not shown.begin < shown.end:
            continue
        before = by_name.pop(name, {})
        if not _is_known(shown, before, seen.at):
            planned = MaintenancePlanned(
                nodes=shown.nodes,
                begin=shown.begin,
                end=shown.end,
                name=name,
                reason=shown.reason,
                source=SHOWN,
            )
            event_records.append(_event_record(f"maintenance {name}", seen.at, planned))
    for name, before in by_name.items():
        ended = MaintenanceEnded(nodes=tuple(before), name=name)
        event_records.append(_event_record(f"maintenance {name} ended", seen.at, ended))
    return event_records


def _is_known(shown: SeenWindow, before: dict[str, Window], at: float) -> bool:
    """True if the history has the window. One whose beginning is unknown begins anew with each
    look."""
    return before.keys() == set(shown.nodes) and all(
        window.end == shown.end
        and (window.begin == shown.begin or max(window.begin, shown.begin) <= at)
        for window in before.values()
    )


def _event_record(id: str, at: float, event: MaintenancePlanned | MaintenanceEnded) -> EventRecord:
    return EventRecord(id=f"{id} @{at:.3f}", at=at, event=event)
