"""Forecasts from a cumulative hazard: chances of an incident within some hours, expected times.

H(t) is the cumulative hazard of a node that is alive now, t in hours from now. It is known on a
grid of hours; between them the hazard is constant, beyond the last it keeps its mean rate.

    P(incident within t) = 1 - exp(-H(t))
    expected time        = integral of exp(-H(t)) dt
    median time          : H(t) = log 2

Such a forecast is judged by its evidence: the likelihood that it gave to what then happened, as a
sum over rows. The difference of two models' sums is the log of the odds for one of them. It needs
no estimate of its own spread, so one node with far more risk than all others counts for its own
rows only and does not hide the rest. A forecast that exaggerates loses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Flags, Floats, Ints
from anubis.core.history.status import Statuses, Times, Uptimes

HORIZON_H = 2400.0  # the paper caps all times here
BLOCK = 256  # nodes at a time: what is computed of them stays in the cache
HOURS: Times = np.concatenate(([0.0], np.geomspace(0.25, HORIZON_H, 127)))
HOURS.flags.writeable = False


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A row for each node; times are infinite if no hazard was ever seen."""

    hours: Times
    hazard: Floats

    def __post_init__(self) -> None:
        if self.hours[0] != 0 or np.any(np.diff(self.hours) <= 0):
            raise ValueError("the hours of a forecast ascend from 0")
        if not np.all(np.isfinite(self.hazard)) or np.any(self.hazard[:, 0] != 0):
            raise ValueError("a cumulative hazard is finite and starts at 0")
        if np.any(self.hazard[:, 1:] < self.hazard[:, :-1]):
            raise ValueError("a cumulative hazard never falls")

    def hazard_at(self, hours: Times) -> Floats:
        """H at other hours than the grid's."""
        return self._interpolate(slice(None), hours)

    def hazard_each(self, hours: Times) -> Times:
        """H of each node at an hour of its own."""
        return self._interpolate(np.arange(hours.size), hours)

    def _interpolate(self, nodes: slice | Ints, hours: Times) -> Floats:
        """H of these nodes, linear between the hours of the grid."""
        capped = np.minimum(hours, self.hours[-1])
        left = np.maximum(np.searchsorted(self.hours, capped, side="left") - 1, 0)
        share = (capped - self.hours[left]) / (self.hours[left + 1] - self.hours[left])
        hazard = self.hazard[nodes, left] * (1 - share) + self.hazard[nodes, left + 1] * share
        return keep_on(hazard, hours, self.hours[-1])

    def chances_within(self, hours: Times) -> Floats:
        """Chance of an incident within each of the hours."""
        return -np.expm1(-self.hazard_at(hours))

    def expected_h(self) -> Times:
        """Area below exp(-H): the sum over the stretches and the tail beyond the grid."""
        starts = range(0, len(self.hazard), BLOCK)
        parts = (self._area(self.hazard[start : start + BLOCK]) for start in starts)
        return np.concatenate([np.empty(0), *parts])

    def _area(self, hazard: Floats) -> Times:
        alive = np.exp(-hazard)
        rise = np.diff(hazard, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_alive = np.where(rise > 1e-9, -np.diff(alive, axis=1) / rise, alive[:, :-1])
            tail = alive[:, -1] * self.hours[-1] / hazard[:, -1]
        area: Times = mean_alive @ np.diff(self.hours) + tail
        return area

    def median_h(self) -> Times:
        return np.array([self._median(row) for row in self.hazard])

    def _median(self, hazard: Times) -> float:
        half = np.log(2)
        if hazard[-1] == 0:
            return float("inf")
        if hazard[-1] < half:
            return float(half * self.hours[-1] / hazard[-1])
        right = int(np.searchsorted(hazard, half))
        share = (half - hazard[right - 1]) / (hazard[right] - hazard[right - 1])
        return float(self.hours[right - 1] + share * (self.hours[right] - self.hours[right - 1]))


def keep_on(hazard: Floats, hours: Times, end: float) -> Floats:
    """Hazard known up to `end`, continued beyond at its mean rate."""
    return hazard * np.maximum(1.0, hours / end)


EDGES_H: Times = np.array([0.0, 6.0, 24.0, 72.0, 168.0, 336.0, 720.0, 1440.0, 2400.0])
SECOND_H = 1 / HOUR_S  # histories are precise to a second
DOUBT = 0.01  # share of every forecast that is spread evenly, so that no single surprise decides


def log_likelihood(predicted: Forecast, test: Uptimes) -> float:
    return float(log_chances(predicted, test).sum())


def log_chances(predicted: Forecast, test: Uptimes) -> Times:
    """Logarithm of the chance of what happened, row by row: of the stretch in which the incident
    came, or of the time without one."""
    watched_h, happened = coverage(test)
    stretch = np.maximum(np.searchsorted(EDGES_H, watched_h, side="left") - 1, 0)
    by_model = np.where(
        happened, _chance_of(stretch, predicted), np.exp(-predicted.hazard_each(watched_h))
    )
    even = np.where(happened, 1.0, EDGES_H.size - stretch) / EDGES_H.size
    logs: Times = np.log((1 - DOUBT) * by_model + DOUBT * even)
    return logs


def _chance_of(stretch: Ints, predicted: Forecast) -> Times:
    lasting = np.exp(-predicted.hazard_at(EDGES_H))
    by_end = np.column_stack([lasting[:, 1:], np.zeros(len(lasting))])
    chances: Times = (lasting - by_end)[np.arange(stretch.size), stretch]
    return chances


def coverage(test: Uptimes) -> tuple[Times, Flags]:
    """Time that each row covers, and whether its incident came in that time."""
    reach_h = hours_covered(test.statuses)
    # a node may be back in the very second of its incident
    happened = test.observed & (test.duration_h <= reach_h + SECOND_H)
    return np.minimum(test.duration_h, reach_h), happened


def hours_covered(statuses: Statuses) -> Times:
    """Hours that each row covers: until the node's next row, so that every hour and incident counts
    once. A node's last row covers the time until the last row of all."""
    _, node = np.unique(np.asarray(statuses.nodes), return_inverse=True)
    order = np.lexsort((statuses.at, node))
    end = np.full(order.size, statuses.at.max())
    followed = node[order[1:]] == node[order[:-1]]
    end[order[:-1][followed]] = statuses.at[order[1:][followed]]
    hours: Times = (end - statuses.at) / HOUR_S
    return hours


@dataclass(frozen=True, kw_only=True)
class LifeTable:
    """Times of observed incidents, ascending.

    An uptime that is censored at such a time is still at risk then.
    """

    hours: Times
    incidents: Ints
    at_risk: Ints


def life_table(duration_h: Times, observed: Flags) -> LifeTable:
    hours, incidents = np.unique(duration_h[observed], return_counts=True)
    at_risk = duration_h.size - np.searchsorted(np.sort(duration_h), hours, side="left")
    return LifeTable(hours=hours, incidents=incidents, at_risk=at_risk)


def kaplan_meier(table: LifeTable) -> Times:
    """Share that is still without an incident after each of the hours."""
    return np.cumprod(1.0 - table.incidents / table.at_risk, dtype=np.float64)


def steps(values: Times, at: Times, hours: Times, before: float) -> Times:
    """Values of a step function: `before` until the first of the times `at`, then `values` from
    each time on."""
    return np.concatenate(([before], values))[np.searchsorted(at, hours, side="right")]
