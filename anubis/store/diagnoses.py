"""Diagnoses of jobs: whom they named and what they advised, so that it is not advised in vain."""

from __future__ import annotations

import sqlalchemy as sa

from anubis.core.diagnosing.cures import PastDiagnosis
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
