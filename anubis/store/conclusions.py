"""The conclusions of campaigns: what they found about nodes, which nodes failed which test, how
long each benchmark takes. It reads no samples and writes nothing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from operator import attrgetter, itemgetter
from threading import Lock
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, Row, func, select

from anubis.core.history.drift import LimitShares
from anubis.core.history.events import EventRecord
from anubis.core.history.logbook import Logbook
from anubis.core.history.past import Happened
from anubis.core.history.status import Validation
from anubis.core.history.strength import CampaignDemands
from anubis.core.judge.unanswered import leaves_open
from anubis.core.records import CampaignKind, CriteriaSet, Demand, Ended, Judgement, PartVerdict
from anubis.store import codec
from anubis.store.assessments import (
    NODE_VERDICTS,
    PART_VERDICTS,
    VERDICTS,
    campaign_records,
    has_part_verdicts,
    limit_shares,
)
from anubis.store.campaigns import (
    CAMPAIGNS,
    CHECKSUM,
    DEMANDS,
    SHORT,
    VALIDATING,
    checked_rows,
    refuse_gone,
)
from anubis.store.checksums import Checksum, Damage
from anubis.store.database import PER_QUESTION, Database
from anubis.store.event_records import (
    EVENT_RECORDS,
    all_event_records,
    apart_from_jobs,
    event_records_by_id,
    ids_since,
    marks_apart_from_jobs,
)
from anubis.store.executions import EXECUTIONS
from anubis.store.measured_nodes import (
    FAILED,
    MEASURED,
    MeasuredNodes,
    failed_alone,
    measured_nodes,
    refuse_other,
    sum_of_failed,
)
from anubis.store.node_events import (
    ATTRIBUTES,
    BY_CAMPAIGNS,
    INCIDENTS,
    REPAIRS,
    WATCHES,
    attributes_of,
    incident_columns,
)
from anubis.store.row_counts import RowCount, refuse_changed, row_counts_of
from anubis.store.row_mapping import RecordTable

JUDGEMENTS = {judgement.value: judgement for judgement in Judgement}

REPORTED_WITHIN_S = 10.0  # most events, after what was told last had happened

T = TypeVar("T", bound=Sized)
A = TypeVar("A")
Durations = dict[tuple[str, str], float]  # by benchmark and parameters
ConcludedMark = tuple[int, str, int | None, float, bool]

campaigns, executions = CAMPAIGNS.table, EXECUTIONS.table
verdicts, node_verdicts = VERDICTS.table, NODE_VERDICTS.table
part_verdicts = PART_VERDICTS.table
# A measurement of another tool, at an unknown time, validates nothing.
VALIDATED = (campaigns.c.finished_at.is_not(None), campaigns.c.verb.in_(VALIDATING))
CRITERIA = CHECKSUM.long.index(campaigns.c.criteria)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Records:
    """Event records that were read, and the row count of the table at that time."""

    row_count: RowCount
    by_id: Mapping[str, EventRecord]
    in_order: tuple[EventRecord, ...]


@dataclass(frozen=True, kw_only=True)
class StandingMark:
    """A mark of all that standing is made of: as long as it is the same, nothing of that has
    changed."""

    counted: str  # the row counts of incidents and of repairs
    event_records: Mapping[str, int | None]  # checksums by id
    campaigns: Mapping[str, str]  # that are over, by id: where they stand, when and their checksum


class Experience:
    """The experience of one cluster; only durations of benchmarks come from all clusters. It reads
    again only what has changed: by the row counts of tables, and by the checksums of campaigns,
    which do not change any more when they are over."""

    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster
        self._one_reader = Lock()
        self._counted: dict[str, tuple[RowCount | None, Any]] = {}
        self._records: _Records | None = None
        self._concluded: dict[ConcludedMark, tuple[Validation, ...]] = {}
        self._validations: tuple[Validation, ...] = ()
        self._by_campaigns: dict[str, tuple[object, Any]] = {}

    def happenings(self, since: float = math.inf) -> Happened:
        """Return all that happened to nodes. Validations that ended since then have the benchmarks
        that measured the node, which cost most of the time."""
        with self._one_reader, self._database.reading() as connection:
            row_counts = row_counts_of(connection, self._cluster)

            def current(kind: RecordTable[Any], read: Callable[[Connection, str], T]) -> T:
                return self._current(connection, kind, row_counts.get(kind.table.name), read)

            return Happened(
                incidents=current(INCIDENTS, incident_columns),
                repairs=current(REPAIRS, REPAIRS.all),
                watches=current(WATCHES, WATCHES.all),
                attributes=current(ATTRIBUTES, attributes_of),
                event_records=self._event_records(
                    connection, row_counts.get(EVENT_RECORDS.table.name)
                ),
                validations=self._read_validations(connection, since),
            )

    def reports(self) -> Happened:
        """Return incidents and event records, except those of jobs, and nothing else."""
        with self._one_reader, self._database.reading() as connection:
            return self._read_happened(connection, ())

    def bearing_on_standing(self, since: float) -> Happened:
        """Return the same, with repairs and conclusions of campaigns: what the state of nodes
        depends on."""
        with self._one_reader, self._database.reading() as connection:
            happened = self._read_happened(connection, self._read_validations(connection, since))
            row_count = row_counts_of(connection, self._cluster).get(REPAIRS.table.name)
            repairs = self._current(connection, REPAIRS, row_count, REPAIRS.all)
            return replace(happened, repairs=repairs)

    def _read_happened(self, connection: Connection, validations: Sequence[Validation]) -> Happened:
        row_count = row_counts_of(connection, self._cluster).get(INCIDENTS.table.name)
        refuse_changed(connection, self._cluster, EVENT_RECORDS)
        return Happened(
            incidents=self._current(connection, INCIDENTS, row_count, incident_columns),
            repairs=(),
            watches=(),
            attributes=(),
            event_records=apart_from_jobs(connection, self._cluster),
            validations=validations,
        )

    def standing_mark(self) -> StandingMark:
        """Return the mark of what standing is made of. Event records of jobs, which come with every
        turn, and campaigns that are not over do not count."""
        campaign = (campaigns.c.id, campaigns.c.key, campaigns.c.finished_at, campaigns.c.checksum)
        query = select(*campaign).where(*_ended_of(self._cluster))
        with self._database.reading() as connection:
            row_counts = row_counts_of(connection, self._cluster)
            counted = [row_counts.get(kind.table.name) for kind in (INCIDENTS, REPAIRS)]
            event_records = marks_apart_from_jobs(connection, self._cluster)
            rows = connection.execute(query.order_by(campaigns.c.key)).all()
        return StandingMark(
            counted=repr(counted),
            event_records=dict(event_records),
            campaigns={id: repr(rest) for id, *rest in rows},
        )

    def conclusions(self) -> Mapping[ConcludedMark, Sequence[Validation]]:
        """Return the conclusions of campaigns that were read so far."""
        return self._concluded

    def begin_with(self, conclusions: Mapping[ConcludedMark, tuple[Validation, ...]]) -> None:
        """Take over conclusions that another process has read: only campaigns that changed since
        are read again."""
        with self._one_reader:
            if not self._concluded:
                self._conclude(dict(conclusions))

    def _current(
        self,
        connection: Connection,
        kind: RecordTable[Any],
        row_count: RowCount | None,
        read: Callable[[Connection, str], T],
    ) -> T:
        """Return the same object as before while nothing has changed."""
        name = kind.table.name
        before, rows = self._counted.get(name, (None, None))
        if row_count is None or row_count != before:
            refuse_changed(connection, self._cluster, kind)
            there = read(connection, self._cluster)
            rows = rows if rows is not None and len(rows) == len(there) == 0 else there
            self._counted[name] = row_count, rows
        return cast(T, rows)

    def _event_records(
        self, connection: Connection, row_count: RowCount | None
    ) -> tuple[EventRecord, ...]:
        """Return all event records. They are only ever added: those read before and the new ones
        must match the row count."""
        before = self._records
        if before is None or row_count is None or before.row_count != row_count:
            more = self._read_new(connection, before, row_count) if before and row_count else None
            if more is None:
                refuse_changed(connection, self._cluster, EVENT_RECORDS)
                in_order = tuple(all_event_records(connection, self._cluster))
            else:
                every = chain(before.in_order if before else (), more)
                in_order = tuple(sorted(every, key=attrgetter("at", "id")))
            if row_count is None:
                return in_order
            by_id = {event_record.id: event_record for event_record in in_order}
            self._records = before = _Records(row_count=row_count, by_id=by_id, in_order=in_order)
        return before.in_order

    def _read_new(
        self, connection: Connection, before: _Records, row_count: RowCount
    ) -> list[EventRecord] | None:
        """Read event records that are new. Most are reported soon after they happened, so older ids
        are compared only if something is missing then. None: the row count still differs."""
        latest = before.in_order[-1].at if before.in_order else -math.inf
        for since in (latest - REPORTED_WITHIN_S, -math.inf):
            ids = [
                id for id in ids_since(connection, self._cluster, since) if id not in before.by_id
            ]
            event_records, added = event_records_by_id(connection, self._cluster, ids)
            if before.row_count.add_rows(added) == row_count:
                return event_records
        return None

    def _read_validations(self, connection: Connection, since: float) -> tuple[Validation, ...]:
        """Return validations by time and node."""
        # not by cluster: an index that is damaged would make all nodes strangers
        rows = checked_rows(connection, select(*SHORT).where(*VALIDATED))
        marked = {_mark(row, since): row for row in rows if row.cluster == self._cluster}
        if marked.keys() != self._concluded.keys():
            new = {row.key: row for mark, row in marked.items() if mark not in self._concluded}
            of_campaign = _validations(connection, since, new)
            self._conclude(
                {
                    mark: self._concluded.get(mark) or tuple(of_campaign[row.key])
                    for mark, row in marked.items()
                }
            )
        return self._validations

    def _conclude(self, concluded: dict[ConcludedMark, tuple[Validation, ...]]) -> None:
        self._concluded = concluded
        every = chain.from_iterable(concluded.values())
        self._validations = tuple(sorted(every, key=attrgetter("at", "node")))

    def _recall(
        self, connection: Connection, question: str, ask: Callable[[], A], more: object = None
    ) -> A:
        """Return the last answer, unless a campaign was concluded, begun or forgotten since."""
        query = select(campaigns.c.key, campaigns.c.id, campaigns.c.checksum)
        rows = connection.execute(query.order_by(campaigns.c.key)).all()
        mark = (more, *map(tuple, rows))
        before = self._by_campaigns.get(question)
        if before is None or before[0] != mark:
            before = self._by_campaigns[question] = mark, ask()
        return cast(A, before[1])

    def validations(self, since: float = 0.0) -> list[Validation]:
        """Return conclusions about each node from campaigns that ended since then, by time and
        node, with the benchmarks that measured it."""
        with self._one_reader, self._database.reading() as connection:
            results = self._read_validations(connection, since)
        return [result for result in results if result.at >= since]

    def limit_shares(self, since: float, node: str = "") -> list[LimitShares]:
        """List what shares of their limits units used in campaigns that ended since then; those of
        one node if it is named."""
        with self._database.reading() as connection:
            return list(limit_shares(connection, self._cluster, since, node))

    def failed_tests(self) -> dict[tuple[str, str], set[str]]:
        """Map campaign and node to the benchmarks in which the single node was defective; a bad
        group counts for a node that is blamed."""
        with self._database.reading() as connection:
            return self._recall(connection, "failed", partial(self._failures, connection))

    def _failures(self, connection: Connection) -> dict[tuple[str, str], set[str]]:
        concluded = _concluded_rows(connection, self._cluster)
        of_cluster = verdicts.c.campaign.in_(
            select(campaigns.c.key).where(campaigns.c.cluster == self._cluster)
        )
        in_campaigns = failed_alone(connection, VERDICTS, of_cluster)
        failed = defaultdict[tuple[str, str], set[str]](set)
        for campaign in concluded:
            of_campaign = in_campaigns.get(campaign.key, set())
            refuse_other(campaign, FAILED, sum_of_failed(of_campaign))
            for node, benchmark in of_campaign:
                failed[campaign.id, node].add(benchmark)
        return failed

    def demands(self) -> CampaignDemands:
        """Return what campaigns asked of the nodes that they validated."""
        with self._database.reading() as connection:
            return self._recall(connection, "demands", partial(self._demands, connection))

    def _demands(self, connection: Connection) -> CampaignDemands:
        query = DEMANDS.select().add_columns(campaigns.c.id)
        query = query.join(campaigns, campaigns.c.key == DEMANDS.c.campaign)
        query = query.where(*_validating(self._cluster)).order_by(DEMANDS.c.position)
        demands = defaultdict[str, defaultdict[str, tuple[Demand, ...]]](lambda: defaultdict(tuple))
        rows = connection.execute(query).all()
        for row, demand in zip(rows, map(DEMANDS.reader(), rows), strict=True):
            demands[row.id][demand.workload.benchmark] += (demand,)
        return demands

    def part_verdicts(self) -> dict[str, tuple[PartVerdict, ...]]:
        """Map campaigns to their verdicts on parts and paths between nodes, in order of time."""
        with self._database.reading() as connection:
            return self._recall(connection, "parts", partial(self._part_verdicts, connection))

    def _part_verdicts(self, connection: Connection) -> dict[str, tuple[PartVerdict, ...]]:
        keys = {*connection.execute(select(part_verdicts.c.campaign).distinct()).scalars()}
        return {
            row.id: campaign_records(connection, PART_VERDICTS, row)
            for row in _concluded_rows(connection, self._cluster)
            if row.key in keys or has_part_verdicts(row)
        }

    def measured_skus(self) -> dict[str, str]:
        """Map nodes to the sku that they had when a campaign last began on them."""
        of_cluster = ATTRIBUTES.c.cluster == self._cluster
        query = ATTRIBUTES.select().where(of_cluster, ATTRIBUTES.c.told_by == BY_CAMPAIGNS)
        with self._database.reading() as connection:
            return {record.node: record.sku for record in ATTRIBUTES.records(connection, query)}

    def criteria(self) -> Iterator[tuple[CriteriaSet, ...]]:
        """Yield the criteria of each concluded campaign, the latest first."""
        query = select(campaigns.c.id, *CHECKSUM.short, *CHECKSUM.long, CHECKSUM.column)
        query = query.where(*_ended_of(self._cluster)).order_by(campaigns.c.finished_at.desc())
        with self._database.reading() as connection:
            for id, *cells, checksum in connection.execute(query):
                short, long = cells[: len(CHECKSUM.short)], cells[len(CHECKSUM.short) :]
                if not CHECKSUM.fits(checksum, short, long):
                    raise Damage(f'campaign "{id}" is damaged')
                yield codec.load(tuple[CriteriaSet, ...], long[CRITERIA])

    def durations_s(self) -> Durations:
        """Return the mean time that each benchmark took with its parameters when it could
        measure."""
        not_over = select(campaigns.c.key).where(campaigns.c.finished_at.is_(None))
        going_on = select(func.count()).where(executions.c.campaign.in_(not_over))
        with self._database.reading() as connection:
            ask = partial(self._durations_s, connection)
            return self._recall(connection, "durations", ask, connection.execute(going_on).scalar())

    def _durations_s(self, connection: Connection) -> Durations:
        workload = (executions.c.benchmark, executions.c.parameters)
        query = (
            select(*workload, func.avg(executions.c.duration_s))
            .where(executions.c.ended == Ended.MEASURED.value)
            .group_by(*workload)
        )
        rows = connection.execute(query)
        return {(benchmark, parameters): mean for benchmark, parameters, mean in rows}

    def logbook(self) -> Logbook:
        return self.happenings().logbook()


def _ended_of(cluster: str) -> tuple[ColumnElement[bool], ...]:
    return campaigns.c.finished_at.is_not(None), campaigns.c.cluster == cluster


def _concluded_rows(connection: Connection, cluster: str) -> list[Row[Any]]:
    """Return concluded campaigns in order of time."""
    query = select(*SHORT).where(*_ended_of(cluster))
    return list(checked_rows(connection, query.order_by(campaigns.c.finished_at, campaigns.c.id)))


def _mark(row: Row[Any], since: float) -> ConcludedMark:
    """Return a mark of a campaign's conclusions: they are the same while it is."""
    return row.key, row.id, row.checksum, row.finished_at, row.finished_at >= since


def _validations(
    connection: Connection, since: float, by_key: Mapping[int, Row[Any]]
) -> Mapping[int, list[Validation]]:
    """Return conclusions about nodes, by campaign."""
    recent = [key for key, row in by_key.items() if row.finished_at >= since]
    measured = measured_nodes(connection, recent)
    for key in recent:
        refuse_other(by_key[key], MEASURED, measured[key].sum)
    nothing = MeasuredNodes({}, {})
    owed = cache(partial(_debts, connection))
    validations = defaultdict[int, list[Validation]](list)
    for node, judgement, code, key, owes in _node_verdicts(connection, list(by_key)):
        campaign, in_campaign = by_key[key], measured.get(key, nothing)
        validations[key].append(
            Validation(
                node=node,
                at=campaign.finished_at,
                began=campaign.created_at,
                proves=not CampaignKind(campaign.verb).names_parts,
                judgement=JUDGEMENTS[judgement],
                code=code,
                campaign=campaign.id,
                benchmarks=in_campaign.by.get(node, ()),
                inapplicable=in_campaign.inapplicable.get(node, ()),
                owes=owed(campaign, owes) if owes or _is_open(judgement, code) else (),
            )
        )
    for key, campaign in by_key.items():
        refuse_gone(campaign, node_verdicts.name, len(validations[key]))
    return validations


def _is_open(judgement: str, code: str) -> bool:
    return leaves_open(JUDGEMENTS[judgement], code)


def _debts(connection: Connection, campaign: Row[Any], noted: str | None) -> tuple[str, ...]:
    """Return what a node left unanswered; if that was not noted, all that the campaign asked."""
    if noted is not None:
        return codec.load(tuple[str, ...], noted)
    query = DEMANDS.select().where(DEMANDS.c.campaign == campaign.key)
    demands = list(DEMANDS.records(connection, query))
    refuse_gone(campaign, DEMANDS.table.name, len(demands))
    return tuple(sorted({demand.workload.benchmark for demand in demands}))


def _node_verdicts(
    connection: Connection, keys: list[int]
) -> Iterator[tuple[str, str, str, int, str | None]]:
    """Yield node, judgement, code, key of the campaign and what the node owes, as stored: records
    would take twice the time."""
    checksum = cast(Checksum, NODE_VERDICTS.checksum)
    columns = ("node", "judgement", "code", "campaign")
    cells_of = itemgetter(*([column.name for column in checksum.short].index(n) for n in columns))
    for start in range(0, len(keys), PER_QUESTION):
        some = keys[start : start + PER_QUESTION]
        cells_asked = (*checksum.short, *checksum.long, checksum.column)
        query = select(*cells_asked).where(node_verdicts.c.campaign.in_(some))
        for *cells, owes, cause, kept in connection.execute(query):
            if not checksum.fits(kept, cells, [owes, cause]):
                raise Damage("a verdict on a node is damaged")
            yield *cells_of(cells), owes


def _validating(cluster: str) -> tuple[ColumnElement[bool], ...]:
    return campaigns.c.cluster == cluster, *VALIDATED
