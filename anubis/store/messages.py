"""Messages of the keeper that wait for their receiver, and those that it has received. Each is on
disk before it is sent, and one process at a time sends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import sqlalchemy as sa

from anubis.core.amounts import DAY_S
from anubis.core.keep.messages import LONGEST_PAUSE_S, KeeperMessage
from anubis.store.database import Database, upsert
from anubis.store.row_mapping import Prose, RecordTable

KEPT_S = 30 * DAY_S  # so long a message that is over is kept, to be looked at
AT_ONCE = 50  # messages of one turn, so that a turn ends


class Delivery(StrEnum):
    WAITING = "waiting"
    RECEIVED = "received"
    UNWANTED = "unwanted"  # the notifier does not ask for such messages
    GIVEN_UP = "given-up"


@dataclass(frozen=True, kw_only=True)
class KeptMessage(KeeperMessage):
    delivery: Delivery = Delivery.WAITING
    tries: int = 0
    due: float = 0.0  # of the next try
    note: str = ""  # why the last try failed


MESSAGES = RecordTable(
    "messages",
    KeptMessage,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Index("messages_by_delivery", "cluster", "delivery"),
    keys=("key",),
    sentence=Prose,
    note=Prose,
)


def post(connection: sa.Connection, cluster: str, messages: Sequence[KeeperMessage]) -> None:
    """Keep messages; one whose key is there already is not kept again."""
    rows = {message.key: KeptMessage(**asdict(message)) for message in messages}
    upsert(
        connection, MESSAGES.table, [MESSAGES.row(row, cluster=cluster) for row in rows.values()]
    )


class Messages:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def post(self, messages: Sequence[KeeperMessage]) -> None:
        with self._database.writing() as connection:
            post(connection, self._cluster, messages)

    def waiting(self) -> list[KeptMessage]:
        """Return all messages that were not received yet, oldest first."""
        query = self._select(Delivery.WAITING).order_by(MESSAGES.c.at, MESSAGES.c.key)
        with self._database.reading() as connection:
            return list(MESSAGES.records(connection, query))

    def due(self, now: float) -> list[KeptMessage]:
        """Return messages to be sent now, oldest first. A date further away than any pause comes
        from a wrong clock, and does not count."""
        is_due = (MESSAGES.c.due <= now) | (MESSAGES.c.due > now + LONGEST_PAUSE_S)
        query = self._select(Delivery.WAITING).where(is_due)
        with self._database.reading() as connection:
            ordered = query.order_by(MESSAGES.c.at, MESSAGES.c.key).limit(AT_ONCE)
            return list(MESSAGES.records(connection, ordered))

    def take(self, message: KeptMessage, until: float) -> bool:
        """Mark a message as tried; false if another process was faster. If this process dies, the
        message is sent again after `until`, with the same key."""
        same = MESSAGES.c.tries == message.tries, MESSAGES.c.delivery == Delivery.WAITING.value
        return self._change(message, *same, tries=message.tries + 1, due=until) > 0

    def end(self, message: KeptMessage, delivery: Delivery, note: str = "") -> None:
        self._change(message, delivery=delivery.value, note=note)

    def explain(self, message: KeptMessage, note: str) -> None:
        """Keep why a try failed."""
        self._change(message, note=note)

    def hold_back(self, until: float) -> None:
        """Send nothing before then: the receiver does not answer."""
        waits = (
            MESSAGES.c.cluster == self._cluster,
            MESSAGES.c.delivery == Delivery.WAITING.value,
            MESSAGES.c.due < until,
        )
        with self._database.writing() as connection:
            connection.execute(sa.update(MESSAGES.table).where(*waits).values(due=until))

    def forget(self, now: float) -> None:
        """Delete old messages that wait no more."""
        old = (
            MESSAGES.c.cluster == self._cluster,
            MESSAGES.c.delivery != Delivery.WAITING.value,
            MESSAGES.c.at < now - KEPT_S,
        )
        with self._database.writing() as connection:
            connection.execute(sa.delete(MESSAGES.table).where(*old))

    def _select(self, delivery: Delivery) -> sa.Select[tuple[object, ...]]:
        return MESSAGES.select().where(
            MESSAGES.c.cluster == self._cluster, MESSAGES.c.delivery == delivery.value
        )

    def _change(
        self, message: KeptMessage, *conditions: sa.ColumnElement[bool], **values: object
    ) -> int:
        chosen = (MESSAGES.c.cluster == self._cluster, MESSAGES.c.key == message.key, *conditions)
        with self._database.writing() as connection:
            changed = connection.execute(sa.update(MESSAGES.table).where(*chosen).values(**values))
            return changed.rowcount
