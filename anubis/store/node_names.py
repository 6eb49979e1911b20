"""The nodes that a cluster has, as far as reported: measured, watched, imported, held, or shown to
the keeper by their orchestrator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import sqlalchemy as sa

from anubis.store.assessments import NODE_VERDICTS
from anubis.store.attributes import ATTRIBUTES
from anubis.store.campaigns import CAMPAIGNS
from anubis.store.database import PER_QUESTION, Database
from anubis.store.happenings import INCIDENTS, REPAIRS, WATCHES
from anubis.store.holds import HOLDS
from anubis.store.keeping import LIVES

NAMING = (WATCHES, LIVES, HOLDS, ATTRIBUTES, INCIDENTS, REPAIRS)  # where most nodes are comes first


class NodeNames:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def find(self, nodes: Collection[str]) -> set[str]:
        """Return those of these nodes that the cluster has."""
        names, rest = set[str](), {*nodes}
        with self._database.reading() as connection:
            for query, node in self._queries():
                if not rest:
                    break
                there = set(_those_in(connection, query, node, sorted(rest)))
                names, rest = names | there, rest - there
        return names

    def all(self) -> list[str]:
        with self._database.reading() as connection:
            queries = [query for query, _ in self._queries()]
            names: Iterable[str] = connection.execute(sa.union(*queries)).scalars()
            return sorted(names)

    def _queries(self) -> Iterator[tuple[sa.Select[Any], sa.Column[Any]]]:
        for kind in NAMING:
            yield sa.select(kind.c.node).where(kind.c.cluster == self._cluster), kind.c.node
        node = NODE_VERDICTS.c.node
        of_cluster = CAMPAIGNS.c.cluster == self._cluster
        campaigns = NODE_VERDICTS.table.join(
            CAMPAIGNS.table, NODE_VERDICTS.c.campaign == CAMPAIGNS.c.key
        )
        yield sa.select(node).select_from(campaigns).where(of_cluster), node


def _those_in(
    connection: sa.Connection,
    query: sa.Select[Any],
    node: sa.Column[Any],
    names: list[str],
) -> Iterator[str]:
    for start in range(0, len(names), PER_QUESTION):
        some = node.in_(names[start : start + PER_QUESTION])
        yield from connection.execute(query.where(some).distinct()).scalars()
