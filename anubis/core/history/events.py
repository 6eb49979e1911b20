"""Events that an orchestrator, a person or a watcher reports about nodes, and their consequences
for jobs and repairs.

Some events are facts that change what is known of a node: these are stored. The class of each says
who may report it, what is presumed of its nodes, and what these then have to prove. `anubis tell`,
the service and the store derive from it. A tick only asks what to do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import ClassVar, Literal

from anubis.core.fabric import Part
from anubis.core.history.status import Incident, Job, Repair
from anubis.core.history.tracks import IncidentColumns

LONGEST_WINDOWS = 16_384  # letters: ten times what a look needs

# facts of a field, for those who report the event in words
TOLD_AS = "told as"  # the name of its option, if that is another
NEEDED = "needed"  # the option has no default, even if the field has one


class Debt(StrEnum):
    """A reason why a node has something to prove."""

    NEW = "new"
    UPGRADE = "upgrade"
    DOUBT = "doubt"  # it serves, and has no pass that counts
    INCIDENT = "incident"  # it stays out until it passes a test that finds such defects
    ANSWER = "answer"  # a test ended without an answer
    SUSPICION = "suspicion"
    REPAIR = "repair"
    RESERVE = "reserve"  # a node must be proven before it is a spare
    WORK = "work"  # a job ended; the node serves until it is idle
    FAILURE = "failure"  # a job failed, maybe by its own fault; the node serves until it is idle
    UNEXPLAINED = "unexplained"  # a job had trouble of which no culprit is known


@dataclass(frozen=True, kw_only=True)
class KeptEvent:
    """An event that is stored."""

    kind: ClassVar[str]
    # a token may report it that has this scope
    token_scope: ClassVar[Literal["report", "operate", "act"]] = "operate"
    presumes: ClassVar[str] = ""  # why a defect is presumed on its nodes; may name fields in braces
    debt: ClassVar[Debt | None] = None  # what its nodes then have to prove
    is_of_job: ClassVar[bool] = False
    knows_nodes: ClassVar[bool] = False  # from its job, if none is named
    nodes: tuple[str, ...]

    @property
    def presumption(self) -> str:
        """Sentence on the defect that is presumed on its nodes until they pass a test; empty:
        none."""
        return self.presumes.format_map(vars(self))


@dataclass(frozen=True, kw_only=True)
class NodeAdded(KeptEvent):
    kind = "node-added"
    token_scope = "report"
    presumes = "it was added"


@dataclass(frozen=True, kw_only=True)
class NodeRemoved(KeptEvent):
    """The nodes left the fleet and need no further attention."""

    kind = "node-removed"


@dataclass(frozen=True, kw_only=True)
class FleetUpgraded(KeptEvent):
    """Other software or parts: earlier measurements prove nothing any more."""

    kind = "fleet-upgraded"
    presumes = "it was upgraded"
    debt = Debt.UPGRADE
    criteria: Literal["learned", "refused"] = "learned"  # new ones after the upgrade


@dataclass(frozen=True, kw_only=True)
class JobAllocated(KeptEvent):
    kind = "job-allocated"
    is_of_job = True
    token_scope = "report"
    duration_s: float
    job: str = field(default="", metadata={NEEDED: True})  # its id; empty: only a question

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < float("inf"):
            raise ValueError(f"a job of {self.duration_s:g} s, expected a duration above 0")


@dataclass(frozen=True, kw_only=True)
class JobStalled(KeptEvent):
    """The job runs and makes no progress. A diagnosis finds the cause and the culprit."""

    kind = "job-stalled"
    is_of_job = True
    token_scope = "report"
    knows_nodes = True
    job: str
    source: str = "operator"
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class JobEnded(KeptEvent):
    kind = "job-ended"
    is_of_job = True
    token_scope = "report"
    knows_nodes = True
    job: str
    failed: bool = False  # maybe by its own fault: its nodes are checked, not suspected


@dataclass(frozen=True, kw_only=True)
class JobUnexplained(KeptEvent):
    """The job is over. It had trouble, and no culprit is known: the fault may be at any of these
    nodes, or between them."""

    kind = "job-unexplained"
    token_scope = "report"
    is_of_job = True
    knows_nodes = True
    job: str
    source: str = "operator"
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class IncidentReported(KeptEvent):
    kind = "incident-reported"
    token_scope = "report"
    presumes = 'incident "{category}" was reported'
    debt = Debt.INCIDENT
    category: str
    source: str = "operator"
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.category:
            raise ValueError("a reported incident has no category, expected a word such as gpu")


@dataclass(frozen=True, kw_only=True)
class SuspicionRaised(KeptEvent):
    """A source suspects that nodes are bad. Only a test makes a verdict of it."""

    kind = "suspicion-raised"
    token_scope = "report"
    presumes = 'it is suspected of "{category}"'
    category: str  # of the expected defect; with a mix, the likeliest
    source: str  # of the suspicion
    reason: str = ""
    mix: Mapping[str, float] = field(default_factory=dict, hash=False)  # empty: its category alone
    confidence: float | None = None  # the chance that it is right; as reported, by its source alone
    windows: str = ""  # of telemetry, packed: from those whose tests ended an order is learned

    def __post_init__(self) -> None:
        if len(self.windows) > LONGEST_WINDOWS:
            raise ValueError(f"a suspicion has more than {LONGEST_WINDOWS:,} letters of windows")
        if not self.category:
            raise ValueError("a suspicion has no category, expected a word such as gpu")
        if self.mix and not (all(0 <= share <= 1 for share in self.mix.values()) and self._total):
            raise ValueError(
                "a suspicion's mix has shares outside 0 to 1, or only zeros; expected one such as"
                " gpu 0.7 and host 0.3"
            )
        if self.confidence is not None and not 0 <= self.confidence <= 1:
            raise ValueError(f"a confidence of {self.confidence:g}, expected one from 0 to 1")

    @property
    def _total(self) -> float:
        return sum(self.mix.values())

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of each category; they add up to 1."""
        if not self.mix:
            return {self.category: 1.0}
        return {category: share / self._total for category, share in self.mix.items()}


@dataclass(frozen=True, kw_only=True)
class PartSuspected(KeptEvent):
    """A part between nodes may be bad. It condemns none of the nodes, which are those that see it.
    The next scan that crosses the part answers."""

    kind = "part-suspected"
    token_scope = "report"
    part: str  # in words: link leaf2 - spine1
    source: str = "operator"
    reason: str = ""
    parts: tuple[Part, ...] = ()  # of the fabric, one of which it is; empty: only the words say it

    def __post_init__(self) -> None:
        if not self.part:
            raise ValueError("name the suspected part, such as link leaf2 - spine1")


@dataclass(frozen=True, kw_only=True)
class RepairBegun(KeptEvent):
    kind = "repair-begun"


@dataclass(frozen=True, kw_only=True)
class RepairDone(KeptEvent):
    """A repair ended. It counts only after a test has proven it."""

    kind = "repair-done"
    presumes = "it was repaired"
    debt = Debt.REPAIR
    action: str = field(default="", metadata={TOLD_AS: "reason"})  # what was done


@dataclass(frozen=True, kw_only=True)
class MaintenancePlanned(KeptEvent):
    """People work on these nodes, or will: they are left alone from begin to end."""

    kind = "maintenance"
    begin: float
    end: float  # infinite: until its owner ends it
    name: str = ""  # a later report of the same name replaces it; empty: a new one
    reason: str = ""
    source: str = "operator"

    def __post_init__(self) -> None:
        if not math.isfinite(self.begin):
            raise ValueError(f"a maintenance that begins at {self.begin}, expected a time")
        if not self.begin < self.end:  # NaN is neither
            raise ValueError("a maintenance that ends before it begins: expected a later end")


@dataclass(frozen=True, kw_only=True)
class MaintenanceEnded(KeptEvent):
    """A maintenance ended early. Changes made meanwhile are reported by other events."""

    kind = "maintenance-ended"
    name: str = ""  # of the window; empty: all of these nodes


class Order(StrEnum):
    RETIRE = "retire"  # these nodes leave the fleet for good
    RETURN = "return"  # retired nodes belong to it again, unproven
    CLOSE = "close-breaker"  # nodes may be taken out again


@dataclass(frozen=True, kw_only=True)
class OperatorSaid(KeptEvent):
    kind = "operator-said"
    token_scope = "act"
    order: Order
    nodes: tuple[str, ...] = ()
    scope: str = ""  # of the breaker to be closed


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Passage of time; these nodes are idle."""

    kind: ClassVar[str] = "tick"
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NodesSuspected:
    """Nodes to test for what each is suspected of."""

    kind: ClassVar[str] = SuspicionRaised.kind
    nodes: tuple[str, ...]
    mixes: Mapping[str, Mapping[str, float]] = field(hash=False)  # by node: categories
    confidences: Mapping[str, float] = field(hash=False)  # by node: the chance that it is bad

    @property
    def mix(self) -> Mapping[str, float]:
        """Mean mix of all nodes, the likeliest category first."""
        shares: defaultdict[str, float] = defaultdict(float)
        for node in self.nodes:
            for category, share in self.mixes[node].items():
                shares[category] += share / len(self.nodes)
        return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


FleetEvent = (  # events that ask for a decision
    NodeAdded | FleetUpgraded | JobAllocated | IncidentReported | NodesSuspected | Tick
)
KEPT: dict[str, type[KeptEvent]] = {event.kind: event for event in KeptEvent.__subclasses__()}


@dataclass(frozen=True, kw_only=True)
class EventRecord:
    """A stored event. Some kinds presume a defect on their nodes until these pass a test."""

    id: str  # two event records with one id are the same
    at: float
    event: KeptEvent

    @property
    def presumes_defect(self) -> bool:
        return bool(self.event.presumes)


def reports(event_records: Iterable[EventRecord]) -> tuple[EventRecord, ...]:
    """Reports of incidents among the event records."""
    return tuple(
        event_record
        for event_record in event_records
        if isinstance(event_record.event, IncidentReported)
    )


def reported_incidents(
    event_records: Iterable[EventRecord], imported: Iterable[Incident] = ()
) -> list[Incident]:
    """Incidents known only from an event. A report within a known incident adds nothing."""
    reports = [
        (event_record.at, event_record.event.category, node)
        for event_record in event_records
        if isinstance(event_record.event, IncidentReported)
        for node in event_record.event.nodes
    ]
    stretches: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in IncidentColumns.from_incidents(imported).select_nodes(
        {node for *_, node in reports}
    ):
        stretches[incident.node].append(incident)
    return [
        Incident(node=node, category=category, start=at)
        for at, category, node in reports
        if not any(incident.covers(at) for incident in stretches[node])
    ]


class UnknownJob(Exception):
    """Something was reported of a job, and its nodes are unknown."""


def jobs_in(events: Iterable[KeptEvent]) -> set[str]:
    kinds = (JobAllocated, JobStalled, JobEnded, JobUnexplained)
    return {event.job for event in events if isinstance(event, kinds) and event.job}


def repaired_nodes(events: Iterable[KeptEvent]) -> set[str]:
    kinds = (RepairBegun, RepairDone)
    return {node for event in events if isinstance(event, kinds) for node in event.nodes}


class Consequences:
    """Jobs and repairs, updated event by event. `jobs` and `repairs`: the earlier ones that the
    events are about."""

    def __init__(self, jobs: Iterable[Job], repairs: Iterable[Repair]) -> None:
        self._known = {job.id: job for job in jobs}
        self._repairs = defaultdict[str, dict[float, Repair]](dict)
        for repair in repairs:
            self._repairs[repair.node][repair.start] = repair
        self.jobs: list[Job] = []  # those that began or ended
        self.repairs: list[Repair] = []

    def follow(self, event: KeptEvent, at: float) -> KeptEvent:
        """Event, completed with the nodes of a job that ended or stands still: its sender need not
        name them."""
        match event:
            case JobAllocated() if event.job:
                self._begin_job(event, at)
            case JobEnded():
                return self._end_job(event, at)
            case JobStalled() | JobUnexplained():
                return replace(event, nodes=self._nodes_of(event))
            case RepairBegun():
                self.repairs += [self._begin_repair(node, at) for node in event.nodes]
            case RepairDone():
                self.repairs += [self._end_repair(event, node, at) for node in event.nodes]
        return event

    def _begin_job(self, event: JobAllocated, at: float) -> None:
        """Begin a job. A running one that is on further nodes now has the nodes of the event: the
        pods of a gang come one by one, and an elastic job exchanges nodes."""
        job = Job(id=event.job, nodes=event.nodes, start=at, planned_s=event.duration_s)
        begun = self._known.setdefault(job.id, job)
        if begun.end is None and not {*event.nodes} <= {*begun.nodes}:
            self._known[job.id] = replace(begun, nodes=event.nodes)
        self.jobs.append(self._known[job.id])

    def _end_job(self, event: JobEnded, at: float) -> JobEnded:
        nodes = self._nodes_of(event)
        job = self._known.get(event.job) or Job(id=event.job, nodes=nodes, start=at)
        self._known[job.id] = replace(job, end=max(at, job.start))
        self.jobs.append(self._known[job.id])
        return replace(event, nodes=nodes)

    def _nodes_of(self, event: JobStalled | JobEnded | JobUnexplained) -> tuple[str, ...]:
        job = self._known.get(event.job)
        nodes = event.nodes or (job.nodes if job else ())
        if not nodes:
            raise UnknownJob(event.job)
        return nodes

    def _begin_repair(self, node: str, at: float) -> Repair:
        return self._repairs[node].setdefault(at, Repair(node=node, start=at))

    def _end_repair(self, event: RepairDone, node: str, at: float) -> Repair:
        """Latest open repair of the node, ended. A repair without a reported begin begins as it
        ends."""
        open_ = [repair for repair in self._repairs[node].values() if repair.end is None]
        begun = max(open_, key=attrgetter("start"), default=Repair(node=node, start=at))
        action = event.action or begun.action
        repair = replace(begun, end=max(at, begun.start), action=action)
        self._repairs[node][repair.start] = repair
        return repair
