"""Risk models against each other and against a constant, on spells they were not trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.errors import RiskError
from anubis.core.past.status import Spells, Times
from anubis.risk import scores
from anubis.risk.baselines import Constant, Exponential
from anubis.risk.forecast import HOURS
from anubis.risk.model import RiskModel, forecast, learnable
from anubis.risk.models import MODELS
from anubis.risk.splits import DECIDING, KINDS, DrawnSplit, SplitKind, split

SEEDS = (0, 1, 2, 3, 4)
ENDS = 256  # columns for the concordance
CALIBRATED_H = 720.0
ERRORS = 2.0  # a difference must be so many times its standard error


Tell = Callable[[str], None]  # of progress: training a network takes a while


def nobody(sentence: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Score:
    """One model, trained on one part of a split and tested on the other."""

    model: str
    split: SplitKind
    seed: int
    spells: int
    incidents: int
    accuracy: scores.Accuracy
    concordance: float | None
    brier: float
    slope: float | None
    groups: tuple[scores.RiskGroup, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    scores: tuple[Score, ...] = ()
    left_out: tuple[str, ...] = ()  # which model could not be scored where, and why

    def __add__(self, added: Evaluation) -> Evaluation:
        return Evaluation(
            scores=self.scores + added.scores,
            left_out=tuple(dict.fromkeys(self.left_out + added.left_out)),
        )


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """The model to use; where none beats the fleet's base rate, a model of that rate."""

    model: str
    beats_base_rate: bool
    reason: str


def evaluate(
    spells: Spells,
    models: Sequence[type[RiskModel]] = MODELS,
    kinds: Sequence[DrawnSplit] = KINDS,
    seeds: Sequence[int] = SEEDS,
    tell: Tell = nobody,
) -> Evaluation:
    learnable(spells)
    compared = (
        _compared(train, test, models, kind, seed, tell)
        for kind in kinds
        for seed, (train, test) in zip(seeds, split(spells, kind, seeds), strict=True)
    )
    return sum(compared, start=Evaluation())


def elsewhere(
    train: Spells,
    test: Spells,
    models: Sequence[type[RiskModel]] = MODELS,
    seeds: Sequence[int] = SEEDS,
    tell: Tell = nobody,
) -> Evaluation:
    """Trained on all of one fleet, tested on all of another."""
    compared = (_compared(train, test, models, "fleet", seed, tell) for seed in seeds)
    return sum(compared, start=Evaluation())


def _compared(
    train: Spells,
    test: Spells,
    models: Sequence[type[RiskModel]],
    kind: SplitKind,
    seed: int,
    tell: Tell,
) -> Evaluation:
    where = f"by {kind}, seed {seed}"
    if reason := _unaskable(test):
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


def _unaskable(test: Spells) -> str:
    """Why no model can be scored on these spells; empty where each can."""
    if not test.observed.any():
        return f"none of the {len(test)} test spells ended in an incident"
    if scores.watched_hours(HOURS, test.duration_h, test.observed).size < 2:
        minutes = HOURS[1] * 60
        return f"too few of the {len(test)} test spells were watched for {minutes:.0f} minutes"
    return ""


def best(evaluation: Evaluation) -> ModelChoice:
    """The model with the best probabilities (Brier scores) on other nodes and at later times.

    A model that looks at the nodes' status has to beat the best of those that do not, in both
    splits and by more than chance: a constant must not be beaten by noise. The paper's accuracy is
    shown and does not decide: a constant can win it while others have better probabilities.
    """
    blind = [model.name for model in MODELS if not model.looks and model is not Constant]
    looking = [model.name for model in MODELS if model.looks]
    table = {(s.model, s.split, s.seed): s for s in evaluation.scores}
    complete = {name: scored for name in blind + looking if (scored := _deciding(table, name))}
    bases = [name for name in blind if name in complete]
    if not bases:
        reason = _first(evaluation.left_out) or "nothing was evaluated by node and by time"
        return ModelChoice(
            model=Exponential.name,
            beats_base_rate=False,
            reason=f"the models cannot be compared, so all nodes get the base rate: {reason}",
        )
    base = min(bases, key=lambda name: _mean_brier(complete[name]))
    winners = [
        name for name in looking if name in complete and _beats(complete[name], complete[base])
    ]
    chosen = min(winners, key=lambda name: _mean_brier(complete[name]), default=base)
    return ModelChoice(
        model=chosen,
        beats_base_rate=bool(winners),
        reason=_reason(chosen, base, complete, _deciding(table, Constant.name)),
    )


def _first(sentences: Sequence[str]) -> str:
    more = f" (and {len(sentences) - 1} more like this)" if len(sentences) > 1 else ""
    return f"{sentences[0]}{more}" if sentences else ""


Deciding = dict[SplitKind, list[Score]]  # of one model, seed by seed


def _deciding(table: dict[tuple[str, SplitKind, int], Score], model: str) -> Deciding | None:
    """Its scores in the splits that decide; none where it has not been scored in all of them."""
    keys = sorted({(split, seed) for _, split, seed in table if split in DECIDING})
    if {split for split, _ in keys} != set(DECIDING):
        return None
    if any((model, *key) not in table for key in keys):
        return None
    return {kind: [table[model, kind, seed] for k, seed in keys if k == kind] for kind in DECIDING}


def _mean_brier(scored: Deciding) -> float:
    return float(np.mean([_brier(scores) for scores in scored.values()]))


def _brier(scored: Sequence[Score]) -> float:
    return float(np.mean([score.brier for score in scored]))


def _beats(scored: Deciding, base: Deciding) -> bool:
    return all(_clearly_lower(scored[kind], base[kind]) for kind in DECIDING)


def _clearly_lower(scored: list[Score], base: list[Score]) -> bool:
    gained = np.array([b.brier - s.brier for s, b in zip(scored, base, strict=True)])
    error = gained.std(ddof=1) / np.sqrt(gained.size) if gained.size > 1 else 0.0
    return bool(gained.mean() > ERRORS * error)


def _reason(
    chosen: str, base: str, complete: dict[str, Deciding], constant: Deciding | None
) -> str:
    def briers(name: str) -> str:
        return " and ".join(f"{_brier(complete[name][kind]):.4f}" for kind in DECIDING)

    if chosen == base:
        losers = ", ".join(f"{name} {briers(name)}" for name in complete if name != base)
        sentence = (
            f"no model that looks at the nodes beats the base rate both by node and by time: all "
            f"nodes get the base rate of {base} (Brier score {briers(base)}; {losers})"
        )
    else:
        sentence = (
            f"{chosen} wins by node and by time: Brier score {briers(chosen)}, "
            f"against {briers(base)} for the base rate ({base})"
        )
    return f"{sentence}; {_accuracies(chosen, complete[chosen], constant)}"


def _accuracies(name: str, scored: Deciding, constant: Deciding | None) -> str:
    def mean(scores: list[Score]) -> float:
        return float(np.mean([score.accuracy.relative for score in scores]))

    accuracy = {kind: mean(scored[kind]) for kind in DECIDING}
    text = f"accuracy {accuracy['node']:.1%} and {accuracy['time']:.1%}"
    if constant is None:
        return text
    constant_accuracy = {kind: mean(constant[kind]) for kind in DECIDING}
    text += f", the constant's {constant_accuracy['node']:.1%} and {constant_accuracy['time']:.1%}"
    if all(accuracy[kind] > constant_accuracy[kind] for kind in DECIDING):
        return text
    return f"{text}: by accuracy, {name} does not beat the constant"


def score(model: RiskModel, kind: SplitKind, seed: int, test: Spells) -> Score:
    duration_h, observed = test.duration_h, test.observed
    hours = np.union1d(HOURS, _ends(duration_h[observed]))
    foretold = forecast(model, test.statuses, hours)
    column = np.searchsorted(hours, duration_h, side="right") - 1
    grid = scores.watched_hours(HOURS, duration_h, observed)
    alive = 1 - foretold.within(grid)
    return Score(
        model=model.name,
        split=kind,
        seed=seed,
        spells=len(test),
        incidents=int(observed.sum()),
        accuracy=scores.accuracy(foretold.expected_h(), duration_h, observed),
        concordance=scores.concordance(foretold.hazard, column, duration_h, observed),
        brier=scores.integrated_brier(alive, grid, duration_h, observed),
        slope=scores.calibration_slope(foretold, duration_h, observed, CALIBRATED_H),
        groups=scores.calibration_groups(foretold, duration_h, observed, CALIBRATED_H),
    )


def _ends(duration_h: Times) -> Times:
    return np.quantile(duration_h, np.linspace(0, 1, min(ENDS, duration_h.size)))
