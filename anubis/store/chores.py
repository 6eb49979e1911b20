"""Periodic tasks on the nodes of a cluster: what was due, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from anubis.core.keep.chores import Chore, ChoreEnd, ChoreRecord
from anubis.store.claims import chores_lock
from anubis.store.database import Database, upsert
from anubis.store.mapping import Prose, RecordTable

CHORES = RecordTable(
    "chores",
    ChoreRecord,
    sa.Column("cluster", sa.Text, primary_key=True),
    keys=("chore", "due"),
    sentence=Prose,
)


class Chores:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Yield true if this process does the periodic tasks of the cluster while the block runs. A
        task that another process began and has not ended is then nobody's: that process is gone."""
        lock = chores_lock(self._database, self._cluster)
        try:
            yield lock.has()
        finally:
            lock.give_back()

    def write(self, record: ChoreRecord) -> None:
        """Replace what was written of this task before."""
        with self._database.writing() as connection:
            row = CHORES.row(record, cluster=self._cluster)
            upsert(connection, CHORES.table, [row], replace=True)

    def find(self, chore: Chore, due: float) -> ChoreRecord | None:
        return self._first(CHORES.c.chore == chore.value, CHORES.c.due == due)

    def last(self, chore: Chore, by: float = math.inf) -> ChoreRecord | None:
        """Return the latest task that was due by then."""
        return self._first(CHORES.c.chore == chore.value, CHORES.c.due <= by)

    def successes(self) -> dict[Chore, float]:
        """Map each task to the time at which it last ended without failing."""
        query = (
            sa.select(CHORES.c.chore, sa.func.max(CHORES.c.ended))
            .where(CHORES.c.cluster == self._cluster, CHORES.c.end != ChoreEnd.FAILED.value)
            .group_by(CHORES.c.chore)
        )
        with self._database.reading() as connection:
            return {Chore(chore): at for chore, at in connection.execute(query)}

    def _first(self, *conditions: sa.ColumnElement[bool]) -> ChoreRecord | None:
        query = CHORES.select().where(CHORES.c.cluster == self._cluster, *conditions)
        with self._database.reading() as connection:
            latest = query.order_by(CHORES.c.due.desc()).limit(1)
            return next(CHORES.records(connection, latest), None)
