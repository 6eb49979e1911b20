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
    what: str
    facts: Mapping[str, object]


def of_incident(one: Incident) -> Happening:
    over = "not over" if one.end is None else f"until {moment(one.end)}"
    return _of_node(one.node, one.start, "incident", f"{one.category}, {over}", one)


def of_repair(one: Repair) -> Happening:
    over = "not over" if one.end is None else f"until {moment(one.end)}"
    said = ", ".join(filter(None, (one.action, over)))
    return _of_node(one.node, one.start, "repair", said, one)


def of_validation(one: Validation) -> Happening:
    code = f" ({one.code})" if one.code else ""
    said = f"{one.judgement.value}{code}, {counted(len(one.benchmarks), 'benchmark')}"
    return _of_node(one.node, one.at, "validation", f"{said}, campaign {one.campaign}", one)


def of_decision(one: Decision) -> Happening:
    tests = names([test.benchmark for test in one.tests], TESTS_NAMED)
    said = f"{one.event}: {one.action.value}{f', {tests}' if tests else ''}"
    facts = {"nodes": one.nodes, "event": one.event, "action": one.action.value}
    return Happening(at=one.at, kind="decision", nodes=one.nodes, what=said, facts=facts)


def _of_node(
    node: str, at: float, kind: str, what: str, record: Incident | Repair | Validation
) -> Happening:
    return Happening(at=at, kind=kind, nodes=(node,), what=what, facts=asdict(record))


def timeline(
    happened: Iterable[Happening], nodes: Collection[str] | None, last: int
) -> list[Happening]:
    """The last so many that are about any of the nodes, the latest at the end."""
    mine = [one for one in happened if nodes is None or not set(nodes).isdisjoint(one.nodes)]
    return sorted(mine, key=lambda one: (one.at, one.nodes, one.kind))[-last:]


def line(one: Happening) -> str:
    return json.dumps({"type": one.kind, "at": one.at, **one.facts}, ensure_ascii=False)


def show(happened: Sequence[Happening], console: Console) -> None:
    _table(
        console,
        ("when (UTC)", "node", "", "what"),
        ((_when(one.at), _who(one), one.kind, one.what) for one in happened),
    )


def _when(at: float) -> str:
    return moment(at).removesuffix(" UTC")


def _who(one: Happening) -> str:
    return one.nodes[0] if len(one.nodes) == 1 else f"{len(one.nodes):,} nodes"


def import_line(one: Import) -> str:
    document = {"type": "import", "import": one.key, "at": one.at, "file": one.file}
    return json.dumps({**document, **asdict(one.kept)}, ensure_ascii=False)


def show_imports(imports: Sequence[Import], console: Console) -> None:
    rows = (
        (str(one.key), _when(one.at), *(f"{n:,}" for n in asdict(one.kept).values()), one.file)
        for one in imports
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
