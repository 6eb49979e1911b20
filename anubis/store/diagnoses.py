"""Diagnoses of jobs: whom they named and what they advised, so that it is not advised in vain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from anubis.core.diagnosing.cures import PastDiagnosis
from anubis.store.claims import diagnosis_lock
from anubis.store.database import Database, upsert
from anubis.store.mapping import Prose, RecordTable, converted

DIAGNOSES = RecordTable(
    "diagnoses",
    PastDiagnosis,
    sa.Column("cluster", sa.Text, primary_key=True),
    keys=("job", "at"),
    headline=Prose,
    nodes=converted(
        sa.Column("nodes", sa.Text, nullable=False),
        ",".join,
        lambda text: tuple(filter(None, text.split(","))),
    ),
)


class Diagnoses:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether this process diagnoses the jobs of the cluster while the block runs."""
        lock = diagnosis_lock(self._database, self._cluster)
        try:
            yield lock.has()
        finally:
            lock.give_back()

    def write(self, diagnosis: PastDiagnosis) -> None:
        with self._database.writing() as connection:
            row = DIAGNOSES.row(diagnosis, cluster=self._cluster)
            upsert(connection, DIAGNOSES.table, [row], replace=True)

    def since(self, at: float) -> list[PastDiagnosis]:
        """Oldest first."""
        query = DIAGNOSES.select().where(
            (DIAGNOSES.c.cluster == self._cluster) & (DIAGNOSES.c.at >= at)
        )
        with self._database.reading() as connection:
            return list(DIAGNOSES.records(connection, query.order_by(DIAGNOSES.c.at)))
