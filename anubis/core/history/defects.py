"""Derive defects from verdicts of campaigns and from incidents, with the benchmarks that found
each; and the track records of benchmarks: what each has found, and how well it repeats (Table 6 of
the ANUBIS paper)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from anubis.core.amounts import DAY_S
from anubis.core.history.status import Incident, Validation
from anubis.core.history.tracks import IncidentColumns
from anubis.core.records import CriteriaSet, Criterion, Judgement

UNKNOWN = ""  # the category of a defect that belongs to no incident
LINK_S = DAY_S  # a finding at most this long before or after an incident belongs to it


@dataclass(frozen=True, kw_only=True)
class Defect:
    """The cause behind an incident, and the benchmarks that found it, if any."""

    node: str = ""
    category: str = UNKNOWN
    found_by: frozenset[str] = frozenset()
    tried: frozenset[str] = frozenset()  # measured on the node at that time without finding it


@dataclass
class _Case:
    """One defect while its evidence is gathered."""

    first: float
    last: float
    found_by: set[str] = field(default_factory=set)
    measured: set[str] = field(default_factory=set)


def defects(
    validations: Iterable[Validation],
    findings: Mapping[tuple[str, str], Collection[str]],
    incidents: Iterable[Incident],
) -> list[Defect]:
    """Defects of nodes. All findings on a node until it is healthy again are one defect.
    `findings`: benchmarks that found a node defective, by campaign and node.

    A defect's category is that of the node's latest incident within a day of it, and all findings
    that belong to one incident are one defect. An incident during which the node was measured
    without a finding is a defect that those benchmarks do not find.
    """
    of_node: defaultdict[str, list[Validation]] = defaultdict(list)
    for validation in validations:
        of_node[validation.node].append(validation)
    incidents_of: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in _near_results(IncidentColumns.from_incidents(incidents), of_node):
        incidents_of[incident.node].append(incident)
    gathered: list[Defect] = []
    for node, node_validations in of_node.items():
        node_validations.sort(key=lambda validation: validation.at)
        incidents_of[node].sort(key=lambda incident: (incident.start, incident.category))
        gathered += _node_defects(
            node, _cases(node_validations, findings), node_validations, incidents_of[node]
        )
    return gathered


def _near_results(
    incidents: IncidentColumns, results: Mapping[str, Sequence[Validation]]
) -> IncidentColumns:
    """Incidents without those that were long over before their node was first measured, or came
    long after its last measurement: most of a long history."""
    candidates = incidents.select_nodes(results)
    spans = {
        node: (min(r.at for r in of_node) - LINK_S, max(r.at for r in of_node) + LINK_S)
        for node, of_node in results.items()
    }
    first, last = np.array([spans[node] for node in candidates.node]).reshape(-1, 2).T
    over = np.where(np.isinf(candidates.end), candidates.start + LINK_S, candidates.end)
    return candidates.take((candidates.start <= last) & (over >= first))


def _cases(
    validations: Sequence[Validation], findings: Mapping[tuple[str, str], Collection[str]]
) -> list[_Case]:
    cases: list[_Case] = []
    open_ = False
    for validation in validations:
        if validation.judgement is Judgement.HEALTHY:
            open_ = False
        elif validation.judgement is Judgement.DEFECTIVE:
            if not open_:
                cases.append(_Case(first=validation.at, last=validation.at))
            open_ = True
            cases[-1].last = validation.at
            found_by = findings.get((validation.campaign, validation.node), ())
            cases[-1].found_by.update(found_by)
            cases[-1].measured |= set(validation.benchmarks)
    return cases


def _node_defects(
    node: str,
    cases: Sequence[_Case],
    validations: Sequence[Validation],
    incidents: Sequence[Incident],
) -> Iterable[Defect]:
    """Defects of one node. `validations` and `incidents`: sorted by time."""
    explained: dict[int, _Case] = {}
    for case in cases:
        near = [i for i, incident in enumerate(incidents) if _near(incident, case)]
        if not near:
            yield _defect(node, UNKNOWN, case)
        elif near[-1] in explained:
            explained[near[-1]].found_by |= case.found_by
            explained[near[-1]].measured |= case.measured
        else:
            explained[near[-1]] = case
    for i, case in explained.items():
        yield _defect(node, incidents[i].category, case)
    healthy = [
        validation for validation in validations if validation.judgement is Judgement.HEALTHY
    ]
    times = [validation.at for validation in healthy]
    for i, incident in enumerate(incidents):
        over = incident.start + LINK_S if incident.end is None else incident.end
        in_vain = healthy[bisect_left(times, incident.start) : bisect_right(times, over)]
        if in_vain and i not in explained:
            tried = frozenset(name for validation in in_vain for name in validation.benchmarks)
            yield Defect(node=node, category=incident.category, tried=tried)


def _near(incident: Incident, case: _Case) -> bool:
    over = incident.start if incident.end is None else incident.end
    return incident.start - LINK_S <= case.last and case.first <= over + LINK_S


def _defect(node: str, category: str, case: _Case) -> Defect:
    return Defect(
        node=node,
        category=category,
        found_by=frozenset(case.found_by),
        tried=frozenset(case.measured - case.found_by),
    )


@dataclass(frozen=True, kw_only=True)
class Repeatability:
    """Similarity of the healthy nodes in the metrics of a benchmark."""

    mean: float
    lowest: float
    metric: str  # the one that repeats worst


@dataclass(frozen=True, kw_only=True)
class TrackRecord:
    """Record of one benchmark."""

    benchmark: str
    nodes: tuple[str, ...]  # on which it found a defect
    alone: tuple[str, ...]  # on which it found a defect that no other benchmark found
    defects: int  # those that it found
    tried: int  # defects on whose node it was measured at that time
    coverage: float | None  # the share that it found of all known defects; None: none is known
    repeatability: Repeatability | None  # None: nothing was learned


def track_records(
    defects: Collection[Defect],
    benchmarks: Iterable[str],
    criteria: Iterable[Sequence[CriteriaSet]],
) -> list[TrackRecord]:
    """Track records, those with the most defects first. `benchmarks`: all that ever measured, also
    those that found nothing; `criteria`: of campaigns, the latest first."""
    finders = {name for defect in defects for name in defect.found_by}
    names = sorted({*benchmarks, *finders})
    repeats = repeatabilities(names, criteria)
    records = [_record(name, defects, repeats.get(name)) for name in names]
    return sorted(records, key=lambda record: (-record.defects, -len(record.nodes)))


def _record(
    benchmark: str, defects: Collection[Defect], repeatability: Repeatability | None
) -> TrackRecord:
    found_here = [defect for defect in defects if benchmark in defect.found_by]
    alone = [defect for defect in found_here if len(defect.found_by) == 1]
    return TrackRecord(
        benchmark=benchmark,
        nodes=_nodes(found_here),
        alone=_nodes(alone),
        defects=len(found_here),
        tried=len(found_here) + sum(benchmark in defect.tried for defect in defects),
        coverage=len(found_here) / len(defects) if defects else None,
        repeatability=repeatability,
    )


def _nodes(defects: Iterable[Defect]) -> tuple[str, ...]:
    return tuple(sorted({defect.node for defect in defects}))


def repeatabilities(
    benchmarks: Collection[str], criteria: Iterable[Sequence[CriteriaSet]]
) -> dict[str, Repeatability]:
    """Repeatability of each benchmark by its latest criteria. Reads no more of `criteria` than
    needed."""
    missing, learned = set(benchmarks), dict[str, Repeatability]()
    for sets in criteria:
        if not missing:
            break
        of_benchmark: dict[str, list[Criterion]] = {}
        for criterion in (
            criterion for criteria_set in sets for criterion in criteria_set.criteria
        ):
            of_benchmark.setdefault(criterion.key.workload.benchmark, []).append(criterion)
        for name in missing & of_benchmark.keys():
            if repeatability := _repeatability(of_benchmark[name]):
                learned[name] = repeatability
        missing -= learned.keys()
    return learned


def _repeatability(criteria: Iterable[Criterion]) -> Repeatability | None:
    """Repeatability, or None if no metric was measured twice."""
    values = [
        (criterion.repeatability, criterion.key.metric)
        for criterion in criteria
        if criterion.repeatability is not None
    ]
    if not values:
        return None
    lowest, metric = min(values)
    return Repeatability(mean=fmean(value for value, _ in values), lowest=lowest, metric=metric)
