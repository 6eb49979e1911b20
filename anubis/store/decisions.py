"""Decisions of the Selector: whole documents, with columns to search by beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import sqlalchemy as sa

from anubis.core.errors import StoreError
from anubis.core.select.decision import Decision
from anubis.store import codec
from anubis.store.campaigns import UNREADABLE
from anubis.store.database import Database
from anubis.store.row_mapping import Form, RecordTable, RowValues


def _reader(place: int) -> Callable[[RowValues], Decision]:
    """Return a reader of decisions that names the cluster as it is called now."""
    return lambda row: replace(codec.load(Decision, row[place]), cluster=row[place + 1])


DECISIONS = RecordTable(
    "decisions",
    Decision,
    sa.Column("key", sa.Integer, primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Index("decisions_by_cluster", "cluster"),
    checked=True,
    form=Form(
        columns=(
            sa.Column("document", sa.Text, nullable=False),
            sa.Column("cluster", sa.Text, nullable=False),
        ),
        write=lambda decision, _: (codec.dump(decision), decision.cluster),
        reader=_reader,
    ),
)


class Decisions:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def add(self, decision: Decision) -> Decision:
        """Keep a decision and return it as one of this cluster."""
        decision = replace(decision, cluster=self._cluster)
        beside = {"at": decision.at, "event": decision.event, "action": decision.action.value}
        with self._database.writing() as connection:
            connection.execute(sa.insert(DECISIONS.table), DECISIONS.row(decision, **beside))
        return decision

    def newest(self, limit: int = 100) -> list[Decision]:
        query = DECISIONS.select().where(DECISIONS.c.cluster == self._cluster)
        query = query.order_by(DECISIONS.c.key.desc()).limit(limit)
        try:
            with self._database.reading() as connection:
                return list(DECISIONS.records(connection, query))
        except UNREADABLE as error:
            raise StoreError(
                f'history "{self._database.place}": a decision cannot be read: {error}; it was'
                " written by another version of Anubis: use that version"
            ) from error
