"""Of which nodes something else is to be said than a while ago."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

from anubis.core.past.events import Notice
from anubis.core.past.happened import Happened
from anubis.core.past.status import Repair
from anubis.core.past.tracks import IncidentColumns

Findings = Mapping[tuple[str, str], Collection[str]]  # by campaign and node


class OfNode(Protocol):
    @property
    def node(self) -> str: ...


R = TypeVar("R", bound=OfNode)


def changed_nodes(before: Happened, then: float, after: Happened, now: float) -> set[str]:
    """Between two instants: by what was told and found, and by the time that has passed alone."""
    told = new_notices(before.notices, after.notices)
    return {
        *_differing(before.repairs, after.repairs),
        *_differing(before.watches, after.watches),
        *_differing(before.validations, after.validations),
        *_differing(before.traits, after.traits),
        *_differing_incidents(before.incidents, after.incidents),
        *(node for notice in told if notice.presumes_defect for node in notice.event.nodes),
        *_aged(after, then, now),
    }


def changed_findings(before: Findings, after: Findings) -> set[str]:
    if before is after:
        return set()
    keys = before.keys() | after.keys()
    return {key[1] for key in keys if before.get(key) != after.get(key)}


def new_notices(before: Sequence[Notice], after: Sequence[Notice]) -> list[Notice]:
    if before is after:
        return []
    ids = {notice.id for notice in before}
    return [notice for notice in after if notice.id not in ids]


def _differing(before: Iterable[R], after: Iterable[R]) -> set[str]:
    return set() if before is after else {record.node for record in {*before} ^ {*after}}


def _differing_incidents(before: IncidentColumns, after: IncidentColumns) -> set[str]:
    if before is after:
        return set()
    return {node for node, *_ in {*_rows(before)} ^ {*_rows(after)}}


def _rows(incidents: IncidentColumns) -> Iterator[tuple[str, str, float, float]]:
    columns = (incidents.start.tolist(), incidents.end.tolist())
    return zip(incidents.node, incidents.category, *columns, strict=True)


def _aged(happened: Happened, then: float, now: float) -> Iterator[str]:
    """What was to come, has begun or is over by now, or is still dated in the future."""
    incidents = happened.incidents
    for edge in (incidents.start, incidents.end):
        for row in ((edge > then) & (edge <= now)).nonzero()[0].tolist():
            yield incidents.node[row]
    yield from (repair.node for repair in happened.repairs if _turns(repair, then, now))
    yield from (result.node for result in after_instant(happened.validations, then))
    for notice in after_instant(happened.notices, then):
        if notice.presumes_defect:
            yield from notice.event.nodes


def _turns(repair: Repair, then: float, now: float) -> bool:
    return any(edge is not None and then < edge <= now for edge in (repair.start, repair.end))


D = TypeVar("D")


def after_instant(dated: Sequence[D], instant: float) -> Sequence[D]:
    """Of what stands in the order of time."""
    return dated[bisect_right(dated, instant, key=attrgetter("at")) :]


def between(dated: Sequence[D], since: float, until: float) -> Sequence[D]:
    """The same, from then on and before."""
    at = attrgetter("at")
    return dated[bisect_left(dated, since, key=at) : bisect_left(dated, until, key=at)]
