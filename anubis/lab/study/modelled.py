"""A fitted risk model in a simulation: the Selector uses it, or incidents are drawn from it.

A model is anything that gives cumulative hazards for statuses, such as those of
anubis/models/risk. It has no categories. The category of an incident drawn from it depends on the
rates of a new node, and on the earlier incidents of the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Floats, Ints
from anubis.core.history.logbook import AGE, LONG_AGO_H, RATES
from anubis.core.history.status import Statuses, Times
from anubis.core.select.decision import mix_of
from anubis.lab.study.incidents import Category, Clocks, Histories, Hours, Pace

GRID_H = np.concatenate(([0.0], np.geomspace(0.1, 2400.0, 128)))


class HazardModel(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def covariates(self) -> tuple[str, ...]: ...

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Floats:
        """Cumulative hazards: a row for each status, a column for each of the ascending hours."""
        ...


class ModelRisk:
    """Risk of nodes by a model, given their present state: what the Selector can know in
    production."""

    def __init__(self, model: HazardModel, categories: Sequence[Category]) -> None:
        self.categories = tuple(category.name for category in categories)
        self._model = model
        self._first = np.array([1 / category.mtbi_h for category in categories])

    def chances_within(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Hours:
        hazard = self.hazard(nodes, np.array([hours]), now_h, histories)
        chances: Hours = -np.expm1(-hazard[:, 0])
        return chances

    def mixes(self, nodes: Sequence[int], histories: Histories) -> Sequence[Mapping[str, float]]:
        counts = histories.incidents[list(nodes)]
        return [mix_of(dict(zip(self.categories, row, strict=True))) for row in counts.tolist()]

    def weights(self, incidents: Ints) -> Hours:
        """Weights of the categories: one incident at the rates of a new node, plus the node's own
        incidents."""
        weights: Hours = incidents + self._first / self._first.sum()
        return weights

    def hazard(
        self, nodes: Sequence[int], hours: Hours, now_h: float, histories: Histories
    ) -> Floats:
        return self._model.cumulative_hazard(self.statuses(nodes, now_h, histories), hours)

    def statuses(self, nodes: Sequence[int], now_h: float, histories: Histories) -> Statuses:
        """Covariates that the model asks for, as a fleet's history would give them."""
        rows = np.asarray(nodes, dtype=np.intp)
        columns = [self._column(name, rows, now_h, histories) for name in self._model.covariates]
        return Statuses(
            covariates=self._model.covariates,
            nodes=tuple(map(str, nodes)),
            at=np.full(len(rows), now_h * HOUR_S),
            values=np.column_stack(columns) if columns else np.empty((len(rows), 0)),
        )

    def _column(self, name: str, rows: Ints, now_h: float, histories: Histories) -> Hours:
        quantity, _, category = name.partition(":")
        kinds = self._kinds(category)
        count = histories.incidents[rows, kinds].sum(axis=1)
        last_h = histories.last_incident_h[rows, kinds].max(axis=1, initial=-np.inf)
        known_h = histories.known_h[rows]
        passed_h = histories.validated_h[rows].max(axis=1, initial=-np.inf)
        since_h = now_h - np.where(count > 0, last_h, known_h)
        up_h = np.maximum(now_h - histories.in_service_h[rows], 0.0)
        columns: dict[str, Hours] = {
            "up_h": up_h,
            "total_up_h": histories.served_h[rows] + up_h,
            "incidents": count.astype(np.float64),
            "since_incident_h": np.minimum(since_h, LONG_AGO_H) if category else since_h,
            "mtbi_h": (np.where(count > 0, last_h, now_h) - known_h) / np.maximum(count, 1),
            "validated_h": now_h - np.where(np.isfinite(passed_h), passed_h, known_h),
            AGE: now_h - known_h,
            **dict.fromkeys(RATES, np.ones(len(rows))),  # nodes of no rack
        }
        if quantity not in columns:
            raise ValueError(f'the simulation does not know the covariate "{name}" of the model')
        return columns[quantity]

    def _kinds(self, category: str) -> slice:
        """Columns of a category, or of all; none of an unknown one."""
        if not category:
            return slice(None)
        if category not in self.categories:
            return slice(0)
        place = self.categories.index(category)
        return slice(place, place + 1)


class Curve:
    """Pace by a cumulative hazard; beyond the grid it keeps its mean rate."""

    def __init__(self, hazard: Hours) -> None:
        self._hazard, self._rate = hazard, hazard[-1] / GRID_H[-1]

    def reading_after(self, up_h: float) -> float:
        within = np.interp(up_h, GRID_H, self._hazard)
        return float(within if up_h <= GRID_H[-1] else up_h * self._rate)

    def hours(self, left: Hours) -> Hours:
        within = np.interp(left, self._hazard, GRID_H)
        with np.errstate(divide="ignore"):  # no hazard at all: never
            beyond = left / self._rate
        hours: Hours = np.where(left <= self._hazard[-1], within, beyond)
        return hours


class ModelledIncidents(Clocks):
    """Incidents drawn from a model, by the node's status at its last return. It also gives the true
    risk, which depends on that status."""

    def __init__(
        self,
        model: HazardModel,
        categories: Sequence[Category],
        benchmarks: Sequence[str],
        nodes: int,
        seed: int,
    ) -> None:
        super().__init__(categories, benchmarks, nodes, seed)
        self._forecast = ModelRisk(model, categories)

    def chances_within(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Hours:
        ages = [(self._paces[node], now_h - self._since_h[node]) for node in nodes]
        rise = [pace.reading_after(up_h + hours) - pace.reading_after(up_h) for pace, up_h in ages]
        chances: Hours = -np.expm1(-np.array(rise))
        return chances

    def mixes(self, nodes: Sequence[int], histories: Histories) -> Sequence[Mapping[str, float]]:
        weights = self._forecast.weights(histories.incidents[list(nodes)])
        return [dict(zip(self.categories, row, strict=True)) for row in weights.tolist()]

    def pace(self, node: int, now_h: float, histories: Histories) -> tuple[Hours, Pace]:
        weights = self._forecast.weights(histories.incidents[node])
        hazard = self._forecast.hazard([node], GRID_H, now_h, histories)[0]
        return weights / weights.sum(), Curve(hazard)
