"""The results of campaigns: verdicts on units, nodes and parts of the fabric, and on the whole;
and how near measurements came to their limits, read from the verdicts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from anubis.core.history.drift import LimitShares, share_of_limit
from anubis.core.records import (
    Assessment,
    BatchVerdict,
    CampaignKind,
    CriteriaSet,
    Judgement,
    NodeVerdict,
    PartVerdict,
    Samples,
    Verdict,
    canonical,
)
from anubis.core.text import make_storable
from anubis.store import codec
from anubis.store.campaigns import (
    CAMPAIGNS,
    DEMANDS,
    SHORT,
    campaign_column,
    checked_rows,
    key_of,
    refuse_gone,
    short_row,
)
from anubis.store.checksums import Damage
from anubis.store.database import PER_QUESTION, Database
from anubis.store.executions import EXECUTIONS
from anubis.store.measured_nodes import (
    FAILED,
    MEASURED,
    failed_alone,
    measured_nodes,
    sum_of_failed,
)
from anubis.store.node_events import begin_watches
from anubis.store.row_mapping import (
    UNPACKABLE,
    Form,
    Prose,
    R,
    RecordTable,
    Row,
    converted_form,
    digest_of,
    packed_form,
)
from anubis.store.shared_values import PARTICIPANTS, ROSTERS, reference, sharing


def _cause() -> Form:
    """Return the form of a cause; NULL if there is none, as in rows written before causes were
    kept. It is a long cell, because a NULL there leaves the checksum of such a row as it was."""
    return converted_form(
        sa.Column("cause", sa.Text, nullable=True),
        lambda cause: make_storable(cause) if cause else None,
        lambda cell: cell or "",
    )


def _place() -> tuple[sa.Column[Any], sa.Column[Any]]:
    """Return the primary key: the campaign, and the place among its verdicts, worst first."""
    return campaign_column(), sa.Column(
        "position", sa.Integer, primary_key=True, autoincrement=False
    )


VERDICTS = RecordTable(
    "verdicts",
    Verdict,
    *_place(),
    sa.Index("verdicts_by_participants", "participants"),
    checked=True,
    long=("cause",),
    participants=reference("participants", PARTICIPANTS),
    reason=Prose,
    cause=_cause(),
)

# One verdict on many units of one metric, and the similarity of each.
BATCH_VERDICTS = RecordTable(
    "batch_verdicts",
    BatchVerdict,
    *_place(),
    checked=True,
    long=("similarities",),
    together={("participants", "devices"): reference("roster", ROSTERS)},
    reason=Prose,
    similarities=packed_form("similarities"),
)

NODE_VERDICTS = RecordTable(
    "node_verdicts",
    NodeVerdict,
    *_place(),
    sa.Index("node_verdicts_by_node", "node"),
    checked=True,
    long=("owes", "cause"),
    reason=Prose,
    cause=_cause(),
    owes=converted_form(
        sa.Column("owes", sa.Text),
        lambda names: None if names is None else codec.dump(names),
        lambda cell: None if cell is None else codec.load(tuple[str, ...], cell),
    ),
)

PART_VERDICTS = RecordTable("part_verdicts", PartVerdict, *_place(), checked=True, reason=Prose)

TABLES: Mapping[str, RecordTable[Any]] = {  # of the fields of an assessment
    "alone": VERDICTS,
    "batch_verdicts": BATCH_VERDICTS,
    "nodes": NODE_VERDICTS,
    "parts": PART_VERDICTS,
}
OF_CAMPAIGN: tuple[RecordTable[Any], ...] = (DEMANDS, EXECUTIONS, *TABLES.values())


class Assessments:
    def __init__(self, database: Database) -> None:
        self._database = database

    def conclude(
        self,
        campaign_id: str,
        assessment: Assessment,
        criteria: Sequence[CriteriaSet],
        finished_at: float,
        created_at: float | None = None,
    ) -> None:
        """Keep the verdicts and the criteria behind them, in place of any earlier ones.

        Nodes that were validated here belong to the fleet from then on. `created_at` corrects the
        time at which the campaign began.
        """
        with sharing(self._database) as transaction:
            connection = transaction.connection
            key = key_of(connection, campaign_id)
            for name, kind in TABLES.items():
                connection.execute(sa.delete(kind.table).where(kind.c.campaign == key))
                transaction.insert(kind, _position_rows(key, getattr(assessment, name)))
            campaign = short_row(connection, campaign_id)
            CAMPAIGNS.revise(
                connection,
                CAMPAIGNS.c.key == key,
                judgement=assessment.judgement.value,
                criteria=codec.dump(tuple(criteria)),
                finished_at=finished_at,
                created_at=campaign.created_at if created_at is None else created_at,
                counts=_counts(connection, key),
            )
            verb, cluster = campaign.verb, campaign.cluster
            if CampaignKind(verb).validates:
                nodes = [verdict.node for verdict in assessment.nodes]
                begin_watches(connection, cluster, nodes, finished_at)

    def node_verdicts(
        self, campaign_id: str, nodes: Collection[str] | None = None
    ) -> tuple[NodeVerdict, ...]:
        """Return the verdicts on nodes alone; on these nodes, or on all. If they are few, only
        those are read: whoever reads the conclusions of all campaigns sees that none is gone."""
        with self._database.reading() as connection:
            campaign = short_row(connection, campaign_id)
            if nodes is None or len(nodes) > PER_QUESTION:
                verdicts = campaign_records(connection, NODE_VERDICTS, campaign)
                return tuple(v for v in verdicts if nodes is None or v.node in nodes)
            of_campaign = NODE_VERDICTS.c.campaign == campaign.key
            query = NODE_VERDICTS.select().where(of_campaign, NODE_VERDICTS.c.node.in_([*nodes]))
            return tuple(NODE_VERDICTS.records(connection, query))

    def part_verdicts(self, campaign_id: str) -> tuple[PartVerdict, ...]:
        """Return the verdicts on parts alone."""
        with self._database.reading() as connection:
            return campaign_records(connection, PART_VERDICTS, short_row(connection, campaign_id))

    def defective_devices(self, campaign_id: str) -> dict[str, list[str]]:
        """List, for each node, the devices that fell short by themselves, in the order of its
        verdicts."""
        devices: dict[str, dict[str, None]] = {}
        participants = PARTICIPANTS.table
        with self._database.reading() as connection:
            query = (
                sa.select(participants.c.nodes, VERDICTS.c.device)
                .join(participants, participants.c.digest == VERDICTS.c.participants)
                .where(
                    VERDICTS.c.campaign == key_of(connection, campaign_id),
                    VERDICTS.c.judgement == Judgement.DEFECTIVE.value,
                )
                .order_by(VERDICTS.c.position)
            )
            for roster, device in connection.execute(query):
                match json.loads(roster):
                    case [node] if device and device != "node":
                        devices.setdefault(node, {})[device] = None
        return {node: list(own) for node, own in devices.items()}

    def find(self, campaign_id: str) -> Assessment | None:
        """Return the verdicts of the campaign; None until it is concluded."""
        with self._database.reading() as connection:
            campaign = short_row(connection, campaign_id)
            if campaign.finished_at is None:
                return None
            kept: dict[str, Any] = {
                name: campaign_records(connection, kind, campaign) for name, kind in TABLES.items()
            }
            return Assessment(**kept)


def _position_rows(key: int, records: Iterable[R]) -> Iterator[tuple[R, Row]]:
    for position, record in enumerate(records):
        yield record, {"campaign": key, "position": position}


def _counts(connection: sa.Connection, key: int) -> str:
    """Return the number of rows of the campaign by table, and sums over them, as JSON."""
    counts = {}
    for kind in OF_CAMPAIGN:
        of_campaign = sa.select(sa.func.count()).where(kind.c.campaign == key)
        counts[kind.table.name] = connection.execute(of_campaign).scalar_one()
    counts[MEASURED] = measured_nodes(connection, [key])[key].sum
    failed = failed_alone(connection, VERDICTS, VERDICTS.c.campaign == key)
    counts[FAILED] = sum_of_failed(failed.get(key, set()))
    return canonical(counts)


def has_part_verdicts(campaign: sa.Row[Any]) -> bool:
    """True if the campaign had verdicts on parts or paths when it was concluded."""
    return bool(campaign.counts and json.loads(campaign.counts)[PART_VERDICTS.table.name])


def campaign_records(
    connection: sa.Connection, kind: RecordTable[R], campaign: sa.Row[Any]
) -> tuple[R, ...]:
    query = kind.select().where(kind.c.campaign == campaign.key).order_by(kind.c.position)
    read = kind.reader()
    position, records = kind.place(kind.c.position), list[R]()
    for row in connection.execute(query):
        try:
            record = read(row)
        except (Damage, *UNPACKABLE):
            raise Damage(f'a verdict of campaign "{campaign.id}" is damaged') from None
        if row[position] != len(records):
            raise Damage(f'a verdict of campaign "{campaign.id}" is gone')
        records.append(record)
    refuse_gone(campaign, kind.table.name, len(records))
    return tuple(records)


VerdictRows = Sequence[sa.RowMapping]


def limit_shares(
    connection: sa.Connection, cluster: str, since: float, node: str = ""
) -> Iterator[LimitShares]:
    """Yield the shares of limits in each campaign that ended since then, by metric; of one node if
    it is named."""
    c = CAMPAIGNS.c
    query = sa.select(*SHORT).where(c.cluster == cluster, c.finished_at >= since)
    own = digest_of(canonical((node,)))
    for campaign in checked_rows(connection, query):
        batches = _rows(connection, BATCH_VERDICTS, campaign)
        places = _places(connection, batches, node) if node else {}
        for row in filter(_is_compared, batches):
            similarity = codec.unpack(row["packing"], row["similarities"])
            kept = similarity[places[row["roster"]]] if node else similarity
            yield _shares(campaign, row, kept)
        for row in filter(_is_compared, _rows(connection, VERDICTS, campaign)):
            if not node or row["participants"] == own:
                yield _shares(campaign, row, np.array([row["similarity"]]))


def _rows(connection: sa.Connection, kind: RecordTable[Any], campaign: sa.Row[Any]) -> VerdictRows:
    query = sa.select(kind.table).where(kind.c.campaign == campaign.key)
    rows = list(kind.check_rows(connection.execute(query).mappings()))
    refuse_gone(campaign, kind.table.name, len(rows))
    return rows


def _is_compared(row: sa.RowMapping) -> bool:
    """True if there was a criterion to compare with."""
    measured = row["similarities"] if "similarities" in row else row["similarity"]
    return row["alpha"] is not None and row["alpha"] < 1 and measured is not None


def _shares(campaign: sa.Row[Any], row: sa.RowMapping, similarity: Samples) -> LimitShares:
    return LimitShares(
        at=campaign.finished_at,
        benchmark=row["benchmark"],
        metric=row["metric"],
        shares=share_of_limit(similarity, row["alpha"]),
    )


def _places(connection: sa.Connection, rows: VerdictRows, node: str) -> dict[str, list[int]]:
    """Return the places of a node alone in each roster, by its digest."""
    table = ROSTERS.table
    digests = {row["roster"] for row in rows}
    there = connection.execute(sa.select(*table.c).where(table.c.digest.in_(digests)))
    return {
        digest: [
            place for place, names in enumerate(ROSTERS.check(digest, cell)[0]) if names == (node,)
        ]
        for digest, cell in there
    }
