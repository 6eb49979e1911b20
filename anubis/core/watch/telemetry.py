"""Telemetry of the nodes of a job while it ran: metrics x nodes x times on a common grid.

Unknown values are NaN, never an invented number. Values are scaled to shares of a metric's range:
by its known limits, else by the values of the job, and never per node: that would hide exactly the
node that is unlike the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Self

import numpy as np

from anubis.core.arrays import Floats, Floats32

WORST = "worst"  # of the GPUs or NICs of a node; without it, their mean


class Side(StrEnum):
    """Side of its peers on which a faulty node's values are expected."""

    LOW = "low"
    HIGH = "high"
    EITHER = "either"


@dataclass(frozen=True, kw_only=True)
class WatchedMetric:
    name: str  # gpu_duty; the worst of several GPUs is gpu_duty:worst
    unit: str
    low: float | None  # lower limit; None: the least value of any node of the job
    high: float | None  # upper limit; None: the largest value
    fault: Side
    family: str = ""  # cpu, gpu, pfc, throughput, disk or memory
    floor: float = 0.0  # a smaller difference, in its unit, does not count: a few packets, a watt


@dataclass(frozen=True, kw_only=True, eq=False)
class Telemetry:
    metrics: tuple[WatchedMetric, ...]
    nodes: tuple[str, ...]
    start: float  # in seconds since 1970, of the first point of the grid
    step_s: float
    values: Floats32  # metrics x nodes x times, in the unit of each metric; NaN: unknown
    groups: tuple[str, ...] = ()  # name of each node's peers, such as a stage; empty: all

    def __post_init__(self) -> None:
        if self.values.shape[:2] != (len(self.metrics), len(self.nodes)):
            raise ValueError("telemetry needs a row of values for each metric and node")
        if not self.step_s > 0:
            raise ValueError(f"a grid of {self.step_s:g} s, expected more than 0")
        if self.groups and len(self.groups) != len(self.nodes):
            raise ValueError("telemetry with groups needs the group of each node")

    @property
    def points(self) -> int:
        return int(self.values.shape[2])

    @property
    def end(self) -> float:
        """Time of the last point."""
        return self.start + self.step_s * max(0, self.points - 1)

    @cached_property
    def times(self) -> Floats:
        return self.start + self.step_s * np.arange(self.points, dtype=np.float64)

    def series(self, name: str) -> Floats32:
        """Values of a metric, nodes x times."""
        names = [metric.name for metric in self.metrics]
        rows: Floats32 = self.values[names.index(name)]
        return rows

    def last(self, seconds: float) -> Self:
        """Telemetry of the last so many seconds."""
        kept = min(self.points, round(seconds / self.step_s))
        first = self.points - kept
        return replace(
            self, start=self.start + first * self.step_s, values=self.values[:, :, first:]
        )

    def drop_before(self, at: float) -> Self:
        """Return the telemetry from that time on."""
        if at <= self.start:
            return self
        first = min(self.points, math.ceil((at - self.start) / self.step_s))
        return replace(
            self, start=self.start + first * self.step_s, values=self.values[:, :, first:]
        )

    def only(self, nodes: Sequence[str]) -> Self:
        rows = [self.nodes.index(node) for node in nodes]
        return replace(
            self,
            nodes=tuple(nodes),
            values=self.values[:, rows],
            groups=tuple(self.groups[row] for row in rows) if self.groups else (),
        )


@dataclass(frozen=True)
class Span:
    """The values that a metric's scale maps to 0 and to 1."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low

    def scale(self, values: Floats32) -> Floats32:
        if not self.width > 0:
            return np.where(np.isfinite(values), np.float32(0), values)
        shares: Floats32 = ((values - self.low) / self.width).astype(np.float32)
        return np.clip(shares, 0, 1, out=shares)


def span_of(metric: WatchedMetric, values: Floats32) -> Span:
    """Span of a metric. `values`: of all nodes of a job, in the unit of the metric."""
    low, high = metric.low, metric.high
    if low is None:
        low = _least(values)
    if high is None:
        high = -_least(-values)
    return Span(low, max(low, high))


def _least(values: Floats32) -> float:
    least = float(np.fmin.reduce(values, axis=None)) if values.size else np.nan
    if np.isinf(least):  # an impossible reading
        finite = values[np.isfinite(values)]
        least = float(finite.min()) if finite.size else np.nan
    return 0.0 if np.isnan(least) else least
