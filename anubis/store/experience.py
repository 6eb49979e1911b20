"""What campaigns taught: what they concluded about nodes, who failed which test, how long each
benchmark takes. It reads no samples and writes nothing."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Select, func, select

from anubis.core.judging.faulty_paths import PATH, faulty_paths
from anubis.core.past.happened import Happened
from anubis.core.past.logbook import Logbook
from anubis.core.past.status import Validation
from anubis.core.past.strength import CampaignDemands
from anubis.core.records import (
    CampaignKind,
    CriteriaSet,
    Demand,
    Ended,
    Judgement,
    PartVerdict,
)
from anubis.store import codec
from anubis.store.assessments import NODE_VERDICTS, PART_VERDICTS, VERDICTS, of_campaign
from anubis.store.campaigns import CAMPAIGNS, DEMANDS, SHORT, checked_rows, refuse_gone
from anubis.store.checksums import Checksum, Damage
from anubis.store.database import PER_QUESTION, Database
from anubis.store.executions import EXECUTIONS
from anubis.store.happenings import INCIDENTS, REPAIRS, WATCHES, incident_columns
from anubis.store.notices import NOTICES, told
from anubis.store.sharing import PARTICIPANTS, participant_nodes
from anubis.store.tallies import refuse_changed
from anubis.store.traits import TRAITS, traits_of

LOCATING = [kind.value for kind in CampaignKind if kind.names_parts]
JUDGEMENTS = {judgement.value: judgement for judgement in Judgement}
VALIDATING = [kind.value for kind in CampaignKind if kind.validates]

Durations = dict[tuple[str, str], float]  # by benchmark and parameters

campaigns, executions = CAMPAIGNS.table, EXECUTIONS.table
verdicts, node_verdicts = VERDICTS.table, NODE_VERDICTS.table
part_verdicts = PART_VERDICTS.table
# What another tool measured, nobody knows when, validates nothing.
VALIDATED = (campaigns.c.finished_at.is_not(None), campaigns.c.verb.in_(VALIDATING))
participants = PARTICIPANTS.table


class Experience:
    """Of one cluster; only how long a benchmark takes is known from all of them."""

    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def happened(self, since: float = math.inf) -> Happened:
        """All that happened to nodes, read once. Validations that ended since then come with the
        benchmarks that measured the node, which cost most of the time."""
        with self._database.reading() as connection:
            refuse_changed(connection, self._cluster, INCIDENTS, REPAIRS, WATCHES, NOTICES, TRAITS)
            return Happened(
                incidents=incident_columns(connection, self._cluster),
                repairs=REPAIRS.all(connection, self._cluster),
                watches=WATCHES.all(connection, self._cluster),
                notices=told(connection, self._cluster),
                validations=_validations(connection, self._cluster, since),
                traits=traits_of(connection, self._cluster),
            )

    def validations(self, since: float = 0.0) -> list[Validation]:
        """What campaigns that ended since then concluded about each node, by time and node, with
        the benchmarks that measured it."""
        with self._database.reading() as connection:
            return [v for v in _validations(connection, self._cluster, since) if v.at >= since]

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
        query = query.where(*_validating(self._cluster)).order_by(DEMANDS.c.position)
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
                    of_campaign(connection, VERDICTS, row),
                    of_campaign(connection, NODE_VERDICTS, row),
                )
                if row.judgement is None  # concluded before verdicts on parts were kept
                else of_campaign(connection, PART_VERDICTS, row)
                for row in list(checked_rows(connection, _campaigns_with_paths(self._cluster)))
            }

    def criteria(self) -> Iterator[tuple[CriteriaSet, ...]]:
        """What each concluded campaign was judged by, the latest first."""
        query = (
            select(campaigns.c.criteria)
            .where(campaigns.c.finished_at.is_not(None), campaigns.c.cluster == self._cluster)
            .order_by(campaigns.c.finished_at.desc())
        )
        with self._database.reading() as connection:
            for document in connection.execute(query).scalars():
                yield codec.load(tuple[CriteriaSet, ...], document)

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
        return self.happened().logbook()


def _campaigns_with_paths(cluster: str) -> Select[Any]:
    """Of those concluded before verdicts on parts were kept, all that may have one."""
    have_paths = select(part_verdicts.c.campaign).where(part_verdicts.c.code == PATH)
    have_defects = select(verdicts.c.campaign).where(
        verdicts.c.judgement == Judgement.DEFECTIVE.value
    )
    older = campaigns.c.judgement.is_(None) & campaigns.c.verb.not_in(LOCATING)
    return (
        select(*SHORT)
        .where(
            campaigns.c.cluster == cluster,
            campaigns.c.key.in_(have_paths) | (older & campaigns.c.key.in_(have_defects)),
        )
        .order_by(campaigns.c.finished_at, campaigns.c.id)
    )


def _validations(connection: Connection, cluster: str, since: float) -> list[Validation]:
    """What campaigns concluded about nodes, by time and node."""
    measured_by = _benchmarks(connection, cluster, since)
    # not by cluster: an index that is damaged would make all nodes strangers
    concluded = select(*SHORT).where(*VALIDATED)
    rows = checked_rows(connection, concluded)
    by_key = {row.key: row for row in rows if row.cluster == cluster}
    validations, counts = list[Validation](), Counter[int]()
    for node, judgement, code, key in _node_verdicts(connection, list(by_key)):
        campaign = by_key[key]
        counts[key] += 1
        validations.append(
            Validation(
                node=node,
                at=campaign.finished_at,
                judgement=JUDGEMENTS[judgement],
                code=code,
                campaign=campaign.id,
                benchmarks=measured_by.get((key, node), ()),
            )
        )
    for key, campaign in by_key.items():
        refuse_gone(campaign, node_verdicts.name, counts[key])
    return sorted(validations, key=attrgetter("at", "node"))


def _node_verdicts(connection: Connection, keys: list[int]) -> Iterator[tuple[str, str, str, int]]:
    """Node, judgement, code and key of the campaign: records would take twice the time."""
    checksum = cast(Checksum, NODE_VERDICTS.checksum)
    columns = ("node", "judgement", "code", "campaign")
    cells_of = itemgetter(*([column.name for column in checksum.short].index(n) for n in columns))
    for start in range(0, len(keys), PER_QUESTION):
        some = keys[start : start + PER_QUESTION]
        query = select(*checksum.short, checksum.column).where(node_verdicts.c.campaign.in_(some))
        for *cells, kept in connection.execute(query):
            if not checksum.fits_short(kept, cells):
                raise Damage("a verdict on a node is damaged")
            yield cells_of(cells)


def _benchmarks(
    connection: Connection, cluster: str, since: float
) -> dict[tuple[int, str], tuple[str, ...]]:
    """By key of the campaign and node: what measured the node in campaigns that ended since."""
    together = (
        select(
            executions.c.campaign,
            executions.c.participants,
            func.aggregate_strings(executions.c.benchmark, ",").label("names"),
        )
        .where(
            executions.c.campaign.in_(
                select(campaigns.c.key).where(
                    campaigns.c.finished_at >= since, *_validating(cluster)
                )
            ),
            executions.c.ended == Ended.MEASURED.value,
        )
        .group_by(executions.c.campaign, executions.c.participants)
        .subquery()
    )
    by_node = select(together.c.campaign, participant_nodes.c.node, together.c.names).join(
        participant_nodes, participant_nodes.c.participants == together.c.participants
    )
    names = defaultdict[tuple[int, str], set[str]](set)
    for campaign, node, listed in connection.execute(by_node).all():
        names[campaign, node].add(listed)
    in_order = cache(_in_order)  # most nodes of a campaign were measured by the same ones
    return {place: in_order(frozenset(lists)) for place, lists in names.items()}


def _in_order(lists: frozenset[str]) -> tuple[str, ...]:
    """The names in lists that have commas between them; what was repeated stands there twice."""
    return tuple(sorted({name for listed in lists for name in listed.split(",")}))


def _validating(cluster: str) -> tuple[ColumnElement[bool], ...]:
    return campaigns.c.cluster == cluster, *VALIDATED
