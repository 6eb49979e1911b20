"""Attributes of nodes, reported by imports and by campaigns: each has rows of its own, so that one
can be taken back without the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

import sqlalchemy as sa

from anubis.core.history.attributes import NodeAttributes
from anubis.store.database import upsert
from anubis.store.happenings import Kept
from anubis.store.row_counts import recount
from anubis.store.row_mapping import RecordTable

BY_CAMPAIGNS = 0  # in place of the number of an import

ATTRIBUTES = RecordTable(
    "attributes",
    NodeAttributes,
    sa.Column("told_by", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Index("attributes_by_cluster", "cluster"),
    checked=True,
    keys=("node",),
    installed="installed_at",
)


def attributes_of(connection: sa.Connection, cluster: str) -> list[NodeAttributes]:
    """Return the attributes of nodes. The latest import counts; earlier ones and campaigns fill its
    gaps."""
    query = (
        ATTRIBUTES.select()
        .where(ATTRIBUTES.c.cluster == cluster)
        .order_by(ATTRIBUTES.c.told_by.desc())
    )
    of_node: dict[str, NodeAttributes] = {}
    for earlier in ATTRIBUTES.records(connection, query):
        latest = of_node.get(earlier.node)
        of_node[earlier.node] = complete(latest, earlier) if latest else earlier
    return list(of_node.values())


def complete(attributes: NodeAttributes, earlier: NodeAttributes) -> NodeAttributes:
    open_ = [name for name, value in asdict(attributes).items() if value in (None, "")]
    return replace(attributes, **{name: getattr(earlier, name) for name in open_})


def keep_attributes(
    connection: sa.Connection, attributes: Iterable[NodeAttributes], *, told_by: int, cluster: str
) -> Kept:
    """Write rows for what was not known before."""
    before = {record.node: record for record in attributes_of(connection, cluster)}
    new, changed, same = [], [], 0
    for latest in attributes:
        earlier = before.get(latest.node)
        if earlier is None:
            new.append(latest)
        elif complete(latest, earlier) != earlier:
            changed.append(latest)
        else:
            same += 1
    rows = [ATTRIBUTES.row(latest, told_by=told_by, cluster=cluster) for latest in (*new, *changed)]
    with recount(connection, cluster, ATTRIBUTES):
        upsert(connection, ATTRIBUTES.table, rows, replace=True)
    return Kept(new=len(new), completed=len(changed), known=same)
