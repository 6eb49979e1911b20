"""Values that thousands of rows have in common, kept once: sets of nodes, environments, layouts,
rosters.

Such rows are written within `sharing`.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from anubis.core.records import Layout, canonical
from anubis.store import codec
from anubis.store.database import Database, upsert
from anubis.store.row_mapping import (
    Form,
    R,
    RecordTable,
    Row,
    SharedTable,
    digest_of,
    metadata,
    shared_form,
)

Roster = tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]  # participants, devices


def _digest_table(name: str, value: sa.Column[Any]) -> sa.Table:
    return sa.Table(name, metadata, sa.Column("digest", sa.String(32), primary_key=True), value)


def _roster(text: str) -> Roster:
    units = json.loads(text)
    return tuple(tuple(names) for names, _ in units), tuple(device for _, device in units)


ENVIRONMENTS = SharedTable(
    table=_digest_table("environments", sa.Column("document", sa.Text, nullable=False)),
    key=canonical,
    text=codec.identity,
    load=json.loads,
)

PARTICIPANTS = SharedTable(  # the order is the order of the ranks
    table=_digest_table("participants", sa.Column("nodes", sa.Text, nullable=False)),
    text=canonical,
    load=lambda text: tuple(json.loads(text)),
)

# Which series an execution measured: a list of [metric, device, number of samples].
LAYOUTS = SharedTable(
    table=_digest_table("layouts", sa.Column("document", sa.Text, nullable=False)),
    text=lambda layout: canonical(layout.series),
    load=lambda text: Layout(tuple((metric, device, n) for metric, device, n in json.loads(text))),
)

# The units that a batch verdict is about: a list of [participants, device], compressed.
ROSTERS = SharedTable(
    table=_digest_table("rosters", sa.Column("document", sa.LargeBinary, nullable=False)),
    text=lambda roster: canonical(list(zip(*roster, strict=True))),
    store=lambda text: zlib.compress(text.encode(), level=1),
    text_in=lambda packed: zlib.decompress(packed).decode(),
    load=_roster,
)


def reference(name: str, shared_table: SharedTable, nullable: bool = False) -> Form:
    """Return the form of a column that names a shared value."""
    digest = sa.ForeignKey(shared_table.table.c.digest)
    return shared_form(sa.Column(name, sa.String(32), digest, nullable=nullable), shared_table)


class Sharing:
    """One transaction, and the values that its rows share."""

    def __init__(self, connection: sa.Connection, on_disk: set[tuple[str, str]]) -> None:
        self.connection = connection
        self.kept: set[tuple[str, str]] = set()  # put on disk by this transaction
        self._on_disk = on_disk
        self._known: dict[tuple[SharedTable, Hashable], str] = {}
        self._new: defaultdict[SharedTable, dict[str, str]] = defaultdict(dict)

    def share(self, shared_table: SharedTable, value: Any) -> str:
        key = shared_table.key(value)
        digest = self._known.get((shared_table, key))
        if digest is None:
            text = shared_table.text(key)
            digest = digest_of(text)
            self._known[shared_table, key] = digest
            if (shared_table.table.name, digest) not in self._on_disk:
                self._new[shared_table][digest] = text
        return digest

    def rows(self, kind: RecordTable[R], batch: Iterable[tuple[R, Row]]) -> list[Row]:
        """Return rows of records with what is beside each; what they share is on disk by then."""
        rows = [kind.row(record, self.share, **beside) for record, beside in batch]
        # In one order, so that two writers who share values wait for each other.
        for shared_table in sorted(self._new, key=lambda new: new.table.name):
            self._insert_shared(shared_table, self._new.pop(shared_table))
        return rows

    def insert(self, kind: RecordTable[R], batch: Iterable[tuple[R, Row]]) -> None:
        if rows := self.rows(kind, batch):
            self.connection.execute(sa.insert(kind.table), rows)

    def _insert_shared(self, shared_table: SharedTable, texts: dict[str, str]) -> None:
        cell = shared_table.cell.name
        rows = [
            {"digest": digest, cell: shared_table.store(text)} for digest, text in texts.items()
        ]
        upsert(self.connection, shared_table.table, rows)
        self.kept |= {(shared_table.table.name, digest) for digest in texts}


@contextmanager
def sharing(database: Database) -> Iterator[Sharing]:
    """Begin a transaction that writes; what it shares is known to be on disk from its end on."""
    with database.writing() as connection:
        transaction = Sharing(connection, database.shared)
        yield transaction
    database.shared |= transaction.kept
