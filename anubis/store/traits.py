"""Traits of nodes, reported by imports and by campaigns: each has rows of its own, so that one can
be taken back without the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

import sqlalchemy as sa

from anubis.core.history.traits import NodeTraits
from anubis.store.database import upsert
from anubis.store.happenings import Kept
from anubis.store.mapping import RecordTable
from anubis.store.tallies import recount

BY_CAMPAIGNS = 0  # in place of the number of an import

TRAITS = RecordTable(
    "traits",
    NodeTraits,
    sa.Column("told_by", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Index("traits_by_cluster", "cluster"),
    checked=True,
    keys=("node",),
    installed="installed_at",
)


def traits_of(connection: sa.Connection, cluster: str) -> list[NodeTraits]:
    """Return the traits of nodes. The latest import counts; earlier ones and campaigns fill its
    gaps."""
    query = TRAITS.select().where(TRAITS.c.cluster == cluster).order_by(TRAITS.c.told_by.desc())
    of_node: dict[str, NodeTraits] = {}
    for earlier in TRAITS.records(connection, query):
        latest = of_node.get(earlier.node)
        of_node[earlier.node] = complete(latest, earlier) if latest else earlier
    return list(of_node.values())


def complete(traits: NodeTraits, earlier: NodeTraits) -> NodeTraits:
    open_ = [name for name, value in asdict(traits).items() if value in (None, "")]
    return replace(traits, **{name: getattr(earlier, name) for name in open_})


def keep_traits(
    connection: sa.Connection, traits: Iterable[NodeTraits], *, told_by: int, cluster: str
) -> Kept:
    """Write rows for what was not known before."""
    before = {record.node: record for record in traits_of(connection, cluster)}
    new, changed, same = [], [], 0
    for latest in traits:
        earlier = before.get(latest.node)
        if earlier is None:
            new.append(latest)
        elif complete(latest, earlier) != earlier:
            changed.append(latest)
        else:
            same += 1
    rows = [TRAITS.row(latest, told_by=told_by, cluster=cluster) for latest in (*new, *changed)]
    with recount(connection, cluster, TRAITS):
        upsert(connection, TRAITS.table, rows, replace=True)
    return Kept(new=len(new), completed=len(changed), known=same)
