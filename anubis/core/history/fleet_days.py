"""A fleet over time: its health day by day, its incidents by category, and how long nodes go
before their first, second and further incidents."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import fmean, median

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.core.history.status import Incident, Validation, Watch
from anubis.core.records import Judgement

MOST_INCIDENTS = 10  # of a node, that are told apart


@dataclass(frozen=True, kw_only=True)
class FleetDay:
    """Nodes by what tests had shown at the end of a day; untested nodes do not count."""

    begin: float
    healthy: int
    defective: int
    unknown: int


@dataclass(frozen=True, kw_only=True)
class IncidentCategory:
    category: str
    incidents: int
    nodes: int
    middle_h: float | None  # of those that are over; None: none is
    lost_h: float  # node-hours, of open ones until now


@dataclass(frozen=True, kw_only=True)
class TimeBefore:
    """How long nodes went without an incident before the one with this number."""

    number: int
    nodes: int
    mean_h: float


@dataclass
class _Shown:
    """What tests have shown of a node so far. A pass of other programs proves neither a repair nor
    an answer."""

    failed: set[str] = field(
        default_factory=set
    )  # programs that found a defect and have not passed since
    owed: set[str] = field(
        default_factory=set
    )  # programs that gave no answer and have not passed since
    is_judged: bool = False

    def note(self, verdict: Validation) -> None:
        programs = set(verdict.benchmarks)
        if verdict.judgement is Judgement.DEFECTIVE:
            finder = verdict.code.lower().partition(".")[0]
            self.failed |= {finder} if finder in programs else programs or {finder}
        elif verdict.judgement is Judgement.UNKNOWN:
            self.owed |= set(verdict.owes) or programs
        else:
            self.failed -= programs
            self.owed -= programs
        self.is_judged = self.is_judged or verdict.judgement is Judgement.HEALTHY

    @property
    def judgement(self) -> Judgement:
        if self.failed:
            return Judgement.DEFECTIVE
        return Judgement.HEALTHY if self.is_judged and not self.owed else Judgement.UNKNOWN


def health_by_day(
    validations: Iterable[Validation],
    now: float,
    days: int,
    today: Mapping[str, Judgement] | None = None,
) -> list[FleetDay]:
    """Count nodes by what tests had shown at the end of each of the last days. `today`: how the
    nodes are now, with incidents and all else, which is the last day of those that were tested.
    """
    ordered = sorted(validations, key=lambda verdict: verdict.at)
    shown: defaultdict[str, _Shown] = defaultdict(_Shown)
    counts: Counter[Judgement] = Counter()
    begins = [(now // DAY_S - back) * DAY_S for back in reversed(range(days))]
    place, counted = 0, []
    for begin in begins:
        while place < len(ordered) and ordered[place].at < begin + DAY_S:
            verdict = ordered[place]
            if verdict.node in shown:
                counts[shown[verdict.node].judgement] -= 1
            shown[verdict.node].note(verdict)
            counts[shown[verdict.node].judgement] += 1
            place += 1
        if today and begin == begins[-1]:
            counts = Counter(today[node] for node in shown if node in today)
        counted.append(
            FleetDay(
                begin=begin,
                healthy=counts[Judgement.HEALTHY],
                defective=counts[Judgement.DEFECTIVE],
                unknown=counts[Judgement.UNKNOWN],
            )
        )
    return counted


def incident_categories(incidents: Iterable[Incident], now: float) -> list[IncidentCategory]:
    """Group incidents by category, the one that cost most node-hours first."""
    groups: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in incidents:
        groups[incident.category].append(incident)
    rows = [_category(category, group, now) for category, group in groups.items()]
    return sorted(rows, key=lambda row: (-row.lost_h, row.category))


def _category(category: str, group: Sequence[Incident], now: float) -> IncidentCategory:
    over = [
        (incident.end - incident.start) / HOUR_S for incident in group if incident.end is not None
    ]
    still = [max(0.0, now - incident.start) / HOUR_S for incident in group if incident.end is None]
    return IncidentCategory(
        category=category,
        incidents=len(group),
        nodes=len({incident.node for incident in group}),
        middle_h=median(over) if over else None,
        lost_h=sum(over) + sum(still),
    )


def times_before(
    incidents: Mapping[str, Sequence[Incident]], watches: Iterable[Watch]
) -> list[TimeBefore]:
    """Compute the mean time that nodes went without an incident before their first, second and so
    on. Only nodes that had so many count, so it is the time of nodes that fail, not of all.
    Incidents that overlap are one. What was before a node was watched is not known."""
    since: dict[str, float] = {}
    for watch in watches:
        since[watch.node] = min(watch.since, since.get(watch.node, watch.since))
    gaps: defaultdict[int, list[float]] = defaultdict(list)
    for node, own in incidents.items():
        well_from = since.get(node)
        number = 0
        for incident in sorted(own, key=attrgetter("start")):
            if number and (well_from is None or incident.start < well_from):
                well_from = _later_end(well_from, incident)
                continue
            number += 1
            if well_from is not None and incident.start >= well_from:
                gaps[number].append((incident.start - well_from) / HOUR_S)
            well_from = incident.end
            if number == MOST_INCIDENTS or well_from is None:
                break
    return [
        TimeBefore(number=number, nodes=len(gaps[number]), mean_h=fmean(gaps[number]))
        for number in sorted(gaps)
    ]


def _later_end(well_from: float | None, incident: Incident) -> float | None:
    return None if well_from is None or incident.end is None else max(well_from, incident.end)
