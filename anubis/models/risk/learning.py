"""From the history of nodes to the risk model that is worth using."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from anubis.core.errors import RiskError
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Spells
from anubis.models.risk import files
from anubis.models.risk.choice import ModelChoice, best
from anubis.models.risk.covariates import worth_learning
from anubis.models.risk.evaluation import Evaluation, Tell, evaluate, nobody
from anubis.models.risk.model import RiskModel
from anubis.models.risk.models import model_named
from anubis.models.risk.ranking_check import misplaced
from anubis.models.risk.splits import DECIDING

MONTH_H = 730.0


def spells_of(logbook: Logbook, until: float, covariates: Sequence[str] | None = None) -> Spells:
    """A status at each return into service, when most is at stake, and some in between, so that a
    model also learns of nodes that have been well for a while: about as many, at least monthly."""
    at_returns = logbook.spells(logbook.returns(), until)
    if not len(at_returns):
        raise RiskError(
            "the history has no nodes: import incidents first (anubis import incidents)"
        )
    every_h = min(float(at_returns.duration_h.mean()), MONTH_H)
    regular = logbook.snapshots(every_h, until, np.random.default_rng(0))
    return logbook.spells(logbook.returns() + regular, until, covariates)


def train(
    spells: Spells, seed: int, name: str | None = None, tell: Tell = nobody
) -> tuple[RiskModel, files.ModelProvenance]:
    """The model of that name, or the one that wins by node and by time; that one learns only from
    the traits of nodes that are worth it."""
    if name is not None:
        return model_named(name).fit(spells, seed), files.provenance(spells, seed, "chosen by name")
    spells, traits = worth_learning(spells, tell)
    evaluation = evaluate(spells, kinds=DECIDING, tell=tell)
    choice, model = choose(evaluation, spells, seed, tell)
    why = "; ".join(replace(choice, traits=traits).sentences())
    return model, files.provenance(spells, seed, why, evaluation.scores)


def choose(
    evaluation: Evaluation, spells: Spells, seed: int, tell: Tell = nobody
) -> tuple[ModelChoice, RiskModel]:
    """The best model, trained on everything: also what it then says of the nodes counts."""

    @cache
    def trained(name: str) -> RiskModel:
        tell(f"{name} on all spells")
        return model_named(name).fit(spells, seed)

    choice = best(evaluation, lambda name: misplaced(trained(name), spells))
    return choice, trained(choice.model)
