"""How near the measurements of campaigns came to their limits, read from the verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from anubis.core.history.drift import LimitShares, share_of_limit
from anubis.core.records import Samples, canonical
from anubis.store import codec
from anubis.store.assessments import BATCH_VERDICTS, VERDICTS
from anubis.store.campaigns import CAMPAIGNS, SHORT, checked_rows, refuse_gone
from anubis.store.row_mapping import RecordTable, digest_of
from anubis.store.shared_values import ROSTERS

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
