"""Imported files, so that a wrong one can be taken back: incidents with watches, attributes of
nodes, measurements as campaigns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from anubis.core.errors import UnknownRecordError
from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.status import Incident, Watch
from anubis.store.campaigns import forget_campaign
from anubis.store.database import Database
from anubis.store.node_events import ATTRIBUTES, INCIDENTS, WATCHES, Kept, keep_attributes
from anubis.store.row_counts import recount
from anubis.store.row_mapping import RecordTable, Row, side_by_side

SUGGESTED = 10  # imports that an error lists: the latest


@dataclass(frozen=True, kw_only=True)
class Import:
    """A file that was imported."""

    key: int
    at: float
    file: str  # empty if it is no longer known
    cluster: str
    what: str  # incidents, nodes or measurements
    campaign: str  # that the measurements became
    kept: Kept  # incidents, nodes, or the one campaign


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """The counts of what was removed with an import."""

    incidents: int
    reopened: int  # incidents that others reported and it ended
    watches: int
    nodes: int  # whose attributes it told
    campaign: str  # that its measurements had become


IMPORTS = RecordTable("imports", Import, keys=("key",), kept=side_by_side(Kept))


class Imports:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        file: str,
        at: float,
        cluster: str,
        incidents: Iterable[Incident],
        watches: Iterable[Watch],
        *,
        is_news: bool = False,
    ) -> Import:
        """Add incidents of a file, which may be old, or what a monitor reports now (`is_news`): one
        that it shows without an end goes on, whatever was reported before."""
        with self._database.writing() as connection:
            key = _begin(connection, what="incidents", file=file, at=at, cluster=cluster)
            beside = {"told_by": key, "cluster": cluster}
            reported = [_incident_row(incident, beside) for incident in incidents]
            if is_news:
                INCIDENTS.reopen(connection, cluster, reported)
            kept = INCIDENTS.keep(connection, cluster, reported)
            watched = (WATCHES.row(watch, **beside) for watch in watches)
            WATCHES.keep(connection, cluster, watched)
            return _end(connection, key, kept)

    def add_attributes(
        self, file: str, at: float, cluster: str, attributes: Iterable[NodeAttributes]
    ) -> Import:
        with self._database.writing() as connection:
            key = _begin(connection, what="nodes", file=file, at=at, cluster=cluster)
            kept = keep_attributes(connection, attributes, told_by=key, cluster=cluster)
            return _end(connection, key, kept)

    def add_campaign(self, file: str, at: float, cluster: str, campaign: str) -> Import:
        """Note the import of a campaign that is in the history."""
        with self._database.writing() as connection:
            origin = {"file": file, "at": at, "cluster": cluster, "campaign": campaign}
            key = _begin(connection, what="measurements", **origin)
            return _end(connection, key, Kept(new=1, completed=0, known=0))

    def find_campaign(self, campaign: str) -> Import:
        with self._database.reading() as connection:
            query = IMPORTS.select().where(IMPORTS.c.campaign == campaign)
            return next(IMPORTS.records(connection, query))

    def newest(self) -> list[Import]:
        with self._database.reading() as connection:
            return _newest(connection)

    def forget(self, key: int) -> Forgotten:
        """Remove what that import was the first to report. An incident that it only ended is open
        again; what was known before stays."""
        with self._database.writing() as connection:
            keys = [imported.key for imported in _newest(connection)]
            if key not in keys:
                numbers = ", ".join(map(str, keys[:SUGGESTED])) or "there is none"
                raise UnknownRecordError(f"import {key} is not in the history; known: {numbers}")
            return _forget(connection, key)


def _begin(connection: sa.Connection, **origin: object) -> int:
    row = {"campaign": "", **origin, "new": 0, "completed": 0, "known": 0}
    begun = sa.insert(IMPORTS.table).values(**row)
    return int(connection.execute(begun.returning(IMPORTS.c.key)).scalar_one())


def _end(connection: sa.Connection, key: int, kept: Kept) -> Import:
    counts = sa.update(IMPORTS.table).where(IMPORTS.c.key == key).values(**asdict(kept))
    connection.execute(counts)
    return next(IMPORTS.records(connection, IMPORTS.select().where(IMPORTS.c.key == key)))


def _incident_row(incident: Incident, beside: Row) -> Row:
    ended_by = None if incident.end is None else beside["told_by"]
    return INCIDENTS.row(incident, **beside, ended_by=ended_by)


def _newest(connection: sa.Connection) -> list[Import]:
    query = IMPORTS.select().order_by(IMPORTS.c.key.desc())
    return list(IMPORTS.records(connection, query))


def _forget(connection: sa.Connection, key: int) -> Forgotten:
    incidents, watches = INCIDENTS.table, WATCHES.table
    of_import = sa.select(IMPORTS.c.campaign, IMPORTS.c.cluster).where(IMPORTS.c.key == key)
    campaign, cluster = connection.execute(of_import).one()
    with recount(connection, cluster, INCIDENTS, WATCHES, ATTRIBUTES):
        reported = connection.execute(sa.delete(incidents).where(incidents.c.told_by == key))
        reopened = INCIDENTS.revise(
            connection, incidents.c.ended_by == key, ended_at=None, ended_by=None
        )
        watched = connection.execute(sa.delete(watches).where(watches.c.told_by == key))
        nodes = connection.execute(sa.delete(ATTRIBUTES.table).where(ATTRIBUTES.c.told_by == key))
    if campaign:
        forget_campaign(connection, campaign)
    connection.execute(sa.delete(IMPORTS.table).where(IMPORTS.c.key == key))
    return Forgotten(
        incidents=reported.rowcount,
        reopened=reopened,
        watches=watched.rowcount,
        nodes=nodes.rowcount,
        campaign=campaign,
    )
