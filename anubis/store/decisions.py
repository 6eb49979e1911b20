"""What the Selector decided: whole documents, with columns to search by beside them."""

from __future__ import annotations

from sqlalchemy import Column, Double, Integer, Text, insert

from anubis.core.choosing.decision import Decision
from anubis.core.errors import StoreError
from anubis.store import codec
from anubis.store.campaigns import UNREADABLE
from anubis.store.database import Database
from anubis.store.mapping import Form, RecordTable, RowValues, Share, converted


def _document() -> Form:
    document = converted(
        Column("document", Text, nullable=False),
        codec.dump,
        lambda text: codec.load(Decision, text),
    )

    def write(decision: Decision, share: Share) -> RowValues:
        beside = (decision.at, decision.event, decision.action.value)
        return *beside, *document.write(decision, share)

    return Form(
        columns=(
            Column("at", Double, nullable=False),
            Column("event", Text, nullable=False),
            Column("action", Text, nullable=False),
            *document.columns,
        ),
        write=write,
        reader=document.reader,
        sources=document.sources,
    )


DECISIONS = RecordTable(
    "decisions", Decision, Column("key", Integer, primary_key=True), form=_document()
)


class Decisions:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, decision: Decision) -> None:
        with self._database.writing() as connection:
            connection.execute(insert(DECISIONS.table), DECISIONS.row(decision))

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
