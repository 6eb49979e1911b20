"""Find nodes under maintenance: as reported, and as their orchestrators show it."""

from __future__ import annotations

from collections import defaultdict

from anubis.core.history.events import EventRecord, MaintenanceEnded, MaintenancePlanned
from anubis.core.history.maintenance import Window, Windows, windows_told
from anubis.core.keep.keeper_events import FleetSeen, SeenWindow
from anubis.store.history import ClusterHistory

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
