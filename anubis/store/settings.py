"""The settings that nodes reported last, over all campaigns of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import sqlalchemy as sa

from anubis.core.amounts import DAY_S
from anubis.core.judge.equality import NodeSettings
from anubis.core.records import Ended
from anubis.store.attributes import attributes_of
from anubis.store.campaigns import CAMPAIGNS
from anubis.store.checksums import Damage
from anubis.store.database import Database
from anubis.store.executions import EXECUTIONS
from anubis.store.row_mapping import UNPACKABLE

VOTE_S = 30 * DAY_S  # after which a node may have been set up otherwise


class LastSettings:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def read_before(self, at: float, programs: Mapping[str, Collection[str]]) -> list[NodeSettings]:
        """Return these settings of each node by these programs, from campaigns that were over by
        then and are not too old. Damaged ones are left out."""
        with self._database.reading() as connection:
            skus = {
                attributes.node: attributes.sku
                for attributes in attributes_of(connection, self._cluster)
            }
            read = EXECUTIONS.reader()
            votes: list[NodeSettings] = []
            for row in connection.execute(_last_runs(self._cluster, at, programs)):
                try:
                    run = read(row)
                except (Damage, *UNPACKABLE):
                    continue
                node, *partners = run.step.participants
                if not partners:
                    names = programs[run.step.workload.benchmark]
                    votes.append(NodeSettings.from_run(run, skus.get(node, ""), names))
        return votes


def _last_runs(cluster: str, at: float, programs: Collection[str]) -> sa.Select[tuple[object, ...]]:
    runs, campaigns = EXECUTIONS.table, CAMPAIGNS.table
    latest_first = (campaigns.c.finished_at.desc(), runs.c.campaign.desc(), runs.c.number.desc())
    ranked = (
        sa.select(
            runs.c.campaign,
            runs.c.number,
            sa.func.row_number()
            .over(partition_by=(runs.c.benchmark, runs.c.participants), order_by=latest_first)
            .label("place"),
        )
        .join(campaigns, campaigns.c.key == runs.c.campaign)
        .where(
            campaigns.c.cluster == cluster,
            campaigns.c.finished_at <= at,
            campaigns.c.finished_at > at - VOTE_S,
            runs.c.benchmark.in_(list(programs)),
            runs.c.ended == Ended.MEASURED.value,
        )
        .subquery()
    )
    is_last = (
        (ranked.c.campaign == runs.c.campaign)
        & (ranked.c.number == runs.c.number)
        & (ranked.c.place == 1)
    )
    return EXECUTIONS.select().join(ranked, is_last)
