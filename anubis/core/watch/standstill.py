"""Since when no node of a running job works, by telemetry: for all of them, not for one of them.

While ranks wait for each other their GPUs are busy, so only what work alone moves counts: tensor
cores and the network. One node that writes a checkpoint for all is at work. What nobody reports
says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from anubis.core.arrays import Flags, Floats32
from anubis.core.watch.telemetry import Telemetry

WORK = ("gpu_tensor", "gpu_fp", "nvlink_throughput", "throughput", "tcp_throughput")
AT_WORK = 95  # percentile of what a metric shows while the job works, if it does at all
NOTHING = 0.05  # of that: less is nobody's work
INTERRUPTED = 0.05  # for this share of the time something may move all the same
REPORTING = 0.5  # of the nodes, or nothing is known


def standing_still(telemetry: Telemetry, limit_s: float) -> float | None:
    """Since when, if for `limit_s` or longer, up to the end, and it worked before."""
    idle = _idle(telemetry)
    needed = int(np.ceil(limit_s / telemetry.step_s))
    if limit_s <= 0 or idle is None or len(idle) <= needed:
        return None
    moves = np.cumsum(~idle[::-1])[::-1]  # points at which something does, from each to the end
    is_still = moves <= INTERRUPTED * np.arange(len(idle), 0, -1)
    first = int(np.argmax(is_still))
    if not is_still[first] or first == 0:
        return None
    near = np.flatnonzero(~idle[first : first + 2 * int(moves[first]) + 1])
    first += int(near[-1]) + 1 if near.size else 0  # what moved last before it
    return float(telemetry.times[first]) if len(idle) - first >= needed else None


def _idle(telemetry: Telemetry) -> Flags | None:
    """Of each point whether nothing moves; None where no metric tells of work."""
    levels = [
        _most(telemetry.values[row])
        for row, metric in enumerate(telemetry.metrics)
        if metric.name in WORK
    ]
    idle = list(_below(levels))
    return np.all(idle, axis=0) if idle else None


def _most(values: Floats32) -> Floats32:
    """Of any node, at each point; NaN where most say nothing."""
    if not values.size:
        return np.full(values.shape[1], np.nan, dtype=np.float32)
    is_known = np.mean(np.isfinite(values), axis=0) >= REPORTING
    return np.asarray(np.where(is_known, np.fmax.reduce(values, axis=0), np.nan), dtype=np.float32)


def _below(levels: Iterable[Floats32]) -> Iterable[Flags]:
    for level in levels:
        finite = level[np.isfinite(level)]
        usual = float(np.percentile(finite, AT_WORK)) if finite.size else 0.0
        if usual > 0:
            yield np.asarray(level < NOTHING * usual)
