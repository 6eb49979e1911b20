"""Tallies: how many rows a table has of a cluster, and the sum of their checksums, so that a row
that is gone or was replaced shows. Rows without a checksum do not count.

A writer that knows the changed rows names those that came and those that went (`change_tally`); it
costs as much as they do, and what was wrong before stays wrong. Any other writer works within
`recount`, which counts all rows of the cluster, before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from anubis.store.checksums import Damage
from anubis.store.database import upsert
from anubis.store.mapping import RecordTable

Kind = RecordTable[Any]
StoredRow = Mapping[Any, Any]  # by the names of its columns


@dataclass(frozen=True, kw_only=True)
class RowTally:
    name: str  # of the table
    cluster: str
    rows: int
    total: int

    def add_rows(self, halves: Sequence[int]) -> RowTally:
        """Return a tally with more rows, given by the upper halves of their checksums."""
        return replace(self, rows=self.rows + len(halves), total=self.total + sum(halves))


TALLIES = RecordTable("tallies", RowTally, keys=("name", "cluster"), total=sa.BigInteger)


@contextmanager
def recount(connection: sa.Connection, cluster: str, *kinds: Kind) -> Iterator[None]:
    """Count the rows anew after the block; other writers of the same rows wait."""
    ordered = sorted(kinds, key=lambda kind: kind.table.name)
    for kind in ordered:
        wait_for_tally(connection, cluster, kind)
    refuse_changed(connection, cluster, *ordered)
    yield
    upsert(
        connection,
        TALLIES.table,
        [TALLIES.row(_count(connection, kind, cluster)) for kind in ordered],
        replace=True,
    )


def wait_for_tally(connection: sa.Connection, cluster: str, kind: Kind) -> None:
    """Make other writers of this kind and cluster wait until this transaction ends."""
    first = RowTally(name=kind.table.name, cluster=cluster, rows=0, total=0)
    upsert(connection, TALLIES.table, [TALLIES.row(first)])
    connection.execute(
        sa.select(TALLIES.c.rows).where(_tally_clause(kind, cluster)).with_for_update()
    )


def change_tally(
    connection: sa.Connection,
    cluster: str,
    kind: Kind,
    *,
    come: Iterable[StoredRow],
    gone: Iterable[StoredRow] = (),
) -> None:
    """Change a tally after `wait_for_tally`. A row that was changed went and came."""
    added, removed = _halves(come), _halves(gone)
    more = {
        "rows": TALLIES.c.rows + (len(added) - len(removed)),
        "total": TALLIES.c.total + (sum(added) - sum(removed)),
    }
    connection.execute(sa.update(TALLIES.table).where(_tally_clause(kind, cluster)).values(more))


def _halves(rows: Iterable[StoredRow]) -> list[int]:
    """Return the upper halves of checksums, so that their sum stays in 64 bits."""
    return [row["checksum"] >> 32 for row in rows]


def tallies_of(connection: sa.Connection, cluster: str) -> dict[str, RowTally]:
    """Return tallies by the name of the table. As long as one is the same, nobody has changed its
    rows."""
    tallies = TALLIES.records(connection, TALLIES.select().where(TALLIES.c.cluster == cluster))
    return {tally.name: tally for tally in tallies}


def refuse_changed(connection: sa.Connection, cluster: str, *kinds: Kind) -> None:
    """Raise Damage if these rows are not those that were written."""
    expected = tallies_of(connection, cluster)
    for kind in kinds:
        tally = expected.get(kind.table.name)
        if tally and tally != (there := _count(connection, kind, cluster)):
            raise Damage(
                f'{tally.name} of cluster "{cluster}": {there.rows} rows are there, expected'
                f" {tally.rows}" + (", and some are others" if there.rows == tally.rows else "")
            )


def _tally_clause(kind: Kind, cluster: str) -> sa.ColumnElement[bool]:
    return (TALLIES.c.name == kind.table.name) & (TALLIES.c.cluster == cluster)


def _count(connection: sa.Connection, kind: Kind, cluster: str) -> RowTally:
    checksum = kind.c.checksum
    upper = checksum.op(">>")(sa.literal_column("32"))
    short = sa.func.coalesce(sa.func.sum(upper), 0)
    query = sa.select(sa.func.count(checksum), short).where(kind.c.cluster == cluster)
    rows, total = connection.execute(query).one()
    return RowTally(name=kind.table.name, cluster=cluster, rows=int(rows), total=int(total))
