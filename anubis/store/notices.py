"""Events that are kept: whole documents, with columns to search by beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

import sqlalchemy as sa

from anubis.core.history.events import KEPT, KeptEvent, Notice, OfJob
from anubis.store import codec
from anubis.store.database import PER_QUESTION, Database, add_new
from anubis.store.mapping import Form, RecordTable
from anubis.store.tallies import change_tally, refuse_changed, wait_for_tally

EVENT = Form(
    columns=(
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    ),
    write=lambda event, _: (event.kind, codec.dump(event)),
    reader=lambda place: lambda row: codec.load(KEPT[row[place]], row[place + 1]),
)
OF_JOBS = sorted(kind for kind, event in KEPT.items() if event in get_args(OfJob))
NOTICES = RecordTable(
    "notices",
    Notice,
    sa.Column("cluster", sa.Text, primary_key=True),
    checked=True,
    keys=("id",),
    event=EVENT,
)


class Notices:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def add(self, notice: Notice) -> bool:
        """Keep a notice; true if it is new. One that is known by its id stays as it was first
        reported."""
        return self.add_all([notice])[0]

    def add_all(self, notices: Sequence[Notice]) -> list[bool]:
        """Keep notices and return, for each, whether it is new; of two with one id only the first
        may be."""
        first: dict[str, Notice] = {}
        for notice in notices:
            first.setdefault(notice.id, notice)
        rows = [NOTICES.row(notice, cluster=self._cluster) for notice in first.values()]
        with self._database.writing() as connection:
            wait_for_tally(connection, self._cluster, NOTICES)
            new = {key.id for key in add_new(connection, NOTICES.table, rows)}
            new_rows = [row for row in rows if row["id"] in new]
            change_tally(connection, self._cluster, NOTICES, come=new_rows)
        return [notice.id in new and first[notice.id] is notice for notice in notices]

    def all(self) -> list[Notice]:
        with self._database.reading() as connection:
            refuse_changed(connection, self._cluster, NOTICES)
            return all_notices(connection, self._cluster)

    def apart_from_jobs(self) -> list[Notice]:
        """Return all notices except those of jobs, in order of time."""
        with self._database.reading() as connection:
            refuse_changed(connection, self._cluster, NOTICES)
            return apart_from_jobs(connection, self._cluster)

    def read_kind(self, kind: type[KeptEvent]) -> list[Notice]:
        """Return notices of one kind, in order of time."""
        chosen = (NOTICES.c.cluster == self._cluster) & (NOTICES.c.event == kind.kind)
        query = NOTICES.select().where(chosen).order_by(NOTICES.c.at, NOTICES.c.id)
        with self._database.reading() as connection:
            return list(NOTICES.records(connection, query))


def all_notices(connection: sa.Connection, cluster: str) -> list[Notice]:
    """Return all notices of a cluster, in order of time."""
    query = NOTICES.select().where(NOTICES.c.cluster == cluster)
    query = query.order_by(NOTICES.c.at, NOTICES.c.id)
    return list(NOTICES.records(connection, query))


def apart_from_jobs(connection: sa.Connection, cluster: str) -> list[Notice]:
    """Return all notices except those of jobs, in order of time: few beside those of jobs."""
    # a word that is none of these may be a damaged one: it is read, and refused
    query = NOTICES.select().where(NOTICES.c.cluster == cluster, NOTICES.c.event.not_in(OF_JOBS))
    query = query.order_by(NOTICES.c.at, NOTICES.c.id)
    return list(NOTICES.records(connection, query))


def marks_apart_from_jobs(connection: sa.Connection, cluster: str) -> list[tuple[str, int | None]]:
    """Return ids and checksums of notices, except those of jobs."""
    of_cluster = (NOTICES.c.cluster == cluster, NOTICES.c.event.not_in(OF_JOBS))
    query = sa.select(NOTICES.c.id, NOTICES.c.checksum).where(*of_cluster).order_by(NOTICES.c.id)
    return [(id, checksum) for id, checksum in connection.execute(query)]


def ids_since(connection: sa.Connection, cluster: str, since: float) -> Iterator[str]:
    """Return ids of what happened since then."""
    chosen = (NOTICES.c.cluster == cluster) & (NOTICES.c.at >= since)
    return connection.execute(sa.select(NOTICES.c.id).where(chosen)).scalars()


def told_by_id(
    connection: sa.Connection, cluster: str, ids: Sequence[str]
) -> tuple[list[Notice], list[int]]:
    """Return notices, and the upper halves of their checksums."""
    notices: list[Notice] = []
    halves: list[int] = []
    read, place = NOTICES.reader(), NOTICES.place(NOTICES.c.checksum)
    query = NOTICES.select().where(NOTICES.c.cluster == cluster)
    for start in range(0, len(ids), PER_QUESTION):
        some = NOTICES.c.id.in_(ids[start : start + PER_QUESTION])
        for row in connection.execute(query.where(some)):
            notices.append(read(row))
            halves.append(row[place] >> 32)
    return notices, halves
