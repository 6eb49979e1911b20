"""All records of nodes, as reported and measured: the input of every question about them."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from anubis.core.history.events import Notice, reported_incidents, reports
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Repair, Validation, Watch, defects_as_incidents
from anubis.core.history.tracks import IncidentColumns
from anubis.core.history.traits import NodeTraits


@dataclass(frozen=True, kw_only=True, eq=False)
class Happened:
    incidents: IncidentColumns  # as they were imported
    repairs: Sequence[Repair]
    watches: Sequence[Watch]
    notices: Sequence[Notice]
    validations: Sequence[Validation]  # by time
    traits: Sequence[NodeTraits]

    def select_nodes(self, nodes: AbstractSet[str]) -> Happened:
        """Records of these nodes only."""
        return Happened(
            incidents=self.incidents.select_nodes(nodes),
            repairs=[repair for repair in self.repairs if repair.node in nodes],
            watches=[watch for watch in self.watches if watch.node in nodes],
            notices=[n for n in self.notices if not nodes.isdisjoint(n.event.nodes)],
            validations=[result for result in self.validations if result.node in nodes],
            traits=[traits for traits in self.traits if traits.node in nodes],
        )

    def logbook(self) -> Logbook:
        return logbook_of(*self.logbook_inputs)

    @property
    def logbook_inputs(self) -> Logged:
        """Inputs of a logbook."""
        logged = (self.incidents, self.watches, self.validations, self.repairs, self.traits)
        return *logged, reports(self.notices)


Logged = tuple[
    IncidentColumns,
    Sequence[Watch],
    Sequence[Validation],
    Sequence[Repair],
    Sequence[NodeTraits],
    tuple[Notice, ...],
]


def logbook_of(
    incidents: IncidentColumns,
    watches: Sequence[Watch],
    validations: Sequence[Validation],
    repairs: Sequence[Repair],
    traits: Sequence[NodeTraits],
    reported: Sequence[Notice],
) -> Logbook:
    """Logbook that includes defects found by validations, and incidents that were only reported."""
    only_reported = reported_incidents(reported, incidents)
    defects = defects_as_incidents(validations, repairs, only_reported)
    every = incidents + IncidentColumns.from_incidents(defects)
    return Logbook.from_records(every, watches, validations, repairs, traits)
