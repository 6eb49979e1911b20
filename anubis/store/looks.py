"""The last look at each watched job of a cluster: its time, its result, what it saw, and where the
next look goes on."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass

import sqlalchemy as sa

from anubis.core.watch.rounds import KeptLook
from anubis.store.claims import watch_lock
from anubis.store.database import Database, upsert
from anubis.store.row_mapping import Prose, RecordTable, converted_form, plain_form

LOOKS = RecordTable(
    "looks", KeptLook, sa.Column("cluster", sa.Text, primary_key=True), keys=("job",), trouble=Prose
)


@dataclass(frozen=True, kw_only=True)
class LookDetails:
    """The lines of the last look at a job that saw anything."""

    job: str
    lines: str  # as anubis watch --json prints them
    page: str  # as anubis watch --html writes it
    stream: bytes  # what the rule of ten minutes remembers; empty: nothing


DETAILS = RecordTable(
    "look_details",
    LookDetails,
    sa.Column("cluster", sa.Text, primary_key=True),
    keys=("job",),
    page=converted_form(
        sa.Column("page", sa.LargeBinary, nullable=False),
        lambda text: zlib.compress(text.encode(errors="replace")),
        lambda cell: zlib.decompress(cell).decode(),
    ),
    stream=plain_form(sa.Column("stream", sa.LargeBinary, nullable=False)),
    lines=Prose,
)


class Looks:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def alone(self) -> AbstractContextManager[bool]:
        """Return a block that yields true if this process watches the jobs of the cluster."""
        return watch_lock(self._database, self._cluster).alone()

    def all(self) -> list[KeptLook]:
        """Return looks by job."""
        query = LOOKS.select().where(LOOKS.c.cluster == self._cluster)
        with self._database.reading() as connection:
            return list(LOOKS.records(connection, query.order_by(LOOKS.c.job)))

    def lines(self) -> dict[str, str]:
        """Map each job to the lines of the last look that saw anything."""
        query = sa.select(DETAILS.c.job, DETAILS.c.lines).where(DETAILS.c.cluster == self._cluster)
        with self._database.reading() as connection:
            return {row.job: row.lines for row in connection.execute(query)}

    def details(self, job: str) -> LookDetails | None:
        chosen = (DETAILS.c.cluster == self._cluster) & (DETAILS.c.job == job)
        with self._database.reading() as connection:
            return next(DETAILS.records(connection, DETAILS.select().where(chosen)), None)

    def write(self, look: KeptLook, details: LookDetails | None = None) -> None:
        """Replace the look before. A look that saw nothing leaves what an earlier one saw."""
        with self._database.writing() as connection:
            row = LOOKS.row(look, cluster=self._cluster)
            upsert(connection, LOOKS.table, [row], replace=True)
            if details:
                row = DETAILS.row(details, cluster=self._cluster)
                upsert(connection, DETAILS.table, [row], replace=True)

    def forget(self, jobs: Collection[str]) -> None:
        with self._database.writing() as connection:
            for table in (LOOKS.table, DETAILS.table):
                gone = (table.c.cluster == self._cluster) & table.c.job.in_(jobs)
                connection.execute(sa.delete(table).where(gone))
