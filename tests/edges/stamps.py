"""Checksums for rows that a test has changed by hand, as if Anubis had written them so."""

from __future__ import annotations

from typing import Any

from anubis.store.row_mapping import RecordTable


def stamp(connection: Any, kind: RecordTable[Any]) -> None:
    """Give each row of a table the checksum of its cells, through any connection of DB-API."""
    assert kind.checksum is not None
    names = [column.name for column in kind.table.columns]
    (key,) = (column.name for column in kind.table.primary_key)
    cursor = connection.cursor()
    cursor.execute(f"SELECT {', '.join(names)} FROM {kind.table.name}")
    for cells in cursor.fetchall():
        row = dict(zip(names, cells, strict=True))
        checksum = kind.checksum.compute(row)
        cursor.execute(
            f"UPDATE {kind.table.name} SET checksum = {checksum} WHERE {key} = {row[key]}"
        )
