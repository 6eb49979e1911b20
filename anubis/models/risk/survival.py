"""Estimates from uptimes on one clock: the number at risk at each time, and what follows from
it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anubis.core.arrays import Flags, Ints
from anubis.core.history.status import Times


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
