"""The history of a fleet behind a few verbs: begin, record, conclude, and reading it all back.

What a verb returned for is on disk. It decides nothing: no retries, no verdicts of its own.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, Self

from sqlalchemy import Connection, Select, Table, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from anubis.core.choosing.decision import Decision
from anubis.core.errors import StoreError, did_you_mean
from anubis.core.judging.conclusion import complete
from anubis.core.past.defects import BadGroup, FailedTest
from anubis.core.past.logbook import Logbook
from anubis.core.past.status import Incident, Job, Repair, Validation, Watch, found_by
from anubis.core.records import (
    Assessment,
    Campaign,
    CampaignKind,
    CriteriaSet,
    Ended,
    Execution,
    Judgement,
    Layout,
    NodeVerdict,
    Plan,
    Policy,
    Readings,
    Result,
    Ruling,
    Step,
    Verdict,
    Workload,
    canonical,
)
from anubis.store import claims, codec, experience, happenings
from anubis.store.database import Database
from anubis.store.happenings import PER_QUESTION, Forgotten, Import, Kept
from anubis.store.schema import (
    Row,
    campaigns,
    decisions,
    environments,
    executions,
    incidents,
    jobs,
    layouts,
    node_verdicts,
    participant_nodes,
    participants,
    repairs,
    rosters,
    rulings,
    verdicts,
    watches,
)

Roster = tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]  # participants, devices

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)  # what a document may be
SUGGESTED = 10  # campaigns that a hint looks at: the latest


@dataclass(frozen=True, kw_only=True)
class CampaignRow:
    """A campaign at a glance: what a list of thousands can afford to read."""

    id: str
    kind: CampaignKind
    suite: str
    created_at: float
    finished_at: float | None
    nodes: int


GLANCED = ("id", "suite", "created_at", "finished_at", "nodes")  # columns, beside the kind


class History:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._shared: set[str] = set()  # digests that are known to be on disk

    @classmethod
    def open(cls, url: str) -> Self:
        """Open a file or URL; what is absent is created, an older schema is upgraded."""
        return cls(Database.open(url))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing ---------------------------------------------------------------------------

    def begin(self, campaign: Campaign) -> None:
        row = {
            "id": campaign.id,
            "verb": campaign.kind.value,
            "suite": campaign.plan.suite,
            "nodes": len(campaign.plan.nodes),
            "executor": campaign.executor,
            "setting": campaign.setting,
            "created_at": campaign.created_at,
            "finished_at": campaign.finished_at,
            "plan": codec.dump(campaign.plan),
            "policy": codec.dump(campaign.policy),
            "criteria": codec.dump(campaign.criteria),
        }
        with self._database.writing() as connection:
            try:
                connection.execute(insert(campaigns), row)
            except IntegrityError:
                raise StoreError(
                    f'campaign "{campaign.id}" exists already; resume it, or begin another'
                ) from None

    @contextmanager
    def claim(self, campaign_id: str) -> Iterator[None]:
        """Be the one driver of the campaign while the block runs."""
        with self._database.reading() as connection:
            key = _key(connection, campaign_id)
        with claims.claim(self._database, campaign_id, key):
            yield

    def record(self, campaign_id: str, batch: Sequence[Execution]) -> None:
        """Keep executions, all of them or none; one that is known already is left as it is."""
        with self._database.writing() as connection:
            key = _key(connection, campaign_id)
            known = _attempts(connection, key, {execution.step.id for execution in batch})
            arrived: dict[tuple[str, int], Execution] = {}
            for execution in batch:
                attempt = (execution.step.id, execution.attempt)
                if attempt not in known:
                    arrived.setdefault(attempt, execution)
            new = list(arrived.values())
            shared = self._share_participants(connection, (item.step.participants for item in new))
            shared |= self._share(
                connection, environments, {canonical(one.result.environment) for one in new}
            )
            shared |= self._share(
                connection,
                layouts,
                {canonical(layout.series) for layout in {one.result.series.layout for one in new}},
            )
            numbered = enumerate(new, start=_next_number(connection, key))
            _insert(connection, executions, (_execution_row(key, *item) for item in numbered))
        self._shared |= shared

    def conclude(
        self,
        campaign_id: str,
        assessment: Assessment,
        criteria: Sequence[CriteriaSet],
        finished_at: float,
        created_at: float | None = None,
    ) -> None:
        """Keep the verdicts and what they were judged by, in place of any earlier ones. Nodes
        that were validated here belong to the fleet from then on. `created_at` sets right when it
        began."""
        with self._database.writing() as connection:
            key = _key(connection, campaign_id)
            verb = connection.execute(
                select(campaigns.c.verb).where(campaigns.c.key == key)
            ).scalar_one()
            for table in (verdicts, rulings, node_verdicts):
                connection.execute(delete(table).where(table.c.campaign == key))
            shared = self._share_participants(
                connection, (verdict.participants for verdict in assessment.alone)
            )
            parts = enumerate(assessment.alone)
            _insert(connection, verdicts, (_verdict_row(key, *item) for item in parts))
            self._insert_rulings(connection, key, assessment.rulings)
            whole = enumerate(assessment.nodes)
            _insert(connection, node_verdicts, (_node_verdict_row(key, *item) for item in whole))
            dates = {"finished_at": finished_at}
            if created_at is not None:
                dates["created_at"] = created_at
            connection.execute(
                update(campaigns)
                .where(campaigns.c.key == key)
                .values(criteria=codec.dump(tuple(criteria)), **dates)
            )
            if CampaignKind(verb).validates:
                nodes = [verdict.node for verdict in assessment.nodes]
                happenings.begin_watches(connection, nodes, finished_at)
        self._shared |= shared

    def add_incidents(self, batch: Iterable[Incident]) -> Kept:
        """One that is known by its node, category and start is completed by its end."""
        rows = map(happenings.incident_row, batch)
        with self._database.writing() as connection:
            return happenings.keep(connection, incidents, rows, ends="ended_at")

    def add_import(
        self, file: str, at: float, told: Iterable[Incident], watched: Iterable[Watch]
    ) -> Import:
        """Incidents and watches of one file, so that they can be forgotten together."""
        with self._database.writing() as connection:
            return happenings.add_import(connection, file, at, told, watched)

    def forget_import(self, key: int) -> Forgotten:
        """What that import alone has brought; what was known before it stays."""
        with self._database.writing() as connection:
            known = [each.key for each in happenings.read_imports(connection)]
            if key not in known:
                numbers = ", ".join(map(str, known[:SUGGESTED])) or "there is none"
                raise StoreError(f"import {key} is not in the history; known: {numbers}")
            return happenings.forget_import(connection, key)

    def add_repairs(self, batch: Iterable[Repair]) -> Kept:
        rows = map(happenings.repair_row, batch)
        with self._database.writing() as connection:
            return happenings.keep(connection, repairs, rows, ends="ended_at")

    def add_watches(self, batch: Iterable[Watch]) -> Kept:
        """Nodes that were added to the fleet."""
        rows = map(happenings.watch_row, batch)
        with self._database.writing() as connection:
            return happenings.keep(connection, watches, rows, ends="until")

    def end_watches(self, nodes: Sequence[str], at: float) -> None:
        """Nodes that were removed from the fleet."""
        with self._database.writing() as connection:
            happenings.end_watches(connection, nodes, at)

    def add_jobs(self, batch: Sequence[Job]) -> Kept:
        with self._database.writing() as connection:
            shared = self._share_participants(connection, (job.nodes for job in batch))
            kept = happenings.keep(connection, jobs, map(_job_row, batch), ends="ended_at")
        self._shared |= shared
        return kept

    def keep_decision(self, decision: Decision) -> None:
        with self._database.writing() as connection:
            connection.execute(insert(decisions), experience.decision_row(decision))

    def _insert_rulings(self, connection: Connection, key: int, found: Sequence[Ruling]) -> None:
        documents: dict[Roster, str] = {}  # many rulings speak of the same units
        rows, shared = [], {}
        for position, ruling in enumerate(found):
            roster = (ruling.participants, ruling.devices)
            if roster not in documents:
                documents[roster] = canonical(list(zip(*roster, strict=True)))
            digest = _digest(documents[roster])
            shared[digest] = documents[roster]
            rows.append(_ruling_row(key, position, ruling, digest))
        _insert_missing(
            connection,
            rosters,
            (
                {"digest": digest, "document": zlib.compress(document.encode(), level=1)}
                for digest, document in shared.items()
            ),
        )
        _insert(connection, rulings, rows)

    def _share_participants(
        self, connection: Connection, groups: Iterable[tuple[str, ...]]
    ) -> set[str]:
        found = {_digest(canonical(nodes)): nodes for nodes in set(groups)}
        new = {digest: nodes for digest, nodes in found.items() if digest not in self._shared}
        _insert_missing(
            connection,
            participants,
            ({"digest": digest, "nodes": canonical(nodes)} for digest, nodes in new.items()),
        )
        _insert_missing(
            connection,
            participant_nodes,
            (
                {"node": node, "participants": digest}
                for digest, nodes in new.items()
                for node in set(nodes)
            ),
        )
        return set(new)

    def _share(self, connection: Connection, table: Table, documents: set[str]) -> set[str]:
        found = {_digest(text): text for text in documents}
        new = found.keys() - self._shared
        _insert_missing(
            connection, table, ({"digest": digest, "document": found[digest]} for digest in new)
        )
        return new

    # --- reading ---------------------------------------------------------------------------

    def latest(self, finished: bool | None = None) -> str | None:
        """The campaign begun last; of those that are finished, or not, when that is asked."""
        query = _newest_first(select(campaigns.c.id)).limit(1)
        if finished is not None:
            done = campaigns.c.finished_at.is_not(None)
            query = query.where(done if finished else ~done)
        with self._database.reading() as connection:
            return connection.execute(query).scalar()

    def campaigns(self, limit: int) -> list[CampaignRow]:
        """The latest campaigns, newest first."""
        columns = {name: campaigns.c[name] for name in GLANCED} | {"kind": campaigns.c.verb}
        query = _newest_first(select(*columns.values())).limit(limit)
        with self._database.reading() as connection:
            rows = [dict(zip(columns, row, strict=True)) for row in connection.execute(query)]
        return [CampaignRow(**row | {"kind": CampaignKind(row["kind"])}) for row in rows]

    def campaign(self, campaign_id: str) -> Campaign:
        with self._database.reading() as connection:
            key = _key(connection, campaign_id)
            row = connection.execute(select(campaigns).where(campaigns.c.key == key)).one()
        try:
            return Campaign(
                id=row.id,
                kind=CampaignKind(row.verb),
                plan=codec.load(Plan, row.plan),
                policy=codec.load(Policy, row.policy),
                executor=row.executor,
                setting=row.setting,
                criteria=codec.load(tuple[CriteriaSet, ...], row.criteria),
                created_at=row.created_at,
                finished_at=row.finished_at,
            )
        except UNREADABLE as error:
            raise StoreError(
                f'history "{self._database.place}": campaign "{campaign_id}" cannot be read:'
                f" {error}; it was written by another Anubis: use that version, or begin another"
            ) from error

    def executions(self, campaign_id: str) -> list[Execution]:
        """Everything that arrived, in the order of arrival."""
        with self._database.reading() as connection:
            key = _key(connection, campaign_id)
            rows = connection.execute(
                select(
                    executions,
                    participants.c.nodes,
                    environments.c.document,
                    layouts.c.document.label("series"),
                )
                .join(participants)
                .join(environments)
                .outerjoin(layouts)
                .where(executions.c.campaign == key)
                .order_by(executions.c.number)
            ).all()
        nodes, environment, workload = cache(_names), cache(_document), cache(_workload)
        layout = cache(_layout)
        return [
            Execution(
                step=Step(
                    id=row.step,
                    workload=workload(row.benchmark, row.version, row.parameters),
                    participants=nodes(row.nodes),
                    phase=row.phase,
                    repeat=row.repeat,
                    timeout_s=row.timeout_s,
                    exclusive=row.exclusive,
                ),
                attempt=row.attempt,
                ended=Ended(row.ended),
                final=row.final,
                reason=row.reason,
                lost=nodes(row.lost),
                started_at=row.started_at,
                duration_s=row.duration_s,
                result=Result(
                    series=Readings(layout(row.series), codec.unpack(row.packing, row.samples))
                    if row.series
                    else Readings.of(),
                    environment=environment(row.document),
                    not_applicable=row.not_applicable,
                ),
            )
            for row in rows
        ]

    def assessment(self, campaign_id: str) -> Assessment | None:
        """The verdicts of the campaign, or None while it has not come to any."""
        with self._database.reading() as connection:
            key = _key(connection, campaign_id)
            found = connection.execute(
                select(campaigns.c.finished_at).where(campaigns.c.key == key)
            ).scalar()
            if found is None:
                return None
            parts = connection.execute(
                select(verdicts, participants.c.nodes)
                .join(participants)
                .where(verdicts.c.campaign == key)
                .order_by(verdicts.c.position)
            ).all()
            alike = connection.execute(
                select(rulings, rosters.c.document)
                .join(rosters)
                .where(rulings.c.campaign == key)
                .order_by(rulings.c.position)
            ).all()
            whole = connection.execute(
                select(node_verdicts)
                .where(node_verdicts.c.campaign == key)
                .order_by(node_verdicts.c.position)
            ).all()
        nodes, roster = cache(_names), cache(_roster)
        kept = Assessment(
            alone=tuple(
                Verdict(
                    participants=nodes(row.nodes),
                    benchmark=row.benchmark,
                    parameters=row.parameters,
                    metric=row.metric,
                    device=row.device,
                    judgement=Judgement(row.judgement),
                    code=row.code,
                    reason=row.reason,
                    similarity=row.similarity,
                    alpha=row.alpha,
                )
                for row in parts
            ),
            rulings=tuple(_ruling(row, roster(row.document)) for row in alike),
            nodes=tuple(
                NodeVerdict(
                    node=row.node,
                    judgement=Judgement(row.judgement),
                    code=row.code,
                    reason=row.reason,
                )
                for row in whole
            ),
        )
        return complete(kept, self.campaign(campaign_id).plan)

    def incidents(self) -> list[Incident]:
        """Those that were told, by node and start."""
        with self._database.reading() as connection:
            return happenings.read_incidents(connection)

    def imports(self) -> list[Import]:
        """Files with incidents that were taken over, the latest first."""
        with self._database.reading() as connection:
            return happenings.read_imports(connection)

    def repairs(self) -> list[Repair]:
        with self._database.reading() as connection:
            return happenings.read_repairs(connection)

    def watches(self) -> list[Watch]:
        with self._database.reading() as connection:
            return happenings.read_watches(connection)

    def jobs(self) -> list[Job]:
        """In the order in which they began."""
        query = select(jobs, participants.c.nodes).join(participants)
        with self._database.reading() as connection:
            return [
                Job(
                    id=row.id,
                    nodes=_names(row.nodes),
                    start=row.started_at,
                    end=row.ended_at,
                    planned_s=row.planned_s,
                )
                for row in connection.execute(query.order_by(jobs.c.started_at, jobs.c.id))
            ]

    def validations(self, since: float = 0.0) -> list[Validation]:
        """What campaigns that ended since then concluded about each node."""
        with self._database.reading() as connection:
            return happenings.read_validations(connection, since)

    def findings(self) -> list[FailedTest]:
        """Which node was defective in which benchmark of which campaign."""
        with self._database.reading() as connection:
            return experience.read_findings(connection)

    def bad_groups(self) -> list[BadGroup]:
        """Which nodes were bad together in which benchmark of which campaign."""
        with self._database.reading() as connection:
            return experience.read_bad_groups(connection)

    def durations_s(self) -> experience.Durations:
        """The mean time that each benchmark took with its parameters."""
        with self._database.reading() as connection:
            return experience.read_durations(connection)

    def decisions(self, limit: int = 100) -> list[Decision]:
        """The latest first."""
        try:
            with self._database.reading() as connection:
                return experience.read_decisions(connection, limit)
        except UNREADABLE as error:
            raise StoreError(
                f'history "{self._database.place}": a decision cannot be read: {error}; it was'
                " written by another Anubis: use that version"
            ) from error

    def logbook(self) -> Logbook:
        """All that is known of nodes; what validations found defective are incidents as well."""
        with self._database.reading() as connection:
            told = happenings.read_incidents(connection)
            mended = happenings.read_repairs(connection)
            validations = happenings.read_conclusions(connection)
            added = happenings.read_watches(connection)
        found = found_by(validations, mended)
        return Logbook.of([*told, *found], added, validations, mended)


# --- questions -----------------------------------------------------------------------------


def _newest_first(query: Select[Any]) -> Select[Any]:
    """In the order in which they were begun here: clocks are not always right."""
    return query.order_by(campaigns.c.key.desc())


def _key(connection: Connection, campaign_id: str) -> int:
    found = connection.execute(select(campaigns.c.key).where(campaigns.c.id == campaign_id))
    key = found.scalar()
    if key is None:
        known = connection.execute(_newest_first(select(campaigns.c.id)).limit(SUGGESTED))
        hint = did_you_mean(campaign_id, known.scalars())
        raise StoreError(f'campaign "{campaign_id}" is not in the history; {hint}')
    return int(key)


def _attempts(connection: Connection, key: int, steps: set[str]) -> set[tuple[str, int]]:
    asked = sorted(steps)
    return {
        (row.step, row.attempt)
        for start in range(0, len(asked), PER_QUESTION)
        for row in connection.execute(
            select(executions.c.step, executions.c.attempt).where(
                executions.c.campaign == key,
                executions.c.step.in_(asked[start : start + PER_QUESTION]),
            )
        )
    }


def _next_number(connection: Connection, key: int) -> int:
    last = select(func.max(executions.c.number)).where(executions.c.campaign == key)
    return int(connection.execute(last).scalar() or 0) + 1


# --- rows ----------------------------------------------------------------------------------


def _insert(connection: Connection, table: Table, rows: Iterable[Row]) -> None:
    if batch := list(rows):
        connection.execute(insert(table), batch)


def _insert_missing(connection: Connection, table: Table, rows: Iterable[Row]) -> None:
    # Sorted, so that two writers who share rows wait for each other in one order only.
    if batch := sorted(rows, key=lambda row: list(row.values())):
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        connection.execute(dialect.insert(table).on_conflict_do_nothing(), batch)


def _digest(document: str) -> str:
    return sha256(document.encode()).hexdigest()[:32]


def _execution_row(key: int, number: int, execution: Execution) -> Row:
    step, measured = execution.step, execution.result.series
    packing, samples = codec.pack(measured.values) if measured else (None, None)
    return {
        "campaign": key,
        "number": number,
        "step": step.id,
        "attempt": execution.attempt,
        "benchmark": step.workload.benchmark,
        "version": step.workload.version,
        "parameters": step.workload.parameters,
        "participants": _digest(canonical(step.participants)),
        "phase": step.phase,
        "repeat": step.repeat,
        "timeout_s": step.timeout_s,
        "exclusive": step.exclusive,
        "ended": execution.ended.value,
        "final": execution.final,
        "reason": execution.reason,
        "lost": canonical(execution.lost),
        "started_at": execution.started_at,
        "duration_s": execution.duration_s,
        "environment": _digest(canonical(execution.result.environment)),
        "not_applicable": execution.result.not_applicable,
        "layout": _digest(canonical(measured.layout.series)) if measured else None,
        "packing": packing,
        "samples": samples,
    }


def _verdict_row(key: int, position: int, verdict: Verdict) -> Row:
    return {
        "campaign": key,
        "position": position,
        "participants": _digest(canonical(verdict.participants)),
        "benchmark": verdict.benchmark,
        "parameters": verdict.parameters,
        "metric": verdict.metric,
        "device": verdict.device,
        "judgement": verdict.judgement.value,
        "code": verdict.code,
        "reason": verdict.reason,
        "similarity": verdict.similarity,
        "alpha": verdict.alpha,
    }


def _ruling_row(key: int, position: int, ruling: Ruling, roster: str) -> Row:
    found = ruling.similarities
    packing, similarities = (None, None) if found is None else codec.pack(found)
    return {
        "campaign": key,
        "position": position,
        "benchmark": ruling.benchmark,
        "parameters": ruling.parameters,
        "metric": ruling.metric,
        "judgement": ruling.judgement.value,
        "code": ruling.code,
        "reason": ruling.reason,
        "alpha": ruling.alpha,
        "roster": roster,
        "packing": packing,
        "similarities": similarities,
    }


def _ruling(row: Any, roster: Roster) -> Ruling:
    participants, devices = roster
    return Ruling(
        benchmark=row.benchmark,
        parameters=row.parameters,
        metric=row.metric,
        judgement=Judgement(row.judgement),
        code=row.code,
        reason=row.reason,
        alpha=row.alpha,
        participants=participants,
        devices=devices,
        similarities=codec.unpack(row.packing, row.similarities) if row.packing else None,
    )


def _node_verdict_row(key: int, position: int, verdict: NodeVerdict) -> Row:
    return {
        "campaign": key,
        "position": position,
        "node": verdict.node,
        "judgement": verdict.judgement.value,
        "code": verdict.code,
        "reason": verdict.reason,
    }


def _job_row(job: Job) -> Row:
    return {
        "id": job.id,
        "participants": _digest(canonical(job.nodes)),
        "started_at": job.start,
        "ended_at": job.end,
        "planned_s": job.planned_s,
    }


def _names(document: str) -> tuple[str, ...]:
    return tuple(json.loads(document))


def _roster(packed: bytes) -> Roster:
    units = json.loads(zlib.decompress(packed))
    return tuple(tuple(names) for names, _ in units), tuple(device for _, device in units)


def _document(document: str) -> Mapping[str, object]:
    found: dict[str, object] = json.loads(document)
    return found


def _layout(document: str) -> Layout:
    return Layout(tuple((metric, device, size) for metric, device, size in json.loads(document)))


def _workload(benchmark: str, version: str, parameters: str) -> Workload:
    return Workload(benchmark=benchmark, version=version, parameters=parameters)
