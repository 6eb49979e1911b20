"""Learns the best risk model from the history of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Flags, Ints
from anubis.core.errors import RiskError
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Statuses, Times, Uptimes
from anubis.models.risk import risk_files
from anubis.models.risk.choice import ModelChoice, best
from anubis.models.risk.covariates import drop_covariates, worth_learning
from anubis.models.risk.evaluation import Evaluation, Tell, evaluate, ignore
from anubis.models.risk.models import model_named
from anubis.models.risk.risk_model import RiskModel, forecast
from anubis.models.risk.splits import DECIDING, draw_nodes, take

MONTH_H = 730.0  # a twelfth of a year


def uptimes_of(logbook: Logbook, until: float, covariates: Sequence[str] | None = None) -> Uptimes:
    """Uptimes from a status at each return into service, when most is at stake, and about as many
    regular ones, at least monthly, so that a model also learns from nodes that have been well for a
    while."""
    at_returns = logbook.uptimes(logbook.returns(), until)
    if not len(at_returns):
        raise RiskError(
            "the history has no nodes: import incidents first (anubis history import incidents)"
        )
    every_h = min(float(at_returns.duration_h.mean()), MONTH_H)
    regular = logbook.snapshots(every_h, until, np.random.default_rng(0))
    return logbook.uptimes(logbook.returns() + regular, until, covariates)


def train(
    uptimes: Uptimes, seed: int, name: str | None = None, tell: Tell = ignore
) -> tuple[RiskModel, risk_files.ModelProvenance]:
    """Model of that name, or the one that wins by node and by time. The latter learns only from
    useful attributes of nodes. Of a large fleet, some nodes decide which model it is, and all teach
    it."""
    if name is not None:
        return model_named(name).fit(uptimes, seed), risk_files.provenance(
            uptimes, seed, "chosen by name"
        )
    compared, attributes = worth_learning(draw_nodes(uptimes), tell)
    evaluation = evaluate(compared, kinds=DECIDING, tell=tell)
    unused = {*uptimes.statuses.covariates} - {*compared.statuses.covariates}
    uptimes = drop_covariates(uptimes, unused)
    choice, model = choose(evaluation, uptimes, seed, tell)
    attributes += tuple(drawn_remark(uptimes, compared))
    why = "; ".join(replace(choice, attributes=attributes).sentences())
    return model, risk_files.provenance(uptimes, seed, why, evaluation.scores)


def drawn_remark(uptimes: Uptimes, compared: Uptimes) -> Iterator[str]:
    """Yield a sentence if some nodes decided instead of all."""
    drawn, nodes = ({*some.statuses.nodes} for some in (compared, uptimes))
    if len(drawn) < len(nodes):
        yield f"models were compared on {len(drawn):,} of {len(nodes):,} nodes, drawn at random"


def choose(
    evaluation: Evaluation, uptimes: Uptimes, seed: int, tell: Tell = ignore
) -> tuple[ModelChoice, RiskModel]:
    """Best model, trained on everything. Its order of the nodes must pass the check as well."""

    @cache
    def train_named(name: str) -> RiskModel:
        tell(f"{name} on all uptimes")
        return model_named(name).fit(uptimes, seed)

    choice = best(evaluation, lambda name: misplaced_node(train_named(name), uptimes))
    return choice, train_named(choice.model)


COUNT, SINCE = "incidents", "since_incident_h"
# --- whether an order of the nodes can be right ----------------------------------------------

ASKED_H = 720.0  # 30 days
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
