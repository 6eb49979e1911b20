"""Events that are kept: whole documents, with columns to search by beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from anubis.core.history.events import KEPT, EventRecord, KeptEvent
from anubis.store import codec
from anubis.store.database import PER_QUESTION, Database, add_new
from anubis.store.row_counts import change_row_count, refuse_changed, wait_for_row_count
from anubis.store.row_mapping import Form, RecordTable

EVENT = Form(
    columns=(
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    ),
    write=lambda event, _: (event.kind, codec.dump(event)),
    reader=lambda place: lambda row: codec.load(KEPT[row[place]], row[place + 1]),
)
OF_JOBS = sorted(kind for kind, event in KEPT.items() if event.is_of_job)
EVENT_RECORDS = RecordTable(
    "event_records",
    EventRecord,
    sa.Column("cluster", sa.Text, primary_key=True),
    checked=True,
    keys=("id",),
    event=EVENT,
)


class EventRecords:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def add(self, event_record: EventRecord) -> bool:
        """Keep an event record; true if it is new. One that is known by its id stays as it was
        first reported."""
        return self.add_all([event_record])[0]

    def add_all(self, event_records: Sequence[EventRecord]) -> list[bool]:
        """Keep event records and return, for each, whether it is new; of two with one id only the
        first may be."""
        first: dict[str, EventRecord] = {}
        for event_record in event_records:
            first.setdefault(event_record.id, event_record)
        rows = [
            EVENT_RECORDS.row(event_record, cluster=self._cluster)
            for event_record in first.values()
        ]
        with self._database.writing() as connection:
            wait_for_row_count(connection, self._cluster, EVENT_RECORDS)
            new = {key.id for key in add_new(connection, EVENT_RECORDS.table, rows)}
            new_rows = [row for row in rows if row["id"] in new]
            change_row_count(connection, self._cluster, EVENT_RECORDS, come=new_rows)
        return [
            event_record.id in new and first[event_record.id] is event_record
            for event_record in event_records
        ]

    def kept_ids(self, ids: Sequence[str]) -> set[str]:
        """Return those of the ids under which an event record is kept."""
        query = sa.select(EVENT_RECORDS.c.id).where(EVENT_RECORDS.c.cluster == self._cluster)
        with self._database.reading() as connection:
            return {
                id
                for start in range(0, len(ids), PER_QUESTION)
                for id in connection.execute(
                    query.where(EVENT_RECORDS.c.id.in_(ids[start : start + PER_QUESTION]))
                ).scalars()
            }

    def all(self) -> list[EventRecord]:
        with self._database.reading() as connection:
            refuse_changed(connection, self._cluster, EVENT_RECORDS)
            return all_event_records(connection, self._cluster)

    def apart_from_jobs(self) -> list[EventRecord]:
        """Return all event records except those of jobs, in order of time."""
        with self._database.reading() as connection:
            refuse_changed(connection, self._cluster, EVENT_RECORDS)
            return apart_from_jobs(connection, self._cluster)

    def read_kind(self, kind: type[KeptEvent]) -> list[EventRecord]:
        """Return event records of one kind, in order of time."""
        chosen = (EVENT_RECORDS.c.cluster == self._cluster) & (EVENT_RECORDS.c.event == kind.kind)
        query = (
            EVENT_RECORDS.select().where(chosen).order_by(EVENT_RECORDS.c.at, EVENT_RECORDS.c.id)
        )
        with self._database.reading() as connection:
            return list(EVENT_RECORDS.records(connection, query))


def all_event_records(connection: sa.Connection, cluster: str) -> list[EventRecord]:
    """Return all event records of a cluster, in order of time."""
    query = EVENT_RECORDS.select().where(EVENT_RECORDS.c.cluster == cluster)
    query = query.order_by(EVENT_RECORDS.c.at, EVENT_RECORDS.c.id)
    return list(EVENT_RECORDS.records(connection, query))


def apart_from_jobs(connection: sa.Connection, cluster: str) -> list[EventRecord]:
    """Return all event records except those of jobs, in order of time: few beside those of jobs."""
    # a word that is none of these may be a damaged one: it is read, and refused
    query = EVENT_RECORDS.select().where(
        EVENT_RECORDS.c.cluster == cluster, EVENT_RECORDS.c.event.not_in(OF_JOBS)
    )
    query = query.order_by(EVENT_RECORDS.c.at, EVENT_RECORDS.c.id)
    return list(EVENT_RECORDS.records(connection, query))


def marks_apart_from_jobs(connection: sa.Connection, cluster: str) -> list[tuple[str, int | None]]:
    """Return ids and checksums of event records, except those of jobs."""
    of_cluster = (EVENT_RECORDS.c.cluster == cluster, EVENT_RECORDS.c.event.not_in(OF_JOBS))
    query = (
        sa.select(EVENT_RECORDS.c.id, EVENT_RECORDS.c.checksum)
        .where(*of_cluster)
        .order_by(EVENT_RECORDS.c.id)
    )
    return [(id, checksum) for id, checksum in connection.execute(query)]


def ids_since(connection: sa.Connection, cluster: str, since: float) -> Iterator[str]:
    """Return ids of what happened since then."""
    chosen = (EVENT_RECORDS.c.cluster == cluster) & (EVENT_RECORDS.c.at >= since)
    return connection.execute(sa.select(EVENT_RECORDS.c.id).where(chosen)).scalars()


def event_records_by_id(
    connection: sa.Connection, cluster: str, ids: Sequence[str]
) -> tuple[list[EventRecord], list[int]]:
    """Return event records, and the upper halves of their checksums."""
    event_records: list[EventRecord] = []
    halves: list[int] = []
    read, place = EVENT_RECORDS.reader(), EVENT_RECORDS.place(EVENT_RECORDS.c.checksum)
    query = EVENT_RECORDS.select().where(EVENT_RECORDS.c.cluster == cluster)
    for start in range(0, len(ids), PER_QUESTION):
        some = EVENT_RECORDS.c.id.in_(ids[start : start + PER_QUESTION])
        for row in connection.execute(query.where(some)):
            event_records.append(read(row))
            halves.append(row[place] >> 32)
    return event_records, halves
