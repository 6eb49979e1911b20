"""Interface of every risk model: learn from uptimes, and give the hazard of nodes alive now."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Protocol, Self

import numpy as np

from anubis.core.arrays import Floats
from anubis.core.errors import RiskError
from anubis.core.history.status import Statuses, Times, Uptimes
from anubis.models.risk.forecast import HOURS, Forecast

SHORTEST_H = (
    1 / 60
)  # an uptime that ended at once counts as a minute: H(0) = 0, and logarithms exist


class RiskModel(Protocol):
    name: ClassVar[str]
    looks: ClassVar[bool]  # uses the status; otherwise all nodes have the fleet's base rate

    @property
    def covariates(self) -> tuple[str, ...]: ...

    @classmethod
    def fit(cls, uptimes: Uptimes, seed: int) -> Self: ...

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Floats:
        """Cumulative hazard: a row for each status, a column for each of the ascending hours. All
        else is derived from it."""
        ...


def forecast(model: RiskModel, statuses: Statuses, hours: Times = HOURS) -> Forecast:
    """A model's forecast for nodes; their covariates must be those it was trained on."""
    if statuses.covariates != model.covariates:
        raise RiskError(
            f'the risk model "{model.name}" learned from other covariates: '
            f"{_difference(model.covariates, statuses.covariates)}; train it again"
        )
    return Forecast(hours=hours, hazard=model.cumulative_hazard(statuses, hours))


def learnable(uptimes: Uptimes, incidents: int = 1) -> Uptimes:
    """Uptimes with no duration of zero. Refuses uptimes that no model can learn from."""
    ended = int(np.count_nonzero(uptimes.observed))
    if ended < incidents:
        raise RiskError(
            f"{ended} of {len(uptimes)} uptimes ended in an incident, expected at least"
            f" {incidents}: without a model, gate and sweep use the base rate of all nodes"
        )
    if not np.all(np.isfinite(uptimes.statuses.values)):
        raise RiskError("a covariate is not finite: every status must be complete")
    if not np.all(np.isfinite(uptimes.duration_h) & (uptimes.duration_h >= 0)):
        raise RiskError("the duration of an uptime must be finite and not negative")
    return replace(uptimes, duration_h=np.maximum(uptimes.duration_h, SHORTEST_H))


def _difference(learned: tuple[str, ...], offered: tuple[str, ...]) -> str:
    missing = sorted(set(learned) - set(offered))
    added = sorted(set(offered) - set(learned))
    parts = [f'it needs "{name}"' for name in missing] + [f'"{name}" is new' for name in added]
    return ", ".join(parts) or "their order is another"
