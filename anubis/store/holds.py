"""Holds on nodes: one holder at a time, for a limited time, so that no two measure a node at once.

A holder of nodes renews the hold from time to time. The hold of a process that died ends by itself,
later than anything that the process had started on the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from anubis.core.clock import TOLERANCE_S
from anubis.core.errors import BusyNodesError, StoreError, StoreUnreachableError
from anubis.store.checksums import Damage
from anubis.store.database import Database, this_process, upsert, write_alone
from anubis.store.row_mapping import RecordTable, Row
from anubis.text.hostlist import shorten

LASTS_S = 120.0  # programs end within 10 s of their driver, agents on cut-off nodes within a minute
RENEWED_S = LASTS_S / 4  # after it began or was last renewed


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A node that one holder has alone."""

    node: str
    holder: str  # what has it: a campaign
    owner: str  # which process renews it
    since: float
    until: float


HOLDS = RecordTable(
    "holds", Hold, sa.Column("cluster", sa.Text, primary_key=True), keys=("node",), checked=True
)
UNSURE = "somebody"  # in place of a holder whose row is damaged


class HeldNodes:
    """The nodes of one holder, from `take` to `give_back`."""

    def __init__(
        self,
        database: Database,
        cluster: str,
        nodes: Sequence[str],
        holder: str,
        owner: str,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._cluster = cluster
        self._nodes = nodes
        self._holder = holder
        self._own = (HOLDS.c.holder == holder) & (HOLDS.c.owner == owner)
        self._owner = owner
        self._clock = clock
        self._since = self._until = 0.0

    def take(self, beginning: Callable[[], None]) -> None:
        """Take all of the nodes or none, together with what `beginning` writes. A holder that comes
        back takes over what it had."""
        now = self._clock()
        self._since, self._until = now, now + LASTS_S
        with self._database.writing() as connection:  # kept, also where nodes are then refused
            _settle_damaged(connection, now)
        with (
            self._database.together(),
            self._database.writing() as connection,
            write_alone(connection, HOLDS.table),
        ):
            over = (HOLDS.c.until <= now) | (HOLDS.c.holder == self._holder)
            connection.execute(sa.delete(HOLDS.table).where(over))
            _refuse(self._nodes, self._cluster, _all(connection, self._cluster, now))
            upsert(connection, HOLDS.table, self._rows(self._until))
            beginning()

    def _rows(self, until: float) -> list[Row]:
        return [
            HOLDS.row(
                Hold(
                    node=node,
                    holder=self._holder,
                    owner=self._owner,
                    since=self._since,
                    until=until,
                ),
                cluster=self._cluster,
            )
            for node in self._nodes
        ]

    def renew(self) -> None:
        """Renew the hold if it is time. To be called often: it seldom has anything to do."""
        now = self._clock()
        if 0 <= now - (self._until - LASTS_S) < RENEWED_S:
            return  # not so where the wall clock was set back: others would see the hold end
        until = sa.update(HOLDS.table).where(self._own).values(until=now + LASTS_S)
        try:
            with self._database.writing() as connection:
                # no other process changes them from here
                renewed = connection.execute(until).rowcount
                if renewed == len(self._nodes):
                    upsert(connection, HOLDS.table, self._rows(now + LASTS_S), replace=True)
        except StoreUnreachableError:
            if now < self._until:
                return  # a server that is being restarted must not end a campaign of hours
            raise
        if renewed < len(self._nodes):
            raise StoreError(
                f"{self._holder} was not renewed in time and no longer holds its nodes, since"
                f" {utc(self._until)}: others may have measured there"
            )
        self._until = now + LASTS_S

    def let_go(self, nodes: Sequence[str]) -> None:
        """Give some nodes back already, while the others stay held."""
        gone = set(nodes)
        self._nodes = [node for node in self._nodes if node not in gone]
        with self._database.writing() as connection:
            own = self._own & (HOLDS.c.cluster == self._cluster) & HOLDS.c.node.in_(sorted(gone))
            connection.execute(sa.delete(HOLDS.table).where(own))

    @property
    def resumable_at(self) -> float | None:
        """Time at which its campaign can be taken again if the server, which keeps the hold, stayed
        away."""
        is_kept = self._database.dialect != "sqlite" and self._nodes
        return self._until if is_kept else None

    def give_back(self) -> None:
        with suppress(StoreError), self._database.writing() as connection:
            connection.execute(sa.delete(HOLDS.table).where(self._own))


class Holds:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    @contextmanager
    def hold(
        self,
        nodes: Sequence[str],
        holder: str,
        clock: Callable[[], float],
        beginning: Callable[[], None] = lambda: None,
    ) -> Iterator[HeldNodes]:
        """Have these nodes while the block runs. If any is held, that is a BusyNodesError.
        `beginning`: writes what is begun on them, so that neither is there alone."""
        held = HeldNodes(self._database, self._cluster, nodes, holder, this_process(), clock)
        held.take(beginning)
        try:
            yield held
        finally:
            held.give_back()

    def refuse_held(self, nodes: Sequence[str], holder: str, now: float) -> None:
        """Refuse nodes that another holder has, before anything is started on them."""
        foreign = [hold for hold in self.current(now) if hold.holder != holder]
        _refuse(nodes, self._cluster, foreign)

    def settle(self, now: float) -> None:
        """Give damaged holds, and holds that a wrong clock dated too late, an end from now on:
        readers alone would never notice."""
        with self._database.reading() as connection:
            if not _damaged_rows(connection, now):
                return
        with self._database.writing() as connection:
            _settle_damaged(connection, now)

    def current(self, now: float) -> list[Hold]:
        """Return holds by node."""
        with self._database.reading() as connection:
            return [hold for hold in _all(connection, self._cluster, now) if now < hold.until]


def _refuse(nodes: Sequence[str], cluster: str, holds: Sequence[Hold]) -> None:
    asked_for = set(nodes)
    held = [hold for hold in holds if hold.node in asked_for]
    if held:
        first = held[0]
        named = shorten([hold.node for hold in held if hold.holder == first.holder])
        raise BusyNodesError(
            f'node "{named}" of cluster "{cluster}" is held by {first.holder} ({first.owner}) since'
            f" {utc(first.since)}; wait until that ends, or name other nodes; if that process died,"
            f" the hold ends at {utc(first.until)}"
        )


def _all(connection: sa.Connection, cluster: str, now: float) -> list[Hold]:
    query = HOLDS.select().where(HOLDS.c.cluster == cluster).order_by(HOLDS.c.node)
    return [_read(row, now) for row in connection.execute(query)]


def _read(row: sa.Row[Any], now: float) -> Hold:
    """Return the hold in a row. One that is damaged, or dated later than it can have been renewed,
    lasts as long as one that was just renewed."""
    try:
        hold: Hold = HOLDS.reader()(row)
        return hold if _can_be(hold, now) else replace(hold, since=now, until=now + LASTS_S)
    except Damage:
        owner = "its row in the history is damaged"
        return Hold(node=row.node, holder=UNSURE, owner=owner, since=now, until=now + LASTS_S)


def _can_be(hold: Hold, now: float) -> bool:
    return hold.until <= now + LASTS_S + TOLERANCE_S


def _settle_damaged(connection: sa.Connection, now: float) -> None:
    """Replace damaged holds by holds that end, so that they do not keep their nodes for ever."""
    damaged = _damaged_rows(connection, now)
    settled = [HOLDS.row(_read(row, now), cluster=row.cluster) for row in damaged]
    upsert(connection, HOLDS.table, settled, replace=True)


def _damaged_rows(connection: sa.Connection, now: float) -> list[sa.Row[Any]]:
    return [
        row
        for row in connection.execute(HOLDS.select())
        if row.until > now + LASTS_S + TOLERANCE_S or not HOLDS.is_short_sound(row)
    ]


def holder_of(campaign_id: str) -> str:
    return f'campaign "{campaign_id}"'


def utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
