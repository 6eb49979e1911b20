"""Keep reports of what happened to nodes, with what follows for jobs, repairs and watches; and
reports that a running job stands still, once for each stall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any

from anubis.core.amounts import DAY_S
from anubis.core.clock import Time
from anubis.core.diagnose.diagnose_due import WATCH, ReportedStall, is_news
from anubis.core.errors import AnubisError, StoreError, UsageError, did_you_mean
from anubis.core.history.events import (
    KEPT,
    NEEDED,
    TOLD_AS,
    Consequences,
    EventRecord,
    JobStalled,
    KeptEvent,
    MaintenancePlanned,
    NodeAdded,
    NodeRemoved,
    OperatorSaid,
    Order,
    SuspicionRaised,
    UnknownJob,
    jobs_in,
    repaired_nodes,
)
from anubis.core.keep.suspicions import HitRate, hit_rates
from anubis.core.records import ClusterIdentity
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import enter, find, no_such_node, strangers_among, time_in
from anubis.operations.names import new_name
from anubis.operations.requests import TellRequest, flags_of
from anubis.operations.tokens import is_order, order_entry
from anubis.store.history import ClusterHistory, History
from anubis.store.tokens import AuditEntry
from anubis.text.hostlist import compress

LONGEST_MAINTENANCE_S = 366 * DAY_S  # longer is a slip of the pen
WORDS = ("category", "part", "source", "job", "name")  # fields of events that lists and pages show
LONGEST_WORD = 500  # characters: Kubernetes' longest name of a job, with its namespace, has 317
ENVELOPE = ("event", "nodes", "id", "at", "cluster")  # of a request; the rest is of the event


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What became of a reported event."""

    id: str
    cluster: str
    is_new: bool  # False if it was reported before


@dataclass(frozen=True, kw_only=True)
class Telling:
    """An event with what its reporter says about it."""

    event: KeptEvent
    id: str = ""  # an event that is reported twice by one id counts once
    at: float | None = None  # when it happened; None: now
    cluster: str | None = None
    by: str = ""  # the reporter; empty: the caller


def telling_of(request: TellRequest, caller: Caller = NO_CALLER) -> Telling:
    """The event that is reported in words."""
    event = event_of(request, caller.clock())  # wall clock: a reporter's "now" is their own
    return Telling(event=event, id=request.id, at=request.at, cluster=request.cluster)


def event_of(request: TellRequest, now: float) -> KeptEvent:
    kind, nodes = request.event, tuple(request.nodes or ())
    if kind == Order.CLOSE:
        raise UsageError("a breaker is closed by anubis keep --close SCOPE, such as fleet")
    if kind not in event_words():
        raise UsageError(f'event "{kind}" is not known; {did_you_mean(kind, event_words())}')
    record = KEPT.get(kind, OperatorSaid)
    if not nodes and not record.knows_nodes:
        raise UsageError(f"{kind}: name the nodes after the event")
    values = _values(request, record, now)
    if record is OperatorSaid:
        values["order"] = Order(kind)
    try:
        return record(nodes=nodes, **values)
    except ValueError as error:
        raise UsageError(str(error)) from None


def event_words() -> list[str]:
    """Words for the events that a person may report."""
    kinds = [kind for kind in KEPT if kind != OperatorSaid.kind]
    return [*kinds, *(order for order in Order if order is not Order.CLOSE)]


def _values(request: TellRequest, record: type[KeptEvent], now: float) -> dict[str, Any]:
    """Values of an event's fields. Each option is of an event that has a field for it."""
    values = {}
    taken = _fields_by_option(record)
    for option in fields(request):
        if option.name in ENVELOPE:
            continue
        value, flag = getattr(request, option.name), flags_of(option)[0]
        if option.name not in taken:
            if value != option.default:
                raise UsageError(f"{request.event} has no {flag}: {_owners(option.name)}")
            continue
        own = taken[option.name]
        if option.name == "begin" and value is None:
            value = now
        if value not in (None, ""):
            values[own.name] = value
        elif own.metadata.get(NEEDED) or (own.default is own.default_factory is MISSING):
            raise UsageError(f"{request.event} needs {flag}")
    return values


def _fields_by_option(record: type[KeptEvent]) -> dict[str, Field[Any]]:
    return {field.metadata.get(TOLD_AS, field.name): field for field in fields(record)}


def _owners(option: str) -> str:
    """Sentence on the events that have the option."""
    kinds = [record.kind for record in KEPT.values() if option in _fields_by_option(record)]
    return f"only {' and '.join(kinds)} {'has' if len(kinds) == 1 else 'have'} it"


def tell(telling: Telling, caller: Caller = NO_CALLER) -> Receipt:
    """Keep an event. It changes what is known of its nodes."""
    with caller.history(begins=True) as history, history.together():
        (answer,) = tell_all([telling], history, caller)
        if isinstance(answer, AnubisError):
            raise answer
    return answer


def tell_all(
    tellings: Sequence[Telling], history: History, caller: Caller
) -> list[Receipt | AnubisError]:
    """Keep all in one transaction, because a commit takes longer than an event. Return a receipt or
    the reason of refusal for each. If the history fails, none is kept."""
    answers: dict[int, Receipt | AnubisError] = {}
    addressed: dict[str | None, _Addressed] = {}
    with history.together():
        for place, telling in enumerate(tellings):
            name = telling.cluster
            try:
                if name not in addressed:
                    addressed[name] = _address(telling, history, caller)
                addressed[name].take(place, telling)
            except StoreError:
                raise
            except AnubisError as error:
                answers[place] = error
        for to in addressed.values():
            answers |= to.refuse_strangers()
            if not to.event_records:
                continue
            if to.identity:
                enter(history, to.identity, caller)
            answers |= dict(
                zip(to.event_records, note(list(to.event_records.values()), to.part), strict=True)
            )
        history.audit.add(_orders(tellings, answers, caller))
    return [answers[place] for place in range(len(tellings))]


@dataclass
class _Addressed:
    """A cluster with reports, and the event records to keep."""

    name: str | None  # as the reporter calls it
    part: ClusterHistory
    identity: ClusterIdentity | None  # to enter; None if the history knows it
    time: Time
    event_records: dict[int, EventRecord] = field(
        default_factory=dict
    )  # by their place in the batch

    def take(self, place: int, telling: Telling) -> None:
        self.event_records[place] = _event_record(telling, self.time)

    def refuse_strangers(self) -> dict[int, AnubisError]:
        """Errors for event records on nodes that do not belong to the cluster, unless an earlier
        one adds these; all nodes are looked up together."""
        events = {place: event_record.event for place, event_record in self.event_records.items()}
        nodes = {
            node
            for event in events.values()
            if not isinstance(event, NodeAdded)
            for node in event.nodes
        }
        strangers = {*strangers_among(self.part, nodes, self.name)}
        refused: dict[int, AnubisError] = {}
        for place, event in events.items():
            if isinstance(event, NodeAdded):
                strangers.difference_update(event.nodes)
            elif new := [node for node in event.nodes if node in strangers]:
                refused[place] = UsageError(no_such_node(new, self.part, self.name))
                del self.event_records[place]
        return refused


def _address(telling: Telling, history: History, caller: Caller) -> _Addressed:
    """Find the cluster of an event; added nodes may begin a new one."""
    event = telling.event
    is_added = isinstance(event, NodeAdded)
    part, identity = find(history, telling.cluster, caller, event.nodes, may_begin=is_added)
    return _Addressed(telling.cluster, part, identity, time_in(part, caller, is_kept=True))


def _orders(
    tellings: Sequence[Telling], answers: Mapping[int, Receipt | AnubisError], caller: Caller
) -> Iterator[AuditEntry]:
    """Audit entries for the orders among what is kept now."""
    for place, telling in enumerate(tellings):
        answer = answers[place]
        if isinstance(answer, Receipt) and answer.is_new and is_order(telling.event):
            by = telling.by or caller.name()
            # wall clock: the audit has what the clock showed
            yield order_entry(_order_words(telling.event), answer.cluster, by, caller.clock())


def _order_words(event: KeptEvent) -> str:
    if isinstance(event, OperatorSaid) and event.order is Order.CLOSE:
        return f"{event.order.value} {event.scope}"
    word = event.order.value if isinstance(event, OperatorSaid) else event.kind
    return f"{word} {compress(event.nodes)}"


def _event_record(telling: Telling, time: Time) -> EventRecord:
    now = time.now
    happened_at = now if telling.at is None else telling.at
    if time.doubt:
        happened_at = min(happened_at, now)
    if happened_at > now:
        raise UsageError("the time of the event is in the future")
    _refuse_unshowable(telling)
    if isinstance(telling.event, MaintenancePlanned):
        _refuse_endless(telling.event, now)
    name = telling.id or new_name(telling.event.kind, now)
    return EventRecord(id=name, at=happened_at, event=telling.event)


def _refuse_unshowable(telling: Telling) -> None:
    words = [(name, getattr(telling.event, name, "")) for name in WORDS]
    mix = [("mix", category) for category in getattr(telling.event, "mix", ())]
    for name, word in [("id", telling.id), *words, *mix]:
        if not (word.isprintable() and len(word) <= LONGEST_WORD):
            raise UsageError(
                f"{name} is {word!a:.40}, expected one line of at most {LONGEST_WORD} characters"
            )


def _refuse_endless(window: MaintenancePlanned, now: float) -> None:
    if window.begin < now - LONGEST_MAINTENANCE_S:
        raise UsageError("the maintenance began more than a year ago: correct --from")
    if not window.end - max(window.begin, now) <= LONGEST_MAINTENANCE_S:
        raise UsageError(
            "the maintenance has no end, or takes more than a year: give --until; for a node that"
            " does not return, use retire"
        )


def note(event_records: Sequence[EventRecord], part: ClusterHistory) -> list[Receipt | UsageError]:
    """Keep event records that are new, after what follows from them. That may be written twice:
    after a crash the events are reported again."""
    if not event_records:
        return []
    kept = part.event_records.kept_ids([event_record.id for event_record in event_records])
    first: dict[str, EventRecord] = {}
    for event_record in event_records:
        if event_record.id not in kept:
            first.setdefault(event_record.id, event_record)
    events = [event_record.event for event_record in first.values()]
    follows = Consequences(
        part.jobs.read_about(jobs_in(events)), part.repairs.read_about(repaired_nodes(events))
    )
    answers = {id: _follow(event_record, follows, part) for id, event_record in first.items()}
    if follows.jobs:
        part.jobs.add(follows.jobs)
    if follows.repairs:
        part.repairs.add(follows.repairs)
    followed = [answer for answer in answers.values() if isinstance(answer, EventRecord)]
    are_new = part.event_records.add_all(_set_confidences(followed, part))
    new = {answer.id for answer, is_new in zip(followed, are_new, strict=True) if is_new}

    def answer_to(event_record: EventRecord) -> Receipt | UsageError:
        id = event_record.id
        if isinstance(answer := answers.get(id), UsageError):
            return answer
        is_new = id in new and first[id] is event_record
        return Receipt(id=id, cluster=part.cluster, is_new=is_new)

    return list(map(answer_to, event_records))


def _set_confidences(event_records: list[EventRecord], part: ClusterHistory) -> list[EventRecord]:
    """Give suspicions the confidence that their source has earned so far."""
    if not any(isinstance(event_record.event, SuspicionRaised) for event_record in event_records):
        return event_records
    rates = hit_rates(part.keeping.suspicions())
    return [_set_confidence(event_record, rates) for event_record in event_records]


def _set_confidence(
    event_record: EventRecord, rates: Mapping[tuple[str, str], HitRate]
) -> EventRecord:
    event = event_record.event
    if not isinstance(event, SuspicionRaised):
        return event_record
    rate = rates.get((event.source, event.category), HitRate())
    return replace(event_record, event=replace(event, confidence=rate.confidence(event.confidence)))


def _follow(
    event_record: EventRecord, follows: Consequences, part: ClusterHistory
) -> EventRecord | UsageError:
    try:
        event, at = follows.follow(event_record.event, event_record.at), event_record.at
    except UnknownJob as job:
        return UsageError(f'job "{job}" is not known to have begun: name the nodes that it ran on')
    match event:
        case NodeAdded() | OperatorSaid(order=Order.RETURN):
            part.watches.begin(event.nodes, at)
        case NodeRemoved() | OperatorSaid(order=Order.RETIRE):
            part.watches.end(event.nodes, at)
        case OperatorSaid(order=Order.CLOSE, scope=scope) if scope not in part.keeping.breakers():
            return UsageError(_no_breaker(scope, part))
    return replace(event_record, event=event)


def _no_breaker(scope: str, part: ClusterHistory) -> str:
    opened = part.keeping.breakers()
    hint = did_you_mean(scope, opened) if opened else "none was ever open"
    return f'cluster "{part.cluster}" has no breaker "{scope}"; {hint}'


def note_stall(
    job: str, nodes: tuple[str, ...], since: float, reason: str, part: ClusterHistory
) -> None:
    """Keep a stall found in what the job's nodes reported, if it is new."""
    if is_news(since, stalls_by_job(part).get(job, [])):
        note([stall_event_record(job, nodes, since, WATCH, reason)], part)


def stalls_by_job(part: ClusterHistory) -> dict[str, list[ReportedStall]]:
    """Reported stalls by job, in the order of time."""
    by_job: dict[str, list[ReportedStall]] = {}
    for event_record in part.event_records.read_kind(JobStalled):
        if isinstance(event := event_record.event, JobStalled):
            stall = ReportedStall(
                job=event.job,
                at=event_record.at,
                source=event.source,
                nodes=event.nodes,
                reason=event.reason,
            )
            by_job.setdefault(event.job, []).append(stall)
    return by_job


def stall_event_record(
    job: str, nodes: tuple[str, ...], since: float, source: str, reason: str
) -> EventRecord:
    event = JobStalled(nodes=nodes, job=job, source=source, reason=reason)
    return EventRecord(
        id=f"job {job} has made no progress since {since:.0f}", at=since, event=event
    )
