"""Compares risk models with each other and with a constant, on uptimes they were not trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.errors import RiskError
from anubis.core.history.status import Times, Uptimes
from anubis.models.risk import scores
from anubis.models.risk.forecast import HOURS, log_likelihood
from anubis.models.risk.models import MODELS
from anubis.models.risk.risk_model import RiskModel, forecast, learnable
from anubis.models.risk.score_summary import Score
from anubis.models.risk.splits import KINDS, DrawnSplit, SplitKind, split

SEEDS = (0, 1, 2, 3, 4)  # one training depends on chance; five show how much
ENDS = 256  # columns for the concordance
CALIBRATED_H = 720.0  # 30 days


Tell = Callable[[str], None]  # reports progress: training a network takes a while


def ignore(sentence: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    scores: tuple[Score, ...] = ()
    left_out: tuple[str, ...] = ()  # models that could not be scored, in which split and why

    def __add__(self, added: Evaluation) -> Evaluation:
        return Evaluation(
            scores=self.scores + added.scores,
            left_out=tuple(dict.fromkeys(self.left_out + added.left_out)),
        )


def evaluate(
    uptimes: Uptimes,
    models: Sequence[type[RiskModel]] = MODELS,
    kinds: Sequence[DrawnSplit] = KINDS,
    seeds: Sequence[int] = SEEDS,
    tell: Tell = ignore,
) -> Evaluation:
    learnable(uptimes)
    compared = (
        _compare(train, test, models, kind, seed, tell)
        for kind in kinds
        for seed, (train, test) in zip(seeds, split(uptimes, kind, seeds), strict=True)
    )
    return sum(compared, start=Evaluation())


def evaluate_elsewhere(
    train: Uptimes,
    test: Uptimes,
    models: Sequence[type[RiskModel]] = MODELS,
    seeds: Sequence[int] = SEEDS,
    tell: Tell = ignore,
) -> Evaluation:
    """Evaluation of models trained on all of one fleet and tested on all of another."""
    compared = (_compare(train, test, models, "fleet", seed, tell) for seed in seeds)
    return sum(compared, start=Evaluation())


def _compare(
    train: Uptimes,
    test: Uptimes,
    models: Sequence[type[RiskModel]],
    kind: SplitKind,
    seed: int,
    tell: Tell,
) -> Evaluation:
    where = f"by {kind}, seed {seed}"
    if reason := unscorable_reason(test):
        return Evaluation(left_out=(f"all models {where}: {reason}",))
    scored: list[Score] = []
    left_out: list[str] = []
    for model in models:
        tell(f"{model.name} {where}")
        try:
            scored.append(score(model.fit(train, seed), kind, seed, test))
        except RiskError as error:
            left_out.append(f"{model.name} {where}: {error}")
    return Evaluation(scores=tuple(scored), left_out=tuple(left_out))


def unscorable_reason(test: Uptimes) -> str:
    """Reason why no model can be scored on these uptimes; empty: each can."""
    if not test.observed.any():
        return f"none of the {len(test)} test uptimes ended in an incident"
    if scores.watched_hours(HOURS, test.duration_h, test.observed).size < 2:
        minutes = HOURS[1] * 60
        return f"too few of the {len(test)} test uptimes were watched for {minutes:.0f} minutes"
    return ""


def score(model: RiskModel, kind: SplitKind, seed: int, test: Uptimes) -> Score:
    duration_h, observed = test.duration_h, test.observed
    hours = np.union1d(HOURS, _ends(duration_h[observed]))
    predicted = forecast(model, test.statuses, hours)
    column = np.searchsorted(hours, duration_h, side="right") - 1
    grid = scores.watched_hours(HOURS, duration_h, observed)
    alive = 1 - predicted.chances_within(grid)
    return Score(
        model=model.name,
        split=kind,
        seed=seed,
        uptimes=len(test),
        incidents=int(observed.sum()),
        accuracy=scores.accuracy(predicted.expected_h(), duration_h, observed),
        concordance=scores.concordance(predicted.hazard, column, duration_h, observed),
        brier=scores.integrated_brier(alive, grid, duration_h, observed),
        log_likelihood=log_likelihood(predicted, test),
        slope=scores.calibration_slope(predicted, duration_h, observed, CALIBRATED_H),
        groups=scores.calibration_groups(predicted, duration_h, observed, CALIBRATED_H),
    )


def _ends(duration_h: Times) -> Times:
    return np.quantile(duration_h, np.linspace(0, 1, min(ENDS, duration_h.size)))
