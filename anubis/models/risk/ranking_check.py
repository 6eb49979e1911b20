"""Checks whether a model's order of the nodes can be right, before the model is used.

A node with far more incidents than the others belongs to the half most at risk, unless it has been
well for so long that its past no longer counts.
"""

from __future__ import annotations

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Flags, Ints
from anubis.core.history.status import Statuses, Times, Uptimes
from anubis.models.risk.risk_model import RiskModel, forecast
from anubis.models.risk.splits import take

COUNT, SINCE = "incidents", "since_incident_h"
ASKED_H = 720.0
FENCE = 3.0  # quartile distances above the upper quartile: "far out", after Tukey
BY_CHANCE = 1e-3  # chance that any node of a uniform fleet has so many
SILENT = 3.0  # so many of its own mean times between incidents: by chance once in twenty


def misplaced_node(model: RiskModel, uptimes: Uptimes) -> str:
    """Sentence on the node with the most incidents that ranks too low; empty if there is none."""
    if not {COUNT, SINCE} <= set(uptimes.statuses.covariates):
        return ""
    statuses = take(uptimes, latest(uptimes)).statuses
    counts, since_h = (_column(statuses, name) for name in (COUNT, SINCE))
    risk = forecast(model, statuses, np.array([0.0, ASKED_H])).hazard[:, 1]
    age_h = (statuses.at - _first_at(uptimes, statuses)) / HOUR_S
    is_silent = since_h * counts > SILENT * age_h
    wrong = np.flatnonzero(_is_far_out(counts) & (risk < np.median(risk)) & ~is_silent)
    if not wrong.size:
        return ""
    worst = wrong[np.argmax(counts[wrong])]
    place = 1 + np.count_nonzero(risk > risk[worst])
    return (
        f"it puts {statuses.nodes[worst]}, with {counts[worst]:.0f} incidents where the median node"
        f" has {np.median(counts):.0f} and the last {since_h[worst] / 24:.0f} days ago, at place"
        f" {place} of {len(statuses)} by risk"
    )


def latest(uptimes: Uptimes) -> Flags:
    """Flags of the last row of each node."""
    names, at = np.asarray(uptimes.statuses.nodes), uptimes.statuses.at
    order = np.lexsort((at, names))
    is_last = np.ones(order.size, dtype=bool)
    is_last[:-1] = names[order[1:]] != names[order[:-1]]
    rows = np.zeros(order.size, dtype=bool)
    rows[order[is_last]] = True
    return rows


def _first_at(uptimes: Uptimes, statuses: Statuses) -> Times:
    """Time of the first status of each of these nodes."""
    first: dict[str, float] = {}
    for node, at in zip(uptimes.statuses.nodes, uptimes.statuses.at.tolist(), strict=True):
        first[node] = min(at, first.get(node, at))
    return np.array([first[node] for node in statuses.nodes])


def _column(statuses: Statuses, name: str) -> Times:
    column: Times = statuses.values[:, statuses.covariates.index(name)]
    return column


def _is_far_out(counts: Times) -> Flags:
    from scipy.special import pdtrc  # chance that a Poisson count is greater

    low, high = np.quantile(counts, [0.25, 0.75])
    number: Ints = counts.astype(np.int64)
    chance = pdtrc(np.maximum(number - 1, 0), counts.mean())
    far: Flags = (counts > high + FENCE * (high - low)) & (chance * counts.size < BY_CHANCE)
    return far
