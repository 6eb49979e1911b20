"""What thousands of rows have in common, kept once: sets of nodes, environments, layouts, rosters.

Whoever writes such rows does so within `sharing`.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Table,
    Text,
    insert,
)

from anubis.core.records import Layout, canonical
from anubis.store.database import Database, upsert
from anubis.store.mapping import Form, R, RecordTable, Row, SharedTable, metadata, shared

Roster = tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]  # participants, devices


def _itself(value: Any) -> Any:
    return value


def _roster(packed: bytes) -> Roster:
    units = json.loads(zlib.decompress(packed))
    return tuple(tuple(names) for names, _ in units), tuple(device for _, device in units)


ENVIRONMENTS = SharedTable(
    table=Table(
        "environments",
        metadata,
        Column("digest", String(32), primary_key=True),
        Column("document", Text, nullable=False),
    ),
    key=canonical,
    text=_itself,
    store=_itself,
    load=json.loads,
)

PARTICIPANTS = SharedTable(
    table=Table(
        "participants",
        metadata,
        Column("digest", String(32), primary_key=True),
        Column("nodes", Text, nullable=False),  # the order is the order of the ranks
    ),
    key=_itself,
    text=canonical,
    store=_itself,
    load=lambda text: tuple(json.loads(text)),
)

# The way from a node to everything it took part in, and back.
participant_nodes = Table(
    "participant_nodes",
    metadata,
    Column("node", Text, primary_key=True),
    Column("participants", String(32), ForeignKey(PARTICIPANTS.table.c.digest), primary_key=True),
    Index("participant_nodes_back", "participants"),
)

# Which series an execution measured: a list of [metric, device, number of samples].
LAYOUTS = SharedTable(
    table=Table(
        "layouts",
        metadata,
        Column("digest", String(32), primary_key=True),
        Column("document", Text, nullable=False),
    ),
    key=_itself,
    text=lambda layout: canonical(layout.series),
    store=_itself,
    load=lambda text: Layout(tuple((metric, device, n) for metric, device, n in json.loads(text))),
)

# The units that a ruling is about: a list of [participants, device], compressed.
ROSTERS = SharedTable(
    table=Table(
        "rosters",
        metadata,
        Column("digest", String(32), primary_key=True),
        Column("document", LargeBinary, nullable=False),
    ),
    key=_itself,
    text=lambda roster: canonical(list(zip(*roster, strict=True))),
    store=lambda text: zlib.compress(text.encode(), level=1),
    load=_roster,
)

ORDER = (PARTICIPANTS, ENVIRONMENTS, LAYOUTS, ROSTERS)


def reference(name: str, what: SharedTable, nullable: bool = False) -> Form:
    """A column that names a shared value."""
    digest = what.table.c.digest
    return shared(Column(name, String(32), ForeignKey(digest), nullable=nullable), what)


class Sharing:
    """One transaction, and the values that its rows share."""

    def __init__(self, connection: Connection, on_disk: set[tuple[str, str]]) -> None:
        self.connection = connection
        self.kept: set[tuple[str, str]] = set()  # put on disk by this transaction
        self._on_disk = on_disk
        self._known: dict[tuple[SharedTable, Hashable], str] = {}
        self._new: defaultdict[SharedTable, dict[str, str]] = defaultdict(dict)

    def share(self, what: SharedTable, value: Any) -> str:
        key = what.key(value)
        digest = self._known.get((what, key))
        if digest is None:
            text = what.text(key)
            digest = self._known[what, key] = sha256(text.encode()).hexdigest()[:32]
            if (what.table.name, digest) not in self._on_disk:
                self._new[what][digest] = text
        return digest

    def rows(self, kind: RecordTable[R], batch: Iterable[tuple[R, Row]]) -> list[Row]:
        """Rows of records and what stands beside each; what they share is on disk by then."""
        rows = [kind.row(record, self.share, **beside) for record, beside in batch]
        for what in ORDER:
            self._insert_shared(what, self._new.pop(what, {}))
        return rows

    def insert(self, kind: RecordTable[R], batch: Iterable[tuple[R, Row]]) -> None:
        if rows := self.rows(kind, batch):
            self.connection.execute(insert(kind.table), rows)

    def _insert_shared(self, what: SharedTable, texts: dict[str, str]) -> None:
        rows = [
            {"digest": digest, what.cell.name: what.store(text)} for digest, text in texts.items()
        ]
        insert_missing(self.connection, what.table, rows)
        if what is PARTICIPANTS:
            members = [
                {"node": node, "participants": digest}
                for digest, text in texts.items()
                for node in set(what.load(text))
            ]
            insert_missing(self.connection, participant_nodes, members)
        self.kept |= {(what.table.name, digest) for digest in texts}


@contextmanager
def sharing(database: Database) -> Iterator[Sharing]:
    """A transaction that writes; what it shares is known to be on disk from its end on."""
    with database.writing() as connection:
        transaction = Sharing(connection, database.shared)
        yield transaction
    database.shared |= transaction.kept


def insert_missing(connection: Connection, table: Table, rows: list[Row]) -> None:
    if rows:
        # Sorted, so that two writers who share rows wait for each other in one order only.
        batch = sorted(rows, key=lambda row: list(row.values()))
        connection.execute(upsert(connection, table).on_conflict_do_nothing(), batch)
