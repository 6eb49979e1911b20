"""Campaigns: what was planned, and by what it is judged. A campaign is known by its id outside
and by its key in other tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from anubis.core.errors import StoreError, did_you_mean
from anubis.core.past.traits import NodeTraits
from anubis.core.records import Campaign, CampaignKind, Demand, Workload
from anubis.store import claims
from anubis.store.database import Database, upsert
from anubis.store.mapping import RecordTable, metadata, side_by_side
from anubis.store.traits import BY_CAMPAIGNS, keep_traits

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)  # what a document may be
SUGGESTED = 10  # campaigns that a hint looks at: the latest

CAMPAIGNS = RecordTable(
    "campaigns",
    Campaign,
    sa.Column("key", sa.Integer, primary_key=True),
    sa.Column("suite", sa.Text, nullable=False),
    sa.Column("nodes", sa.Integer, nullable=False),
    sa.Column("judgement", sa.Text),  # what the whole came to; NULL: not concluded, or before 0006
    sa.UniqueConstraint("id"),
    sa.Index("campaigns_by_cluster", "cluster", "finished_at"),
    kind="verb",
)


@dataclass(frozen=True, kw_only=True)
class CampaignRow:
    """A campaign at a glance: what a list of thousands can afford to read."""

    id: str
    cluster: str
    kind: CampaignKind
    suite: str
    created_at: float
    finished_at: float | None
    nodes: int


DEMANDS = RecordTable(
    "demands",
    Demand,
    sa.Column("campaign", sa.Integer, sa.ForeignKey(CAMPAIGNS.c.key), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    workload=side_by_side(Workload),
)

AT_A_GLANCE = side_by_side(CampaignRow, kind="verb")


class Campaigns:
    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, campaign: Campaign) -> None:
        suite, nodes = campaign.plan.suite, len(campaign.plan.nodes)
        row = CAMPAIGNS.row(campaign, suite=suite, nodes=nodes)
        with self._database.writing() as connection:
            try:
                begun = sa.insert(CAMPAIGNS.table).returning(CAMPAIGNS.c.key)
                key = connection.execute(begun, row).scalar_one()
            except IntegrityError:
                raise StoreError(
                    f'campaign "{campaign.id}" exists already; resume it, or begin another'
                ) from None
            rows = [
                DEMANDS.row(demand, campaign=key, position=position)
                for position, demand in enumerate(campaign.plan.demands)
            ]
            upsert(connection, DEMANDS.table, rows)
            if campaign.kind.validates:
                skus = (NodeTraits(node=node.name, sku=node.sku) for node in campaign.plan.nodes)
                keep_traits(connection, skus, told_by=BY_CAMPAIGNS, cluster=campaign.cluster)

    @contextmanager
    def claim(self, campaign_id: str) -> Iterator[None]:
        """Be the one driver of the campaign while the block runs."""
        with self._database.reading() as connection:
            key = key_of(connection, campaign_id)
        with claims.claim(self._database, campaign_id, key):
            yield

    def get(self, campaign_id: str) -> Campaign:
        with self._database.reading() as connection:
            query = CAMPAIGNS.select().where(CAMPAIGNS.c.key == key_of(connection, campaign_id))
            try:
                return next(CAMPAIGNS.records(connection, query))
            except UNREADABLE as error:
                raise StoreError(
                    f'history "{self._database.place}": campaign "{campaign_id}" cannot be read:'
                    f" {error}; it was written by another version of Anubis: use that version, or"
                    " begin another campaign"
                ) from error

    def newest(self, limit: int) -> list[CampaignRow]:
        columns = (CAMPAIGNS.c[column.name] for column in AT_A_GLANCE.columns)
        query = _newest_first(sa.select(*columns)).limit(limit)
        with self._database.reading() as connection:
            return list(map(AT_A_GLANCE.reader(0), connection.execute(query)))

    def latest(self, finished: bool | None = None) -> str | None:
        """The id of the campaign begun last; of finished or of unfinished ones if that is given."""
        query = _newest_first(sa.select(CAMPAIGNS.c.id)).limit(1)
        if finished is not None:
            has_end = CAMPAIGNS.c.finished_at.is_not(None)
            query = query.where(has_end if finished else ~has_end)
        with self._database.reading() as connection:
            return connection.execute(query).scalar()

    def finished_in(self, setting: str, cluster: str) -> str | None:
        """The id of the cluster's latest finished campaign with this setting."""
        ended = CAMPAIGNS.c.finished_at.is_not(None) & (CAMPAIGNS.c.cluster == cluster)
        query = sa.select(CAMPAIGNS.c.id).where(CAMPAIGNS.c.setting == setting, ended)
        with self._database.reading() as connection:
            return connection.execute(_newest_first(query).limit(1)).scalar()


def key_of(connection: sa.Connection, campaign_id: str) -> int:
    query = sa.select(CAMPAIGNS.c.key).where(CAMPAIGNS.c.id == campaign_id)
    key = connection.execute(query).scalar()
    if key is None:
        newest = connection.execute(_newest_first(sa.select(CAMPAIGNS.c.id)).limit(SUGGESTED))
        hint = did_you_mean(campaign_id, newest.scalars())
        raise StoreError(f'campaign "{campaign_id}" is not in the history; {hint}')
    return int(key)


def forget_campaign(connection: sa.Connection, campaign_id: str) -> None:
    """With all that belongs to it."""
    key = key_of(connection, campaign_id)
    for table in metadata.sorted_tables[::-1]:
        if any(reference.column is CAMPAIGNS.c.key for reference in table.foreign_keys):
            connection.execute(sa.delete(table).where(table.c.campaign == key))
    connection.execute(sa.delete(CAMPAIGNS.table).where(CAMPAIGNS.c.key == key))


def campaign_column() -> sa.Column[Any]:
    """The first half of the primary key of what belongs to a campaign."""
    return sa.Column("campaign", sa.Integer, sa.ForeignKey(CAMPAIGNS.c.key), primary_key=True)


def _newest_first(query: sa.Select[Any]) -> sa.Select[Any]:
    """In the order in which they were begun here: clocks are not always right."""
    return query.order_by(CAMPAIGNS.c.key.desc())
