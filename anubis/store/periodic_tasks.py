"""Periodic tasks on the nodes of a cluster: what was due, and how it ended."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

import sqlalchemy as sa

from anubis.core.keep.periodic_tasks import PeriodicTask, PeriodicTaskEnd, PeriodicTaskRecord
from anubis.store.claims import periodic_tasks_lock
from anubis.store.database import Database, upsert
from anubis.store.row_mapping import Prose, RecordTable

PERIODIC_TASKS = RecordTable(
    "periodic_tasks",
    PeriodicTaskRecord,
    sa.Column("cluster", sa.Text, primary_key=True),
    keys=("task", "due"),
    sentence=Prose,
)


class PeriodicTasks:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def alone(self) -> AbstractContextManager[bool]:
        """Return a block that yields true if this process does the periodic tasks of the cluster. A
        task that another process began and has not ended is then free: that process is gone."""
        return periodic_tasks_lock(self._database, self._cluster).alone()

    def write(self, record: PeriodicTaskRecord) -> None:
        """Replace what was written of this task before."""
        with self._database.writing() as connection:
            row = PERIODIC_TASKS.row(record, cluster=self._cluster)
            upsert(connection, PERIODIC_TASKS.table, [row], replace=True)

    def find(self, task: PeriodicTask, due: float) -> PeriodicTaskRecord | None:
        return self._first(PERIODIC_TASKS.c.task == task.value, PERIODIC_TASKS.c.due == due)

    def last(self, task: PeriodicTask, by: float = math.inf) -> PeriodicTaskRecord | None:
        """Return the latest task that was due by then."""
        return self._first(PERIODIC_TASKS.c.task == task.value, PERIODIC_TASKS.c.due <= by)

    def successes(self) -> dict[PeriodicTask, float]:
        """Map each task to the time at which it last ended without failing."""
        query = (
            sa.select(PERIODIC_TASKS.c.task, sa.func.max(PERIODIC_TASKS.c.ended))
            .where(
                PERIODIC_TASKS.c.cluster == self._cluster,
                PERIODIC_TASKS.c.end != PeriodicTaskEnd.FAILED.value,
            )
            .group_by(PERIODIC_TASKS.c.task)
        )
        with self._database.reading() as connection:
            return {PeriodicTask(task): at for task, at in connection.execute(query)}

    def _first(self, *conditions: sa.ColumnElement[bool]) -> PeriodicTaskRecord | None:
        query = PERIODIC_TASKS.select().where(
            PERIODIC_TASKS.c.cluster == self._cluster, *conditions
        )
        with self._database.reading() as connection:
            latest = query.order_by(PERIODIC_TASKS.c.due.desc()).limit(1)
            return next(PERIODIC_TASKS.records(connection, latest), None)
