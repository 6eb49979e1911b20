"""Files with incidents and watches that were taken over, so that a wrong one can be taken back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, delete, insert, update

from anubis.core.errors import StoreError
from anubis.core.past.status import Incident, Watch
from anubis.store.database import Database
from anubis.store.happenings import INCIDENTS, WATCHES, Kept, keep
from anubis.store.mapping import RecordTable, Row, side_by_side

SUGGESTED = 10  # imports that an error lists: the latest


@dataclass(frozen=True, kw_only=True)
class Import:
    """A file with incidents that was taken over."""

    key: int
    at: float
    file: str
    kept: Kept


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """What went with an import that was taken back."""

    incidents: int
    reopened: int  # incidents that others reported and it ended
    watches: int


IMPORTS = RecordTable("imports", Import, keys=("key",), kept=side_by_side(Kept))


class Imports:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, file: str, at: float, incidents: Iterable[Incident], watches: Iterable[Watch]
    ) -> Import:
        with self._database.writing() as connection:
            begun = insert(IMPORTS.table).values(at=at, file=file, new=0, completed=0, known=0)
            key = int(connection.execute(begun.returning(IMPORTS.c.key)).scalar_one())
            kept = keep(
                connection, INCIDENTS.table, (_told(key, incident) for incident in incidents)
            )
            told_watches = (WATCHES.row(watch, told_by=key) for watch in watches)
            keep(connection, WATCHES.table, told_watches)
            counts = update(IMPORTS.table).where(IMPORTS.c.key == key).values(**asdict(kept))
            connection.execute(counts)
        return Import(key=key, at=at, file=file, kept=kept)

    def newest(self) -> list[Import]:
        with self._database.reading() as connection:
            return _newest(connection)

    def forget(self, key: int) -> Forgotten:
        """Remove what that import was the first to report. An incident that it only ended is open
        again; what was known before stays."""
        with self._database.writing() as connection:
            known = [imported.key for imported in _newest(connection)]
            if key not in known:
                numbers = ", ".join(map(str, known[:SUGGESTED])) or "there is none"
                raise StoreError(f"import {key} is not in the history; known: {numbers}")
            return _forget(connection, key)


def _told(key: int, incident: Incident) -> Row:
    ended_by = None if incident.end is None else key
    return INCIDENTS.row(incident, told_by=key, ended_by=ended_by)


def _newest(connection: Connection) -> list[Import]:
    query = IMPORTS.select().order_by(IMPORTS.c.key.desc())
    return list(IMPORTS.records(connection, query))


def _forget(connection: Connection, key: int) -> Forgotten:
    incidents, watches = INCIDENTS.table, WATCHES.table
    reported = connection.execute(delete(incidents).where(incidents.c.told_by == key))
    ended = update(incidents).where(incidents.c.ended_by == key)
    reopened = connection.execute(ended.values(ended_at=None, ended_by=None))
    watched = connection.execute(delete(watches).where(watches.c.told_by == key))
    connection.execute(delete(IMPORTS.table).where(IMPORTS.c.key == key))
    return Forgotten(
        incidents=reported.rowcount, reopened=reopened.rowcount, watches=watched.rowcount
    )
