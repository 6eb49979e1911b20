"""Simple risk models: one rate for all nodes, one rate for each incident count or hour, common
curves.

All but one ignore the covariates; models that use them must beat these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from anubis.core.arrays import Flags, Floats, Ints
from anubis.core.errors import RiskError
from anubis.core.history.status import Statuses, Times, Uptimes
from anubis.models.risk.forecast import kaplan_meier, keep_on, life_table, steps
from anubis.models.risk.risk_model import learnable

INCIDENTS = "incidents"  # the covariate that counts them
POOLED = 10  # incidents: with so many, a rate is known to a third
CERTAIN = 1e6  # a cumulative hazard that no node survives; a larger one would overflow


@dataclass(frozen=True, kw_only=True)
class Constant:
    """No incident ever: the predictor that every accuracy must be compared with."""

    name: ClassVar[str] = "constant"
    looks: ClassVar[bool] = False
    covariates: tuple[str, ...]

    @classmethod
    def fit(cls, uptimes: Uptimes, seed: int) -> Self:
        return cls(covariates=uptimes.statuses.covariates)

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Floats:
        return np.zeros((len(statuses), hours.size))


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """H(t) = rate t, rate = incidents / node-hours watched."""

    name: ClassVar[str] = "exponential"
    looks: ClassVar[bool] = False
    covariates: tuple[str, ...]
    rate: Times

    @classmethod
    def fit(cls, uptimes: Uptimes, seed: int) -> Self:
        uptimes = learnable(uptimes)
        return cls(covariates=uptimes.statuses.covariates, rate=np.array([_rate(uptimes)]))

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Floats:
        return np.outer(np.repeat(self.rate, len(statuses)), hours)


@dataclass(frozen=True, kw_only=True)
class ExponentialPerCount:
    """A rate for each number of incidents so far; neighbouring counts share one until there are
    enough incidents.

    Without sharing, a count that one node had for a day could have any rate. Each rate has one more
    incident at the fleet's rate; a count never reached has the rate of the highest seen.
    """

    name: ClassVar[str] = "exponential-per-count"
    looks: ClassVar[bool] = True
    covariates: tuple[str, ...]
    rates: Times

    @classmethod
    def fit(cls, uptimes: Uptimes, seed: int) -> Self:
        uptimes = learnable(uptimes)
        counts = _counts(uptimes.statuses)
        incidents = np.bincount(counts, weights=uptimes.observed)
        watched_h = np.bincount(counts, weights=uptimes.duration_h)
        pool = _pools(incidents.tolist())
        rates = (np.bincount(pool, incidents) + 1) / (
            np.bincount(pool, watched_h) + 1 / _rate(uptimes)
        )
        return cls(covariates=uptimes.statuses.covariates, rates=rates[pool])

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Floats:
        counts = np.minimum(_counts(statuses), self.rates.size - 1)
        return np.outer(self.rates[counts], hours)


@dataclass(frozen=True, kw_only=True)
class ExponentialPerHour:
    """A rate for each hour from now on: incidents in that hour / node-hours watched in it."""

    name: ClassVar[str] = "exponential-per-hour"
    looks: ClassVar[bool] = False
    covariates: tuple[str, ...]
    rates: Times

    @classmethod
    def fit(cls, uptimes: Uptimes, seed: int) -> Self:
        uptimes = learnable(uptimes)
        last = np.ceil(uptimes.duration_h).astype(np.int64) - 1  # it ends in the hour (k, k + 1]
        incidents = np.bincount(last, weights=uptimes.observed)
        outlasted = last.size - np.cumsum(np.bincount(last))
        rates = incidents / (outlasted + np.bincount(last, weights=uptimes.duration_h - last))
        return cls(covariates=uptimes.statuses.covariates, rates=rates)

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Floats:
        cumulated = np.concatenate(([0.0], np.cumsum(self.rates)))
        edges = np.arange(cumulated.size)
        hazard = np.interp(hours, edges, cumulated)
        return np.tile(keep_on(hazard, hours, edges[-1]), (len(statuses), 1))


@dataclass(frozen=True, kw_only=True)
class KaplanMeier:
    """H(t) = -log of the share of all uptimes that last longer than t."""

    name: ClassVar[str] = "kaplan-meier"
    looks: ClassVar[bool] = False
    covariates: tuple[str, ...]
    hours: Times
    hazard: Times
    watched_h: Times  # the longest uptime

    @classmethod
    def fit(cls, uptimes: Uptimes, seed: int) -> Self:
        uptimes = learnable(uptimes)
        table = life_table(uptimes.duration_h, uptimes.observed)
        alive = kaplan_meier(table)
        if alive[-1] == 0:  # the longest uptime ended in an incident: what follows is unknown
            alive[-1] = (alive[-2] if alive.size > 1 else 1.0) * np.exp(-1.0)
        return cls(
            covariates=uptimes.statuses.covariates,
            hours=table.hours,
            hazard=-np.log(alive),
            watched_h=np.array([uptimes.duration_h.max()]),
        )

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Floats:
        hazard = keep_on(steps(self.hazard, self.hours, hours, 0.0), hours, self.watched_h[0])
        return np.tile(hazard, (len(statuses), 1))


@dataclass(frozen=True, kw_only=True)
class Weibull:
    """H(t) = (t / scale)^shape: a hazard that falls after a repair has a shape below 1."""

    name: ClassVar[str] = "weibull"
    looks: ClassVar[bool] = False
    covariates: tuple[str, ...]
    scale_shape: Times

    @classmethod
    def fit(cls, uptimes: Uptimes, seed: int) -> Self:
        uptimes = learnable(uptimes)
        shape, scale = _weibull(uptimes.duration_h, uptimes.observed)
        return cls(covariates=uptimes.statuses.covariates, scale_shape=np.array([scale, shape]))

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Floats:
        scale, shape = self.scale_shape
        with np.errstate(over="ignore"):  # for a fleet whose incidents all came within minutes
            hazard = np.minimum((hours / scale) ** shape, CERTAIN)
        return np.tile(hazard, (len(statuses), 1))


def _rate(uptimes: Uptimes) -> float:
    return float(np.count_nonzero(uptimes.observed) / uptimes.duration_h.sum())


def _counts(statuses: Statuses) -> Ints:
    if INCIDENTS not in statuses.covariates:
        raise RiskError(
            f'no covariate "{INCIDENTS}", by which the rates differ: '
            f"found {', '.join(statuses.covariates) or 'none'}"
        )
    column = statuses.values[:, statuses.covariates.index(INCIDENTS)]
    return np.maximum(column, 0).astype(np.int64)


def _pools(incidents: Sequence[float]) -> Ints:
    """Pool number of each count. A pool is full with enough incidents; the rest at the end joins
    the last."""
    pools, gathered = [0], 0.0
    for happened in incidents[:-1]:
        gathered += happened
        is_full = gathered >= POOLED
        pools.append(pools[-1] + is_full)
        gathered = 0.0 if is_full else gathered
    last = pools[-1] - (gathered + incidents[-1] < POOLED and pools[-1] > 0)
    return np.minimum(pools, last)


def _weibull(duration_h: Times, observed: Flags) -> tuple[float, float]:
    """Maximum-likelihood scale and shape. The shape solves one equation, the scale follows from
    it."""
    from scipy.optimize import brentq  # heavy, and needed in training only

    relative = duration_h / duration_h.max()  # so that no power overflows
    logs = np.log(relative)
    mean_log = float(logs[observed].mean())

    def slope(shape: float) -> float:
        powers = relative**shape
        return float(powers @ logs / powers.sum() - 1 / shape - mean_log)

    lowest, highest = 0.01, 100.0
    # if all ended at one time, no shape is steep enough
    shape = highest if slope(highest) < 0 else float(brentq(slope, lowest, highest))
    scale = duration_h.max() * (np.sum(relative**shape) / np.count_nonzero(observed)) ** (1 / shape)
    return shape, float(scale)
