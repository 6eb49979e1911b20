"""What happened to nodes, in the order of time: as a table and as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from anubis.core.choosing.decision import Decision
from anubis.core.past.status import Incident, Repair, Validation
from anubis.report.wording import counted, moment, names
from anubis.store.imports import Import

if TYPE_CHECKING:
    from rich.console import Console

TESTS_NAMED = 3  # tests that a line names


@dataclass(frozen=True, kw_only=True)
class Happening:
    at: float
    kind: str
    nodes: tuple[str, ...]
    summary: str
    facts: Mapping[str, object]


def of_incident(incident: Incident) -> Happening:
    over = "not over" if incident.end is None else f"until {moment(incident.end)}"
    return _of_node(
        incident.node, incident.start, "incident", f"{incident.category}, {over}", incident
    )


def of_repair(repair: Repair) -> Happening:
    over = "not over" if repair.end is None else f"until {moment(repair.end)}"
    summary = ", ".join(filter(None, (repair.action, over)))
    return _of_node(repair.node, repair.start, "repair", summary, repair)


def of_validation(validation: Validation) -> Happening:
    code = f" ({validation.code})" if validation.code else ""
    summary = (
        f"{validation.judgement.value}{code}, {counted(len(validation.benchmarks), 'benchmark')}"
    )
    return _of_node(
        validation.node,
        validation.at,
        "validation",
        f"{summary}, campaign {validation.campaign}",
        validation,
    )


def of_decision(decision: Decision) -> Happening:
    tests = names([test.benchmark for test in decision.tests], TESTS_NAMED)
    summary = f"{decision.event}: {decision.action.value}{f', {tests}' if tests else ''}"
    facts = {"nodes": decision.nodes, "event": decision.event, "action": decision.action.value}
    return Happening(
        at=decision.at, kind="decision", nodes=decision.nodes, summary=summary, facts=facts
    )


def _of_node(
    node: str, at: float, kind: str, summary: str, record: Incident | Repair | Validation
) -> Happening:
    return Happening(at=at, kind=kind, nodes=(node,), summary=summary, facts=asdict(record))


def timeline(
    happened: Iterable[Happening], nodes: Collection[str] | None, last: int
) -> list[Happening]:
    """The last so many that are about any of the nodes, the latest at the end."""
    relevant = [
        happening
        for happening in happened
        if nodes is None or not set(nodes).isdisjoint(happening.nodes)
    ]
    return sorted(relevant, key=lambda happening: (happening.at, happening.nodes, happening.kind))[
        -last:
    ]


def line(happening: Happening) -> str:
    return json.dumps(
        {"type": happening.kind, "at": happening.at, **happening.facts}, ensure_ascii=False
    )


def show(happened: Sequence[Happening], console: Console) -> None:
    _table(
        console,
        ("when (UTC)", "node", "", "what"),
        (
            (_when(happening.at), _node_or_count(happening), happening.kind, happening.summary)
            for happening in happened
        ),
    )


def _when(at: float) -> str:
    return moment(at).removesuffix(" UTC")


def _node_or_count(happening: Happening) -> str:
    return happening.nodes[0] if len(happening.nodes) == 1 else f"{len(happening.nodes):,} nodes"


def import_line(record: Import) -> str:
    document = {"type": "import", "import": record.key, "at": record.at, "file": record.file}
    return json.dumps({**document, **asdict(record.kept)}, ensure_ascii=False)


def show_imports(imports: Sequence[Import], console: Console) -> None:
    rows = (
        (
            str(record.key),
            _when(record.at),
            *(f"{n:,}" for n in asdict(record.kept).values()),
            record.file,
        )
        for record in imports
    )
    _table(console, ("import", "when (UTC)", "new", "completed", "known", "file"), rows)


def _table(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
