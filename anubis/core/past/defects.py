"""From what campaigns concluded, and from incidents, to defects: which benchmarks found which."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anubis.core.past.status import Incident, Validation
from anubis.core.records import Judgement

UNKNOWN = ""  # the category of a defect that belongs to no incident
LINK_S = 24 * 3600.0  # a finding so long before or after an incident belongs to it


@dataclass(frozen=True, kw_only=True)
class Defect:
    """The cause behind an incident, and which benchmarks found it: none, if nobody knows yet."""

    category: str = UNKNOWN
    found_by: frozenset[str] = frozenset()
    tried: frozenset[str] = frozenset()  # what was measured on the node then, and found nothing


@dataclass(frozen=True, kw_only=True)
class FailedTest:
    """A benchmark in which a node was defective."""

    campaign: str
    node: str
    benchmark: str


@dataclass(frozen=True, kw_only=True)
class BadGroup:
    """Nodes that did badly together in a benchmark; who is at fault is another question."""

    campaign: str
    nodes: tuple[str, ...]
    benchmark: str


@dataclass
class _Case:
    """One defect while its evidence is gathered."""

    first: float
    last: float
    found_by: set[str] = field(default_factory=set)
    measured: set[str] = field(default_factory=set)


def defects(
    validations: Iterable[Validation],
    findings: Iterable[FailedTest],
    incidents: Iterable[Incident],
) -> list[Defect]:
    """What was found on a node until it was healthy again is one defect.

    Its category is that of the node's latest incident within a day of it, and what was found about
    one incident is one defect. An incident during which a node was measured, and nothing was found,
    is a defect that what was measured does not find.
    """
    of_node: defaultdict[str, list[Validation]] = defaultdict(list)
    for one in validations:
        of_node[one.node].append(one)
    told: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in incidents:
        if incident.node in of_node:
            told[incident.node].append(incident)
    found = _by_campaign(findings)
    known: list[Defect] = []
    for node, mine in of_node.items():
        mine.sort(key=lambda one: one.at)
        told[node].sort(key=lambda incident: incident.start)
        known += _of_node(_cases(mine, found), mine, told[node])
    return known


def _by_campaign(findings: Iterable[FailedTest]) -> Mapping[tuple[str, str], set[str]]:
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for one in findings:
        found[one.campaign, one.node].add(one.benchmark)
    return found


def _cases(
    validations: Sequence[Validation], found: Mapping[tuple[str, str], set[str]]
) -> list[_Case]:
    cases: list[_Case] = []
    open_ = False
    for one in validations:
        if one.judgement is Judgement.HEALTHY:
            open_ = False
        elif one.judgement is Judgement.DEFECTIVE:
            if not open_:
                cases.append(_Case(first=one.at, last=one.at))
            open_ = True
            cases[-1].last = one.at
            cases[-1].found_by |= found.get((one.campaign, one.node), set())
            cases[-1].measured |= set(one.benchmarks)
    return cases


def _of_node(
    cases: Sequence[_Case], validations: Sequence[Validation], incidents: Sequence[Incident]
) -> Iterable[Defect]:
    """Validations and incidents by time."""
    explained: dict[int, _Case] = {}
    for case in cases:
        near = [i for i, incident in enumerate(incidents) if _near(incident, case)]
        if not near:
            yield _defect(UNKNOWN, case)
        elif near[-1] in explained:
            explained[near[-1]].found_by |= case.found_by
            explained[near[-1]].measured |= case.measured
        else:
            explained[near[-1]] = case
    for i, case in explained.items():
        yield _defect(incidents[i].category, case)
    healthy = [one for one in validations if one.judgement is Judgement.HEALTHY]
    times = [one.at for one in healthy]
    for i, incident in enumerate(incidents):
        over = incident.start + LINK_S if incident.end is None else incident.end
        in_vain = healthy[bisect_left(times, incident.start) : bisect_right(times, over)]
        if in_vain and i not in explained:
            tried = frozenset(name for one in in_vain for name in one.benchmarks)
            yield Defect(category=incident.category, tried=tried)


def _near(incident: Incident, case: _Case) -> bool:
    over = incident.start if incident.end is None else incident.end
    return incident.start - LINK_S <= case.last and case.first <= over + LINK_S


def _defect(category: str, case: _Case) -> Defect:
    return Defect(
        category=category,
        found_by=frozenset(case.found_by),
        tried=frozenset(case.measured - case.found_by),
    )
