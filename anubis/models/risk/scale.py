"""Scales columns of any size to numbers of about one, as learned from the training data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from anubis.core.arrays import Flags, Floats
from anubis.core.history.status import Times


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Scale of each column. A value outside the range of training counts as the nearest one
    inside."""

    low: Times
    high: Times
    logged: Flags  # hours and counts span orders of magnitude
    mean: Times  # after that step
    spread: Times

    @classmethod
    def from_table(cls, table: Floats) -> Self:
        low, high = table.min(axis=0), table.max(axis=0)
        logged = (low >= 0) & (_skew(np.log1p(np.maximum(table, 0))) < _skew(table))
        plain = np.where(logged, np.log1p(np.maximum(table, 0)), table)
        spread = plain.std(axis=0)
        return cls(
            low=low,
            high=high,
            logged=logged,
            mean=plain.mean(axis=0),
            spread=np.where(spread > 1e-12 * np.maximum(1, np.abs(plain).max(axis=0)), spread, 1.0),
        )

    def apply(self, table: Floats) -> Floats:
        if table.shape[1:] != self.low.shape:
            raise ValueError(f"{table.shape[1:]} columns, expected {self.low.shape}")
        clipped = np.clip(table, self.low, self.high)
        plain = np.where(self.logged, np.log1p(np.maximum(clipped, 0)), clipped)
        return (plain - self.mean) / self.spread


def _skew(table: Floats) -> Times:
    centred = table - table.mean(axis=0)
    spread = np.maximum(table.std(axis=0), 1e-300)
    skew: Times = np.abs(np.mean((centred / spread) ** 3, axis=0))
    return skew
