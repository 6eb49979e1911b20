"""Incidents drawn from a fitted risk model, and the risk it tells the Selector.

A model is whatever gives cumulative hazards for statuses (anubis/risk has some). It knows no
categories: these are shared out by how often each happens to a new node and happened to this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np

from anubis.core.status import Statuses, Table, Times
from anubis.simulation.incidents import (
    HOUR_S,
    Category,
    Causes,
    Counts,
    Defect,
    Draws,
    Histories,
    Hours,
    exponential,
    pick,
)

GRID_H = np.concatenate(([0.0], np.geomspace(0.1, 2400.0, 128)))


class Model(Protocol):
    @property
    def covariates(self) -> tuple[str, ...]: ...

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Table:
        """A row for each status, a column for each of the ascending hours."""
        ...


class Modelled:
    """As `Truth`, with times from a model: one clock for all causes, anew after each repair."""

    def __init__(
        self,
        model: Model,
        categories: Sequence[Category],
        benchmarks: Sequence[str],
        nodes: int,
        seed: int,
    ) -> None:
        self.categories = tuple(category.name for category in categories)
        self._model = model
        self._first = np.array([1 / category.mtbi_h for category in categories])
        self._causes = [Causes(category.causes, benchmarks) for category in categories]
        self._draws = Draws(nodes, seed, 5)

    def within(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Hours:
        asked = self.statuses(nodes, now_h, histories)
        hazard = self._model.cumulative_hazard(asked, np.array([hours]))
        found: Hours = -np.expm1(-hazard[:, 0])
        return found

    def mixes(self, nodes: Sequence[int], histories: Histories) -> Sequence[Mapping[str, float]]:
        weights = self._weights(histories.incidents[np.asarray(nodes, dtype=np.intp)])
        return [dict(zip(self.categories, row, strict=True)) for row in weights.tolist()]

    def next(self, node: int, number: int, now_h: float, histories: Histories) -> Defect | None:
        if not self._causes:
            return None
        when, kind, cause, luck, patience = self._draws.of(node, number)
        asked = self.statuses([node], now_h, histories)
        lasts_h = _outlasted(self._model.cumulative_hazard(asked, GRID_H)[0], exponential(when))
        category = pick(list(accumulate(self._weights(histories.incidents[node]).tolist())), kind)
        return Defect(
            due_h=now_h + lasts_h,
            category=category,
            found_by=self._causes[category].drawn(cause),
            luck=luck,
            patience=exponential(patience),
        )

    def statuses(self, nodes: Sequence[int], now_h: float, histories: Histories) -> Statuses:
        """The covariates that the model asks for, as the history of a fleet would tell them."""
        rows = np.asarray(nodes, dtype=np.intp)
        columns = [self._column(name, rows, now_h, histories) for name in self._model.covariates]
        return Statuses(
            covariates=self._model.covariates,
            nodes=tuple(map(str, nodes)),
            at=np.full(len(rows), now_h * HOUR_S),
            values=np.column_stack(columns) if columns else np.empty((len(rows), 0)),
        )

    def _column(self, name: str, rows: Counts, now_h: float, histories: Histories) -> Hours:
        what, _, category = name.partition(":")
        mine = [self.categories.index(category)] if category in self.categories else []
        kinds = np.array(mine if category else range(len(self.categories)), dtype=np.intp)
        count = histories.incidents[np.ix_(rows, kinds)].sum(axis=1)
        last_h = histories.last_incident_h[np.ix_(rows, kinds)].max(axis=1, initial=-np.inf)
        found: Hours
        match what:
            case "up_h":
                found = np.maximum(now_h - histories.in_service_h[rows], 0.0)
            case "incidents":
                found = count.astype(np.float64)
            case "since_incident_h":
                found = np.where(count > 0, now_h - last_h, now_h)
            case "mtbi_h":
                found = np.where(count > 0, last_h, now_h) / np.maximum(count, 1)
            case "validated_h":
                passed_h = histories.validated_h[rows].max(axis=1, initial=-np.inf)
                found = np.where(np.isfinite(passed_h), now_h - passed_h, now_h)
            case _:
                raise ValueError(
                    f'the simulation knows nothing of the covariate "{name}" of the model'
                )
        return found

    def _weights(self, incidents: Counts) -> Hours:
        """Of each category: one incident at the rates of a new node, and those there were."""
        found: Hours = incidents + self._first / self._first.sum()
        return found


def _outlasted(hazard: Hours, wanted: float) -> float:
    """When the cumulative hazard reaches a number; beyond the grid it keeps its mean rate."""
    if wanted <= hazard[-1]:
        return float(np.interp(wanted, hazard, GRID_H))
    return float(GRID_H[-1] * wanted / hazard[-1]) if hazard[-1] > 0 else np.inf
