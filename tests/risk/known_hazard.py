"""Uptimes of a fleet whose hazard is known, to check risk models.

After n_c incidents of each category c, the last one u hours ago, a node's cumulative hazard is

    H(t) = base prod_c (1 + min(n_c, 6))^power_c ((u + t)^shape - u^shape)

t hours from now. With powers of 0 and a shape of 1 there is nothing to learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Floats
from anubis.core.history.status import Statuses, Times, Uptimes

FULL = 6  # more incidents of a category do not add to the risk: histories must not explode
BEGIN = 1_700_000_000.0  # seconds since the epoch


@dataclass(frozen=True, kw_only=True)
class KnownHazard:
    """The stated hazard, with the interface of a risk model."""

    name: ClassVar[str] = "truth"
    looks: ClassVar[bool] = True
    powers: Mapping[str, float] = field(
        default_factory=lambda: {"gpu": 0.7, "memory": 0.4, "network": 0.2, "software": 0.0}
    )
    base: float = 0.002
    shape: float = 0.7  # below 1: a node that was just repaired is more at risk

    @property
    def covariates(self) -> tuple[str, ...]:
        counts = (f"incidents:{category}" for category in self.powers)
        return ("up_h", "since_incident_h", "incidents", *counts)

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Floats:
        since_h = statuses.values[:, 1:2]
        factor = self._factor(statuses.values[:, 3:])[:, None]
        return factor * ((since_h + hours) ** self.shape - since_h**self.shape)

    def _factor(self, counts: Floats) -> Times:
        powers = np.array(list(self.powers.values()))
        product: Times = np.prod((1 + np.minimum(counts, FULL)) ** powers, axis=-1)
        return self.base * product

    def next_after(self, counts: Times, hazard: float) -> float:
        """Hours since an incident after which a node's hazard has reached so much."""
        return float((hazard / self._factor(counts)) ** (1 / self.shape))


NO_SIGNAL = KnownHazard(powers={"gpu": 0.0, "memory": 0.0}, base=0.001, shape=1.0)


def uptimes(
    truth: KnownHazard, *, nodes: int, seed: int, watched_h: float = 8760.0, every_h: float = 730.0
) -> Uptimes:
    """Uptimes from a status right after each incident, and one at a random moment of every
    month."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"node{number:04}", *row)
        for number in range(nodes)
        for row in _lifetime(truth, watched_h, every_h, rng)
    ]
    names, at_h, values, duration_h, observed = zip(*rows, strict=True)
    return Uptimes(
        statuses=Statuses(
            covariates=truth.covariates,
            nodes=names,
            at=BEGIN + HOUR_S * np.array(at_h),
            values=np.array(values),
        ),
        duration_h=np.array(duration_h),
        observed=np.array(observed),
    )


def _lifetime(
    truth: KnownHazard, watched_h: float, every_h: float, rng: np.random.Generator
) -> list[tuple[float, list[float], float, bool]]:
    """Statuses of one node: time, covariates, duration, and whether an incident ended it."""
    counts = np.zeros(len(truth.powers))
    begun_h, rows = 0.0, []
    while begun_h < watched_h:
        next_h = begun_h + truth.next_after(counts, rng.exponential())
        looks = [begun_h, *(m + rng.uniform(0, every_h) for m in np.arange(0, watched_h, every_h))]
        for at_h in looks:
            if begun_h <= at_h < min(next_h, watched_h):
                values = [at_h, at_h - begun_h, counts.sum(), *counts]
                rows.append((at_h, values, min(next_h, watched_h) - at_h, next_h <= watched_h))
        counts[rng.integers(counts.size)] += 1
        begun_h = next_h
    return rows
