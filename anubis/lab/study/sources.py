"""Sources of a simulation's incidents, and the past that a risk model can learn from.

Incidents are drawn at the scenario's rates, or from a model, or happen as they were recorded. The
past ends before the first run begins: a model never sees what it must predict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from anubis.core.amounts import HOUR_S
from anubis.core.errors import TraceError
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Incident, Watch
from anubis.lab.study.incidents import (
    Category,
    DefectCause,
    Foresight,
    Incidents,
    KnownRates,
    Replayed,
)
from anubis.lab.study.modelled import HazardModel, ModelledIncidents
from anubis.lab.study.scenario import Scenario

PAST_SEED = 1 << 20  # of a simulated past; no run uses it
NOBODY_FINDS = (DefectCause(share=1.0),)


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
        yield Category(name=name, mtbi_h=watched_h / count, causes=causes.get(name, NOBODY_FINDS))


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
