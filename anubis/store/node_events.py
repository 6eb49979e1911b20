"""Events in the lives of nodes: incidents, watches, repairs, jobs, and the attributes that imports
and campaigns report. What is reported twice is kept once, and a later report completes an earlier
one. An attribute has a row for each report, so that one can be taken back without the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from typing import Any, Generic, cast

import numpy as np
import sqlalchemy as sa

from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.status import Incident, Job, Repair, Watch
from anubis.core.history.tracks import IncidentColumns
from anubis.store.checksums import Checksum, ColumnChecksum, Damage
from anubis.store.database import PER_QUESTION, Database, upsert
from anubis.store.row_counts import change_row_count, recount, refuse_changed, wait_for_row_count
from anubis.store.row_mapping import Prose, R, RecordTable, Row
from anubis.store.shared_values import PARTICIPANTS, reference, sharing

Later = Callable[[float | None, float | None], float | None]  # of a kept end and a new one


def _newer(kept: float | None, reported: float | None) -> float | None:
    """Return the new end, unless it is missing: an incident that is over does not begin again."""
    return kept if reported is None else reported


def _longer(kept: float | None, reported: float | None) -> float | None:
    """Return the later of two ends; a watch without an end goes on."""
    return None if kept is None or reported is None else max(kept, reported)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The counts of a batch: new, known but completed, or known as it is."""

    new: int
    completed: int
    known: int


class HappeningTable(RecordTable[R]):
    """A table whose rows are completed by later reports of the same."""

    def __init__(
        self,
        name: str,
        record: type[R],
        *beside: sa.schema.SchemaItem,
        order: tuple[str, ...],  # of columns
        last: str = "ended_at",  # the column of the end
        later: Later = _newer,
        changing: tuple[str, ...] = (),  # columns of which the latest report counts
        **fields: Any,
    ) -> None:
        cluster = sa.Column("cluster", sa.Text, primary_key=True)
        by_cluster = sa.Index(f"{name}_by_cluster", "cluster")
        super().__init__(name, record, *beside, cluster, by_cluster, checked=True, **fields)
        self._order = [self.c[column] for column in order]
        self._last = last
        self._later = later
        self._changing = changing

    @property
    def last(self) -> sa.Column[Any]:
        """The column of the end."""
        return self.c[self._last]

    def all(self, connection: sa.Connection, cluster: str) -> list[R]:
        query = self.select().where(self.c.cluster == cluster)
        return list(self.records(connection, query.order_by(*self._order)))

    def keep(self, connection: sa.Connection, cluster: str, rows: Iterable[Row]) -> Kept:
        """Add new rows, and what is new of known ones. The first reporter of a row stays."""
        wait_for_row_count(connection, cluster, self)
        end, keys = self._last, self.table.primary_key.columns.keys()
        key_of = itemgetter(*keys)
        empty = dict.fromkeys(self.c.keys())  # beside a record that no import brought
        reported: dict[Any, Row] = {}
        for row in rows:
            ended = self._later(reported.get(key_of(row), row)[end], row[end])
            reported[key_of(row)] = empty | row | {end: ended}
        firsts = {row[keys[0]] for row in reported.values()}
        before = {key_of(row): row for row in self.rows_about(connection, firsts)}
        new = [row for key, row in reported.items() if key not in before]
        completed = [
            row | {end: ended} | {name: before[key][name] for name in ("told_by",) if name in row}
            for key, row in reported.items()
            if key in before
            and (
                (ended := self._later(before[key][end], row[end])) != before[key][end]
                or any(row[name] != before[key][name] for name in self._changing)
            )
        ]
        self.put(
            connection, cluster, (*new, *completed), [before[key_of(row)] for row in completed]
        )
        same = len(reported) - len(new) - len(completed)
        return Kept(new=len(new), completed=len(completed), known=same)

    def reopen(self, connection: sa.Connection, cluster: str, rows: Iterable[Row]) -> None:
        """Take back the ends of known rows that are now reported without one."""
        wait_for_row_count(connection, cluster, self)
        key_of = itemgetter(*self.table.primary_key.columns.keys())
        still_open = {key_of(row) for row in rows if row[self._last] is None}
        before = self.rows_about(connection, {first for first, *_ in still_open})
        ended = [row for row in before if key_of(row) in still_open and row[self._last] is not None]
        self.put(connection, cluster, [{**row, self._last: None} for row in ended], ended)

    def put(
        self,
        connection: sa.Connection,
        cluster: str,
        rows: Iterable[Row],
        instead: Iterable[sa.RowMapping] = (),
    ) -> None:
        """Write rows that are new, or that replace the rows in `instead`."""
        stamped = [self.stamp(row) for row in rows]
        upsert(connection, self.table, stamped, replace=True)
        change_row_count(connection, cluster, self, come=stamped, gone=instead)

    def rows_about(
        self, connection: sa.Connection, names: Iterable[str]
    ) -> Iterable[sa.RowMapping]:
        """Yield rows of any cluster by the first column of their key: the node, or the job."""
        for some in self._key_clauses(names):
            query = sa.select(self.table).where(some)
            yield from self.check_rows(connection.execute(query).mappings())

    def records_about(
        self, connection: sa.Connection, cluster: str, names: Iterable[str]
    ) -> Iterator[R]:
        """Yield the same for one cluster, as records."""
        query = self.select().where(self.c.cluster == cluster).order_by(*self._order)
        for some in self._key_clauses(names):
            yield from self.records(connection, query.where(some))

    def _key_clauses(self, names: Iterable[str]) -> Iterator[sa.ColumnElement[bool]]:
        first, *_ = self.table.primary_key
        ordered = sorted(set(names))
        for start in range(0, len(ordered), PER_QUESTION):
            yield first.in_(ordered[start : start + PER_QUESTION])


INCIDENTS = HappeningTable(
    "incidents",
    Incident,
    sa.Column("told_by", sa.Integer),  # the import that reported it first; NULL: no import
    sa.Column("ended_by", sa.Integer),  # the import that reported its end
    keys=("node", "category", "start"),
    start="started_at",
    end="ended_at",
    order=("node", "started_at", "category"),
    checksum=ColumnChecksum,
    unchecked=("told_by", "ended_by", "cluster"),  # of these a gate asks nothing; row counts count
)


def incident_columns(connection: sa.Connection, cluster: str) -> IncidentColumns:
    """Return all incidents in no order, as columns: ten times as fast as record after record."""
    checksum = cast(ColumnChecksum, INCIDENTS.checksum)
    query = sa.select(*checksum.short, checksum.column).where(INCIDENTS.c.cluster == cluster)
    rows = connection.execute(query).all()
    node, category, start, end, kept = zip(*rows, strict=True) if rows else ((),) * 5
    if not checksum.fit(kept, (node, category, start, end)):
        raise Damage("a row of incidents is damaged")
    return IncidentColumns(
        node=node,
        category=category,
        start=np.array(start, dtype=np.float64),
        end=np.nan_to_num(np.array(end, dtype=np.float64), nan=np.inf, posinf=np.inf),
    )


REPAIRS = HappeningTable(
    "repairs",
    Repair,
    keys=("node", "start"),
    start="started_at",
    end="ended_at",
    action=Prose,
    order=("node", "started_at"),
)

WATCHES = HappeningTable(
    "watches",
    Watch,
    sa.Column("told_by", sa.Integer),  # the import that reported it first; NULL: no import
    keys=("node", "since"),
    order=("node", "since"),
    last="until",
    later=_longer,
)

JOBS = HappeningTable(
    "jobs",
    Job,
    keys=("id",),
    nodes=reference("participants", PARTICIPANTS),
    start="started_at",
    end="ended_at",
    order=("started_at", "id"),
    changing=("participants",),
)


class Happenings(Generic[R]):
    """The records of one of these kinds."""

    def __init__(self, database: Database, kind: HappeningTable[R], cluster: str) -> None:
        self._database = database
        self._kind = kind
        self._cluster = cluster

    def add(self, batch: Iterable[R]) -> Kept:
        beside = {"cluster": self._cluster}
        with sharing(self._database) as transaction:
            connection = transaction.connection
            rows = transaction.rows(self._kind, ((record, beside) for record in batch))
            return self._kind.keep(connection, self._cluster, rows)

    def read_about(self, names: Iterable[str]) -> list[R]:
        """Return records by the first field of their key, the node or the job."""
        with self._database.reading() as connection:
            return list(self._kind.records_about(connection, self._cluster, names))

    def read_since(self, at: float) -> list[R]:
        """Return records that are not over, or that ended since then."""
        last = self._kind.last
        query = self._kind.select().where(
            self._kind.c.cluster == self._cluster, last.is_(None) | (last >= at)
        )
        with self._database.reading() as connection:
            return list(self._kind.records(connection, query))

    def all(self) -> list[R]:
        with self._database.reading() as connection:
            refuse_changed(connection, self._cluster, self._kind)
            return self._kind.all(connection, self._cluster)


class JobRows(Happenings[Job]):
    def __init__(self, database: Database, cluster: str) -> None:
        super().__init__(database, JOBS, cluster)

    def open_jobs(self) -> list[Job]:
        """Return jobs without a reported end: few beside all that there were."""
        with self._database.reading() as connection:
            query = JOBS.select().where(JOBS.c.cluster == self._cluster, JOBS.c.ended_at.is_(None))
            return list(JOBS.records(connection, query.order_by(JOBS.c.started_at, JOBS.c.id)))


class Watches(Happenings[Watch]):
    def __init__(self, database: Database, cluster: str) -> None:
        super().__init__(database, WATCHES, cluster)

    def watched_nodes(self, at: float) -> set[str]:
        """Return the nodes that belong to the fleet then, without records, which would take twice
        the time."""
        checksum = cast(Checksum, WATCHES.checksum)
        chosen = (WATCHES.c.until.is_(None)) | (WATCHES.c.until > at)
        query = sa.select(WATCHES.c.node, *checksum.short, checksum.column)
        query = query.where(WATCHES.c.cluster == self._cluster, chosen)
        with self._database.reading() as connection:
            refuse_changed(connection, self._cluster, WATCHES)
            watched = set()
            for node, *cells, kept in connection.execute(query):
                if not checksum.fits_short(kept, cells):
                    raise Damage("a row of watches is damaged")
                watched.add(node)
            return watched

    def imported_until(self) -> float | None:
        """Return the latest time until which an import says that a node was watched."""
        imported = (WATCHES.c.cluster == self._cluster, WATCHES.c.told_by.is_not(None))
        with self._database.reading() as connection:
            refuse_changed(connection, self._cluster, WATCHES)
            query = sa.select(sa.func.max(WATCHES.c.until)).where(*imported)
            latest: float | None = connection.execute(query).scalar()
            return latest

    def begin(self, nodes: Sequence[str], at: float) -> None:
        """Add nodes to the fleet."""
        with self._database.writing() as connection:
            begin_watches(connection, self._cluster, nodes, at)

    def end(self, nodes: Sequence[str], at: float) -> None:
        """Remove nodes from the fleet."""
        with self._database.writing() as connection:
            wait_for_row_count(connection, self._cluster, WATCHES)
            going_on = [
                watch
                for watch in WATCHES.rows_about(connection, nodes)
                if watch["cluster"] == self._cluster
                and (watch["until"] is None or watch["until"] > at)
            ]
            ended = [{**watch, "until": max(at, watch["since"])} for watch in going_on]
            WATCHES.put(connection, self._cluster, ended, going_on)


def begin_watches(connection: sa.Connection, cluster: str, nodes: Sequence[str], at: float) -> None:
    """Open a watch for each node of the cluster that has no open one."""
    wait_for_row_count(connection, cluster, WATCHES)
    before = [w for w in WATCHES.rows_about(connection, nodes) if w["cluster"] == cluster]
    watched = {watch["node"] for watch in before if watch["until"] is None}
    beside = {"told_by": None, "cluster": cluster}
    new = [WATCHES.row(Watch(node=node, since=at), **beside) for node in {*nodes} - watched]
    replaced = [w for w in before if w["since"] == at and w["node"] not in watched]
    WATCHES.put(connection, cluster, new, replaced)


BY_CAMPAIGNS = 0  # in place of the number of an import

ATTRIBUTES = RecordTable(
    "attributes",
    NodeAttributes,
    sa.Column("told_by", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Index("attributes_by_cluster", "cluster"),
    checked=True,
    keys=("node",),
    installed="installed_at",
)


def attributes_of(connection: sa.Connection, cluster: str) -> list[NodeAttributes]:
    """Return the attributes of nodes. The latest import counts; earlier ones and campaigns fill its
    gaps."""
    query = (
        ATTRIBUTES.select()
        .where(ATTRIBUTES.c.cluster == cluster)
        .order_by(ATTRIBUTES.c.told_by.desc())
    )
    of_node: dict[str, NodeAttributes] = {}
    for earlier in ATTRIBUTES.records(connection, query):
        latest = of_node.get(earlier.node)
        of_node[earlier.node] = complete(latest, earlier) if latest else earlier
    return list(of_node.values())


def complete(attributes: NodeAttributes, earlier: NodeAttributes) -> NodeAttributes:
    open_ = [name for name, value in asdict(attributes).items() if value in (None, "")]
    return replace(attributes, **{name: getattr(earlier, name) for name in open_})


def keep_attributes(
    connection: sa.Connection, attributes: Iterable[NodeAttributes], *, told_by: int, cluster: str
) -> Kept:
    """Write rows for what was not known before."""
    before = {record.node: record for record in attributes_of(connection, cluster)}
    new, changed, same = [], [], 0
    for latest in attributes:
        earlier = before.get(latest.node)
        if earlier is None:
            new.append(latest)
        elif complete(latest, earlier) != earlier:
            changed.append(latest)
        else:
            same += 1
    rows = [ATTRIBUTES.row(latest, told_by=told_by, cluster=cluster) for latest in (*new, *changed)]
    with recount(connection, cluster, ATTRIBUTES):
        upsert(connection, ATTRIBUTES.table, rows, replace=True)
    return Kept(new=len(new), completed=len(changed), known=same)
