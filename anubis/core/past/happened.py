"""All that happened to nodes, as it was told and measured: what every question about them begins
with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anubis.core.past.events import Notice, reported_incidents
from anubis.core.past.logbook import Logbook
from anubis.core.past.status import Repair, Validation, Watch, defects_as_incidents
from anubis.core.past.tracks import IncidentColumns
from anubis.core.past.traits import NodeTraits


@dataclass(frozen=True, kw_only=True, eq=False)
class Happened:
    incidents: IncidentColumns  # as they were imported
    repairs: Sequence[Repair]
    watches: Sequence[Watch]
    notices: Sequence[Notice]
    validations: Sequence[Validation]  # by time
    traits: Sequence[NodeTraits]

    def logbook(self) -> Logbook:
        """What validations found defective and what was only reported are incidents as well."""
        reported = reported_incidents(self.notices, self.incidents)
        defects = defects_as_incidents(self.validations, self.repairs, reported)
        incidents = self.incidents + IncidentColumns.of(defects)
        return Logbook.of(incidents, self.watches, self.validations, self.repairs, self.traits)
