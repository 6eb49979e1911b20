"""Assesses silence: a node whose series ended is suspect, and one that never reported is an
anomaly. If most nodes are silent together, the cause is the monitoring, not the nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.watch.findings import Anomaly, AnomalyKind, Deviation, Sign
from anubis.core.watch.presence import Presence, presence
from anubis.core.watch.telemetry import Side, Telemetry
from anubis.core.watch.watch_settings import WatchSettings, windows_in


@dataclass(frozen=True, kw_only=True)
class Silences:
    vanished: Mapping[int, tuple[Deviation, ...]]  # by row, the first to fall silent first
    anomalies: tuple[Anomaly, ...]
    unreported: Mapping[str, str]  # metric → why no node can be compared by it


def silences(telemetry: Telemetry, settings: WatchSettings, *, ended: bool) -> Silences:
    long = windows_in(_vanishing_s(settings, ended), telemetry.step_s)
    presences = [presence(values, long=long, least=settings.window) for values in telemetry.values]
    vanished: defaultdict[int, list[Deviation]] = defaultdict(list)
    anomalies: list[Anomaly] = []
    for metric, seen in enumerate(presences):
        if len(seen.vanished) > settings.limit(len(telemetry.nodes)):
            anomalies.append(_joint_anomaly(telemetry, metric, seen))
        else:
            for row in seen.vanished.tolist():
                vanished[row].append(_vanished_deviation(telemetry, metric, seen, row))
        anomalies += _node_anomalies(telemetry, metric, seen)
    first = sorted(vanished, key=lambda row: (min(d.since for d in vanished[row]), row))
    return Silences(
        vanished={row: tuple(sorted(vanished[row], key=lambda d: d.since)) for row in first},
        anomalies=(*_job_anomalies(telemetry, presences, settings), *anomalies),
        unreported={
            telemetry.metrics[metric].name: "not reported by most nodes at any time"
            for metric, seen in enumerate(presences)
            if not seen.reported
        },
    )


def _vanishing_s(settings: WatchSettings, ended: bool) -> float:
    if ended and settings.continuity_ended_s is not None:
        return min(settings.vanished_s, settings.continuity_ended_s)
    return settings.vanished_s


def _vanished_deviation(telemetry: Telemetry, metric: int, seen: Presence, row: int) -> Deviation:
    last = int(seen.last[row])
    after = telemetry.values[metric, :, last + 1 : seen.newest + 1]
    return Deviation(
        sign=Sign.VANISHED,
        metric=telemetry.metrics[metric].name,
        family=telemetry.metrics[metric].family,
        since=float(telemetry.times[last]),
        until=float(telemetry.times[seen.newest]),
        side=Side.EITHER,
        value=np.nan,
        peers=float(np.median(after[np.isfinite(after)])),
        effect=1.0,
    )


def _joint_anomaly(telemetry: Telemetry, metric: int, seen: Presence) -> Anomaly:
    name, since = (
        telemetry.metrics[metric].name,
        float(telemetry.times[seen.last[seen.vanished]].min()),
    )
    return Anomaly(
        node="",
        kind=AnomalyKind.GAPS,
        metric=name,
        since=since,
        until=float(telemetry.times[seen.newest]),
        sentence=f"{len(seen.vanished)} of {len(telemetry.nodes)} nodes no longer report {name}: "
        "too many to be their own fault, look at the monitoring",
    )


def _node_anomalies(telemetry: Telemetry, metric: int, seen: Presence) -> list[Anomaly]:
    name = telemetry.metrics[metric].name
    silent = [
        Anomaly(
            node=telemetry.nodes[row],
            kind=AnomalyKind.SILENT,
            metric=name,
            since=telemetry.start,
            until=telemetry.end,
            sentence=f"never reported {name}",
        )
        for row in seen.silent.tolist()
    ]
    gaps = [
        Anomaly(
            node=telemetry.nodes[row],
            kind=AnomalyKind.GAPS,
            metric=name,
            since=float(telemetry.times[first]),
            until=float(telemetry.times[last]),
            sentence=f"did not report {name} for {_seconds(telemetry, first, last):.0f} s",
        )
        for row, first, last in seen.gaps
    ]
    return silent + gaps


def _job_anomalies(
    telemetry: Telemetry, presences: Sequence[Presence], settings: WatchSettings
) -> list[Anomaly]:
    """Remarks on stretches without reports, one for each, with all metrics that it affects."""
    holes: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for metric, seen in zip(telemetry.metrics, presences, strict=True):
        for hole in seen.holes:
            if _seconds(telemetry, *hole) > settings.gap_s:
                holes[hole].append(metric.name)
    return [_hole(telemetry, first, last, names) for (first, last), names in sorted(holes.items())]


def _hole(telemetry: Telemetry, first: int, last: int, names: Sequence[str]) -> Anomaly:
    subject = "anything" if len(names) == len(telemetry.metrics) else ", ".join(names)
    seconds = _seconds(telemetry, first, last)
    return Anomaly(
        node="",
        kind=AnomalyKind.GAPS,
        metric=names[0] if len(names) == 1 else "",
        since=float(telemetry.times[first]),
        until=float(telemetry.times[last]),
        sentence=f"most nodes did not report {subject} for {seconds:.0f} s",
    )


def _seconds(telemetry: Telemetry, first: int, last: int) -> float:
    return telemetry.step_s * (last - first + 1)
