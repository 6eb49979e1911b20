"""Chooses the risk model to use, and says why each of the others is refused.

The Selector needs right chances, for the nodes and times to come, and the right order of the nodes.
So models are compared by the chance that they gave to what happened, as a logarithm, on other nodes
and at later times (forecast.py). A model that looks at the nodes is taken if, in both,

1. it orders nodes better than chance (concordance), and
2. what happened is at least 20 times as likely by it as by each model that looks at none: luck
   seldom reaches that, and a model that exaggerates how much nodes differ does not,

and if it puts no node with far more incidents among the safer half without a reason. Of the models
that are left, the one by which what happened is likeliest is used. Brier scores and accuracy are
reported and do not decide: of nodes that seldom fail, they are the same in all digits.

A newly trained model replaces the one in use by the same measure. The time since the model in use
was trained is halved. A new model learns from all that was known at the middle, and both are scored
on the later half, which neither has seen. The new one is better if what happened is at least 20
times as likely by it. A better model is then trained on everything, by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.history.status import Uptimes
from anubis.models.risk.baselines import Constant, Exponential
from anubis.models.risk.evaluation import Evaluation, score, unscorable_reason
from anubis.models.risk.models import MODELS
from anubis.models.risk.risk_model import RiskModel
from anubis.models.risk.score_summary import Score
from anubis.models.risk.splits import DECIDING, DrawnSplit, split_at

ODDS = 20.0  # to one: of models that were as likely as not, one in 21 is wrong
SLOPE = 0.5  # below it, a slope of 0, which ignores the nodes, is closer to the truth
WHERE: Mapping[DrawnSplit, str] = {"node": "on other nodes", "time": "at later times"}


@dataclass(frozen=True, kw_only=True)
class Refusal:
    model: str
    because: str


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """The model to use; if none beats the fleet's base rate, a model of that rate."""

    model: str
    beats_base_rate: bool
    reason: str
    refused: tuple[Refusal, ...] = ()
    attributes: tuple[str, ...] = ()  # a sentence on each reported attribute of nodes

    def sentences(self) -> Iterator[str]:
        yield self.reason
        for refusal in self.refused:
            yield f"{refusal.model} refused because {refusal.because}"
        yield from self.attributes


def nothing_wrong(model: str) -> str:
    return ""


def best(evaluation: Evaluation, misplaced: Callable[[str], str] = nothing_wrong) -> ModelChoice:
    """Choice among the evaluated models. `misplaced` returns why a model trained on everything
    cannot have the right order of nodes; empty: it may."""
    table = deciding(evaluation.scores)
    bases = [m.name for m in MODELS if not m.looks and m is not Constant and m.name in table]
    if not bases:
        first = next(iter(evaluation.left_out), "nothing was evaluated by node and by time")
        more = len(evaluation.left_out) - 1
        return ModelChoice(
            model=Exponential.name,
            beats_base_rate=False,
            reason="the models cannot be compared, so all nodes get the base rate: "
            + (f"{first} (and {more} more like this)" if more > 0 else first),
        )
    base = max(bases, key=lambda name: _evidence(table[name], *DECIDING))
    looking = [model.name for model in MODELS if model.looks and model.name in table]
    blind = [table[name] for name in bases]
    chosen, refused = base, []
    for name in sorted(looking, key=lambda name: -_evidence(table[name], *DECIDING)):
        because = shortcoming(table[name], blind)
        if not because and chosen != base:
            lead = _evidence(table[chosen], *DECIDING) - _evidence(table[name], *DECIDING)
            because = f"what happened is likelier by {chosen} (log-likelihood {lead:+.1f})"
        if because := because or misplaced(name):
            refused.append(Refusal(model=name, because=because))
        else:
            chosen = name
    return ModelChoice(
        model=chosen,
        beats_base_rate=chosen != base,
        reason=_reason(chosen, base, table),
        refused=tuple(refused),
    )


Deciding = Mapping[DrawnSplit, Sequence[Score]]  # of one model, by part of the split


def deciding(scores: Sequence[Score]) -> dict[str, Deciding]:
    """Scores by model, without models that lack a score in any part of the deciding splits."""
    of_model: dict[str, dict[tuple[DrawnSplit, int], Score]] = {}
    for scored in scores:
        for kind in DECIDING:
            if scored.split == kind:
                of_model.setdefault(scored.model, {})[kind, scored.seed] = scored
    keys = sorted({key for parts in of_model.values() for key in parts})
    if {kind for kind, _ in keys} != set(DECIDING):
        return {}
    return {
        model: {kind: [parts[key] for key in keys if key[0] == kind] for kind in DECIDING}
        for model, parts in of_model.items()
        if len(parts) == len(keys)
    }


def shortcoming(scored: Deciding, rivals: Sequence[Deciding]) -> str:
    """The first rule that a model breaks, and in which split; empty if it breaks none."""
    for kind in DECIDING:
        order = _mean([s.concordance for s in scored[kind] if s.concordance is not None])
        if not order > 0.5:
            return f"{WHERE[kind]} it orders nodes no better than chance (concordance {order:.3f})"
    for kind in DECIDING:
        gained = _evidence(scored, kind) - max(_evidence(rival, kind) for rival in rivals)
        if gained < np.log(ODDS):
            return f"{WHERE[kind]} {_too_little(gained, scored[kind])}"
    return ""


def _too_little(gained: float, scored: Sequence[Score]) -> str:
    slopes = [score.slope for score in scored if score.slope is not None]
    if slopes and np.median(slopes) < SLOPE:
        return (
            "it exaggerates how much nodes differ (calibration slope"
            f" {np.median(slopes):.2f}, 1 would be right)"
        )
    odds = f"{np.exp(gained):.1f} to 1 for it" if gained > 0 else "against it"
    return f"it may owe its gain to chance (odds {odds}, {ODDS:.0f} to 1 needed)"


def _evidence(scored: Deciding, *kinds: DrawnSplit) -> float:
    return float(sum(score.log_likelihood for kind in kinds for score in scored[kind]))


def briers(scored: Deciding) -> str:
    means = (f"{_mean([score.brier for score in scored[kind]]):.4f}" for kind in DECIDING)
    return f"Brier score {' and '.join(means)}"


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _reason(chosen: str, base: str, table: Mapping[str, Deciding]) -> str:
    if chosen == base:
        sentence = (
            "no model that looks at the nodes beats the base rate both by node and by time: all"
            f" nodes get the base rate of {base} ({briers(table[base])})"
        )
    else:
        sentence = (
            f"{chosen} wins by node and by time: {briers(table[chosen])}, against"
            f" {briers(table[base]).removeprefix('Brier score ')} for the base rate ({base})"
        )
    return f"{sentence}; {_accuracies(chosen, table[chosen], table.get(Constant.name))}"


def _accuracies(name: str, scored: Deciding, constant: Deciding | None) -> str:
    own = {kind: _mean([s.accuracy.relative for s in scored[kind]]) for kind in DECIDING}
    text = f"accuracy {own['node']:.1%} and {own['time']:.1%}"
    if constant is None:
        return text
    its = {kind: _mean([s.accuracy.relative for s in constant[kind]]) for kind in DECIDING}
    text += f", the constant's {its['node']:.1%} and {its['time']:.1%}"
    if all(own[kind] > its[kind] for kind in DECIDING):
        return text
    return f"{text}: by accuracy, {name} does not beat the constant"


View = Callable[[tuple[str, ...] | None], Uptimes]  # the uptimes by these covariates; None: all
Learn = Callable[[Uptimes], RiskModel]


@dataclass(frozen=True, kw_only=True)
class Succession:
    """Result of the comparison."""

    because: str  # why the model in use stays; empty: it is replaced
    uptimes: int = 0  # that both were scored on
    incidents: int = 0
    fresh: Score | None = None
    used: Score | None = None

    def __str__(self) -> str:
        if self.fresh is None or self.used is None:
            return self.because
        gained = f"log-likelihood {evidence(self.fresh, self.used):+.1f}"
        compared = f"{gained} on {self.uptimes:,} later uptimes with {self.incidents:,} incidents"
        return f"{self.because} ({compared})" if self.because else compared


def judge_successor(
    view: View, used: RiskModel, trained_at: float, now: float, learn: Learn
) -> Succession:
    """Comparison of a new model with the one in use. `view`: of the uptimes that are known now."""
    middle = (trained_at + now) / 2
    past, _ = split_at(view(None), middle)
    _, later = split_at(view(used.covariates), middle)
    if why := unscorable_reason(later):
        return Succession(because=f"too little happened since the model in use was trained: {why}")
    fresh = learn(past)
    _, same = split_at(view(fresh.covariates), middle)
    scores = score(fresh, "time", 0, same), score(used, "time", 0, later)
    return Succession(
        because=_shortcoming(*scores),
        uptimes=len(later),
        incidents=int(np.count_nonzero(later.observed)),
        fresh=scores[0],
        used=scores[1],
    )


def _shortcoming(fresh: Score, used: Score) -> str:
    """Reason why the model in use stays; empty: the new one is better."""
    gained = evidence(fresh, used)
    if gained <= 0:
        return "trained again, its chances are no better"
    if gained < np.log(ODDS):
        odds = f"{np.exp(gained):.1f} to 1 for it, {ODDS:.0f} to 1 needed"
        return f"trained again, it may owe its gain to chance (odds {odds})"
    return ""


def evidence(fresh: Score, used: Score) -> float:
    """Logarithm of how much likelier what happened is by the new model."""
    return fresh.log_likelihood - used.log_likelihood
