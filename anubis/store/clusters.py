"""The clusters that a history knows, and the nodes that each has as far as reported: measured by
Anubis, watched, named by an event or an import of incidents or of nodes, held, or shown to the
keeper. Every node belongs to one cluster. Measurements of another tool and jobs add none.

People know a cluster by its name. What was reported before any cluster had a name belongs to the
unnamed one, until a cluster is named that it plainly belongs to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

import sqlalchemy as sa

from anubis.core.errors import StoreError, TakenNameError, UnknownRecordError, UsageError
from anubis.core.records import UNNAMED, CampaignKind, ClusterIdentity
from anubis.core.text import escape_line
from anubis.store.assessments import NODE_VERDICTS
from anubis.store.campaigns import CAMPAIGNS, VALIDATING, forget_campaign
from anubis.store.checksums import Damage
from anubis.store.database import PER_QUESTION, Database, upsert
from anubis.store.event_records import EVENT_RECORDS, apart_from_jobs
from anubis.store.holds import HOLDS
from anubis.store.keeping import LIVES
from anubis.store.node_events import ATTRIBUTES, INCIDENTS, JOBS, REPAIRS, WATCHES
from anubis.store.row_counts import ROW_COUNTS, recount
from anubis.store.row_mapping import CHECKED_BY, RecordTable, metadata

LONGEST_SHOWN = 100  # characters of a name, in a sentence about it
TALLIED = (INCIDENTS, REPAIRS, WATCHES, JOBS, EVENT_RECORDS, ATTRIBUTES)
CARRIED_OUT = [kind.value for kind in CampaignKind if kind.can_resume]


@dataclass(frozen=True, kw_only=True)
class KnownCluster:
    """A cluster by its name, and how its nodes were last reached: two may share a name."""

    name: str
    executor: str  # "" until somebody reaches its nodes
    address: str
    since: float


@dataclass(frozen=True, kw_only=True)
class ForgottenCluster:
    """The records that were deleted with a cluster."""

    campaigns: int
    incidents: int
    events: int
    decisions: int


CLUSTERS = RecordTable("clusters", KnownCluster, keys=("name",))


class Clusters:
    def __init__(self, database: Database) -> None:
        self._database = database

    def names(self) -> list[str]:
        """List clusters in the order in which they became known; the unnamed one last, if it has
        anything."""
        with self._database.reading() as connection:
            return _names(connection)

    def enter(self, cluster: ClusterIdentity, at: float, nodes: Collection[str] = ()) -> str:
        """Make the cluster known from now on; return a remark for the caller, or an empty one.

        `nodes` are those of the request: what the history has of them without a cluster becomes the
        cluster's, if its campaigns were carried out in the same way.
        """
        with self._database.reading() as connection:
            before = _find_known(connection, cluster.name)
        if before and before.executor:
            _refuse_another(before, cluster)
        if before and (not cluster.executor or _is_as_before(before, cluster)):
            return ""
        now = KnownCluster(
            name=cluster.name,
            executor=cluster.executor,
            address=cluster.address,
            since=before.since if before else at,
        )
        with self._database.writing() as connection:
            names = _names(connection)
            upsert(connection, CLUSTERS.table, [CLUSTERS.row(now)], replace=True)
            if before or not names:
                return ""
            if UNNAMED in names and _belongs(connection, cluster, nodes):
                _rename(connection, UNNAMED, cluster.name)
                return (
                    f'what this history held without a cluster is now of cluster "{cluster.name}":'
                    " anubis history rename gives it another name"
                )
        listed = '", "'.join(names)
        return f'cluster "{cluster.name}" is new to this history, which knows "{listed}"'

    def rename(self, old: str, new: str) -> None:
        """Rename a cluster with everything of it, the unnamed one as well."""
        with self._database.writing() as connection:
            names = _names(connection)
            if old not in names:
                raise UnknownRecordError(unknown(old, names))
            if new in names:
                raise TakenNameError(
                    f'cluster "{new}" is in the history already: its nodes and those of "{old}"'
                    " could not be distinguished afterwards; choose another name"
                )
            _rename(connection, old, new)

    def forget(self, name: str, *, with_campaigns: bool) -> ForgottenCluster:
        """Delete everything of a cluster. If something was measured there, nothing is deleted
        unless campaigns may go too."""
        with self._database.writing() as connection:
            names = _names(connection)
            if name not in names:
                raise UnknownRecordError(unknown(name, names))
            of_cluster = CAMPAIGNS.c.cluster == name
            query = sa.select(CAMPAIGNS.c.id).where(of_cluster)
            measured = list(connection.execute(query).scalars())
            if measured and not with_campaigns:
                count = "1 campaign" if len(measured) == 1 else f"{len(measured):,} campaigns"
                raise UsageError(
                    f'cluster "{name}" has {count}, whose verdicts count: --with-campaigns removes'
                    " all of it; anubis history rename gives it another name"
                )
            for campaign in measured:
                forget_campaign(connection, campaign)
            gone = {}
            for table in (*_tables_of_clusters(), ROW_COUNTS.table):
                own = sa.delete(table).where(table.c.cluster == name)
                gone[table.name] = connection.execute(own).rowcount
            connection.execute(sa.delete(CLUSTERS.table).where(CLUSTERS.c.name == name))
        return ForgottenCluster(
            campaigns=len(measured),
            incidents=gone["incidents"],
            events=gone["event_records"],
            decisions=gone["decisions"],
        )


def unknown(name: str, names: Collection[str], files: Collection[str] | None = None) -> str:
    """Return the error about an unknown cluster, with the likely name and all known ones. `files`:
    names of those that have a file, if a file would do as well."""
    shown = escape_line(name)[:LONGEST_SHOWN]
    head = f'the history knows no cluster "{shown}"'
    head += "" if files is None else f", nor is there a configs/clusters/{shown}.yaml"
    listed = ", ".join(names)
    has = f"it knows {listed}" if names else "it knows none, so begin with anubis accept"
    close = get_close_matches(name, [*names, *(files or ())], n=1)
    return f'{head}; did you mean "{close[0]}"? {has}' if close else f"{head}; {has}"


def _tables_of_clusters() -> Iterator[sa.Table]:
    """Yield the tables whose rows belong to a cluster, except the row counts of those rows."""
    of_clusters = (table for table in metadata.tables.values() if "cluster" in table.c)
    return (table for table in of_clusters if table is not ROW_COUNTS.table)


def _names(connection: sa.Connection) -> list[str]:
    named = sa.select(CLUSTERS.c.name).order_by(CLUSTERS.c.since, CLUSTERS.c.name)
    names = list(connection.execute(named).scalars())
    of_campaigns = connection.execute(sa.select(CAMPAIGNS.c.cluster).distinct()).scalars()
    if None in names or {*of_campaigns} - {*names, UNNAMED}:
        raise Damage("the list of clusters is damaged")
    return [*names, UNNAMED] if connection.execute(_is_anything_unnamed()).scalar() else names


@cache
def _is_anything_unnamed() -> sa.Select[tuple[bool]]:
    """Build the question whether any table has a row without a cluster, once: to build it for
    each of two dozen tables takes longer than to ask a small history."""
    tables = _tables_of_clusters()
    return sa.select(sa.or_(*(sa.exists().where(t.c.cluster == UNNAMED) for t in tables)))


def _find_known(connection: sa.Connection, name: str) -> KnownCluster | None:
    query = CLUSTERS.select().where(CLUSTERS.c.name == name)
    cluster = next(CLUSTERS.records(connection, query), None)
    if cluster and not (isinstance(cluster.executor, str) and isinstance(cluster.address, str)):
        raise Damage("the list of clusters is damaged")
    return cluster


def _refuse_another(before: KnownCluster, cluster: ClusterIdentity) -> None:
    """Refuse a cluster that was reached in another way: names of files and addresses are reused,
    but a chosen name means what it says."""
    if cluster.is_chosen or not cluster.executor or _is_as_before(before, cluster):
        return
    raise StoreError(
        f'cluster "{cluster.name}" was reached by {_way(before)} and would now be by'
        f' {_way(cluster)}: if it is the same, write "name: {cluster.name}" into its file; if it is'
        " another, give it a name of its own there"
    )


def _is_as_before(before: KnownCluster, cluster: ClusterIdentity) -> bool:
    return (before.executor, before.address) == (cluster.executor, cluster.address)


def _way(cluster: KnownCluster | ClusterIdentity) -> str:
    return " at ".join(filter(None, (cluster.executor, cluster.address)))


def _belongs(connection: sa.Connection, cluster: ClusterIdentity, nodes: Collection[str]) -> bool:
    campaigns = CAMPAIGNS.table
    executors = connection.execute(
        sa.select(campaigns.c.executor)
        .where((campaigns.c.cluster == UNNAMED) & campaigns.c.verb.in_(CARRIED_OUT))
        .distinct()
    ).scalars()
    if carried_out := set(executors):
        return cluster.executor in carried_out
    tables = (INCIDENTS, WATCHES)
    return any(row["cluster"] == UNNAMED for t in tables for row in t.rows_about(connection, nodes))


def _rename(connection: sa.Connection, old: str, new: str) -> None:
    with recount(connection, old, *TALLIED), recount(connection, new, *TALLIED):
        for table in _tables_of_clusters():
            checked: RecordTable[Any] | None = table.info.get(CHECKED_BY)
            if checked:
                checked.revise(connection, table.c.cluster == old, cluster=new)
            else:
                renamed = sa.update(table).where(table.c.cluster == old).values(cluster=new)
                connection.execute(renamed)
    clusters = CLUSTERS.table
    renamed = sa.update(clusters).where(clusters.c.name == old).values(name=new)
    if not connection.execute(renamed).rowcount:  # it had no name
        first = sa.select(sa.func.min(CAMPAIGNS.c.created_at)).where(CAMPAIGNS.c.cluster == new)
        since = connection.execute(first).scalar() or 0.0
        cluster = KnownCluster(name=new, executor="", address="", since=since)
        upsert(connection, clusters, [CLUSTERS.row(cluster)])


NAMING = (LIVES, WATCHES, HOLDS, ATTRIBUTES, INCIDENTS, REPAIRS)  # first what finds most soonest


class NodeNames:
    """The nodes of a cluster: those that lists have, and about which a gate answers."""

    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def find(self, nodes: Collection[str]) -> set[str]:
        """Return those of these nodes that the cluster has."""
        names, rest = set[str](), {*nodes}
        with self._database.reading() as connection:
            for query, node in self._queries():
                if not rest:
                    return names
                there = set(_those_in(connection, query, node, sorted(rest)))
                names, rest = names | there, rest - there
            return names | rest & self._reported_names(connection) if rest else names

    def executor(self) -> str:
        """Name of the executor that reaches the nodes; empty if none has so far."""
        with self._database.reading() as connection:
            cluster = _find_known(connection, self._cluster)
        return cluster.executor if cluster else ""

    def all(self) -> list[str]:
        with self._database.reading() as connection:
            queries = [query for query, _ in self._queries()]
            names = {*connection.execute(sa.union(*queries)).scalars()}
            if not all(isinstance(name, str) for name in names):
                raise Damage("the name of a node is damaged")
            return sorted(names | self._reported_names(connection))

    def _queries(self) -> Iterator[tuple[sa.Select[Any], sa.Column[Any]]]:
        for kind in NAMING:
            yield sa.select(kind.c.node).where(kind.c.cluster == self._cluster), kind.c.node
        node = NODE_VERDICTS.c.node
        validated = CAMPAIGNS.c.verb.in_(VALIDATING) & (CAMPAIGNS.c.cluster == self._cluster)
        campaigns = NODE_VERDICTS.table.join(
            CAMPAIGNS.table, NODE_VERDICTS.c.campaign == CAMPAIGNS.c.key
        )
        yield sa.select(node).select_from(campaigns).where(validated), node

    def _reported_names(self, connection: sa.Connection) -> set[str]:
        """Return nodes that events name, except those of jobs."""
        event_records = apart_from_jobs(connection, self._cluster)
        return {node for event_record in event_records for node in event_record.event.nodes}


def _those_in(
    connection: sa.Connection, query: sa.Select[Any], node: sa.Column[Any], names: list[str]
) -> Iterator[str]:
    for start in range(0, len(names), PER_QUESTION):
        some = node.in_(names[start : start + PER_QUESTION])
        yield from connection.execute(query.where(some).distinct()).scalars()
