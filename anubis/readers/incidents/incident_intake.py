"""Incidents and watches from the records of a file, with what was left out and why."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, islice

from anubis.core.history.status import Incident, Watch
from anubis.readers.incidents.incident_mapping import (
    NOT_SAID,
    Clock,
    EventMapping,
    IncidentMapping,
    IntervalMapping,
    Moment,
)
from anubis.readers.incidents.named_cells import SourceRecord, SourceRecords
from anubis.text import hostlist
from anubis.text.tables import UNDECODED, fill, refuse_absent


@dataclass(frozen=True, kw_only=True)
class Note:
    """A sentence about some records, and their places."""

    text: str
    where: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Intake:
    records: int
    incidents: tuple[Incident, ...]  # by node and start, each once
    watches: tuple[Watch, ...]
    left_out: tuple[Note, ...]
    remarks: tuple[Note, ...]  # on what was taken nevertheless


@dataclass(frozen=True)
class _SourceIncident:
    """An incident as a record describes it; its end may come from another record."""

    record: SourceRecord
    node: str
    category: str
    start: Moment
    end: Moment | None
    has_lost_its_end: bool = False  # what is written there is no time

    @property
    def is_backwards(self) -> bool:
        return self.end is not None and self.start.at > max(self.end)


@dataclass
class _Desk:
    """The collection of notes."""

    left_out: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    remarks: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def leave_out(self, text: str, record: SourceRecord, cell: str = "") -> None:
        self.left_out[text].append(record.where + (f' ("{cell[:40]}")' if cell else ""))

    def remark(self, text: str, record: SourceRecord) -> None:
        self.remarks[text].append(record.where)


def take_in(
    records: SourceRecords,
    mapping: IncidentMapping,
    where: str,
    now: float,
    nodes: Collection[str] | None = None,
    *,
    is_news: bool = False,
) -> Intake:
    """Read incidents and watches. `nodes` are all watched nodes, if known: those without a record
    had no incident, and records of other nodes are left out. Whatever a clock says, all of them
    have begun. `is_news`: the records were reported as things happened: those with an end are
    over."""
    _check_columns(records, mapping, where)
    desk = _Desk()
    for place in records.unreadable:
        desk.left_out["no JSON"].append(place)
    clock = mapping.clock()
    candidates: Iterable[_SourceIncident] = (
        _pair(records, mapping, clock, desk)
        if isinstance(mapping, EventMapping)
        else _intervals(records, mapping, clock, desk)
    )
    fleet = None if nodes is None else set(nodes)
    quiet = _quiet_nodes(records, mapping, clock, fleet, desk)
    incidents = _drop_duplicates(
        [
            candidate
            for candidate in candidates
            if _is_named(candidate.node, candidate.record, fleet, desk, candidate.category)
        ],
        desk,
    )
    taken = tuple(_incident(candidate, now, is_news, desk) for candidate in incidents)
    _look_for_overlaps(incidents, taken, desk)
    return Intake(
        records=len(records.rows) + len(records.unreadable),
        incidents=taken,
        watches=_watches(records, mapping, clock, taken, quiet, fleet, now),
        left_out=_notes(desk.left_out),
        remarks=_notes(desk.remarks),
    )


def _notes(notes: dict[str, list[str]]) -> tuple[Note, ...]:
    return tuple(Note(text=text, where=tuple(where)) for text, where in notes.items())


def _check_columns(records: SourceRecords, mapping: IncidentMapping, where: str) -> None:
    for name, key in mapping.columns():
        refuse_absent(key, name, records.columns, where, "; --mapping chooses another one")


# --- what the records tell -----------------------------------------------------------------


def _intervals(
    records: SourceRecords, mapping: IntervalMapping, clock: Clock, desk: _Desk
) -> Iterator[_SourceIncident]:
    for record in records.rows:
        if _has_watch_only(record, mapping, clock):
            continue
        written = fill(mapping.end, record.cells)
        if written in mapping.not_over or fill(mapping.status, record.cells) in mapping.still_open:
            written = ""
        start = _read(clock, record, mapping.start, "start", desk)
        if start:
            end = clock.read(written) if written else None
            incident = _incident_of(record, mapping, start, end)
            yield replace(incident, has_lost_its_end=bool(written) and end is None)


def _has_watch_only(record: SourceRecord, mapping: IntervalMapping, clock: Clock) -> bool:
    """Return whether it says when a node was watched, and that nothing happened to it."""
    nothing = ("", *mapping.not_over)
    has_none = all(fill(text, record.cells) in nothing for text in (mapping.start, mapping.end))
    return has_none and clock.read(fill(mapping.since, record.cells)) is not None


def _pair(
    records: SourceRecords, mapping: EventMapping, clock: Clock, desk: _Desk
) -> list[_SourceIncident]:
    """Pair starts with ends: an end belongs to the oldest open incident of its node and
    category. Incidents that stay open end with the last such end after their start: two starts
    may share one."""
    open_: dict[tuple[str, str], list[_SourceIncident]] = defaultdict(list)
    last: dict[tuple[str, str], Moment] = {}
    paired = []
    events = _events(records, mapping, clock, desk)
    # at the same time starts come before ends, for incidents of no length
    for moment, starts, record in sorted(events, key=lambda event: (event[0].at, not event[1])):
        incident = _incident_of(record, mapping, moment, None)
        key = (incident.node, incident.category)
        if starts:
            open_[key].append(incident)
        elif open_[key]:
            paired.append(replace(open_[key].pop(0), end=moment))
            last[key] = moment
        else:
            desk.leave_out("it ends an incident that did not begin", record)
    for key, rest in open_.items():
        shared = last.get(key)
        for incident in rest:
            shares = shared is not None and shared.at >= incident.start.at
            paired.append(replace(incident, end=shared) if shares else incident)
    return paired


def _events(
    records: SourceRecords, mapping: EventMapping, clock: Clock, desk: _Desk
) -> Iterator[tuple[Moment, bool, SourceRecord]]:
    for record in records.rows:
        event = fill(mapping.event, record.cells)
        if event not in (*mapping.starts, *mapping.ends):
            desk.leave_out("the event is neither a start nor an end", record, event)
        elif moment := _read(clock, record, mapping.time, "time", desk):
            yield moment, event in mapping.starts, record


def _read(
    clock: Clock, record: SourceRecord, column: str, column_name: str, desk: _Desk
) -> Moment | None:
    text = fill(column, record.cells)
    moment = clock.read(text)
    if moment is None:
        desk.leave_out(f"the {column_name} cannot be read as a time", record, text or "nothing")
    return moment


def _incident_of(
    record: SourceRecord, mapping: IncidentMapping, start: Moment, end: Moment | None
) -> _SourceIncident:
    category = mapping.category_of(record.cells) or NOT_SAID
    return _SourceIncident(record, mapping.node_of(record.cells), category, start, end)


# --- what of it can be taken ---------------------------------------------------------------


def _is_named(
    node: str, record: SourceRecord, fleet: set[str] | None, desk: _Desk, category: str = ""
) -> bool:
    if not node:
        desk.leave_out("no node is named", record)
    elif not hostlist.is_name(node):
        desk.leave_out("the name is not a node name", record, node)
    elif fleet is not None and node not in fleet:
        desk.leave_out("the node is not in the list", record, node)
    elif UNDECODED in category:  # two categories would look the same
        desk.leave_out("the category is not UTF-8, convert the file", record, category)
    else:
        return True
    return False


def _incident(incident: _SourceIncident, now: float, is_news: bool, desk: _Desk) -> Incident:
    end = None
    is_early = incident.start.at > now
    if is_early:
        desk.remark(
            "it begins in the future: it counts from now, a clock is wrong", incident.record
        )
    if is_early and (incident.end or incident.has_lost_its_end):
        end = now  # it happened, so the node has to pass a test
    elif incident.is_backwards and is_news:
        end = now  # it is unknown which of its dates is right
        desk.remark("it ends before it begins: it is over now, a clock is wrong", incident.record)
    elif incident.is_backwards or incident.has_lost_its_end:
        end = max(incident.start)  # it happened, so the node has to pass a test
        wrong = "it ends before it begins" if incident.end else "the end cannot be read as a time"
        desk.remark(f"{wrong}: only its start counts", incident.record)
    elif incident.end:
        end = max(incident.end)  # in the hour that is repeated, a pass may have come before it
        if end > now:
            desk.remark("it ends in the future: the node is down until then", incident.record)
    else:
        desk.remark("no end: the node is down until one is imported", incident.record)
    if incident.start.doubtful or (incident.end and incident.end.doubtful):
        desk.remark("a change of clocks repeats or leaves out this time of day", incident.record)
    if incident.category == NOT_SAID:
        desk.remark(f'no category: taken as "{NOT_SAID}"', incident.record)
    start = incident.start.at
    return Incident(node=incident.node, category=incident.category, start=start, end=end)


def _drop_duplicates(incidents: list[_SourceIncident], desk: _Desk) -> list[_SourceIncident]:
    """Keep one incident for each node, start and category; of two that differ only in their ends,
    the one with the later end."""
    kept_of: dict[tuple[str, float, str], _SourceIncident] = {}
    for incident in incidents:
        key = (incident.node, incident.start.at, incident.category)
        kept = kept_of.setdefault(key, incident)
        if kept is incident:
            continue
        repeated = "the same incident is listed twice"
        if _known_end(incident) != _known_end(kept):
            repeated = "the same incident is listed with another end: the later one counts"
        desk.leave_out(repeated, incident.record)
        kept_of[key] = max(kept, incident, key=_known_end)
    return [kept_of[key] for key in sorted(kept_of)]


def _known_end(incident: _SourceIncident) -> float:
    """Return the end as a number to compare: a known end is better than none, and none than one
    that cannot be right."""
    if incident.has_lost_its_end or incident.is_backwards:
        return -math.inf
    return -1e300 if incident.end is None else incident.end.at


def _look_for_overlaps(
    sources: list[_SourceIncident], incidents: tuple[Incident, ...], desk: _Desk
) -> None:
    node, down_until = "", 0.0
    for source, incident in zip(sources, incidents, strict=True):
        end = float("inf") if incident.end is None else incident.end
        if incident.node == node and incident.start < down_until:
            desk.remark("the node was down already: the time counts once", source.record)
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
        """Yield nodes without a record: the free numbers from 0 on."""
        free = (name for number in count() if (name := f"{prefix}{number}") not in self.nodes)
        return islice(free, max(0, min(self.size, hostlist.MOST_NODES) - len(self.nodes)))


def _quiet_nodes(
    records: SourceRecords,
    mapping: IncidentMapping,
    clock: Clock,
    fleet: set[str] | None,
    desk: _Desk,
) -> dict[str, tuple[float, float]]:
    """Return the nodes of records without an incident, with the first and the last time at which
    each was watched for sure."""
    quiet: dict[str, tuple[float, float]] = {}
    if isinstance(mapping, EventMapping):
        return quiet
    for record in records.rows:
        node = mapping.node_of(record.cells)
        if _has_watch_only(record, mapping, clock) and _is_named(node, record, fleet, desk):
            ends = (mapping.since, mapping.until)
            moments = filter(None, (clock.read(fill(end, record.cells)) for end in ends))
            times = [*quiet.get(node, ()), *(moment.at for moment in moments)]
            quiet[node] = min(times), max(times)
    return quiet


def _watches(
    records: SourceRecords,
    mapping: IncidentMapping,
    clock: Clock,
    incidents: tuple[Incident, ...],
    quiet: dict[str, tuple[float, float]],
    fleet: set[str] | None,
    now: float,
) -> tuple[Watch, ...]:
    """Return watches from the first to the last time in the file, unless it says when a node was
    there. They cover at least the incidents of the node, and never reach into the future."""
    if not (incidents or quiet):
        return ()
    seen = {node: min(latest, now) for node, (_, latest) in quiet.items()}
    begins = [incident.start for incident in incidents] or [begin for begin, _ in quiet.values()]
    first = min(begins)
    last = max([*seen.values(), *(_seen_until(incident, now) for incident in incidents)])
    for incident in incidents:
        until_then = seen.get(incident.node, first)
        seen[incident.node] = max(_seen_until(incident, now), until_then)
    since, until = dict.fromkeys(fleet or (), first), dict.fromkeys(fleet or (), last)
    clusters = defaultdict[str, _Cluster](_Cluster)
    read = cache(clock.read)  # the same few in every record
    for record in records.rows:
        node = mapping.node_of(record.cells)
        if node not in seen:
            continue
        added = read(fill(mapping.since, record.cells))
        gone = read(fill(mapping.until, record.cells))
        since[node] = added.at if added else first
        until[node] = max(seen[node], min(now, gone.at)) if gone else last
        cluster = clusters[mapping.cluster_of(record.cells)]
        cluster.size = max(mapping.size_of(record.cells), cluster.size)
        cluster.nodes.add(node)
        cluster.since.append(since[node])
    if fleet is None:
        for prefix, cluster in clusters.items():
            for node in cluster.silent(prefix):
                since[node], until[node] = min(cluster.since), last
    return tuple(
        Watch(node=node, since=min(since[node], until[node]), until=until[node])
        for node in sorted(since)
    )


def _seen_until(incident: Incident, now: float) -> float:
    return min(incident.start if incident.end is None else incident.end, now)
