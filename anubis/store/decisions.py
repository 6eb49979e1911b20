"""What the Selector decided: whole documents, with columns to search by beside them."""

from __future__ import annotations

import sqlalchemy as sa

from anubis.core.choosing.decision import Decision
from anubis.core.errors import StoreError
from anubis.store import codec
from anubis.store.campaigns import UNREADABLE
from anubis.store.database import Database
from anubis.store.mapping import RecordTable, converted

DECISIONS = RecordTable(
    "decisions",
    Decision,
    sa.Column("key", sa.Integer, primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    form=converted(
        sa.Column("document", sa.Text, nullable=False),
        codec.dump,
        lambda text: codec.load(Decision, text),
    ),
)


class Decisions:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, decision: Decision) -> None:
        beside = {"at": decision.at, "event": decision.event, "action": decision.action.value}
        with self._database.writing() as connection:
            connection.execute(sa.insert(DECISIONS.table), DECISIONS.row(decision, **beside))

    def newest(self, limit: int = 100) -> list[Decision]:
        query = DECISIONS.select().order_by(DECISIONS.c.key.desc()).limit(limit)
        try:
            with self._database.reading() as connection:
                return list(DECISIONS.records(connection, query))
        except UNREADABLE as error:
            raise StoreError(
                f'history "{self._database.place}": a decision cannot be read: {error}; it was'
                " written by another version of Anubis: use that version"
            ) from error
