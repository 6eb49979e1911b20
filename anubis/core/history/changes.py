"""Nodes whose assessment may differ from a while ago."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

from anubis.core.history.events import Notice
from anubis.core.history.past import Happened
from anubis.core.history.status import Repair, Validation
from anubis.core.history.tracks import IncidentColumns


class OfNode(Protocol):
    @property
    def node(self) -> str: ...


Dated = Notice | Validation
R = TypeVar("R", bound=OfNode)
AT = attrgetter("at")


def changed_nodes(before: Happened, then: float, happened: Happened, now: float) -> set[str]:
    """Nodes that changed between two instants: by new records, or by the passage of time alone."""
    new = new_notices(before.notices, happened.notices)
    return {
        *_differing(before.repairs, happened.repairs),
        *_differing(before.watches, happened.watches),
        *_differing(before.validations, happened.validations),
        *_differing(before.traits, happened.traits),
        *_differing_incidents(before.incidents, happened.incidents),
        *(node for notice in new if notice.presumes_defect for node in notice.event.nodes),
        *_aged_nodes(happened, then, now),
    }


def new_notices(before: Sequence[Notice], after: Sequence[Notice]) -> list[Notice]:
    if before is after:
        return []
    ids = {notice.id for notice in before}
    return [notice for notice in after if notice.id not in ids]


def are_dated_anew(before: Sequence[Notice], after: Sequence[Notice]) -> bool:
    """Return whether an earlier event has another date now because the clock was wrong."""
    if before is after:
        return False
    dates = {notice.id: notice.at for notice in before}
    return any(notice.at != dates.get(notice.id, notice.at) for notice in after)


def _differing(before: Iterable[R], after: Iterable[R]) -> set[str]:
    return set() if before is after else {record.node for record in {*before} ^ {*after}}


def _differing_incidents(before: IncidentColumns, after: IncidentColumns) -> set[str]:
    if before is after:
        return set()
    return {node for node, *_ in {*_rows(before)} ^ {*_rows(after)}}


def _rows(incidents: IncidentColumns) -> Iterator[tuple[str, str, float, float]]:
    columns = (incidents.start.tolist(), incidents.end.tolist())
    return zip(incidents.node, incidents.category, *columns, strict=True)


def _aged_nodes(happened: Happened, then: float, now: float) -> Iterator[str]:
    """Nodes with a record whose date has passed meanwhile, or is still in the future."""
    incidents = happened.incidents
    for edge in (incidents.start, incidents.end):
        for row in ((edge > then) & (edge <= now)).nonzero()[0].tolist():
            yield incidents.node[row]
    yield from (repair.node for repair in happened.repairs if _turns(repair, then, now))
    yield from (
        result.node for result in happened.validations[index_after(happened.validations, then) :]
    )
    for notice in happened.notices[index_after(happened.notices, then) :]:
        if notice.presumes_defect:
            yield from notice.event.nodes


def _turns(repair: Repair, then: float, now: float) -> bool:
    return any(edge is not None and then < edge <= now for edge in (repair.start, repair.end))


def index_from(dated: Sequence[Dated], instant: float) -> int:
    """Index of the first record that is not earlier. `dated`: sorted by time."""
    return bisect_left(dated, instant, key=AT)


def index_after(dated: Sequence[Dated], instant: float) -> int:
    """Index of the first record that is later."""
    return bisect_right(dated, instant, key=AT)
