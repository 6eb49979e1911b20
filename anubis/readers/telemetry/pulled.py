"""Telemetry from any source, with the remarks on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
