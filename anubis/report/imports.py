"""What was imported, as lines of JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anubis.readers.incidents.incident_intake import Intake
from anubis.readers.incidents.node_attributes import NodeIntake
from anubis.report.history import ImportNumber
from anubis.report.json import json_line
from anubis.store.imports import Import
from anubis.text.wording import moment, quantity


@dataclass(frozen=True, kw_only=True)
class IntakeFields:
    records: int
    cluster: str
    left_out: Mapping[str, int]
    """Why, and of how many lines."""
    taken: Mapping[str, int]
    """What was taken with a remark."""


@dataclass(frozen=True, kw_only=True)
class IncidentsLine:
    incidents: int
    nodes: int
    """Nodes that had an incident."""
    watched: int
    since: float
    until: float
    categories: Mapping[str, int]
    ignored: Sequence[str]
    """Nodes that the cluster does not have: incidents that a monitor reports of them are not
    kept."""


@dataclass(frozen=True, kw_only=True)
class NodesLine:
    nodes: int
    told: Mapping[str, int]
    """Number of nodes for which the file has each attribute."""
    untold: Sequence[str]
    """Known to the history and not in the file."""


@dataclass(frozen=True, kw_only=True)
class CampaignLine:
    campaign: str
    cluster: str
    nodes: int


def intake_fields(intake: Intake | NodeIntake, added: Import) -> IntakeFields:
    return IntakeFields(
        records=intake.records,
        cluster=added.cluster,
        left_out={note.text: len(note.where) for note in intake.left_out},
        taken={note.text: len(note.where) for note in intake.remarks},
    )


def incidents_line(
    intake: Intake, added: Import, *, ignored: Sequence[str] = (), keeps_watches: bool = True
) -> str:
    """Return the line of imported incidents. `keeps_watches`: false for a single incident, which
    says nothing of how long nodes were watched. `ignored`: nodes that the cluster does not have."""
    since, until = _span(intake)
    fields = IncidentsLine(
        incidents=len(intake.incidents),
        nodes=len({incident.node for incident in intake.incidents}),
        watched=len(intake.watches) if keeps_watches else 0,
        since=since,
        until=until,
        categories=_categories(intake),
        ignored=list(ignored),
    )
    number = ImportNumber(import_=added.key)
    return json_line("incidents", number, intake_fields(intake, added), fields, added.kept)


@dataclass(frozen=True, kw_only=True)
class KernelLinesLine:
    cluster: str
    incidents: int
    """Lines that are proof, and were not known before."""
    suspicions: int
    remarks: int
    """Lines from which nothing follows."""


def kernel_lines_line(cluster: str, incidents: int, suspicions: int, remarks: int) -> str:
    """Return the line of what became of lines of a kernel's log."""
    fields = KernelLinesLine(
        cluster=cluster, incidents=incidents, suspicions=suspicions, remarks=remarks
    )
    return json_line("kernel-lines", fields)


def nodes_line(
    intake: NodeIntake, added: Import, counts: Mapping[str, int], untold: Sequence[str]
) -> str:
    """Return the line of imported attributes of nodes. `counts`: how many nodes have each
    attribute."""
    fields = NodesLine(nodes=len(intake.attributes), told=counts, untold=list(untold))
    number = ImportNumber(import_=added.key)
    return json_line("nodes", number, intake_fields(intake, added), fields, added.kept)


def incident_sentences(file: str, intake: Intake, added: Import) -> Iterator[str]:
    """Yield what became of a file of incidents, for a terminal."""
    kept, (since, until) = added.kept, _span(intake)
    hit = len({incident.node for incident in intake.incidents})
    yield (
        f"{file}: {quantity(len(intake.incidents), 'incident')} in"
        f" {quantity(intake.records, 'record')}: "
        f"{kept.new:,} new, {kept.completed:,} completed by their end, {kept.known:,} known before"
    )
    yield (
        f"on {hit:,} of {quantity(len(intake.watches), 'node')} of cluster {added.cluster},"
        f" watched {moment(since)} to {moment(until)}"
    )
    if categories := _categories(intake).items():
        yield ", ".join(f"{category} {count:,}" for category, count in categories)


def _categories(intake: Intake) -> dict[str, int]:
    """Count incidents by category, the most common first."""
    return dict(Counter(incident.category for incident in intake.incidents).most_common())


def _span(intake: Intake) -> tuple[float, float]:
    """Return the first and the last time reported."""
    watches = intake.watches
    return min(w.since for w in watches), max(w.until for w in watches if w.until)
