"""What campaigns taught: what they concluded about nodes, who failed which test, how long each
benchmark takes. It reads no samples and writes nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, null, select

from anubis.core.judging.conclusion import PATH, faulty_paths
from anubis.core.past.events import reported_incidents
from anubis.core.past.logbook import Logbook
from anubis.core.past.status import Validation, defects_as_incidents
from anubis.core.past.strength import CampaignDemands
from anubis.core.records import CampaignKind, Demand, Ended, Judgement, PartVerdict
from anubis.store.assessments import NODE_VERDICTS, PART_VERDICTS, VERDICTS, of_campaign
from anubis.store.campaigns import CAMPAIGNS, DEMANDS
from anubis.store.database import Database
from anubis.store.executions import EXECUTIONS
from anubis.store.happenings import INCIDENTS, REPAIRS, WATCHES
from anubis.store.notices import told
from anubis.store.sharing import PARTICIPANTS, participant_nodes

LOCATING = [kind.value for kind in CampaignKind if kind.names_parts]
VALIDATING = [kind.value for kind in CampaignKind if kind.validates]

Durations = dict[tuple[str, str], float]  # by benchmark and parameters

campaigns, executions = CAMPAIGNS.table, EXECUTIONS.table
verdicts, node_verdicts = VERDICTS.table, NODE_VERDICTS.table
part_verdicts = PART_VERDICTS.table
participants = PARTICIPANTS.table


class Experience:
    """Of one cluster; only how long a benchmark takes is known from all of them."""

    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def validations(self, since: float = 0.0) -> list[Validation]:
        """What campaigns that ended since then concluded about each node, by time and node, with
        the benchmarks that measured it."""
        with self._database.reading() as connection:
            return _validations(connection, _concluded_with_benchmarks(self._cluster, since))

    def failed_tests(self) -> dict[tuple[str, str], set[str]]:
        """By campaign and node, in what single nodes were defective; a bad group counts for a node
        that is blamed."""
        query = (
            select(campaigns.c.id, participants.c.nodes, verdicts.c.benchmark)
            .join(campaigns, campaigns.c.key == verdicts.c.campaign)
            .join(participants, participants.c.digest == verdicts.c.participants)
            .where(
                campaigns.c.cluster == self._cluster,
                verdicts.c.judgement == Judgement.DEFECTIVE.value,
            )
            .distinct()
        )
        failed = defaultdict[tuple[str, str], set[str]](set)
        with self._database.reading() as connection:
            for campaign, nodes, benchmark in connection.execute(query):
                match json.loads(nodes):
                    case [node]:
                        failed[campaign, node].add(benchmark)
        return failed

    def demands(self) -> CampaignDemands:
        """What campaigns asked of the nodes that they validated."""
        query = DEMANDS.select().add_columns(campaigns.c.id)
        query = query.join(campaigns, campaigns.c.key == DEMANDS.c.campaign)
        query = query.where(*_validating(self._cluster, 0.0)).order_by(DEMANDS.c.position)
        demands = defaultdict[str, defaultdict[str, tuple[Demand, ...]]](lambda: defaultdict(tuple))
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        for row, demand in zip(rows, map(DEMANDS.reader(), rows), strict=True):
            demands[row.id][demand.workload.benchmark] += (demand,)
        return demands

    def faulty_paths(self) -> dict[str, tuple[PartVerdict, ...]]:
        """By campaign, in order of time. Scans have none: they blame parts of the fabric."""
        with self._database.reading() as connection:
            return {
                row.id: faulty_paths(
                    of_campaign(connection, VERDICTS, row.key),
                    of_campaign(connection, NODE_VERDICTS, row.key),
                )
                if row.judgement is None  # concluded before verdicts on parts were kept
                else of_campaign(connection, PART_VERDICTS, row.key)
                for row in connection.execute(_campaigns_with_paths(self._cluster)).all()
            }

    def durations_s(self) -> Durations:
        """The mean time that each benchmark took with its parameters when it could measure."""
        workload = (executions.c.benchmark, executions.c.parameters)
        query = (
            select(*workload, func.avg(executions.c.duration_s))
            .where(executions.c.ended == Ended.MEASURED.value)
            .group_by(*workload)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query)
            return {(benchmark, parameters): mean for benchmark, parameters, mean in rows}

    def logbook(self) -> Logbook:
        """All that happened to nodes; what validations found defective and what was only reported
        are incidents as well."""
        with self._database.reading() as connection:
            incidents = INCIDENTS.all(connection, self._cluster)
            repairs = REPAIRS.all(connection, self._cluster)
            watches = WATCHES.all(connection, self._cluster)
            reported = reported_incidents(told(connection, self._cluster), incidents)
            # without the benchmarks, which cost most of the time
            concluded = _concluded(self._cluster, 0.0, null().label("names"))
            validations = _validations(connection, concluded)
        defects = defects_as_incidents(validations, repairs, reported)
        return Logbook.of([*incidents, *defects], watches, validations, repairs)


def _campaigns_with_paths(cluster: str) -> Select[Any]:
    """Of those concluded before verdicts on parts were kept, all that may have one."""
    have_paths = select(part_verdicts.c.campaign).where(part_verdicts.c.code == PATH)
    have_defects = select(verdicts.c.campaign).where(
        verdicts.c.judgement == Judgement.DEFECTIVE.value
    )
    older = campaigns.c.judgement.is_(None) & campaigns.c.verb.not_in(LOCATING)
    return (
        select(campaigns.c.key, campaigns.c.id, campaigns.c.judgement)
        .where(
            campaigns.c.cluster == cluster,
            campaigns.c.key.in_(have_paths) | (older & campaigns.c.key.in_(have_defects)),
        )
        .order_by(campaigns.c.finished_at, campaigns.c.id)
    )


def _concluded_with_benchmarks(cluster: str, since: float) -> Select[Any]:
    measured = (
        select(executions.c.campaign, participant_nodes.c.node, executions.c.benchmark)
        .join(participant_nodes, executions.c.participants == participant_nodes.c.participants)
        .where(
            executions.c.campaign.in_(select(campaigns.c.key).where(*_validating(cluster, since))),
            executions.c.ended == Ended.MEASURED.value,
        )
        .distinct()
        .subquery()
    )
    names = func.aggregate_strings(measured.c.benchmark, ",").label("names")
    by_node = (
        select(measured.c.campaign, measured.c.node, names)
        .group_by(measured.c.campaign, measured.c.node)
        .subquery()
    )
    return _concluded(cluster, since, by_node.c.names).outerjoin(
        by_node,
        (by_node.c.campaign == node_verdicts.c.campaign) & (by_node.c.node == node_verdicts.c.node),
    )


def _concluded(cluster: str, since: float, names: ColumnElement[Any]) -> Select[Any]:
    """`names`: of the benchmarks, with commas between them."""
    verdict = (node_verdicts.c.node, node_verdicts.c.judgement, node_verdicts.c.code)
    return (
        select(*verdict, campaigns.c.finished_at, campaigns.c.id, names)
        .join(campaigns, campaigns.c.key == node_verdicts.c.campaign)
        .where(*_validating(cluster, since))
        .order_by(campaigns.c.finished_at, node_verdicts.c.node)
    )


def _validating(cluster: str, since: float) -> tuple[ColumnElement[bool], ...]:
    """What another tool measured, nobody knows when, validates nothing."""
    return (
        campaigns.c.cluster == cluster,
        campaigns.c.finished_at >= since,
        campaigns.c.verb.in_(VALIDATING),
    )


def _validations(connection: Connection, concluded: Select[Any]) -> list[Validation]:
    return [
        Validation(
            node=row.node,
            at=row.finished_at,
            judgement=Judgement(row.judgement),
            code=row.code,
            campaign=row.id,
            benchmarks=tuple(sorted(row.names.split(","))) if row.names else (),
        )
        for row in connection.execute(concluded)
    ]
