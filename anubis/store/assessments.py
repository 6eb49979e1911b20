"""What campaigns came to: verdicts on units, nodes and parts of the fabric, and on the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from anubis.core.records import (
    Assessment,
    CampaignKind,
    CriteriaSet,
    NodeVerdict,
    PartVerdict,
    Plan,
    Ruling,
    Verdict,
)
from anubis.store import codec
from anubis.store.campaigns import CAMPAIGNS, campaign_column, key_of
from anubis.store.database import Database
from anubis.store.happenings import begin_watches
from anubis.store.mapping import Prose, R, RecordTable, Row, packed
from anubis.store.sharing import PARTICIPANTS, ROSTERS, reference, sharing


def _place() -> tuple[sa.Column[Any], sa.Column[Any]]:
    """The primary key: the campaign, and the place among its verdicts, worst first."""
    return campaign_column(), sa.Column(
        "position", sa.Integer, primary_key=True, autoincrement=False
    )


VERDICTS = RecordTable(
    "verdicts",
    Verdict,
    *_place(),
    sa.Index("verdicts_by_participants", "participants"),
    participants=reference("participants", PARTICIPANTS),
    reason=Prose,
)

# One verdict on many units of one metric, and the similarity of each.
RULINGS = RecordTable(
    "rulings",
    Ruling,
    *_place(),
    together={("participants", "devices"): reference("roster", ROSTERS)},
    reason=Prose,
    similarities=packed("similarities"),
)

NODE_VERDICTS = RecordTable(
    "node_verdicts",
    NodeVerdict,
    *_place(),
    sa.Index("node_verdicts_by_node", "node"),
    reason=Prose,
)

PART_VERDICTS = RecordTable("part_verdicts", PartVerdict, *_place(), reason=Prose)

TABLES: Mapping[str, RecordTable[Any]] = {  # of the fields of an assessment
    "alone": VERDICTS,
    "rulings": RULINGS,
    "nodes": NODE_VERDICTS,
    "parts": PART_VERDICTS,
}


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
        """Keep the verdicts and what they were judged by, in place of any earlier ones.

        Nodes that were validated here belong to the fleet from then on. `created_at` corrects the
        time at which the campaign began.
        """
        with sharing(self._database) as transaction:
            connection = transaction.connection
            key = key_of(connection, campaign_id)
            for name, kind in TABLES.items():
                connection.execute(sa.delete(kind.table).where(kind.c.campaign == key))
                transaction.insert(kind, _placed(key, getattr(assessment, name)))
            concluded = (
                sa.update(CAMPAIGNS.table)
                .where(CAMPAIGNS.c.key == key)
                .values(
                    judgement=assessment.judgement.value,
                    criteria=codec.dump(tuple(criteria)),
                    finished_at=finished_at,
                    created_at=CAMPAIGNS.c.created_at if created_at is None else created_at,
                )
            )
            facts = concluded.returning(CAMPAIGNS.c.verb, CAMPAIGNS.c.cluster)
            verb, cluster = connection.execute(facts).one()
            if CampaignKind(verb).validates:
                nodes = [verdict.node for verdict in assessment.nodes]
                begin_watches(connection, cluster, nodes, finished_at)

    def of(self, campaign_id: str) -> Assessment | None:
        """The verdicts of the campaign; None until it is concluded."""
        with self._database.reading() as connection:
            key = key_of(connection, campaign_id)
            campaign = connection.execute(
                sa.select(CAMPAIGNS.c.finished_at, CAMPAIGNS.c.judgement, CAMPAIGNS.c.plan).where(
                    CAMPAIGNS.c.key == key
                )
            ).one()
            if campaign.finished_at is None:
                return None
            assessment = Assessment(
                **{name: of_campaign(connection, kind, key) for name, kind in TABLES.items()}
            )
        if campaign.judgement is None:  # concluded before verdicts on parts were kept
            # what locates faults loads where it is used, and not with every gate
            from anubis.core.judging.conclusion import complete

            return complete(assessment, codec.load(Plan, campaign.plan))
        return assessment


def _placed(key: int, records: Iterable[R]) -> Iterator[tuple[R, Row]]:
    for position, record in enumerate(records):
        yield record, {"campaign": key, "position": position}


def of_campaign(connection: sa.Connection, kind: RecordTable[R], key: int) -> tuple[R, ...]:
    query = kind.select().where(kind.c.campaign == key).order_by(kind.c.position)
    return tuple(kind.records(connection, query))
