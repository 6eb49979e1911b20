"""Decides which traits of nodes (rack, cage, sku, age) a model learns from.

The rule that chooses among models decides here as well: a trait is used if cox, which is quick, has
better chances with it than without it on other nodes and at later times, with odds that luck seldom
reaches. Traits are tried in turn, each in addition to those already taken.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from anubis.core.history.logbook import OF_TRAITS
from anubis.core.history.status import Spells
from anubis.models.risk.choice import Deciding, briers, deciding, shortcoming
from anubis.models.risk.cox import Cox
from anubis.models.risk.evaluation import Tell, evaluate, nobody
from anubis.models.risk.splits import DECIDING


def worth_learning(spells: Spells, tell: Tell = nobody) -> tuple[Spells, tuple[str, ...]]:
    """Spells with the useful traits only, and a sentence on each reported trait."""
    names = [name for name in spells.statuses.covariates if name in OF_TRAITS]
    if not names:
        return spells, ()
    left, sentences = set(names), list[str]()
    before = _cox_scores(drop_covariates(spells, left), tell, "no trait of nodes")
    for name in names:
        after = _cox_scores(drop_covariates(spells, left - {name}), tell, name)
        if before is None or after is None:
            sentences.append(f"{name} is left out because nothing can be compared")
        elif because := shortcoming(after, before, [before], "without it"):
            sentences.append(f"{name} is left out because {because}")
        else:
            sentences.append(f"{name} is learned from: {_gain(before, after)}")
            left, before = left - {name}, after
    return drop_covariates(spells, left), tuple(sentences)


def drop_covariates(spells: Spells, names: Collection[str]) -> Spells:
    statuses = spells.statuses
    kept = [place for place, name in enumerate(statuses.covariates) if name not in names]
    covariates = tuple(statuses.covariates[place] for place in kept)
    return replace(
        spells,
        statuses=replace(statuses, covariates=covariates, values=statuses.values[:, kept]),
    )


def _cox_scores(spells: Spells, tell: Tell, label: str) -> Deciding | None:
    """Deciding scores of cox, or None if it cannot be scored."""
    evaluation = evaluate(
        spells, (Cox,), kinds=DECIDING, tell=lambda where: tell(f"{label}: {where}")
    )
    return deciding(evaluation.scores).get(Cox.name)


def _gain(before: Deciding, after: Deciding) -> str:
    return f"{briers(after)} instead of {briers(before).removeprefix('Brier score ')}"
