"""Sources of a simulation's incidents, and the past that a risk model can learn from.

Incidents are drawn at the scenario's rates, or from a fitted risk model, or happen as they were
recorded. The past ends before the first run begins: a model never sees what it must predict.

A model is anything that gives cumulative hazards for statuses, such as those of anubis/models/risk;
the Selector may use it as well. It has no categories. The category of an incident drawn from it
depends on the rates of a new node, and on the earlier incidents of the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Floats, Ints
from anubis.core.errors import TraceError
from anubis.core.history.logbook import AGE, LONG_AGO_H, RATES, Logbook
from anubis.core.history.status import Incident, Statuses, Times, Watch
from anubis.core.select.decision import mix_of
from anubis.lab.study.incidents import (
    Category,
    Clocks,
    DefectCause,
    Foresight,
    Histories,
    Hours,
    Incidents,
    KnownRates,
    Pace,
    Replayed,
)
from anubis.lab.study.scenario import Scenario

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


PAST_SEED = 1 << 20  # of a simulated past; no run uses it
FOUND_BY_NONE = (DefectCause(share=1.0),)


@dataclass(frozen=True, kw_only=True)
class PastIncidents:
    logbook: Logbook
    until: float  # begin of the first run in seconds


class Source(Protocol):
    """Incidents of each run, and the past before the first run."""

    @property
    def scenario(self) -> Scenario: ...

    def fates(self, seed: int) -> tuple[Incidents, Foresight | None]:
        """Incidents of a run and their true risk; None: the risk is unknown."""

    def past(self) -> PastIncidents: ...


@dataclass(frozen=True)
class DrawnIncidents:
    """Incidents at the scenario's rates, or drawn from a model, whose risk is then the true one;
    causes are the scenario's."""

    scenario: Scenario
    model: HazardModel | None = None

    def fates(self, seed: int) -> tuple[Incidents, Foresight | None]:
        scenario = self.scenario
        about = (scenario.categories, scenario.benchmark_names, scenario.nodes, seed)
        drawn = ModelledIncidents(self.model, *about) if self.model else KnownRates(*about)
        return drawn, drawn

    def past(self) -> PastIncidents:
        return _simulate_past(self.scenario, self.fates(PAST_SEED)[0])


@dataclass(frozen=True)
class Recorded:
    """Incidents as recorded: the last days in the first run, the days before in the next."""

    scenario: Scenario
    incidents: Sequence[Incident]
    watches: Sequence[Watch]

    @classmethod
    def from_records(
        cls, scenario: Scenario, incidents: Sequence[Incident], watches: Sequence[Watch]
    ) -> Self:
        """Source with nodes and categories of the record; spares keep their share."""
        if not incidents:
            raise TraceError(
                "no incident is recorded: import some first (anubis history import incidents)"
            )
        starts = [incident.start for incident in incidents]
        days = (max(starts) - min(starts)) / HOUR_S / 24
        if days <= scenario.days * scenario.seeds:
            raise TraceError(
                f"the record spans {days:.0f} days, and {scenario.seeds} runs of {scenario.days:g} "
                "days leave no past before them: use fewer seeds or days"
            )
        nodes = len({incident.node for incident in incidents} | {watch.node for watch in watches})
        shaped = replace(
            scenario,
            nodes=nodes,
            spares=scenario.spares * nodes // scenario.nodes,
            categories=tuple(_categories(scenario, incidents, nodes * days * 24)),
        )
        return cls(shaped, incidents, watches)

    def fates(self, seed: int) -> tuple[Incidents, Foresight | None]:
        begin = self._begin(seed)
        since_of = dict[str, float]()  # each node was seen at these times
        for record in self.incidents:
            since_of[record.node] = min(record.start, since_of.get(record.node, begin))
        for watch in self.watches:
            since_of[watch.node] = min(watch.since, since_of.get(watch.node, begin))
        scenario = self.scenario
        categories, benchmarks = scenario.categories, scenario.benchmark_names
        return Replayed(self.incidents, since_of, begin, categories, benchmarks, seed), None

    def past(self) -> PastIncidents:
        until = self._begin(self.scenario.seeds - 1)
        before = [incident for incident in self.incidents if incident.start < until]
        watches = [watch for watch in self.watches if watch.since < until]
        return PastIncidents(logbook=Logbook.from_records(before, watches), until=until)

    def _begin(self, seed: int) -> float:
        """Begin of the run in seconds."""
        end = max(incident.start for incident in self.incidents) + 1  # the last one happens, too
        return end - (seed + 1) * self.scenario.span_h * HOUR_S


def _categories(
    scenario: Scenario, incidents: Sequence[Incident], watched_h: float
) -> Iterator[Category]:
    """Categories at the recorded rates; no benchmark finds those without causes in the scenario."""
    causes = {category.name: category.causes for category in scenario.categories}
    for name, count in sorted(Counter(incident.category for incident in incidents).items()):
        yield Category(name=name, mtbi_h=watched_h / count, causes=causes.get(name, FOUND_BY_NONE))


def _simulate_past(scenario: Scenario, incidents: Incidents) -> PastIncidents:
    """Past of nodes without validation: every defect becomes an incident and is repaired."""
    until_h, struck = scenario.past_days * 24, list[Incident]()
    histories = incidents.histories(len(scenario.benchmarks))
    for node in range(scenario.nodes):
        now_h, number = 0.0, 0
        while (defect := incidents.next(node, number, now_h, histories)) is not None:
            if not defect.due_h < until_h:
                break
            now_h = defect.due_h + scenario.repair.incident_h * defect.patience
            histories.incidents[node, defect.category] += 1
            histories.last_incident_h[node, defect.category] = defect.due_h
            histories.out_of_service_h[node] = defect.due_h
            histories.bring_back(node, now_h)
            struck.append(
                Incident(
                    node=str(node),
                    category=incidents.categories[defect.category],
                    start=defect.due_h * HOUR_S,
                    end=now_h * HOUR_S,
                )
            )
            number += 1
    watches = [Watch(node=str(node), since=0.0) for node in range(scenario.nodes)]
    return PastIncidents(logbook=Logbook.from_records(struck, watches), until=until_h * HOUR_S)
