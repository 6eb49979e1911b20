"""Evidence for a forecast: the likelihood that it gave to what then happened, as a sum over rows.

The difference of two models' sums is the log of the odds for one of them. It needs no estimate of
its own spread, so one node with far more risk than all others counts for its own rows only and does
not hide the rest. A forecast that exaggerates loses.
"""

from __future__ import annotations

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Flags, Ints
from anubis.core.history.status import Statuses, Times, Uptimes
from anubis.models.risk.forecast import Forecast

EDGES_H: Times = np.array([0.0, 6.0, 24.0, 72.0, 168.0, 336.0, 720.0, 1440.0, 2400.0])
SECOND_H = 1 / HOUR_S  # histories are precise to a second
DOUBT = 0.01  # share of every forecast that is spread evenly, so that no single surprise decides


def log_likelihood(foretold: Forecast, test: Uptimes) -> float:
    return float(log_chances(foretold, test).sum())


def log_chances(foretold: Forecast, test: Uptimes) -> Times:
    """Logarithm of the chance of what happened, row by row: of the stretch in which the incident
    came, or of the time without one."""
    watched_h, happened = coverage(test)
    stretch = np.maximum(np.searchsorted(EDGES_H, watched_h, side="left") - 1, 0)
    by_model = np.where(
        happened,
        _chance_of(stretch, foretold),
        np.exp(-foretold.hazard_each(watched_h)),
    )
    even = np.where(happened, 1.0, EDGES_H.size - stretch) / EDGES_H.size
    logs: Times = np.log((1 - DOUBT) * by_model + DOUBT * even)
    return logs


def _chance_of(stretch: Ints, foretold: Forecast) -> Times:
    lasting = np.exp(-foretold.hazard_at(EDGES_H))
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
