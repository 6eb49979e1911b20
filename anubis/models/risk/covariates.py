"""Decides which attributes of nodes (rack, cage, sku, age) a model learns from.

The rule that chooses among models decides here as well: an attribute is used if cox, which is
quick, has better chances with it than without it on other nodes and at later times, with odds that
luck seldom reaches. Attributes are tried in turn, each in addition to those already taken."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from anubis.core.history.logbook import OF_ATTRIBUTES
from anubis.core.history.status import Uptimes
from anubis.models.risk.choice import Deciding, briers, deciding, shortcoming
from anubis.models.risk.cox import Cox
from anubis.models.risk.evaluation import Tell, evaluate, nobody
from anubis.models.risk.splits import DECIDING


def worth_learning(uptimes: Uptimes, tell: Tell = nobody) -> tuple[Uptimes, tuple[str, ...]]:
    """Uptimes with the useful attributes only, and a sentence on each reported attribute."""
    names = [name for name in uptimes.statuses.covariates if name in OF_ATTRIBUTES]
    if not names:
        return uptimes, ()
    left, sentences = set(names), list[str]()
    before = _cox_scores(drop_covariates(uptimes, left), tell, "no attribute of nodes")
    for name in names:
        after = _cox_scores(drop_covariates(uptimes, left - {name}), tell, name)
        if before is None or after is None:
            sentences.append(f"{name} is left out because nothing can be compared")
        elif because := shortcoming(after, before, [before], "without it"):
            sentences.append(f"{name} is left out because {because}")
        else:
            sentences.append(f"{name} is learned from: {_gain(before, after)}")
            left, before = left - {name}, after
    return drop_covariates(uptimes, left), tuple(sentences)


def drop_covariates(uptimes: Uptimes, names: Collection[str]) -> Uptimes:
    statuses = uptimes.statuses
    kept = [place for place, name in enumerate(statuses.covariates) if name not in names]
    covariates = tuple(statuses.covariates[place] for place in kept)
    return replace(
        uptimes,
        statuses=replace(statuses, covariates=covariates, values=statuses.values[:, kept]),
    )


def _cox_scores(uptimes: Uptimes, tell: Tell, label: str) -> Deciding | None:
    """Deciding scores of cox, or None if it cannot be scored."""
    evaluation = evaluate(
        uptimes, (Cox,), kinds=DECIDING, tell=lambda where: tell(f"{label}: {where}")
    )
    return deciding(evaluation.scores).get(Cox.name)


def _gain(before: Deciding, after: Deciding) -> str:
    return f"{briers(after)} instead of {briers(before).removeprefix('Brier score ')}"
