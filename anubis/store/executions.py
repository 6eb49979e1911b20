"""Executions of steps with all their samples, a row for each, and what those of a cluster reported
before a time, over all its campaigns."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from anubis.core.amounts import DAY_S
from anubis.core.judge.equality import NodeSettings
from anubis.core.judge.wrong_numbers import NotesOfNode
from anubis.core.records import Ended, Execution, Readings, Result, Step, Workload
from anubis.store import row_mapping
from anubis.store.campaigns import CAMPAIGNS, campaign_column, key_of, refuse_gone, short_row
from anubis.store.checksums import Damage
from anubis.store.database import Database, upsert
from anubis.store.node_events import attributes_of
from anubis.store.row_mapping import UNPACKABLE, Form, Prose, RecordTable, RowValues, Share
from anubis.store.shared_values import ENVIRONMENTS, LAYOUTS, PARTICIPANTS, reference, sharing


def _readings() -> Form:
    """Return the form of samples and their layout; NULL if nothing was measured."""
    layout, samples = (
        reference("layout", LAYOUTS, nullable=True),
        row_mapping.packed_form("samples"),
    )

    def write(readings: Readings, share: Share) -> RowValues:
        parts = (readings.layout, readings.values) if readings else (None, None)
        return *layout.write(parts[0], share), *samples.write(parts[1], share)

    def reader(place: int) -> Callable[[RowValues], Readings]:
        read_layout = layout.reader(place)
        read_samples = samples.reader(place + len(layout.sources))

        def read(row: RowValues) -> Readings:
            measured = read_layout(row)
            return Readings.pack() if measured is None else Readings(measured, read_samples(row))

        return read

    return Form(
        columns=layout.columns + samples.columns,
        write=write,
        reader=reader,
        selected=layout.sources + samples.sources,
        joins=layout.joins,
    )


ONCE = ("campaign", "step", "attempt")

STEP = row_mapping.side_by_side(  # first in the row: it can be read where the rest is damaged
    Step,
    id="step",
    workload=row_mapping.repeated_form(row_mapping.side_by_side(Workload)),
    participants=reference("participants", PARTICIPANTS),
)

EXECUTIONS = RecordTable(
    "executions",
    Execution,
    campaign_column(),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),  # in order of arrival
    sa.UniqueConstraint(*ONCE, name="executions_once"),
    sa.Index("executions_by_benchmark", "benchmark", "version", "started_at"),
    sa.Index("executions_by_participants", "participants"),
    # The samples are in the same rows, and need not be read to learn which nodes were measured.
    sa.Index("executions_who_and_what", "campaign", "ended", "participants", "benchmark"),
    # PostgreSQL keeps long samples elsewhere, and refuses long parameters in an index.
    sa.Index("executions_how_long", "ended", "benchmark", "parameters", "duration_s").ddl_if(
        dialect="sqlite"
    ),
    checked=True,
    long=("samples",),
    step=STEP,
    reason=Prose,
    result=row_mapping.side_by_side(
        Result,
        series=_readings(),
        environment=reference("environment", ENVIRONMENTS),
        not_applicable=Prose,
    ),
)


@dataclass(frozen=True, kw_only=True)
class DamagedExecution:
    """An execution that is not as it was written."""

    step: Step  # as the row says
    is_sure: bool  # that it was of this step: nothing but what it measured is damaged
    sentence: str


class Executions:
    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, campaign_id: str, batch: Sequence[Execution]) -> None:
        """Keep all of them or none; one that is known already is left as it is."""
        with sharing(self._database) as transaction:
            connection = transaction.connection
            key = key_of(connection, campaign_id)
            numbered = enumerate(batch, start=_next_number(connection, key))
            rows = transaction.rows(
                EXECUTIONS,
                ((execution, {"campaign": key, "number": n}) for n, execution in numbered),
            )
            upsert(connection, EXECUTIONS.table, rows, keys=ONCE)

    def read(self, campaign_id: str) -> list[Execution]:
        """Return all executions, in the order of arrival."""
        with self._database.reading() as connection:
            executions, damaged = _read(connection, campaign_id)
            if damaged:
                raise Damage(damaged[0].sentence)
        return executions

    def sound(self, campaign_id: str) -> tuple[list[Execution], list[DamagedExecution]]:
        """Return intact executions and damaged ones. A row that is gone, or has lost its campaign,
        is refused."""
        with self._database.reading() as connection:
            return _read(connection, campaign_id)

    def count_ends(self, campaign_ids: Sequence[str]) -> dict[str, dict[Ended, int]]:
        """Count, for each campaign, executions by how they ended."""
        counts: dict[str, dict[Ended, int]] = {name: {} for name in campaign_ids}
        query = sa.select(CAMPAIGNS.c.id, EXECUTIONS.c.ended, sa.func.count())
        query = query.join(CAMPAIGNS.table, CAMPAIGNS.c.key == EXECUTIONS.c.campaign)
        query = query.where(CAMPAIGNS.c.id.in_(campaign_ids))
        query = query.group_by(CAMPAIGNS.c.id, EXECUTIONS.c.ended)
        with self._database.reading() as connection:
            for name, how, number in connection.execute(query):
                counts[name][Ended(how)] = number
        return counts


def _read(
    connection: sa.Connection, campaign_id: str
) -> tuple[list[Execution], list[DamagedExecution]]:
    sound: list[Execution] = []
    damaged: list[DamagedExecution] = []
    campaign = short_row(connection, campaign_id)
    for run in _rows(connection, campaign):
        if isinstance(run, DamagedExecution):
            damaged.append(run)
        else:
            sound.append(run)
    refuse_gone(campaign, EXECUTIONS.table.name, len(sound) + len(damaged))
    return sound, damaged


def _rows(
    connection: sa.Connection, campaign: sa.Row[Any]
) -> Iterator[Execution | DamagedExecution]:
    query = EXECUTIONS.select().where(EXECUTIONS.c.campaign == campaign.key)
    read = EXECUTIONS.reader()
    number, last = EXECUTIONS.place(EXECUTIONS.c.number), 0
    for row in connection.execute(query.order_by(EXECUTIONS.c.number)):
        try:
            run: Execution | DamagedExecution = read(row)
        except (Damage, *UNPACKABLE) as damage:
            run = _damaged_execution(campaign.id, row, damage)
        if not isinstance(row[number], int):
            raise Damage(f'campaign "{campaign.id}": the number of an execution is damaged')
        if row[number] <= last:
            raise Damage(f'campaign "{campaign.id}": execution {last} is there twice')
        last = row[number]
        yield run


def _damaged_execution(campaign: str, row: sa.Row[Any], damage: Exception) -> DamagedExecution:
    sentence = describe_damage(campaign, row, damage)
    try:
        step = STEP.reader(0)(row)
        texts = (step.id, *vars(step.workload).values(), *step.participants)
    except (Damage, *UNPACKABLE):
        raise Damage(sentence) from None
    if not all(isinstance(text, str) for text in texts):
        raise Damage(sentence)
    return DamagedExecution(step=step, is_sure=EXECUTIONS.is_short_sound(row), sentence=sentence)


def describe_damage(campaign: str, row: sa.Row[Any], damage: Exception) -> str:
    """Describe a damaged execution; its names are sure if only the samples are damaged."""
    cells = row._mapping
    nodes = ", ".join(map(str, _read_list(cells[PARTICIPANTS.cell])))
    metrics = ", ".join(
        dict.fromkeys(str(metric) for metric, *_ in _read_list(cells[LAYOUTS.cell]))
    )
    step = f"of {cells[EXECUTIONS.c.benchmark]} on {nodes or '?'} ({metrics or '?'})"
    if isinstance(damage, Damage) and damage.only_long:
        return f'campaign "{campaign}": the samples {step} are damaged'
    number = cells[EXECUTIONS.c.number]
    return f'campaign "{campaign}": execution {number}, perhaps {step}, is damaged'


def _read_list(document: str | None) -> list[Any]:
    try:
        return list(json.loads(document or "[]"))
    except (ValueError, TypeError):
        return []


def _next_number(connection: sa.Connection, key: int) -> int:
    last = sa.select(sa.func.max(EXECUTIONS.c.number)).where(EXECUTIONS.c.campaign == key)
    return int(connection.execute(last).scalar() or 0) + 1


VOTE_S = 30 * DAY_S  # after which a node may have been set up otherwise
MOST_RUNS = 1000  # of a program in a cluster, the newest, which say what it found before


class EarlierRuns:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def last_settings(
        self, at: float, programs: Mapping[str, Collection[str]]
    ) -> list[NodeSettings]:
        """Return these settings of each node by these programs, from campaigns that were over by
        then and are not too old. Damaged ones are left out."""
        with self._database.reading() as connection:
            skus = {
                attributes.node: attributes.sku
                for attributes in attributes_of(connection, self._cluster)
            }
            read = EXECUTIONS.reader()
            votes: list[NodeSettings] = []
            for row in connection.execute(_last_runs(self._cluster, at, programs)):
                try:
                    run = read(row)
                except (Damage, *UNPACKABLE):
                    continue
                node, *partners = run.step.participants
                if not partners:
                    names = programs[run.step.workload.benchmark]
                    votes.append(NodeSettings.from_run(run, skus.get(node, ""), names))
        return votes

    def newest_notes(self, at: float, programs: Collection[str]) -> list[NotesOfNode]:
        """Return what the newest runs of these programs on single nodes noted, the latest first,
        from campaigns that were over by then. Damaged ones are left out."""
        runs, campaigns = EXECUTIONS.table, CAMPAIGNS.table
        newest = (  # to sort whole rows by time would take seconds
            sa.select(
                runs.c.participants, runs.c.environment, runs.c.number, campaigns.c.finished_at
            )
            .join(campaigns, campaigns.c.key == runs.c.campaign)
            .where(
                campaigns.c.cluster == self._cluster,
                campaigns.c.finished_at <= at,
                runs.c.benchmark.in_(list(programs)),
                runs.c.ended == Ended.MEASURED.value,
            )
            .order_by(campaigns.c.finished_at.desc(), runs.c.number.desc())
            .limit(MOST_RUNS)
            .subquery()
        )
        nodes, environments = PARTICIPANTS.table, ENVIRONMENTS.table
        query = (
            sa.select(nodes.c.digest, PARTICIPANTS.cell, environments.c.digest, ENVIRONMENTS.cell)
            .select_from(newest)
            .join(nodes, nodes.c.digest == newest.c.participants)
            .join(environments, environments.c.digest == newest.c.environment)
            .order_by(newest.c.finished_at.desc(), newest.c.number.desc())
        )
        noted: list[NotesOfNode] = []
        with self._database.reading() as connection:
            for names, cell, digest, document in connection.execute(query) if programs else ():
                with suppress(Damage, *UNPACKABLE):
                    (node,) = PARTICIPANTS.check(names, cell)
                    noted.append((node, ENVIRONMENTS.check(digest, document)))
        return noted


def _last_runs(cluster: str, at: float, programs: Collection[str]) -> sa.Select[tuple[object, ...]]:
    runs, campaigns = EXECUTIONS.table, CAMPAIGNS.table
    latest_first = (campaigns.c.finished_at.desc(), runs.c.campaign.desc(), runs.c.number.desc())
    ranked = (
        sa.select(
            runs.c.campaign,
            runs.c.number,
            sa.func.row_number()
            .over(partition_by=(runs.c.benchmark, runs.c.participants), order_by=latest_first)
            .label("place"),
        )
        .join(campaigns, campaigns.c.key == runs.c.campaign)
        .where(
            campaigns.c.cluster == cluster,
            campaigns.c.finished_at <= at,
            campaigns.c.finished_at > at - VOTE_S,
            runs.c.benchmark.in_(list(programs)),
            runs.c.ended == Ended.MEASURED.value,
        )
        .subquery()
    )
    is_last = (
        (ranked.c.campaign == runs.c.campaign)
        & (ranked.c.number == runs.c.number)
        & (ranked.c.place == 1)
    )
    return EXECUTIONS.select().join(ranked, is_last)
