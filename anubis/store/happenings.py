"""What happened to nodes: incidents, watches, repairs, jobs. What is reported twice is kept once,
and a later report completes an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from sqlalchemy import Column, Connection, Integer, Table, select

from anubis.core.past.status import Incident, Job, Repair, Watch
from anubis.store.database import PER_QUESTION, Database, upsert
from anubis.store.mapping import Prose, R, RecordTable, Row
from anubis.store.sharing import PARTICIPANTS, reference, sharing

INCIDENTS = RecordTable(
    "incidents",
    Incident,
    Column("told_by", Integer),  # the import that reported it first; NULL: no import
    Column("ended_by", Integer),  # the import that reported its end
    keys=("node", "category", "start"),
    start="started_at",
    end="ended_at",
)

REPAIRS = RecordTable(
    "repairs",
    Repair,
    keys=("node", "start"),
    start="started_at",
    end="ended_at",
    action=Prose,
)

WATCHES = RecordTable(
    "watches",
    Watch,
    Column("told_by", Integer),  # the import that reported it first; NULL: no import
    keys=("node", "since"),
)

JOBS = RecordTable(
    "jobs",
    Job,
    keys=("id",),
    nodes=reference("participants", PARTICIPANTS),
    start="started_at",
    end="ended_at",
)


def _newer(known: float | None, given: float | None) -> float | None:
    """No end is no news: an incident that is over does not begin again."""
    return known if given is None else given


def _longer(known: float | None, given: float | None) -> float | None:
    """A watch without an end goes on, and of two ends the later one counts."""
    return None if known is None or given is None else max(known, given)


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    """How rows of a kind are completed and ordered, by the names of their columns."""

    end: str = "ended_at"
    later: Callable[[float | None, float | None], float | None] = (
        _newer  # of a known end and a new one
    )
    order: tuple[str, ...]


UPKEEP: Mapping[Table, Upkeep] = {
    INCIDENTS.table: Upkeep(order=("node", "started_at", "category")),
    REPAIRS.table: Upkeep(order=("node", "started_at")),
    WATCHES.table: Upkeep(order=("node", "since"), end="until", later=_longer),
    JOBS.table: Upkeep(order=("started_at", "id")),
}


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What became of a batch: new, known but completed, or known as it is."""

    new: int
    completed: int
    known: int


class Happenings(Generic[R]):
    """The records of one of these kinds."""

    def __init__(self, database: Database, kind: RecordTable[R]) -> None:
        self._database = database
        self._kind = kind

    def add(self, batch: Iterable[R]) -> Kept:
        with sharing(self._database) as transaction:
            rows = transaction.rows(self._kind, ((record, {}) for record in batch))
            return keep(transaction.connection, self._kind.table, rows)

    def all(self) -> list[R]:
        with self._database.reading() as connection:
            return read_all(connection, self._kind)


class Watches(Happenings[Watch]):
    def __init__(self, database: Database) -> None:
        super().__init__(database, WATCHES)

    def end(self, nodes: Sequence[str], at: float) -> None:
        """Nodes that were removed from the fleet."""
        with self._database.writing() as connection:
            watches = _rows_of(connection, WATCHES.table, "node", sorted(set(nodes)))
            going_on = [dict(row) for row in watches if row["until"] is None or row["until"] > at]
            ended = [row | {"until": max(at, row["since"])} for row in going_on]
            _upsert(connection, WATCHES.table, ended)


def read_all(connection: Connection, kind: RecordTable[R]) -> list[R]:
    order = (kind.c[name] for name in UPKEEP[kind.table].order)
    return list(kind.records(connection, kind.select().order_by(*order)))


def begin_watches(connection: Connection, nodes: Sequence[str], at: float) -> None:
    """Open a watch for each node that has no open one."""
    watches = _rows_of(connection, WATCHES.table, "node", sorted(set(nodes)))
    watched = {row["node"] for row in watches if row["until"] is None}
    new = [WATCHES.row(Watch(node=node, since=at), told_by=None) for node in {*nodes} - watched]
    _upsert(connection, WATCHES.table, new)


def keep(connection: Connection, table: Table, rows: Iterable[Row]) -> Kept:
    """Add what is new, and the ends of what is known. Who reported a row first stays."""
    end, later = UPKEEP[table].end, UPKEEP[table].later
    keys = [column.name for column in table.primary_key]
    empty = dict.fromkeys(table.c.keys())  # beside a record that no import brought
    given: dict[tuple[Any, ...], Row] = {}
    for row in (empty | row for row in rows):
        key = tuple(row[name] for name in keys)
        given[key] = row if key not in given else row | {end: later(given[key][end], row[end])}
    known = {
        tuple(row[name] for name in keys): row
        for row in _rows_of(connection, table, keys[0], sorted({key[0] for key in given}))
    }
    new = [row for key, row in given.items() if key not in known]
    completed = [
        row | {end: last} | {name: known[key][name] for name in ("told_by",) if name in row}
        for key, row in given.items()
        if key in known and (last := later(known[key][end], row[end])) != known[key][end]
    ]
    _upsert(connection, table, [*new, *completed])
    return Kept(
        new=len(new), completed=len(completed), known=len(given) - len(new) - len(completed)
    )


def _rows_of(
    connection: Connection, table: Table, column: str, values: Sequence[str]
) -> Iterable[Any]:
    for start in range(0, len(values), PER_QUESTION):
        some = table.c[column].in_(values[start : start + PER_QUESTION])
        yield from connection.execute(select(table).where(some)).mappings()


def _upsert(connection: Connection, table: Table, rows: list[Row]) -> None:
    if not rows:
        return
    keys = [column.name for column in table.primary_key]
    statement = upsert(connection, table)
    others = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    # Sorted, so that two writers who share rows wait for each other in one order only.
    batch = sorted(rows, key=lambda row: [row[name] for name in keys])
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others), batch)
