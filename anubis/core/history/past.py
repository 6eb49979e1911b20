"""All records of nodes, as reported and measured: the input of every question about them."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.events import EventRecord, reported_incidents, reports
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Repair, Validation, Watch, defects_as_incidents
from anubis.core.history.tracks import IncidentColumns


@dataclass(frozen=True, kw_only=True, eq=False)
class Happened:
    incidents: IncidentColumns  # as they were imported
    repairs: Sequence[Repair]
    watches: Sequence[Watch]
    event_records: Sequence[EventRecord]
    validations: Sequence[Validation]  # by time
    attributes: Sequence[NodeAttributes]

    def select_nodes(self, nodes: AbstractSet[str]) -> Happened:
        """Records of these nodes only."""
        return Happened(
            incidents=self.incidents.select_nodes(nodes),
            repairs=[repair for repair in self.repairs if repair.node in nodes],
            watches=[watch for watch in self.watches if watch.node in nodes],
            event_records=[n for n in self.event_records if not nodes.isdisjoint(n.event.nodes)],
            validations=[result for result in self.validations if result.node in nodes],
            attributes=[attributes for attributes in self.attributes if attributes.node in nodes],
        )

    def logbook(self) -> Logbook:
        return logbook_of(*self.logbook_inputs)

    @property
    def logbook_inputs(self) -> Logged:
        """Inputs of a logbook."""
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
