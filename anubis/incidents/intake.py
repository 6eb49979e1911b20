"""From the records of a file to incidents and watches, and to what was left out and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import count, islice

from anubis import hostlist
from anubis.core.errors import UsageError, did_you_mean
from anubis.core.past.status import Incident, Watch
from anubis.incidents.clock import Clock, Moment
from anubis.incidents.mapping import (
    NOT_SAID,
    EventMapping,
    IncidentMapping,
    IntervalMapping,
    filled,
)
from anubis.incidents.records import SourceRecord, SourceRecords


@dataclass(frozen=True, kw_only=True)
class Note:
    """One thing to say of some records, and where these are."""

    what: str
    where: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Intake:
    records: int
    incidents: tuple[Incident, ...]  # by node and start, each once
    watches: tuple[Watch, ...]
    left_out: tuple[Note, ...]
    remarks: tuple[Note, ...]  # on what was taken nevertheless


@dataclass(frozen=True)
class _Found:
    """An incident as a record tells it; the end may have to wait for another record."""

    record: SourceRecord
    node: str
    category: str
    start: Moment
    end: Moment | None


@dataclass
class _Desk:
    """Where the notes are collected."""

    left_out: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    remarks: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def leave_out(self, what: str, record: SourceRecord, cell: str = "") -> None:
        self.left_out[what].append(record.where + (f' ("{cell[:40]}")' if cell else ""))

    def remark(self, what: str, record: SourceRecord) -> None:
        self.remarks[what].append(record.where)


def take_in(
    records: SourceRecords,
    mapping: IncidentMapping,
    where: str,
    now: float,
    nodes: Collection[str] | None = None,
) -> Intake:
    """`nodes` are all that were watched, when that is known: those of which the file says
    nothing were well, and what it says of others is left out."""
    _check_columns(records, mapping, where)
    desk = _Desk()
    for place in records.unreadable:
        desk.left_out["no JSON"].append(place)
    clock = mapping.clock()
    told: Iterable[_Found] = (
        _pair(records, mapping, clock, desk)
        if isinstance(mapping, EventMapping)
        else _intervals(records, mapping, clock, desk)
    )
    known = None if nodes is None else set(nodes)
    incidents = _each_once([one for one in told if _sound(one, now, known, desk)], desk)
    taken = tuple(_incident(one, now, desk) for one in incidents)
    _look_for_overlaps(incidents, taken, desk)
    return Intake(
        records=len(records.rows) + len(records.unreadable),
        incidents=taken,
        watches=_watches(records, mapping, clock, taken, known),
        left_out=_notes(desk.left_out),
        remarks=_notes(desk.remarks),
    )


def _notes(found: dict[str, list[str]]) -> tuple[Note, ...]:
    return tuple(Note(what=what, where=tuple(where)) for what, where in found.items())


def _check_columns(records: SourceRecords, mapping: IncidentMapping, where: str) -> None:
    for name, key in mapping.columns():
        if name not in records.columns:
            raise UsageError(
                f'{where} has no column "{name}", which the mapping names as "{key}"; '
                f"{did_you_mean(name, records.columns)}; another mapping is chosen with -m"
            )


# --- what the records tell -----------------------------------------------------------------


def _intervals(
    records: SourceRecords, mapping: IntervalMapping, clock: Clock, desk: _Desk
) -> Iterator[_Found]:
    for record in records.rows:
        written = filled(mapping.end, record.cells)
        start = _read(clock, record, mapping.start, "start", desk)
        end = _read(clock, record, mapping.end, "end", desk) if start and written else None
        if start and (end or not written):
            yield _found(record, mapping, start, end)


def _pair(records: SourceRecords, mapping: EventMapping, clock: Clock, desk: _Desk) -> list[_Found]:
    """An end belongs to the oldest incident of its node and category that is not over. What
    stays open is over with the last of these ends after it: two starts may share one."""
    open_: dict[tuple[str, str], list[_Found]] = defaultdict(list)
    last: dict[tuple[str, str], Moment] = {}
    found = []
    for moment, starts, record in sorted(_events(records, mapping, clock, desk), key=_in_time):
        one = _found(record, mapping, moment, None)
        incident = (one.node, one.category)
        if starts:
            open_[incident].append(one)
        elif open_[incident]:
            found.append(_over(open_[incident].pop(0), moment))
            last[incident] = moment
        else:
            desk.leave_out("it ends what did not begin", record)
    for incident, rest in open_.items():
        for one in rest:
            shared = last.get(incident)
            found.append(_over(one, shared) if shared and shared.at >= one.start.at else one)
    return found


def _events(
    records: SourceRecords, mapping: EventMapping, clock: Clock, desk: _Desk
) -> Iterator[tuple[Moment, bool, SourceRecord]]:
    for record in records.rows:
        event = filled(mapping.event, record.cells)
        if event not in (*mapping.starts, *mapping.ends):
            desk.leave_out("the event is neither a start nor an end", record, event)
        elif moment := _read(clock, record, mapping.time, "time", desk):
            yield moment, event in mapping.starts, record


def _in_time(event: tuple[Moment, bool, SourceRecord]) -> tuple[float, bool]:
    """What has no length begins before it ends."""
    moment, starts, _ = event
    return moment.at, not starts


def _over(one: _Found, end: Moment) -> _Found:
    return _Found(one.record, one.node, one.category, one.start, end)


def _read(clock: Clock, record: SourceRecord, column: str, what: str, desk: _Desk) -> Moment | None:
    text = filled(column, record.cells)
    moment = clock.read(text)
    if moment is None:
        desk.leave_out(f"the {what} cannot be read as a time", record, text or "nothing")
    return moment


def _found(
    record: SourceRecord, mapping: IncidentMapping, start: Moment, end: Moment | None
) -> _Found:
    category = mapping.category_of(record.cells) or NOT_SAID
    return _Found(record, filled(mapping.node, record.cells), category, start, end)


# --- what of it can be taken ---------------------------------------------------------------


def _sound(one: _Found, now: float, known: set[str] | None, desk: _Desk) -> bool:
    if not one.node:
        desk.leave_out("no node is named", one.record)
    elif not hostlist.is_name(one.node):
        desk.leave_out("the node is no node name", one.record, one.node)
    elif known is not None and one.node not in known:
        desk.leave_out("the node is not in the list", one.record, one.node)
    elif one.start.at > now:
        desk.leave_out("it begins in the future", one.record)
    elif one.end and one.start.at > max(one.end):
        desk.leave_out("it ends before it begins", one.record)
    else:
        return True
    return False


def _incident(one: _Found, now: float, desk: _Desk) -> Incident:
    end = None
    if one.end:
        # in the hour that is repeated, the end may be in the second one
        end = one.end.at if one.end.at >= one.start.at else one.end.otherwise
        if end > now:
            desk.remark("it ends in the future: taken as not over", one.record)
            end = None
    else:
        desk.remark("no end: the node is down until one is imported", one.record)
    if one.start.doubtful or (one.end and one.end.doubtful):
        desk.remark("a change of clocks repeats or leaves out this time of day", one.record)
    if one.category == NOT_SAID:
        desk.remark(f'no category: taken as "{NOT_SAID}"', one.record)
    if "\ufffd" in one.category:
        desk.remark(f'the category "{one.category}" is not UTF-8: convert the file', one.record)
    return Incident(node=one.node, category=one.category, start=one.start.at, end=end)


def _each_once(told: list[_Found], desk: _Desk) -> list[_Found]:
    """By node and start; where one stands twice with different ends, with the later end."""
    found: dict[tuple[str, float, str], _Found] = {}
    for one in told:
        kept = found.setdefault((one.node, one.start.at, one.category), one)
        if kept is one:
            continue
        if _last(one) == _last(kept):
            desk.leave_out("the same incident stands there twice", one.record)
        else:
            desk.leave_out(
                "the same incident stands there with another end: the later one counts", one.record
            )
            found[one.node, one.start.at, one.category] = max(kept, one, key=_last)
    return [found[key] for key in sorted(found)]


def _last(one: _Found) -> float:
    """A known end is better than none."""
    return -1e300 if one.end is None else one.end.at


def _look_for_overlaps(told: list[_Found], incidents: tuple[Incident, ...], desk: _Desk) -> None:
    node, down_until = "", 0.0
    for one, incident in zip(told, incidents, strict=True):
        end = float("inf") if incident.end is None else incident.end
        if incident.node == node and incident.start < down_until:
            desk.remark("the node was down already: the time counts once", one.record)
        down_until = max(down_until, end) if incident.node == node else end
        node = incident.node


# --- who was watched -----------------------------------------------------------------------


@dataclass
class _Cluster:
    """Nodes that one file numbers together."""

    size: int = 0
    nodes: set[str] = field(default_factory=set)
    since: list[float] = field(default_factory=list)

    def silent(self, prefix: str) -> Iterator[str]:
        """Those of which it says nothing: the free numbers from 0 on."""
        free = (name for number in count() if (name := f"{prefix}{number}") not in self.nodes)
        return islice(free, max(0, min(self.size, hostlist.MOST_NODES) - len(self.nodes)))


def _watches(
    records: SourceRecords,
    mapping: IncidentMapping,
    clock: Clock,
    incidents: tuple[Incident, ...],
    known: set[str] | None,
) -> tuple[Watch, ...]:
    """From the first to the last time in the file, where it does not say since when and until
    when a node was there; and never less than what it tells of the node."""
    if not incidents:
        return ()
    first = min(one.start for one in incidents)
    last = max(map(_end, incidents))
    seen: dict[str, float] = {}
    for one in incidents:
        seen[one.node] = max(_end(one), seen.get(one.node, first))
    since, until = dict.fromkeys(known or (), first), dict.fromkeys(known or (), last)
    clusters = defaultdict[str, _Cluster](_Cluster)
    read = cache(clock.read)  # the same few in every record
    for record in records.rows:
        node = filled(mapping.node, record.cells)
        if node not in seen:
            continue
        added = read(filled(mapping.since, record.cells))
        gone = read(filled(mapping.until, record.cells))
        since[node] = added.at if added else first
        until[node] = max(seen[node], min(last, gone.at)) if gone else last
        cluster = clusters[mapping.cluster_of(record.cells)]
        cluster.size = max(mapping.size_of(record.cells), cluster.size)
        cluster.nodes.add(node)
        cluster.since.append(since[node])
    if known is None:
        for prefix, cluster in clusters.items():
            for node in cluster.silent(prefix):
                since[node], until[node] = min(cluster.since), last
    return tuple(
        Watch(node=node, since=min(since[node], until[node]), until=until[node])
        for node in sorted(since)
    )


def _end(incident: Incident) -> float:
    return incident.start if incident.end is None else incident.end
