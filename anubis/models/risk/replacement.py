"""Decides whether a newly trained model replaces the one in use.

The time since the model in use was trained is halved. A new model learns from all that was known at
the middle, and both are scored on the later half, which neither has seen. The new one is better if
what happened is at least 20 times as likely by it: luck seldom reaches that. A better model is then
trained on everything, by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anubis.core.history.status import Uptimes
from anubis.models.risk.choice import ODDS
from anubis.models.risk.evaluation import score, unscorable_reason
from anubis.models.risk.risk_model import RiskModel
from anubis.models.risk.score_summary import Score
from anubis.models.risk.splits import split_at

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
