"""Finds when all nodes of a job that has ended had stopped: later reports prove nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anubis.core.arrays import Flags, Floats
from anubis.core.watch.medians import medians
from anubis.core.watch.telemetry import Side, Telemetry

LIVELY = 75  # percentile of a metric that counts as its level at work
IDLE = 0.5  # of that level: less in every metric of activity is no work
ACTIVITY = {"cpu", "gpu", "throughput"}  # families


def cut_at_stop(telemetry: Telemetry) -> Telemetry:
    """Telemetry up to the last point at which the job worked. While other nodes wait for a dead
    one, their GPUs are busy; so without GPUs waiting and stopping look the same."""
    activity = [
        row
        for row, metric in enumerate(telemetry.metrics)
        if metric.fault is Side.LOW and metric.family in ACTIVITY
    ]
    if not any(telemetry.metrics[row].family == "gpu" for row in activity):
        return telemetry
    works = [_lively(medians(telemetry.values[row])) for row in activity]
    points = np.flatnonzero(np.any(works, axis=0))
    if not len(points):
        return telemetry
    return replace(telemetry, values=telemetry.values[:, :, : points[-1] + 1])


def _lively(levels: Floats) -> Flags:
    finite = levels[np.isfinite(levels)]
    usual = float(np.percentile(finite, LIVELY)) if finite.size else 0.0
    return np.asarray((levels >= IDLE * usual) & (usual > 0))
