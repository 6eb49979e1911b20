"""Learns the best risk model from the history of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from anubis.core.errors import RiskError
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Uptimes
from anubis.models.risk import risk_files
from anubis.models.risk.choice import ModelChoice, best
from anubis.models.risk.covariates import worth_learning
from anubis.models.risk.evaluation import Evaluation, Tell, evaluate, nobody
from anubis.models.risk.models import model_named
from anubis.models.risk.ranking_check import misplaced_node
from anubis.models.risk.risk_model import RiskModel
from anubis.models.risk.splits import DECIDING

MONTH_H = 730.0


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
    uptimes: Uptimes, seed: int, name: str | None = None, tell: Tell = nobody
) -> tuple[RiskModel, risk_files.ModelProvenance]:
    """Model of that name, or the one that wins by node and by time. The latter learns only from
    useful attributes of nodes."""
    if name is not None:
        return model_named(name).fit(uptimes, seed), risk_files.provenance(
            uptimes, seed, "chosen by name"
        )
    uptimes, attributes = worth_learning(uptimes, tell)
    evaluation = evaluate(uptimes, kinds=DECIDING, tell=tell)
    choice, model = choose(evaluation, uptimes, seed, tell)
    why = "; ".join(replace(choice, attributes=attributes).sentences())
    return model, risk_files.provenance(uptimes, seed, why, evaluation.scores)


def choose(
    evaluation: Evaluation, uptimes: Uptimes, seed: int, tell: Tell = nobody
) -> tuple[ModelChoice, RiskModel]:
    """Best model, trained on everything. Its order of the nodes must pass the check as well."""

    @cache
    def train_named(name: str) -> RiskModel:
        tell(f"{name} on all uptimes")
        return model_named(name).fit(uptimes, seed)

    choice = best(evaluation, lambda name: misplaced_node(train_named(name), uptimes))
    return choice, train_named(choice.model)
