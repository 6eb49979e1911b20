"""All records of nodes, as reported and measured: the input of every question about them; and the
nodes whose assessment may differ from a while ago."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol, TypeVar

from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.events import EventRecord, reported_incidents, reports
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Incident, Repair, Validation, Watch, defects_as_incidents
from anubis.core.history.tracks import IncidentColumns
from anubis.core.records import Judgement


@dataclass(frozen=True, kw_only=True, eq=False)
class Happened:
    incidents: IncidentColumns  # as they were imported
    repairs: Sequence[Repair]
    watches: Sequence[Watch]
    event_records: Sequence[EventRecord]
    validations: Sequence[Validation]  # by time
    attributes: Sequence[NodeAttributes]

    def select_nodes(self, nodes: AbstractSet[str]) -> Happened:
        return Happened(
            incidents=self.incidents.select_nodes(nodes),
            repairs=[repair for repair in self.repairs if repair.node in nodes],
            watches=[watch for watch in self.watches if watch.node in nodes],
            event_records=[n for n in self.event_records if not nodes.isdisjoint(n.event.nodes)],
            validations=[result for result in self.validations if result.node in nodes],
            attributes=[attributes for attributes in self.attributes if attributes.node in nodes],
        )

    @property
    def known_incidents(self) -> list[Incident]:
        """Incidents that were imported or reported; a pass or a repair ends one that was only
        reported."""
        only_reported = reported_incidents(self.event_records, self.incidents)
        passes = [v for v in self.validations if v.judgement is Judgement.HEALTHY]
        ended = defects_as_incidents(passes, self.repairs, only_reported) if only_reported else []
        return [*self.incidents, *ended]

    def logbook(self) -> Logbook:
        return logbook_of(*self.logbook_inputs)

    @property
    def logbook_inputs(self) -> Logged:
        logged = (self.incidents, self.watches, self.validations, self.repairs, self.attributes)
        return *logged, reports(self.event_records)


Logged = tuple[
    IncidentColumns,
    Sequence[Watch],
    Sequence[Validation],
    Sequence[Repair],
    Sequence[NodeAttributes],
    tuple[EventRecord, ...],
]


def logbook_of(
    incidents: IncidentColumns,
    watches: Sequence[Watch],
    validations: Sequence[Validation],
    repairs: Sequence[Repair],
    attributes: Sequence[NodeAttributes],
    reported: Sequence[EventRecord],
) -> Logbook:
    """Logbook that includes defects found by validations, and incidents that were only reported."""
    only_reported = reported_incidents(reported, incidents)
    defects = defects_as_incidents(validations, repairs, only_reported)
    every = incidents + IncidentColumns.from_incidents(defects)
    return Logbook.from_records(every, watches, validations, repairs, attributes)


class OfNode(Protocol):
    @property
    def node(self) -> str: ...


Dated = EventRecord | Validation
R = TypeVar("R", bound=OfNode)
AT = attrgetter("at")


def changed_nodes(before: Happened, then: float, happened: Happened, now: float) -> set[str]:
    """Nodes that changed between two instants: by new records, or by the passage of time alone."""
    new = new_event_records(before.event_records, happened.event_records)
    return {
        *_differing(before.repairs, happened.repairs),
        *_differing(before.watches, happened.watches),
        *_differing(before.validations, happened.validations),
        *_differing(before.attributes, happened.attributes),
        *_differing_incidents(before.incidents, happened.incidents),
        *(
            node
            for event_record in new
            if event_record.presumes_defect
            for node in event_record.event.nodes
        ),
        *_aged_nodes(happened, then, now),
    }


def new_event_records(
    before: Sequence[EventRecord], after: Sequence[EventRecord]
) -> list[EventRecord]:
    if before is after:
        return []
    ids = {event_record.id for event_record in before}
    return [event_record for event_record in after if event_record.id not in ids]


def are_dated_anew(before: Sequence[EventRecord], after: Sequence[EventRecord]) -> bool:
    """Return whether an earlier event has another date now because the clock was wrong."""
    if before is after:
        return False
    dates = {event_record.id: event_record.at for event_record in before}
    return any(
        event_record.at != dates.get(event_record.id, event_record.at) for event_record in after
    )


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
    for event_record in happened.event_records[index_after(happened.event_records, then) :]:
        if event_record.presumes_defect:
            yield from event_record.event.nodes


def _turns(repair: Repair, then: float, now: float) -> bool:
    return any(edge is not None and then < edge <= now for edge in (repair.start, repair.end))


def index_from(dated: Sequence[Dated], instant: float) -> int:
    """Index of the first record that is not earlier. `dated`: sorted by time."""
    return bisect_left(dated, instant, key=AT)


def index_after(dated: Sequence[Dated], instant: float) -> int:
    """Index of the first record that is later."""
    return bisect_right(dated, instant, key=AT)
