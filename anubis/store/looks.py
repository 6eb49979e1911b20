"""The last look at each job of a cluster that was watched: when, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from anubis.core.watching.rounds import KeptLook
from anubis.store.claims import watch_lock
from anubis.store.database import Database, upsert
from anubis.store.mapping import Prose, RecordTable

LOOKS = RecordTable(
    "looks",
    KeptLook,
    sa.Column("cluster", sa.Text, primary_key=True),
    keys=("job",),
    trouble=Prose,
)


class Looks:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether this process watches the jobs of the cluster while the block runs."""
        lock = watch_lock(self._database, self._cluster)
        try:
            yield lock.has()
        finally:
            lock.give_back()

    def all(self) -> list[KeptLook]:
        """By job."""
        query = LOOKS.select().where(LOOKS.c.cluster == self._cluster)
        with self._database.reading() as connection:
            return list(LOOKS.records(connection, query.order_by(LOOKS.c.job)))

    def write(self, look: KeptLook) -> None:
        """Instead of the one before."""
        with self._database.writing() as connection:
            row = LOOKS.row(look, cluster=self._cluster)
            upsert(connection, LOOKS.table, [row], replace=True)

    def forget(self, jobs: Collection[str]) -> None:
        gone = (LOOKS.c.cluster == self._cluster) & LOOKS.c.job.in_(jobs)
        with self._database.writing() as connection:
            connection.execute(sa.delete(LOOKS.table).where(gone))
