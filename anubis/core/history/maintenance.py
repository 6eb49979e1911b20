"""Maintenance windows: nodes, begin, end and reason.

A later report of a window under its name replaces the earlier one; several windows of one node all
count. The report with the latest date holds, in whatever order the reports arrive.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from anubis.core.history.events import EventRecord, MaintenanceEnded, MaintenancePlanned

ALL = ""  # the name under which all windows of a node are ended


@dataclass(frozen=True, kw_only=True)
class Window:
    """A maintenance of one node. Its end is infinite until its owner ends it."""

    name: str
    begin: float
    end: float
    reason: str = ""
    source: str = ""  # of the report

    def is_open(self, at: float) -> bool:
        return self.begin <= at < self.end


Windows = Mapping[str, tuple[Window, ...]]  # by node


def reported_windows(event_records: Iterable[EventRecord]) -> Windows:
    plans: dict[str, EventRecord] = {}  # by name, the latest report
    ends: defaultdict[tuple[str, str], list[float]] = defaultdict(list)  # by node and name
    for event_record in event_records:
        event = event_record.event
        if isinstance(event, MaintenanceEnded):
            for node in event.nodes:
                ends[node, event.name].append(event_record.at)
        elif isinstance(event, MaintenancePlanned):
            name = event.name or event_record.id
            before = plans.get(name)
            if before is None or (before.at, before.id) <= (event_record.at, event_record.id):
                plans[name] = event_record
    windows: defaultdict[str, list[Window]] = defaultdict(list)
    for name, event_record in sorted(plans.items()):
        plan = event_record.event
        assert isinstance(plan, MaintenancePlanned)
        window = Window(
            name=name, begin=plan.begin, end=plan.end, reason=plan.reason, source=plan.source
        )
        for node in plan.nodes:
            later = (at for at in ends[node, name] + ends[node, ALL] if at >= event_record.at)
            windows[node].append(replace(window, end=min(plan.end, *later, math.inf)))
    return {node: tuple(of_node) for node, of_node in windows.items()}


def open_windows(windows: Windows, at: float, until: float | None = None) -> dict[str, Window]:
    """Window of each node that is open at `at`, or opens before `until`: the one that ends last."""
    latest = at if until is None else max(at, until)
    chosen = {}
    for node, of_node in windows.items():
        there = [window for window in of_node if window.begin <= latest and at < window.end]
        if there:
            chosen[node] = max(there, key=lambda window: (window.is_open(at), window.end))
    return chosen
