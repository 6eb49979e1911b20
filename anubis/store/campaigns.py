"""Campaigns: what was planned, and the criteria that judge it. A campaign is known by its id
outside and by its key in other tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from anubis.core.errors import StoreError, TakenNameError, UnknownCampaignError, did_you_mean
from anubis.core.history.attributes import NodeAttributes
from anubis.core.records import Campaign, CampaignKind, Demand, Judgement, Workload
from anubis.store import claims
from anubis.store.checksums import Checksum, Damage
from anubis.store.database import Database, upsert
from anubis.store.node_events import BY_CAMPAIGNS, keep_attributes
from anubis.store.row_mapping import RecordTable, metadata, side_by_side

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)  # what a document may be
SUGGESTED = 10  # campaigns that a hint looks at: the latest
VALIDATING = [kind.value for kind in CampaignKind if kind.validates]

CAMPAIGNS = RecordTable(
    "campaigns",
    Campaign,
    sa.Column("key", sa.Integer, primary_key=True),
    sa.Column("suite", sa.Text, nullable=False),
    sa.Column("nodes", sa.Integer, nullable=False),
    sa.Column("judgement", sa.Text),  # what the whole came to; NULL: not concluded
    sa.Column("counts", sa.Text),  # of rows that belong to it, by table; NULL until it is concluded
    sa.UniqueConstraint("id"),
    sa.Index("campaigns_by_cluster", "cluster", "finished_at"),
    checked=True,
    long=("setting", "plan", "policy", "criteria"),
    kind="verb",
)


@dataclass(frozen=True, kw_only=True)
class CampaignRow:
    """The short facts of a campaign: what a list of thousands can afford to read."""

    id: str
    cluster: str
    kind: CampaignKind
    suite: str
    created_at: float
    finished_at: float | None
    nodes: int
    judgement: Judgement | None  # of the whole; None: it is not over


DEMANDS = RecordTable(
    "demands",
    Demand,
    sa.Column("campaign", sa.Integer, sa.ForeignKey(CAMPAIGNS.c.key), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    checked=True,
    workload=side_by_side(Workload),
)

AT_A_GLANCE = side_by_side(CampaignRow, kind="verb")
READ_GLANCE = AT_A_GLANCE.reader(0)
GLANCED = [CAMPAIGNS.c[column.name] for column in AT_A_GLANCE.columns]
CHECKSUM = cast(Checksum, CAMPAIGNS.checksum)
SHORT = (CAMPAIGNS.c.key, *CHECKSUM.short, CHECKSUM.column)


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
                raise TakenNameError(
                    f'campaign "{campaign.id}" exists already; resume it, or begin another'
                ) from None
            rows = [
                DEMANDS.row(demand, campaign=key, position=position)
                for position, demand in enumerate(campaign.plan.demands)
            ]
            upsert(connection, DEMANDS.table, rows)
            if campaign.kind.validates:
                skus = (
                    NodeAttributes(node=node.name, sku=node.sku) for node in campaign.plan.nodes
                )
                keep_attributes(connection, skus, told_by=BY_CAMPAIGNS, cluster=campaign.cluster)

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
            except Damage:
                raise Damage(f'campaign "{campaign_id}" is damaged') from None
            except UNREADABLE as error:
                raise StoreError(
                    f'history "{self._database.place}": campaign "{campaign_id}" cannot be read:'
                    f" {error}; it was written by another version of Anubis: use that version, or"
                    " begin another campaign"
                ) from error

    def newest(self, limit: int) -> list[CampaignRow]:
        with self._database.reading() as connection:
            return [_glance(row) for row in _newest_first(connection, lambda row: False, limit)]

    def glance(self, campaign_id: str) -> CampaignRow:
        with self._database.reading() as connection:
            return _glance(short_row(connection, campaign_id))

    def find(self, campaign_id: str) -> CampaignRow | None:
        """Return a campaign at a glance; None if it was never begun."""
        try:
            return self.glance(campaign_id)
        except UnknownCampaignError:
            return None

    def latest(self, finished: bool | None = None) -> str | None:
        """Return the id of the campaign begun last; of finished or of unfinished ones if that is
        given."""

        def is_meant(row: sa.Row[Any]) -> bool:
            return finished is None or finished is (row.finished_at is not None)

        with self._database.reading() as connection:
            rows = _newest_first(connection, is_meant)
        return rows[-1].id if rows and is_meant(rows[-1]) else None

    def finished_in(self, setting: str, cluster: str) -> str | None:
        """Return the id of the cluster's latest finished campaign with this setting."""
        ended = CAMPAIGNS.c.finished_at.is_not(None) & (CAMPAIGNS.c.cluster == cluster)
        query = sa.select(CAMPAIGNS.c.id).where(CAMPAIGNS.c.setting == setting, ended)
        with self._database.reading() as connection:
            return connection.execute(query.order_by(CAMPAIGNS.c.key.desc()).limit(1)).scalar()


def _glance(row: sa.Row[Any]) -> CampaignRow:
    return cast(CampaignRow, READ_GLANCE([row._mapping[column] for column in GLANCED]))


def key_of(connection: sa.Connection, campaign_id: str) -> int:
    row = CAMPAIGNS.table.alias()  # an index that is damaged may lead to the row of another one
    query = sa.select(CAMPAIGNS.c.key, row.c.id).where(CAMPAIGNS.c.id == campaign_id)
    entry = connection.execute(query.outerjoin(row, row.c.key == CAMPAIGNS.c.key)).first()
    if entry is None:
        ids = sa.select(CAMPAIGNS.c.id).order_by(CAMPAIGNS.c.key.desc()).limit(SUGGESTED)
        hint = did_you_mean(campaign_id, connection.execute(ids).scalars())
        raise UnknownCampaignError(f'campaign "{campaign_id}" is not in the history; {hint}')
    if entry.id != campaign_id:
        raise Damage(f'the way to campaign "{campaign_id}" is damaged')
    return int(entry.key)


def short_row(connection: sa.Connection, campaign_id: str) -> sa.Row[Any]:
    """Return the short cells of a campaign, which a list of thousands can afford to read."""
    query = sa.select(*SHORT).where(CAMPAIGNS.c.key == key_of(connection, campaign_id))
    return next(checked_rows(connection, query))


def checked_rows(connection: sa.Connection, query: sa.Select[Any]) -> Iterator[sa.Row[Any]]:
    """Yield the rows of a query for the short columns; a damaged row raises."""
    for row in connection.execute(query):
        _, *cells, checksum = row
        if not CHECKSUM.fits_short(checksum, cells):
            raise Damage(f'campaign "{row.id}" is damaged')
        yield row


def _newest_first(
    connection: sa.Connection, enough: Callable[[sa.Row[Any]], bool], limit: int | None = None
) -> list[sa.Row[Any]]:
    """Return campaigns in reverse order of their keys, as clocks are not always right, up to the
    first that is enough. Damage is raised if the row of one of them is gone."""
    rows = []
    query = sa.select(*SHORT).order_by(CAMPAIGNS.c.key.desc()).limit(limit)
    for row in checked_rows(connection, query):
        rows.append(row)
        if enough(row):
            break
    demanding = sa.select(DEMANDS.c.campaign).distinct()
    if rows:
        demanding = demanding.where(DEMANDS.c.campaign >= rows[-1].key)
    if gone := set(connection.execute(demanding).scalars()) - {row.key for row in rows}:
        raise Damage(f"the row of a campaign is gone: number {min(gone)}")
    return rows


def refuse_gone(campaign: sa.Row[Any], table: str, there: int) -> None:
    """Raise Damage if a table has lost rows since the campaign was concluded."""
    if campaign.counts is None:
        return
    expected = json.loads(campaign.counts)[table]
    if there != expected:
        raise Damage(
            f'campaign "{campaign.id}" is damaged: {there} rows of {table} are there, expected'
            f" {expected}"
        )


def forget_campaign(connection: sa.Connection, campaign_id: str) -> None:
    """Delete a campaign with all that belongs to it."""
    key = key_of(connection, campaign_id)
    for table in metadata.sorted_tables[::-1]:
        if any(reference.column is CAMPAIGNS.c.key for reference in table.foreign_keys):
            connection.execute(sa.delete(table).where(table.c.campaign == key))
    connection.execute(sa.delete(CAMPAIGNS.table).where(CAMPAIGNS.c.key == key))


def campaign_column() -> sa.Column[Any]:
    """Return the first half of the primary key of what belongs to a campaign."""
    return sa.Column("campaign", sa.Integer, sa.ForeignKey(CAMPAIGNS.c.key), primary_key=True)
