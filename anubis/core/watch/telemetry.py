"""Telemetry of the nodes of a job while it ran: metrics x nodes x times on a common grid.

Unknown values are NaN, never an invented number.
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
