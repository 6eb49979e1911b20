"""Diagnoses of jobs: what they named and advised, so that it is not advised in vain, and, for a
while, their evidence."""

from __future__ import annotations

import zlib
from contextlib import AbstractContextManager
from dataclasses import dataclass

import sqlalchemy as sa

from anubis.core.amounts import DAY_S
from anubis.core.diagnose.cures import PastDiagnosis
from anubis.store.claims import diagnosis_lock
from anubis.store.database import Database, upsert
from anubis.store.row_mapping import Prose, RecordTable, converted_form

DETAILS_KEPT_S = 30 * DAY_S  # the diagnosis itself stays
SAME_S = 0.001  # as precisely as an address says when it was

DIAGNOSES = RecordTable(
    "diagnoses",
    PastDiagnosis,
    sa.Column("cluster", sa.Text, primary_key=True),
    keys=("job", "at"),
    headline=Prose,
    nodes=converted_form(
        sa.Column("nodes", sa.Text, nullable=False),
        ",".join,
        lambda text: tuple(filter(None, text.split(","))),
    ),
)


@dataclass(frozen=True, kw_only=True)
class DiagnosisDetails:
    job: str
    at: float
    lines: str  # as anubis diagnose --json prints them
    page: str  # what its page shows, as JSON


def _pack(text: str) -> bytes:
    return zlib.compress(text.encode(errors="replace"))


def _unpack(cell: bytes) -> str:
    return zlib.decompress(cell).decode()


DETAILS = RecordTable(
    "diagnosis_details",
    DiagnosisDetails,
    sa.Column("cluster", sa.Text, primary_key=True),
    keys=("job", "at"),
    lines=converted_form(sa.Column("lines", sa.LargeBinary, nullable=False), _pack, _unpack),
    page=converted_form(sa.Column("page", sa.LargeBinary, nullable=False), _pack, _unpack),
)


class Diagnoses:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def alone(self) -> AbstractContextManager[bool]:
        """Return a block that yields true if this process diagnoses the jobs of the cluster."""
        return diagnosis_lock(self._database, self._cluster).alone()

    def write(self, diagnosis: PastDiagnosis, details: DiagnosisDetails | None = None) -> None:
        """Keep a diagnosis; details that are long older than it are dropped."""
        with self._database.writing() as connection:
            row = DIAGNOSES.row(diagnosis, cluster=self._cluster)
            upsert(connection, DIAGNOSES.table, [row], replace=True)
            if details:
                row = DETAILS.row(details, cluster=self._cluster)
                upsert(connection, DETAILS.table, [row], replace=True)
            is_old = DETAILS.c.at < diagnosis.at - DETAILS_KEPT_S
            old = (DETAILS.c.cluster == self._cluster) & is_old
            connection.execute(sa.delete(DETAILS.table).where(old))

    def read_since(self, at: float) -> list[PastDiagnosis]:
        """Return diagnoses since then, oldest first."""
        return self._read_chosen(DIAGNOSES.c.at >= at)

    def naming(self, at: float) -> list[PastDiagnosis]:
        """Return diagnoses since then that suspect a node, oldest first."""
        return self._read_chosen((DIAGNOSES.c.at >= at) & (DIAGNOSES.c.nodes != ""))

    def _read_chosen(self, chosen: sa.ColumnElement[bool]) -> list[PastDiagnosis]:
        query = DIAGNOSES.select().where((DIAGNOSES.c.cluster == self._cluster) & chosen)
        with self._database.reading() as connection:
            return list(DIAGNOSES.records(connection, query.order_by(DIAGNOSES.c.at)))

    def detailed_jobs(self) -> set[tuple[str, float]]:
        """Return job and time of the diagnoses whose details are kept."""
        query = sa.select(DETAILS.c.job, DETAILS.c.at).where(DETAILS.c.cluster == self._cluster)
        with self._database.reading() as connection:
            return {(row.job, row.at) for row in connection.execute(query)}

    def details(self, job: str, at: float) -> DiagnosisDetails | None:
        chosen = (DETAILS.c.cluster == self._cluster) & (DETAILS.c.job == job)
        chosen &= DETAILS.c.at.between(at - SAME_S, at + SAME_S)
        with self._database.reading() as connection:
            return next(DETAILS.records(connection, DETAILS.select().where(chosen)), None)
