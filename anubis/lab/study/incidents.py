"""Incidents of nodes and their causes: drawn from a known truth or a fitted model, or as recorded.

Every draw belongs to a node and the number of its defects, never to the order of calls, so that all
policies meet the same incidents as long as they act alike.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Protocol

import numpy as np
import numpy.typing as npt

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Ints
from anubis.core.history.status import Incident
from anubis.lab.study.response import FaultCourse

Hours = npt.NDArray[np.float64]
FIRST = 1 << 32  # a seed for the first draws, beyond the number of any defect


@dataclass(frozen=True, kw_only=True)
class DefectCause:
    """A part of a category's defects: which benchmarks can find them before they do harm."""

    share: float
    """Its weight beside the category's other causes."""
    found_by: tuple[str, ...] = ()
    """The benchmarks that can find it. Without them, none can."""

    def __post_init__(self) -> None:
        if not 0 < self.share < math.inf:
            raise ValueError(f"share is {self.share:g}, expected a weight above 0")


@dataclass(frozen=True, kw_only=True)
class Category:
    """How often a node has incidents of one kind, and how much more often after each of them."""

    name: str
    """The category, as incidents name it."""
    mtbi_h: float
    """Mean hours to an incident, of a node that has had none of them."""
    worse_by: float = 1.0
    """Each incident multiplies the rate of the next one by this factor."""
    at_worst: float = 1.0
    """The rate rises to this multiple of the first at most."""
    course: FaultCourse = "stops"
    """What such a fault does to a job, if the scenario has a `response`: the job stops at once,
    hangs, or goes on slowly."""
    pace: float = 0.7
    """Pace of a slow job, as a share of its usual one."""
    causes: tuple[DefectCause, ...]
    """The causes of these incidents."""

    def __post_init__(self) -> None:
        if not self.mtbi_h > 0:
            raise ValueError(f"mtbi_h is {self.mtbi_h:g}, expected hours above 0")
        for name in ("worse_by", "at_worst"):
            if not 1 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name):g}, expected 1 or more")
        if not 0 < self.pace < 1:
            raise ValueError(f"pace is {self.pace:g}, expected a share between 0 and 1")
        if not self.causes:
            raise ValueError("has no causes")


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentDefect:
    """A defect that becomes the node's next incident unless it is found before."""

    due_h: float
    category: int
    found_by: int  # the benchmarks that can find it, as bits
    luck: float  # uniform: it is caught if this is below the share of caught defects
    patience: float  # exponential with mean 1: factor of its repair time


@dataclass(frozen=True, eq=False)
class Histories:
    """Histories of all nodes so far: all that a policy may look at."""

    known_h: Hours  # since when each node is known; below 0: before the begin
    incidents: Ints  # a row for each node, a column for each category
    last_incident_h: Hours  # of each category, as above; -inf: none yet
    in_service_h: Hours  # since when: its last return from repair, or the beginning
    served_h: Hours  # time in service before that
    out_of_service_h: Hours  # when it was last sent to repair; nan: never
    validated_h: Hours  # a row for each node, a column for each benchmark; -inf: not since a repair

    @classmethod
    def blank(cls, nodes: int, categories: int, benchmarks: int) -> Histories:
        return cls(
            np.zeros(nodes),
            np.zeros((nodes, categories), dtype=np.int64),
            np.full((nodes, categories), -np.inf),
            np.zeros(nodes),
            np.zeros(nodes),
            np.full(nodes, np.nan),
            np.full((nodes, benchmarks), -np.inf),
        )

    def bring_back(self, node: int, now_h: float) -> None:
        """Return the node from its last repair."""
        self.served_h[node] += self.out_of_service_h[node] - self.in_service_h[node]
        self.in_service_h[node] = now_h


class Foresight(Protocol):
    """Chances of incidents: all that the Selector knows."""

    def chances_within(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Hours:
        """Each node's probability of an incident in the next hours, given its present state."""

    def mixes(self, nodes: Sequence[int], histories: Histories) -> Sequence[Mapping[str, float]]:
        """Expected shares of the categories on each node, up to a factor."""


class Incidents(Protocol):
    """Source of incidents."""

    categories: tuple[str, ...]

    def histories(self, benchmarks: int) -> Histories:
        """Histories of the nodes before the begin."""

    def next(
        self, node: int, number: int, now_h: float, histories: Histories
    ) -> LatentDefect | None:
        """The `number`-th defect of a node that goes to work now; None: there is none."""


class Pace(Protocol):
    """Speed of a node's clocks while it is in service."""

    def reading_after(self, up_h: float) -> float:
        """Reading of the clocks after so many hours."""

    def hours(self, left: Hours) -> Hours:
        """Hours until the clocks have reached these readings."""


class Clocks(ABC):
    """Incidents whose causes each have a clock, which runs while its node is in service.

    A defect that is found and repaired early changes nothing for the others. The state is that of
    one run.
    """

    def __init__(
        self, categories: Sequence[Category], benchmarks: Sequence[str], nodes: int, seed: int
    ) -> None:
        self.categories = tuple(category.name for category in categories)
        causes = [(place, cause) for place, kind in enumerate(categories) for cause in kind.causes]
        total_shares = [sum(cause.share for cause in kind.causes) for kind in categories]
        self._category = np.array([place for place, _ in causes], dtype=np.intp)
        self._share = np.array([cause.share / total_shares[place] for place, cause in causes])
        self._found_by = [bits(cause.found_by, benchmarks) for _, cause in causes]
        self._draws = Draws(nodes, seed, 3)
        rng = np.random.default_rng([seed, FIRST])
        self._left = rng.exponential(size=(nodes, len(causes)))  # of each clock, mean 1
        self._weights = np.zeros((nodes, len(causes)))  # of the clocks since the last return
        self._paces: list[Pace] = [STEADY] * nodes
        self._since_h = [0.0] * nodes  # of that return
        self._next = [0] * nodes  # index of the cause that comes first

    def histories(self, benchmarks: int) -> Histories:
        return Histories.blank(len(self._next), len(self.categories), benchmarks)

    @abstractmethod
    def pace(self, node: int, now_h: float, histories: Histories) -> tuple[Hours, Pace]:
        """Weight of each category on a node that goes to work now, and the pace of its clocks."""

    def next(
        self, node: int, number: int, now_h: float, histories: Histories
    ) -> LatentDefect | None:
        if not self._found_by:
            return None
        left, weights, cause = self._left[node], self._weights[node], self._next[node]
        when, luck, patience = self._draws.numbers(node, number)
        if number:
            served_h = float(histories.out_of_service_h[node]) - self._since_h[node]
            left -= weights * self._paces[node].reading_after(served_h)
            left[cause] = exponential(when)
        of_categories, pace = self.pace(node, now_h, histories)
        weights[:] = of_categories[self._category] * self._share
        due_h = pace.hours(left / weights)
        self._next[node] = cause = int(due_h.argmin())
        self._since_h[node], self._paces[node] = now_h, pace
        return LatentDefect(
            due_h=now_h + max(0.0, float(due_h[cause])),
            category=int(self._category[cause]),
            found_by=self._found_by[cause],
            luck=luck,
            patience=exponential(patience),
        )


class Steady:
    """Pace of clocks that run as time does."""

    def reading_after(self, up_h: float) -> float:
        return up_h

    def hours(self, left: Hours) -> Hours:
        return left


STEADY = Steady()


class KnownRates(Clocks):
    """Incidents at known rates: each category has its own, by its count. It also gives the risk."""

    def __init__(
        self, categories: Sequence[Category], benchmarks: Sequence[str], nodes: int, seed: int
    ) -> None:
        super().__init__(categories, benchmarks, nodes, seed)
        self._first = np.array([1 / category.mtbi_h for category in categories])
        self._growth = np.log([category.worse_by for category in categories])
        self._most = np.log([category.at_worst for category in categories])

    def rates(self, incidents: Ints) -> Hours:
        """Incidents an hour of each category, after so many of each."""
        # as a sum of logarithms: a power would overflow long before the cap is applied
        grown: Hours = np.exp(np.minimum(incidents * self._growth, self._most)) * self._first
        return grown

    def chances_within(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Hours:
        total = self.rates(histories.incidents[list(nodes)]).sum(axis=1)
        chances: Hours = -np.expm1(-total * hours)
        return chances

    def mixes(self, nodes: Sequence[int], histories: Histories) -> Sequence[Mapping[str, float]]:
        rates = self.rates(histories.incidents[list(nodes)])
        return [dict(zip(self.categories, row, strict=True)) for row in rates.tolist()]

    def pace(self, node: int, now_h: float, histories: Histories) -> tuple[Hours, Pace]:
        return self.rates(histories.incidents[node]), STEADY


class Replayed:
    """Recorded incidents, each at its time; the nodes' work changes nothing about them.

    An incident during a repair is ignored. Causes are not recorded, so they are drawn. Incidents
    from before the begin of the run are part of the nodes' histories.
    """

    def __init__(
        self,
        incidents: Iterable[Incident],
        known_since_s: Mapping[str, float],  # of each node
        begin_s: float,
        categories: Sequence[Category],
        benchmarks: Sequence[str],
        seed: int,
    ) -> None:
        names = tuple(known_since_s)
        self.categories = tuple(category.name for category in categories)
        self._causes = [CauseMix(category.causes, benchmarks) for category in categories]
        self._draws = Draws(len(names), seed, 3)
        self._known_h = np.array([(since - begin_s) / HOUR_S for since in known_since_s.values()])
        self._back_h = np.minimum(self._known_h, 0.0)
        self._served_h = np.zeros(len(names))
        self._due: list[list[tuple[float, int]]] = [[] for _ in names]
        number = {name: place for place, name in enumerate(names)}
        column = {name: place for place, name in enumerate(self.categories)}
        for incident in sorted(incidents, key=lambda incident: incident.start):
            if incident.node in number and incident.category in column:
                node, due_h = number[incident.node], (incident.start - begin_s) / HOUR_S
                self._due[node].append((due_h, column[incident.category]))
                if due_h <= 0 and incident.end is not None:
                    back_h = min((incident.end - begin_s) / HOUR_S, 0.0)
                    self._served_h[node] += max(due_h - self._back_h[node], 0.0)
                    self._back_h[node] = max(self._back_h[node], back_h)
        for due in self._due:
            due.sort()
        self._taken_h = list(repeat(-math.inf, len(names)))

    def histories(self, benchmarks: int) -> Histories:
        past = Histories.blank(len(self._due), len(self.categories), benchmarks)
        past.known_h[:] = self._known_h
        past.in_service_h[:] = self._back_h
        past.served_h[:] = self._served_h
        for node, due in enumerate(self._due):
            for due_h, category in due:
                if due_h <= 0:
                    past.incidents[node, category] += 1
                    past.last_incident_h[node, category] = due_h
        return past

    def next(
        self, node: int, number: int, now_h: float, histories: Histories
    ) -> LatentDefect | None:
        due = self._due[node]
        place = bisect_right(due, (max(now_h, self._taken_h[node]), len(self.categories)))
        if place == len(due):
            return None
        due_h, category = due[place]
        self._taken_h[node] = due_h  # found early and repaired, it does not happen again
        cause, luck, patience = self._draws.numbers(node, number)
        return LatentDefect(
            due_h=due_h,
            category=category,
            found_by=self._causes[category].draw(cause),
            luck=luck,
            patience=exponential(patience),
        )


class Draws:
    """Uniform numbers for the n-th defect of every node, independent of the order of the draws."""

    def __init__(self, nodes: int, seed: int, numbers: int) -> None:
        self._shape, self._seed = (nodes, numbers), seed
        self._tables: list[Hours] = []

    def numbers(self, node: int, number: int) -> list[float]:
        while len(self._tables) <= number:
            rng = np.random.default_rng([self._seed, len(self._tables)])
            self._tables.append(rng.random(self._shape))
        drawn: list[float] = self._tables[number][node].tolist()
        return drawn


class CauseMix:
    """A category's causes, to draw one of them."""

    def __init__(self, causes: Sequence[DefectCause], benchmarks: Sequence[str]) -> None:
        self._shares = list(accumulate(cause.share for cause in causes))
        self._found_by = [bits(cause.found_by, benchmarks) for cause in causes]

    def draw(self, uniform: float) -> int:
        return self._found_by[pick(self._shares, uniform)]


def bits(names: Iterable[str], benchmarks: Sequence[str]) -> int:
    """Set of benchmarks as one number: the i-th bit is the i-th benchmark."""
    return sum(1 << benchmarks.index(name) for name in set(names))


def pick(cumulative: Sequence[float], uniform: float) -> int:
    return min(bisect_right(cumulative, uniform * cumulative[-1]), len(cumulative) - 1)


def exponential(uniform: float) -> float:
    return -math.log1p(-uniform)
