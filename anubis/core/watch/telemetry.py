"""What the nodes of a job reported while it ran: metrics x nodes x times on a common grid.

What is not known is NaN, never a number that somebody made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Self

import numpy as np

from anubis.core.arrays import Floats, Floats32

WORST = "worst"  # of the GPUs or NICs of a node; without it, their mean


class Side(StrEnum):
    """Where a faulty node's values are to be expected, beside those of its peers."""

    LOW = "low"
    HIGH = "high"
    EITHER = "either"


@dataclass(frozen=True, kw_only=True)
class WatchedMetric:
    name: str  # gpu_duty; the worst of several GPUs is gpu_duty:worst
    unit: str
    low: float | None  # what it cannot fall below; None: the least that any node of the job shows
    high: float | None  # what it cannot exceed; None: the most
    fault: Side
    family: str = ""  # what it speaks of: cpu, gpu, pfc, throughput, disk or memory
    floor: float = 0.0  # a difference below this, in its unit, is nothing: a few packets, a watt


@dataclass(frozen=True, kw_only=True, eq=False)
class Telemetry:
    metrics: tuple[WatchedMetric, ...]
    nodes: tuple[str, ...]
    start: float  # in seconds since 1970, of the first point of the grid
    step_s: float
    values: Floats32  # metrics x nodes x times, in the unit of each metric; NaN: not known
    groups: tuple[str, ...] = ()  # of each node, its peers' name, such as a stage; none: all alike

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
        """Of the last point."""
        return self.start + self.step_s * max(0, self.points - 1)

    @cached_property
    def times(self) -> Floats:
        return self.start + self.step_s * np.arange(self.points, dtype=np.float64)

    def of(self, name: str) -> Floats32:
        """Nodes x times."""
        names = [metric.name for metric in self.metrics]
        rows: Floats32 = self.values[names.index(name)]
        return rows

    def last(self, seconds: float) -> Self:
        """Its last points, which span so many seconds."""
        kept = min(self.points, round(seconds / self.step_s))
        first = self.points - kept
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
