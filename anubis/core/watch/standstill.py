"""Finds since when no node of a running job works, by telemetry: for the whole job, not for one
node.

GPUs are busy while ranks wait for each other, so only signs of work count: tensor cores and the
network. One node that writes a checkpoint for all counts as work. Missing reports prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from anubis.core.arrays import Flags, Floats32
from anubis.core.watch.telemetry import Telemetry

WORK = ("gpu_tensor", "gpu_fp", "nvlink_throughput", "throughput", "tcp_throughput")
AT_WORK = 95  # percentile of a metric that counts as its level at work
NOTHING = 0.05  # of that level: less is no work
INTERRUPTED = 0.05  # share of the time for which something may move
REPORTING = 0.5  # share of the nodes that must report


def standing_still(telemetry: Telemetry, limit_s: float) -> float | None:
    """Begin of a standstill that lasts until the end, for `limit_s` or longer, after earlier
    work."""
    idle = _idle(telemetry)
    needed = int(np.ceil(limit_s / telemetry.step_s))
    if limit_s <= 0 or idle is None or len(idle) <= needed:
        return None
    moves = np.cumsum(~idle[::-1])[::-1]  # points with movement, from each point to the end
    is_still = moves <= INTERRUPTED * np.arange(len(idle), 0, -1)
    first = int(np.argmax(is_still))
    if not is_still[first] or first == 0:
        return None
    near = np.flatnonzero(~idle[first : first + 2 * int(moves[first]) + 1])
    first += int(near[-1]) + 1 if near.size else 0  # after the last movement before it
    return float(telemetry.times[first]) if len(idle) - first >= needed else None


def _idle(telemetry: Telemetry) -> Flags | None:
    """Flags of the points at which nothing moves; None if no metric shows work."""
    levels = [
        _highest_values(telemetry.values[row])
        for row, metric in enumerate(telemetry.metrics)
        if metric.name in WORK
    ]
    idle = list(_idle_flags(levels))
    return np.all(idle, axis=0) if idle else None


def _highest_values(values: Floats32) -> Floats32:
    """Highest value of any node at each point; NaN if most are unknown."""
    if not values.size:
        return np.full(values.shape[1], np.nan, dtype=np.float32)
    is_known = np.mean(np.isfinite(values), axis=0) >= REPORTING
    return np.asarray(np.where(is_known, np.fmax.reduce(values, axis=0), np.nan), dtype=np.float32)


def _idle_flags(levels: Iterable[Floats32]) -> Iterable[Flags]:
    for level in levels:
        finite = level[np.isfinite(level)]
        usual = float(np.percentile(finite, AT_WORK)) if finite.size else 0.0
        if usual > 0:
            yield np.asarray(level < NOTHING * usual)
