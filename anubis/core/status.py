"""What is known of nodes at an instant, and how long each then went without an incident."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]
Times = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Incident:
    """Something that happened to a node. Times are seconds since the epoch."""

    node: str
    category: str
    start: float
    end: float | None = None  # None: not over yet

    def __post_init__(self) -> None:
        if self.end is not None and self.end < self.start:
            raise ValueError(f"the incident of {self.node} ends before it starts")


@dataclass(frozen=True, kw_only=True)
class Statuses:
    """A row for each node and instant, a column for each covariate; all finite."""

    covariates: tuple[str, ...]
    nodes: tuple[str, ...]  # of the rows; a node may have several
    at: Times  # seconds since the epoch
    values: Table

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.nodes), len(self.covariates)):
            raise ValueError(f"{self.values.shape} values for {len(self.nodes)} statuses")

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True, kw_only=True)
class Spells:
    """How long each node went well after a status: what a risk model learns from."""

    statuses: Statuses
    duration_h: Times  # until the next incident, or until nobody watched any more
    observed: Flags  # whether an incident ended it

    def __len__(self) -> int:
        return len(self.duration_h)
