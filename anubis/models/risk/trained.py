"""A trained model for the Selector: chances of an incident within some hours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anubis.core.history.status import Statuses, Times
from anubis.models.risk import risk_files
from anubis.models.risk.risk_files import ModelProvenance
from anubis.models.risk.risk_model import RiskModel, forecast


@dataclass(frozen=True, kw_only=True)
class Trained:
    model: RiskModel
    origin: ModelProvenance
    assumed: str  # a sentence that decisions must include; empty if it looks at each node

    @property
    def covariates(self) -> tuple[str, ...]:
        return self.model.covariates

    def chances_within(self, statuses: Statuses, hours: float) -> Times:
        ahead = forecast(self.model, statuses, np.array([0.0, hours]))  # no further than is asked
        chances: Times = -np.expm1(-ahead.hazard[:, 1])
        return chances


def load(path: Path) -> Trained:
    model, origin = risk_files.load(path)
    alike = f"{model.name}, the trained risk model, gives all nodes the same risk: {origin.choice}"
    return Trained(model=model, origin=origin, assumed="" if model.looks else alike)
