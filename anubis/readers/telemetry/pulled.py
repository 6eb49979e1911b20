"""Telemetry from any source, with the remarks on it; and its last minutes, so that a look asks the
source only for what is new.

The last minutes hold nothing but what the source reported: after a restart the first look fills
them again. They take four bytes for each metric, node and point: 336 MB for 7 metrics of 10,000
nodes at 1 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.watch.telemetry import Telemetry
from anubis.readers.telemetry.config import TelemetrySettings
from anubis.text.hostlist import shorten

MOST_CELLS = 500_000_000  # metrics x nodes x times; 2 GB


@dataclass(frozen=True, kw_only=True)
class PulledTelemetry:
    telemetry: Telemetry
    remarks: tuple[str, ...] = ()  # what is missing, twice or odd, each in one sentence


class TelemetrySource(Protocol):
    def pull(self, nodes: Sequence[str], until: float, last_s: float) -> PulledTelemetry:
        """Return what these nodes reported in so many seconds before."""
        ...


def silences(telemetry: Telemetry, settings: TelemetrySettings) -> list[str]:
    """List metrics that no node reports, and nodes that report nothing, or not all."""
    reported: Flags = np.asarray(~np.isnan(telemetry.values).all(axis=2))
    silent = [
        node
        for node, any_metric in zip(telemetry.nodes, np.any(reported, axis=0), strict=True)
        if not any_metric
    ]
    remarks = (
        [f"{nodes_in_words(silent, telemetry.nodes)} reported nothing at all"] if silent else []
    )
    of_others = reported[:, reported.any(axis=0)]
    names = [node for node in telemetry.nodes if node not in set(silent)]
    for metric, by_node in zip(telemetry.metrics, of_others, strict=True):
        if not by_node.any():
            needs = settings.settings_of(metric.name).needs
            remarks.append(
                f"no node reports {metric.name}" + (f"; it needs {needs}" if needs else "")
            )
        elif not by_node.all():
            missing = [name for name, has in zip(names, by_node, strict=True) if not has]
            remarks.append(f"{nodes_in_words(missing, names)} reported no {metric.name}")
    return remarks


def nodes_in_words(nodes: Sequence[str], among: Sequence[str]) -> str:
    text = shorten(nodes)
    if len(text) > 60:
        text = text[:57] + "..."
    return f'{len(nodes):,} of {len(among):,} nodes ("{text}")'


LATE_S = 60.0  # so much is asked for again, because some samples arrive late


class TelemetryRing:
    """The ring of one job. If its nodes or the step of its grid change, it begins anew."""

    def __init__(self, source: TelemetrySource, span_s: float) -> None:
        self._source, self._span_s = source, span_s
        self._kept: Telemetry | None = None

    def pull(self, nodes: Sequence[str], until: float, last_s: float) -> PulledTelemetry:
        kept = self._kept
        if kept is None or not self._goes_on(kept, nodes, until, last_s):
            return self._fill(nodes, until, last_s)
        since_s = max(LATE_S, until - kept.end + LATE_S)
        pulled = self._source.pull(nodes, until, min(since_s, self._span_s))
        if not _fits(kept, pulled.telemetry):
            return self._fill(nodes, until, last_s)
        self._kept = merge(kept, pulled.telemetry, self._span_s)
        return replace(pulled, telemetry=_ending(self._kept, until, last_s))

    def _goes_on(self, kept: Telemetry, nodes: Sequence[str], until: float, last_s: float) -> bool:
        return (
            kept.nodes == tuple(nodes)
            and kept.points > 0
            and kept.start <= until - last_s + kept.step_s
            and kept.end <= until <= kept.end + self._span_s - LATE_S
        )

    def _fill(self, nodes: Sequence[str], until: float, last_s: float) -> PulledTelemetry:
        pulled = self._source.pull(nodes, until, max(last_s, self._span_s))
        self._kept = pulled.telemetry
        return replace(pulled, telemetry=_ending(self._kept, until, last_s))


def merge(earlier: Telemetry, later: Telemetry, span_s: float) -> Telemetry:
    """Merge two pieces on one grid. What is known stays known; if both are known, the later one is
    right."""
    start = max(min(earlier.start, later.start), later.end - span_s)
    first = round((start - min(earlier.start, later.start)) / later.step_s)
    start = min(earlier.start, later.start) + first * later.step_s
    points = round((max(earlier.end, later.end) - start) / later.step_s) + 1
    values = np.full((*later.values.shape[:2], points), np.nan, dtype=np.float32)
    for piece in (earlier, later):
        place = round((piece.start - start) / piece.step_s)
        part = piece.values[:, :, max(0, -place) :]
        place = max(0, place)
        under = values[:, :, place : place + part.shape[2]]
        np.copyto(under, part, where=~np.isnan(part))
    return replace(later, start=start, values=values)


def _fits(kept: Telemetry, pulled: Telemetry) -> bool:
    """Return true if both have one grid."""
    apart = (pulled.start - kept.start) / kept.step_s
    return (
        pulled.step_s == kept.step_s
        and pulled.metrics == kept.metrics
        and abs(apart - round(apart)) < 1e-3
    )


def _ending(telemetry: Telemetry, until: float, last_s: float) -> Telemetry:
    """Return the part in the last seconds before `until`, both ends included."""
    step = telemetry.step_s
    first = max(0, int(np.ceil((until - last_s - telemetry.start) / step - 1e-6)))
    last = min(telemetry.points, int(np.floor((until - telemetry.start) / step + 1e-6)) + 1)
    return replace(
        telemetry, start=telemetry.start + first * step, values=telemetry.values[:, :, first:last]
    )
