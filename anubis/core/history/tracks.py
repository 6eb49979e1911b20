"""Stretches of time in columns, because there are tens of thousands and few are used singly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Self

import numpy as np
import numpy.typing as npt

from anubis.core.arrays import Flags
from anubis.core.history.status import Incident, Repair, Times

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class IncidentColumns:
    """Incidents in columns; the end is infinite if an incident is not over, and never before the
    start."""

    node: Sequence[str]
    category: Sequence[str]
    start: Times
    end: Times

    def __post_init__(self) -> None:
        if (self.end < self.start).any():
            object.__setattr__(self, "start", np.minimum(self.start, self.end))

    @classmethod
    def from_incidents(cls, incidents: Iterable[Incident]) -> IncidentColumns:
        if isinstance(incidents, IncidentColumns):
            return incidents
        listed = tuple(incidents)
        return cls(
            node=[incident.node for incident in listed],
            category=[incident.category for incident in listed],
            start=np.array([incident.start for incident in listed], dtype=np.float64),
            end=ends(listed),
        )

    def __len__(self) -> int:
        return len(self.node)

    def __iter__(self) -> Iterator[Incident]:
        columns = (self.node, self.category, self.start.tolist(), self.end.tolist())
        for node, category, start, end in zip(*columns, strict=True):
            yield Incident(
                node=node, category=category, start=start, end=None if end == np.inf else end
            )

    def __add__(self, more: IncidentColumns) -> IncidentColumns:
        return IncidentColumns(
            node=[*self.node, *more.node],
            category=[*self.category, *more.category],
            start=np.concatenate([self.start, more.start]),
            end=np.concatenate([self.end, more.end]),
        )

    def select_begun(self, now: float) -> IncidentColumns:
        """Incidents that have begun; the same object if all have. An incident without an end has
        begun, and so has one that is over, whatever its date: a clock was wrong."""
        if (self.start <= now).all():
            return self
        some = self.take((self.start <= now) | np.isinf(self.end) | (self.end <= now))
        return replace(some, start=np.minimum(np.minimum(some.start, some.end), now))

    def take(self, rows: Flags) -> IncidentColumns:
        return IncidentColumns(
            node=list(compress(self.node, rows)),
            category=list(compress(self.category, rows)),
            start=self.start[rows],
            end=self.end[rows],
        )

    def select_nodes(self, nodes: Collection[str]) -> IncidentColumns:
        return self.take(np.array([node in nodes for node in self.node], dtype=bool))


def ends(stretches: Iterable[Incident | Repair]) -> Times:
    return np.array(
        [np.inf if stretch.end is None else stretch.end for stretch in stretches], dtype=np.float64
    )


def row_numbers(nodes: Iterable[str], number: Mapping[str, int]) -> Rows:
    return np.array([number[node] for node in nodes], dtype=np.int64)


def extreme(choose: np.ufunc, nodes: Sequence[str], at: Times) -> dict[str, float]:
    """First (np.minimum) or last (np.maximum) of these instants, by node."""
    number = {node: place for place, node in enumerate(dict.fromkeys(nodes))}
    rows = row_numbers(nodes, number)
    extremes = np.empty(len(number))
    extremes[rows] = at  # any of them, to begin with
    choose.at(extremes, rows, at)
    return dict(zip(number, extremes.tolist(), strict=True))


def track_order(node: Rows, start: Times, end: Times) -> Rows:
    order: Rows = np.lexsort((end, start, node))
    return order


@dataclass(frozen=True, kw_only=True)
class Track:
    """Stretches grouped by node, and sorted by start within a node."""

    start: Times
    end: Times
    bounds: Rows  # node number n has the rows from bounds[n] up to bounds[n + 1]

    @classmethod
    def from_rows(cls, node: Rows, start: Times, end: Times, nodes: int) -> Self:
        order = track_order(node, start, end)
        return cls.from_sorted_rows(node[order], start[order], end[order], nodes)

    @classmethod
    def from_sorted_rows(cls, node: Rows, start: Times, end: Times, nodes: int) -> Self:
        """Track of stretches already in the order of `track_order`: sorting is most of the work."""
        return cls(start=start, end=end, bounds=np.searchsorted(node, np.arange(nodes + 1)))

    def count_begun(self, node: Rows, at: Times) -> Rows:
        """Number of the node's stretches that begin before each instant, by bisection in all
        rows."""
        first, high = self.bounds[node], self.bounds[node + 1]
        low = first
        while (open_ := low < high).any():
            middle = (low + high) // 2
            before = open_ & (self.start[np.where(open_, middle, 0)] < at)
            low = np.where(before, middle + 1, low)
            high = np.where(before, high, np.where(open_, middle, high))
        return low - first

    def pick(self, values: Times, node: Rows, place: Rows, default: float) -> Times:
        """Value of the node's stretch in that position; the default if it has none."""
        row = self.bounds[node] + place
        there = (place >= 0) & (row < self.bounds[node + 1])
        picked = np.full(len(node), default)
        picked[there] = values[row[there]]
        return picked
