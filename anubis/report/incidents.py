"""Imported incidents, as a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from anubis.readers.incidents.intake import Intake
from anubis.store.imports import Import


def fields(
    intake: Intake, added: Import, *, ignored: Sequence[str] = (), keeps_watches: bool = True
) -> dict[str, object]:
    """Return the fields of an import. `keeps_watches`: false for a single incident, which says
    nothing of how long nodes were watched. `ignored`: nodes that the cluster does not have."""
    since, until = span(intake)
    return {
        "records": intake.records,
        "incidents": len(intake.incidents),
        "import": added.key,
        "cluster": added.cluster,
        **asdict(added.kept),
        "nodes": len({incident.node for incident in intake.incidents}),
        "watched": len(intake.watches) if keeps_watches else 0,
        "since": since,
        "until": until,
        "categories": categories(intake),
        "ignored": list(ignored),
        "left_out": {note.text: len(note.where) for note in intake.left_out},
        "taken": {note.text: len(note.where) for note in intake.remarks},
    }


def categories(intake: Intake) -> dict[str, int]:
    """Count incidents by category, the most common first."""
    return dict(Counter(incident.category for incident in intake.incidents).most_common())


def span(intake: Intake) -> tuple[float, float]:
    """Return the first and the last time reported."""
    watches = intake.watches
    return min(w.since for w in watches), max(w.until for w in watches if w.until)
