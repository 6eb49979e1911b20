"""Row counts: how many rows a table has of a cluster, and the sum of their checksums, so that a row
that is gone or was replaced shows. Rows without a checksum do not count.

A writer that knows the changed rows names those that came and those that went (`change_row_count`);
it costs as much as they do, and what was wrong before stays wrong. Any other writer works within
`recount`, which counts all rows of the cluster, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from anubis.store.checksums import Damage
from anubis.store.database import upsert
from anubis.store.row_mapping import RecordTable

Kind = RecordTable[Any]
StoredRow = Mapping[Any, Any]  # by the names of its columns


@dataclass(frozen=True, kw_only=True)
class RowCount:
    name: str  # of the table
    cluster: str
    rows: int
    total: int

    def add_rows(self, halves: Sequence[int]) -> RowCount:
        """Return a row count with more rows, given by the upper halves of their checksums."""
        return replace(self, rows=self.rows + len(halves), total=self.total + sum(halves))


ROW_COUNTS = RecordTable("row_counts", RowCount, keys=("name", "cluster"), total=sa.BigInteger)


@contextmanager
def recount(connection: sa.Connection, cluster: str, *kinds: Kind) -> Iterator[None]:
    """Count the rows anew after the block; other writers of the same rows wait."""
    ordered = sorted(kinds, key=lambda kind: kind.table.name)
    for kind in ordered:
        wait_for_row_count(connection, cluster, kind)
    refuse_changed(connection, cluster, *ordered)
    yield
    upsert(
        connection,
        ROW_COUNTS.table,
        [ROW_COUNTS.row(_count(connection, kind, cluster)) for kind in ordered],
        replace=True,
    )


def wait_for_row_count(connection: sa.Connection, cluster: str, kind: Kind) -> None:
    """Make other writers of this kind and cluster wait until this transaction ends."""
    first = RowCount(name=kind.table.name, cluster=cluster, rows=0, total=0)
    upsert(connection, ROW_COUNTS.table, [ROW_COUNTS.row(first)])
    connection.execute(
        sa.select(ROW_COUNTS.c.rows).where(_row_count_clause(kind, cluster)).with_for_update()
    )


def change_row_count(
    connection: sa.Connection,
    cluster: str,
    kind: Kind,
    *,
    come: Iterable[StoredRow],
    gone: Iterable[StoredRow] = (),
) -> None:
    """Change a row count after `wait_for_row_count`. A row that was changed went and came."""
    added, removed = _halves(come), _halves(gone)
    more = {
        "rows": ROW_COUNTS.c.rows + (len(added) - len(removed)),
        "total": ROW_COUNTS.c.total + (sum(added) - sum(removed)),
    }
    connection.execute(
        sa.update(ROW_COUNTS.table).where(_row_count_clause(kind, cluster)).values(more)
    )


def _halves(rows: Iterable[StoredRow]) -> list[int]:
    """Return the upper halves of checksums, so that their sum stays in 64 bits."""
    return [row["checksum"] >> 32 for row in rows]


def row_counts_of(connection: sa.Connection, cluster: str) -> dict[str, RowCount]:
    """Return row counts by the name of the table. As long as one is the same, nothing has changed
    its rows."""
    row_counts = ROW_COUNTS.records(
        connection, ROW_COUNTS.select().where(ROW_COUNTS.c.cluster == cluster)
    )
    return {count.name: count for count in row_counts}


def refuse_changed(connection: sa.Connection, cluster: str, *kinds: Kind) -> None:
    """Raise Damage if these rows are not those that were written.

    Both are read by one statement: between two, another process may write, and what is sound would
    look damaged."""
    for kind in kinds:
        count = connection.execute(_both_counts(kind), {"cluster": cluster}).one_or_none()
        if count and (count.rows, count.total) != (int(count.number), int(count.sum)):
            raise Damage(
                f'{kind.table.name} of cluster "{cluster}": {count.number} rows are there, expected'
                f" {count.rows}" + (", and some are others" if count.number == count.rows else "")
            )


@cache
def _both_counts(kind: Kind) -> sa.Select[tuple[int, int, int, int]]:
    """Select what is there beside what was written, of a cluster that is named at each execution:
    to build it takes longer than to ask a small history."""
    cluster: sa.BindParameter[str] = sa.bindparam("cluster")
    there = _there(kind, cluster).subquery()
    query = sa.select(ROW_COUNTS.c.rows, ROW_COUNTS.c.total, there.c.number, there.c.sum)
    query = query.join_from(ROW_COUNTS.table, there, sa.true())
    return query.where(_row_count_clause(kind, cluster))


def _row_count_clause(kind: Kind, cluster: str | sa.BindParameter[str]) -> sa.ColumnElement[bool]:
    return (ROW_COUNTS.c.name == kind.table.name) & (ROW_COUNTS.c.cluster == cluster)


def _count(connection: sa.Connection, kind: Kind, cluster: str) -> RowCount:
    rows, total = connection.execute(_there(kind, cluster)).one()
    return RowCount(name=kind.table.name, cluster=cluster, rows=int(rows), total=int(total))


def _there(kind: Kind, cluster: str | sa.BindParameter[str]) -> sa.Select[tuple[Any, Any]]:
    checksum = kind.c.checksum
    upper = checksum.op(">>")(sa.literal_column("32"))
    short = sa.func.coalesce(sa.func.sum(upper), 0)
    return sa.select(sa.func.count(checksum).label("number"), short.label("sum")).where(
        kind.c.cluster == cluster
    )
