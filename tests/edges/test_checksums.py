"""Every table that a verdict reads is covered by checksums, digests or row counts. After damage to
any cell the answer is the same, is refused in a sentence, or knows less: never more."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event
from sqlalchemy.engine import Engine

from anubis.store.integrity import SHARED
from anubis.store.row_counts import ROW_COUNTS
from anubis.store.row_mapping import CHECKED_BY, metadata
from tests.edges.desk import Desk, Done

pytestmark = pytest.mark.long

VERBS = {
    "standing": ("history", "standing", "--json"),
    "gate": ("gate", "n[1-4]", "--duration", "24h", "--no-tests", "--cluster", "{fleet}", "--json"),
    "judge": ("criteria", "judge", "--json"),
    "report": ("report", "--json"),
    "nodes": ("nodes", "--json"),
}
WITHOUT_CHECKSUM: Mapping[str, str] = {
    "clusters": "a name that is damaged makes strangers of its campaigns, which is refused",
    "imports": "says where incidents came from; they have checksums of their own",
    "periodic_tasks": "says when periodic work was done last; at worst it is done again",
    "looks": "a look suspects, and acquits nobody",
    "look_details": "likewise",
    "diagnoses": "a diagnosis suspects, and acquits nobody",
    "diagnosis_details": "likewise",
    "messages": "what people are to be told of what was done: at worst they are told wrongly",
    "heard": "what a keeper has heard: at worst it hears an event again",
}


@contextmanager
def tables_read() -> Iterator[set[str]]:
    """Tables that are read, by the SQL that is sent meanwhile."""
    read: set[str] = set()

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip()[:6].upper() in ("SELECT", "WITH A"):
            read.update(t for t in metadata.tables if re.search(rf"\b{t}\b", statement))

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        yield read
    finally:
        event.remove(Engine, "before_cursor_execute", hear)


class Lived:
    """A desk whose fleet was accepted, with a past; its history can be damaged and is whole again
    with the next damage."""

    def __init__(self, near: Desk) -> None:
        self.near = near
        suite = near.suite({"benchmark": "gemm", "repeats": 2})
        self.fleet = near.fleet(slow_share=0.3)
        assert near.run("accept", "--cluster", self.fleet, "--suite", suite).code == 1
        day = near.write("day.csv", "node,category,start,end\nn1,gpu,2024-03-01T10:00,\n")
        assert near.run("history", "import", "incidents", str(day)).code == 0
        near.run("gate", "--plan", "--event", "tick", "n[1-4]")
        self.whole = shutil.copy(near.history, near.folder / "whole.sqlite")
        self.right = {name: self.ask(name) for name in VERBS}
        self.cells = list(cells_of(Path(self.whole)))

    def ask(self, verb: str) -> Done:
        return self.near.run(*(word.format(fleet=self.fleet) for word in VERBS[verb]))

    def hold(self, verb: str, what: object) -> None:
        done, right = self.ask(verb), self.right[verb]
        is_refused = done.code == 2 and not done.out and len(done.err.splitlines()) == 1
        is_same = (
            done.code == right.code
            if verb == "gate"
            else (done.code, done.out) == (right.code, right.out)
        )
        assert is_refused or is_same, (verb, what, done)

    def spoil(self, table: str, column: str, rowid: int, value: object) -> None:
        for beside in self.near.history.parent.glob("history.sqlite-*"):
            beside.unlink()
        shutil.copy(self.whole, self.near.history)
        with closing(sqlite3.connect(self.near.history)) as raw, raw:
            raw.execute("PRAGMA ignore_check_constraints = ON")
            changed = f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE rowid = ?'
            with suppress(sqlite3.IntegrityError):  # the file itself keeps it out
                raw.execute(changed, (value, rowid))


def cells_of(file: Path) -> Iterator[tuple[str, str, int, object]]:
    """Cells of the first and the last row of each table."""
    with closing(sqlite3.connect(file)) as raw:
        for table in metadata.tables:
            columns = [row[1] for row in raw.execute(f'PRAGMA table_info("{table}")')]
            query = f'SELECT rowid, * FROM "{table}" ORDER BY rowid'
            rows = raw.execute(query).fetchall()
            for rowid, *cells in {row[0]: row for row in (*rows[:1], *rows[-1:])}.values():
                yield from (
                    (table, column, rowid, cell)
                    for column, cell in zip(columns, cells, strict=True)
                )


def damages_of(cell: object) -> list[object]:
    """Zeroed, and with one bit another."""
    match cell:
        case str() if cell:
            return ["", "\0" * len(cell), chr(ord(cell[0]) ^ 1) + cell[1:], b"\0"]
        case bytes() if cell:
            return [b"", bytes(len(cell)), bytes([cell[0] ^ 1]) + cell[1:]]
        case int() | float():
            return [0, -cell, cell + 1, ""]
    return ["x", 0]


@pytest.fixture
def lived(near: Desk) -> Lived:
    return Lived(near)


def test_every_table_that_a_verdict_reads_is_covered(lived: Lived) -> None:
    covered = {name for name, table in metadata.tables.items() if CHECKED_BY in table.info}
    covered |= {shared.table.name for shared in SHARED} | {ROW_COUNTS.table.name}
    read: set[str] = set()
    for verb in VERBS:
        with tables_read() as of_verb:
            lived.ask(verb)
        assert len(of_verb) > 4
        read |= of_verb
    assert read - covered - WITHOUT_CHECKSUM.keys() == set()
    assert WITHOUT_CHECKSUM.keys() & covered == set()


SEEN = (  # by a campaign of damage to all 215 cells, each zeroed and changed by a bit
    ("clusters", "executor", b"\0"),
    ("executions", "number", ""),
    ("executions", "step", b"\0"),
    ("executions", "benchmark", None),
    ("executions", "benchmark", "gemn"),
    ("executions", "ended", "measured\0"),
    ("participants", "nodes", '["n9"]'),
    ("verdicts", "benchmark", "gemn"),
    ("verdicts", "judgement", "healthy"),
    ("demands", "benchmark", "gemn"),
    ("campaigns", "criteria", "[]"),
)


def test_damage_in_any_cell_never_improves_an_answer(lived: Lived) -> None:
    """It is the same, or one sentence refuses it. A gate, whose answer moves with the time of day,
    lets no job begin that it held up."""
    assert lived.right["gate"].code == 1
    for table, column, value in SEEN:
        for rowid in {rowid for name, _, rowid, _ in lived.cells if name == table}:
            lived.spoil(table, column, rowid, value)
            for verb in ("standing", "gate", "judge"):
                lived.hold(verb, (table, column, value))

    @settings(max_examples=25, deadline=None)
    @given(st.sampled_from(lived.cells), st.integers(0, 3), st.sampled_from(sorted(VERBS)))
    def anywhere(cell: tuple[str, str, int, object], which: int, verb: str) -> None:
        table, column, rowid, before = cell
        values = damages_of(before)
        lived.spoil(table, column, rowid, values[which % len(values)])
        lived.hold(verb, (cell, which))

    anywhere()
