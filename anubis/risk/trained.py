"""A trained model as the Selector asks it: how likely an incident is within some hours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anubis.core.past.status import Statuses, Times
from anubis.risk import files
from anubis.risk.model import RiskModel, forecast


@dataclass(frozen=True, kw_only=True)
class Trained:
    model: RiskModel
    assumed: str  # what a decision must tell of it; empty where it looks at each node

    @property
    def covariates(self) -> tuple[str, ...]:
        return self.model.covariates

    def within(self, statuses: Statuses, hours: float) -> Times:
        found: Times = forecast(self.model, statuses).within(np.array([hours]))[:, 0]
        return found


def load(path: Path) -> Trained:
    model, origin = files.load(path)
    alike = f"{model.name}, the trained model of risk, takes all nodes alike: {origin.choice}"
    return Trained(model=model, assumed="" if model.looks else alike)
