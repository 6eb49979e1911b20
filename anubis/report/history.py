"""The history of nodes, in order of time: as a table and as JSON Lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isinf
from typing import TYPE_CHECKING

from anubis.core.fabric import Part
from anubis.core.history.events import (
    EventRecord,
    IncidentReported,
    JobStalled,
    JobUnexplained,
    MaintenancePlanned,
    PartSuspected,
    SuspicionRaised,
)
from anubis.core.history.status import Incident, Repair, Validation
from anubis.core.keep.commands import LifeAction, nodes_of
from anubis.core.records import UNNAMED, Judgement
from anubis.core.select.decision import Decision
from anubis.report import decision as decisions
from anubis.report import keep
from anubis.report.json import json_line, may_be_absent
from anubis.report.screen_tables import add_row, table
from anubis.store.holds import Hold
from anubis.store.imports import Import
from anubis.store.integrity import Soundness
from anubis.text.wording import moment, names, quantity

if TYPE_CHECKING:
    from rich.console import Console

TESTS_NAMED = 3  # tests that a line names
CATEGORIES_NAMED = 3  # of a suspicion


@dataclass(frozen=True, kw_only=True)
class HappenedLine:
    at: float
    """Seconds since 1970."""
    cluster: str


@dataclass(frozen=True, kw_only=True)
class EventLine:
    id: str
    event: str
    nodes: Sequence[str]
    category: str = may_be_absent()
    """The category of an incident."""
    criteria: str = may_be_absent()
    """The criteria after an upgrade: learned again, or refused."""
    job: str = may_be_absent()
    duration_s: float = may_be_absent()
    """The planned duration of the job."""
    source: str = may_be_absent()
    """The source of a suspicion."""
    part: str = may_be_absent()
    """The suspected part between nodes."""
    parts: Sequence[Part] = may_be_absent()
    """The part in the fabric, or those of which it is one."""
    mix: Mapping[str, float] = may_be_absent()
    """How likely each category of defects is; none: that of the suspicion alone."""
    confidence: float | None = may_be_absent()
    """The chance that it is right, by how often its source was so far; null: kept before that
    was."""
    reason: str = may_be_absent()
    action: str = may_be_absent()
    """What a repair did."""
    order: str = may_be_absent()
    """The order of a person: retire, return or close-breaker."""
    scope: str = may_be_absent()
    """The scope of the breaker that was closed."""
    failed: bool = may_be_absent()
    """Whether the job that ended had failed."""
    begin: float = may_be_absent()
    """The beginning of a maintenance."""
    end: float | None = may_be_absent()
    """The end of a maintenance; null: its owner ends it."""
    name: str = may_be_absent()
    """The name by which the owner of a maintenance changes or ends it."""


@dataclass(frozen=True, kw_only=True)
class HoldLine:
    nodes: Sequence[str]
    holder: str
    """The campaign that holds them."""
    owner: str
    """The process that renews it."""
    until: float
    """Seconds since 1970, at most."""


@dataclass(frozen=True, kw_only=True)
class DamageLine:
    sentence: str


@dataclass(frozen=True, kw_only=True)
class HistoryLine:
    sound: bool
    campaigns: int
    rows: int
    damages: int


def soundness_lines(soundness: Soundness) -> Iterator[str]:
    """Yield whether the history is still what was written, then each damage."""
    campaigns, rows = quantity(soundness.campaigns, "campaign"), f"{soundness.rows:,} rows"
    if soundness.damages:
        places = quantity(len(soundness.damages), "place")
        yield f"the history is damaged in {places}: restore a backup of it"
    else:
        yield f"the history is as it was written: {campaigns}, {rows}"
    yield from soundness.damages


@dataclass(frozen=True, kw_only=True)
class ImportNumber:
    import_: int


@dataclass(frozen=True, kw_only=True)
class ImportLine:
    at: float
    file: str
    """Empty: not known any more."""
    cluster: str
    what: str
    campaign: str
    """The campaign that the measurements became."""


@dataclass(frozen=True, kw_only=True)
class Happening:
    at: float
    kind: str
    nodes: tuple[str, ...]
    summary: str
    facts: tuple[object, ...]  # of which its line is made
    end: float | None = None  # None: it is not over
    judgement: Judgement | None = None  # of a test
    campaign: str = ""  # that tested
    cluster: str = UNNAMED


def incident_happening(incident: Incident) -> Happening:
    return Happening(
        at=incident.start,
        kind="incident",
        nodes=(incident.node,),
        summary=f"{incident.category}, {_describe_end(incident)}",
        facts=(incident,),
        end=incident.end,
    )


def repair_happening(repair: Repair) -> Happening:
    summary = ", ".join(filter(None, (repair.action, _describe_end(repair))))
    return Happening(
        at=repair.start,
        kind="repair",
        nodes=(repair.node,),
        summary=summary,
        facts=(repair,),
        end=repair.end,
    )


def validation_happening(validation: Validation) -> Happening:
    benchmarks = quantity(len(validation.benchmarks), "benchmark")
    summary = f"{validation.outcome}, {benchmarks}, campaign {validation.campaign}"
    return Happening(
        at=validation.at,
        kind="validation",
        nodes=(validation.node,),
        summary=summary,
        facts=(validation,),
        judgement=validation.judgement,
        campaign=validation.campaign,
    )


def _describe_end(record: Incident | Repair) -> str:
    return "not over" if record.end is None else f"until {moment(record.end)}"


def _likelihood(suspicion: SuspicionRaised) -> str:
    likeliest = sorted(suspicion.mix.items(), key=lambda item: -item[1])[:CATEGORIES_NAMED]
    mix = ", ".join(f"{category} {share:.0%}" for category, share in likeliest)
    sure = "" if suspicion.confidence is None else f", confidence {suspicion.confidence:.2f}"
    return f"{f' ({mix})' if mix else ''}, by {suspicion.source}{sure}"


def _span(window: MaintenancePlanned) -> str:
    until = "its owner ends it" if isinf(window.end) else moment(window.end)
    return f"from {moment(window.begin)} until {until}, by {window.source}"


def event_record_happening(event_record: EventRecord) -> Happening:
    event = event_record.event
    category = (
        f', "{event.category}"' if isinstance(event, IncidentReported | SuspicionRaised) else ""
    )
    if isinstance(event, SuspicionRaised):
        category += _likelihood(event)
    if isinstance(event, IncidentReported) and event.reason:
        category += f", by {event.source}: {event.reason}"
    if isinstance(event, JobStalled | JobUnexplained):
        reason = f": {event.reason}" if event.reason else ""
        category = f", job {event.job}, by {event.source}{reason}"
    if isinstance(event, PartSuspected):
        reason = f": {event.reason}" if event.reason else ""
        category = f", {event.part}, by {event.source}{reason}"
    if isinstance(event, MaintenancePlanned):
        category = f", {_span(event)}" + (f": {event.reason}" if event.reason else "")
    follows = (
        ": a defect is presumed until a test is passed" if event_record.presumes_defect else ""
    )
    return Happening(
        at=event_record.at,
        kind="event",
        nodes=event.nodes,
        summary=f"{event.kind}{category}{follows}",
        facts=(event_fields(event_record),),
        end=_end_of(event_record),
    )


def _end_of(event_record: EventRecord) -> float | None:
    """Return when an event is over: at once, unless it plans a time."""
    if not isinstance(event_record.event, MaintenancePlanned):
        return event_record.at
    return None if isinf(event_record.event.end) else event_record.event.end


def event_fields(event_record: EventRecord) -> EventLine:
    """Return what is kept of an event. Of its fields, a line has those that its kind has."""
    event = event_record.event
    names = [field.name for field in fields(event) if field.name != "windows"]  # for learning only
    facts = {name: getattr(event, name) for name in names}
    return EventLine(id=event_record.id, event=event.kind, **facts)


def action_happening(action: LifeAction) -> Happening:
    """Describe what the keeper proposed or did, on whose order, and how it ended."""
    by = f", ordered by {action.ordered_by}" if action.ordered_by else ""
    note = f" ({action.note})" if action.note else ""
    return Happening(
        at=action.at,
        kind="action",
        nodes=nodes_of(action.command),
        summary=f"{keep.sentence(action.command)}: {action.stage.value}{by}{note}",
        facts=(keep.action_fields(action),),
        end=action.at,
        campaign=action.campaign,
    )


def decision_happening(decision: Decision) -> Happening:
    tests = names([test.benchmark for test in decision.tests], TESTS_NAMED)
    summary = f"{decision.event}: {decision.action.value}{f', {tests}' if tests else ''}"
    return Happening(
        at=decision.at,
        kind="decision",
        nodes=decision.nodes,
        summary=summary,
        facts=decisions.parts(decision),
    )


def hold_happenings(holds: Iterable[Hold]) -> Iterator[Happening]:
    """Yield one happening for all nodes of a holder."""
    nodes: defaultdict[Hold, list[str]] = defaultdict(list)
    for hold in holds:
        nodes[replace(hold, node="")].append(hold.node)
    for hold, held in nodes.items():
        yield Happening(
            at=hold.since,
            kind="hold",
            nodes=tuple(held),
            summary=f"{hold.holder} ({hold.owner})",
            facts=(HoldLine(nodes=held, holder=hold.holder, owner=hold.owner, until=hold.until),),
        )


def timeline(
    happened: Iterable[Happening], nodes: Collection[str] | None, last: int
) -> list[Happening]:
    """Return the last so many happenings that concern any of the nodes, the latest at the end."""
    relevant = [
        happening
        for happening in happened
        if nodes is None or not set(nodes).isdisjoint(happening.nodes)
    ]
    return sorted(relevant, key=lambda happening: (happening.at, happening.nodes, happening.kind))[
        -last:
    ]


def line(happening: Happening) -> str:
    head = HappenedLine(at=happening.at, cluster=happening.cluster)
    return json_line(happening.kind, head, *happening.facts)


def show(happened: Sequence[Happening], console: Console) -> None:
    clusters = list(dict.fromkeys(happening.cluster for happening in happened))
    rows = table("when (UTC)", "node", "", "what")
    for happening in happened:
        nodes = happening.nodes
        node = nodes[0] if len(nodes) == 1 else f"{len(nodes):,} nodes"
        if len(clusters) > 1:
            node = f"{happening.cluster}: {node}"
        add_row(rows, _show_time(happening.at), node, happening.kind, happening.summary)
    console.print(rows)
    if len(clusters) == 1:
        console.print(f"  all of cluster {clusters[0]}", markup=False)


def _show_time(at: float) -> str:
    return moment(at).removesuffix(" UTC")


def import_line(record: Import) -> str:
    fields = ImportLine(
        at=record.at,
        file=record.file,
        cluster=record.cluster,
        what=record.what,
        campaign=record.campaign,
    )
    return json_line("import", ImportNumber(import_=record.key), fields, record.kept)


def show_imports(imports: Sequence[Import], console: Console) -> None:
    rows = table("import", "when (UTC)", "cluster", "what", "new", "completed", "known", "file")
    for record in imports:
        kept = record.kept
        counts = (f"{number:,}" for number in (kept.new, kept.completed, kept.known))
        head = (str(record.key), _show_time(record.at), record.cluster, record.what)
        add_row(rows, *head, *counts, record.file or record.campaign)
    console.print(rows)
