"""What happened to nodes, as rows: incidents, watches, repairs, jobs. What is told twice is kept
once, and what is told later completes it. Behind the verbs of `History`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from anubis.core.past.status import Incident, Repair, Validation, Watch
from anubis.core.records import CampaignKind, Ended, Judgement
from anubis.store.schema import (
    Row,
    campaigns,
    executions,
    imports,
    incidents,
    node_verdicts,
    participant_nodes,
    repairs,
    watches,
)

VALIDATING = [kind.value for kind in CampaignKind if kind.validates]
PER_QUESTION = 1000  # values in one IN (…); SQLite bears 32,766


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What became of a batch: new, known but completed, or known as it is."""

    new: int
    completed: int
    known: int


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
    reopened: int  # incidents that others told and it ended
    watches: int


def keep(connection: Connection, table: Table, rows: Iterable[Row], ends: str) -> Kept:
    """Rows with what is known already completed by a later word on its end.

    No end is no word: an incident that is over does not begin again. But a watch without an end
    goes on, and of two ends of a watch the later one counts. Who told of it first stays.
    """
    later = _longer if table is watches else _newer
    keys = [column.name for column in table.primary_key]
    told: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        told[key] = row if key not in told else row | {ends: later(told[key][ends], row[ends])}
    first = keys[0]
    known = {
        tuple(row[name] for name in keys): row
        for row in _rows_of(connection, table, first, sorted({key[0] for key in told}))
    }
    new = [row for key, row in told.items() if key not in known]
    completed = [
        row | {ends: end} | {name: known[key][name] for name in ("told_by",) if name in row}
        for key, row in told.items()
        if key in known and (end := later(known[key][ends], row[ends])) != known[key][ends]
    ]
    _upsert(connection, table, keys, [*new, *completed])
    return Kept(new=len(new), completed=len(completed), known=len(told) - len(new) - len(completed))


def _newer(known: float | None, told: float | None) -> float | None:
    return known if told is None else told


def _longer(known: float | None, told: float | None) -> float | None:
    return None if known is None or told is None else max(known, told)


def _rows_of(
    connection: Connection, table: Table, column: str, values: Sequence[str]
) -> Iterable[Any]:
    for start in range(0, len(values), PER_QUESTION):
        some = table.c[column].in_(values[start : start + PER_QUESTION])
        yield from connection.execute(select(table).where(some)).mappings()


def _upsert(connection: Connection, table: Table, keys: list[str], rows: list[Row]) -> None:
    if not rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    others = {c.name: statement.excluded[c.name] for c in table.c if c.name not in keys}
    # Sorted, so that two writers who share rows wait for each other in one order only.
    batch = sorted(rows, key=lambda row: [row[name] for name in keys])
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others), batch)


# --- imports -------------------------------------------------------------------------------


def add_import(
    connection: Connection,
    file: str,
    at: float,
    told: Iterable[Incident],
    watched: Iterable[Watch],
) -> Import:
    begun = insert(imports).values(at=at, file=file, new=0, completed=0, known=0)
    key = int(connection.execute(begun.returning(imports.c.key)).scalar_one())
    kept = keep(connection, incidents, (incident_row(one, key) for one in told), ends="ended_at")
    keep(connection, watches, (watch_row(one, key) for one in watched), ends="until")
    connection.execute(update(imports).where(imports.c.key == key).values(**asdict(kept)))
    return Import(key=key, at=at, file=file, kept=kept)


def read_imports(connection: Connection) -> list[Import]:
    found = connection.execute(select(imports).order_by(imports.c.key.desc()))
    return [
        Import(
            key=row.key,
            at=row.at,
            file=row.file,
            kept=Kept(new=row.new, completed=row.completed, known=row.known),
        )
        for row in found
    ]


def forget_import(connection: Connection, key: int) -> Forgotten:
    """What it was the first to tell goes; an incident that it only ended is not over again."""
    gone = connection.execute(delete(incidents).where(incidents.c.told_by == key))
    reopened = connection.execute(
        update(incidents).where(incidents.c.ended_by == key).values(ended_at=None, ended_by=None)
    )
    watched = connection.execute(delete(watches).where(watches.c.told_by == key))
    connection.execute(delete(imports).where(imports.c.key == key))
    return Forgotten(incidents=gone.rowcount, reopened=reopened.rowcount, watches=watched.rowcount)


# --- to rows -------------------------------------------------------------------------------


def incident_row(one: Incident, import_: int | None = None) -> Row:
    return {
        "node": one.node,
        "started_at": one.start,
        "category": one.category,
        "ended_at": one.end,
        "told_by": import_,
        "ended_by": None if one.end is None else import_,
    }


def repair_row(one: Repair) -> Row:
    return {
        "node": one.node,
        "started_at": one.start,
        "ended_at": one.end,
        "action": one.action,
    }


def watch_row(one: Watch, import_: int | None = None) -> Row:
    return {"node": one.node, "since": one.since, "until": one.until, "told_by": import_}


def begin_watches(connection: Connection, nodes: Sequence[str], at: float) -> None:
    """For those that are not watched without an end already."""
    found = _rows_of(connection, watches, "node", sorted(set(nodes)))
    watched = {row["node"] for row in found if row["until"] is None}
    new = [watch_row(Watch(node=node, since=at)) for node in set(nodes) - watched]
    _upsert(connection, watches, ["node", "since"], new)


def end_watches(connection: Connection, nodes: Sequence[str], at: float) -> None:
    found = _rows_of(connection, watches, "node", sorted(set(nodes)))
    going_on = [dict(row) for row in found if row["until"] is None or row["until"] > at]
    ended = [row | {"until": max(at, row["since"])} for row in going_on]
    _upsert(connection, watches, ["node", "since"], ended)


# --- and back ------------------------------------------------------------------------------


def read_incidents(connection: Connection) -> list[Incident]:
    table = incidents.c
    found = select(table.node, table.category, table.started_at, table.ended_at)
    return [
        Incident(node=node, category=category, start=start, end=end)
        for node, category, start, end in connection.execute(
            found.order_by(table.node, table.started_at, table.category)
        )
    ]


def read_repairs(connection: Connection) -> list[Repair]:
    found = select(repairs).order_by(repairs.c.node, repairs.c.started_at)
    return [
        Repair(node=row.node, start=row.started_at, end=row.ended_at, action=row.action)
        for row in connection.execute(found)
    ]


def read_watches(connection: Connection) -> list[Watch]:
    found = select(watches).order_by(watches.c.node, watches.c.since)
    return [
        Watch(node=row.node, since=row.since, until=row.until) for row in connection.execute(found)
    ]


def read_validations(connection: Connection, since: float) -> list[Validation]:
    """By time and node, with the benchmarks that measured it."""
    measured = (
        select(executions.c.campaign, participant_nodes.c.node, executions.c.benchmark)
        .join(participant_nodes, executions.c.participants == participant_nodes.c.participants)
        .where(
            executions.c.campaign.in_(select(campaigns.c.key).where(*_validating(since))),
            executions.c.ended == Ended.MEASURED.value,
        )
        .distinct()
        .subquery()
    )
    names = func.aggregate_strings(measured.c.benchmark, ",").label("names")
    by_node = (
        select(measured.c.campaign, measured.c.node, names)
        .group_by(measured.c.campaign, measured.c.node)
        .subquery()
    )
    query = _conclusions(since, by_node.c.names).outerjoin(
        by_node,
        (by_node.c.campaign == node_verdicts.c.campaign) & (by_node.c.node == node_verdicts.c.node),
    )
    return [
        Validation(
            **_conclusion(row),
            benchmarks=tuple(sorted(row.names.split(","))) if row.names else (),
        )
        for row in connection.execute(query)
    ]


def read_conclusions(connection: Connection) -> list[Validation]:
    """The same without the benchmarks, which cost most of the time."""
    found = connection.execute(_conclusions(0.0))
    return [Validation(**_conclusion(row)) for row in found]


def _conclusions(since: float, *more: ColumnElement[Any]) -> Select[Any]:
    verdict = (node_verdicts.c.node, node_verdicts.c.judgement, node_verdicts.c.code)
    return (
        select(*verdict, campaigns.c.finished_at, campaigns.c.id, *more)
        .join(campaigns, campaigns.c.key == node_verdicts.c.campaign)
        .where(*_validating(since))
        .order_by(campaigns.c.finished_at, node_verdicts.c.node)
    )


def _validating(since: float) -> tuple[ColumnElement[bool], ...]:
    """What another tool measured, nobody knows when, validates nothing."""
    return campaigns.c.finished_at >= since, campaigns.c.verb.in_(VALIDATING)


def _conclusion(row: Any) -> dict[str, Any]:
    return {
        "node": row.node,
        "at": row.finished_at,
        "judgement": Judgement(row.judgement),
        "code": row.code,
        "campaign": row.id,
    }
