"""Job requests of recorded traces: tables like Philly's, and the Standard Workload Format.

A trace has requests and run times, but not the nodes: the simulation assigns them. A line that is
no job is left out, counted by its reason, and the first of each is named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.core.errors import TraceError
from anubis.text.files import decode, read_bytes
from anubis.text.tables import Table, parse_number, parse_table

COLUMNS = ("timestamp", "duration", "num_gpus")
SWF_FIELDS = 18  # of the Standard Workload Format 2.2
PIECES = {2, 3, 4}  # status of a line that is only a piece of a job with its own line
LONGEST_S = 100 * 365 * DAY_S  # a century: longer is a wrong unit
MOST_LINES = 2_000_000  # of a table: what is kept of them fits into memory
MOST_JOBS = 1_440  # for each node and day: jobs of less than a minute are no load worth a study
ENOUGH = 2.0  # times what nodes can do; a longer queue changes nothing in the span


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedJob:
    """A request for nodes: their number, the duration, and the hours since the begin of the
    trace."""

    arrival_h: float
    nodes: int
    duration_h: float


@dataclass(frozen=True, kw_only=True)
class SkippedLines:
    """Number of lines left out for one reason, and the first of them."""

    lines: int
    first: int


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Jobs in the order of their arrival, and what was left out, by reason."""

    jobs: tuple[TracedJob, ...]
    left_out: dict[str, SkippedLines] = field(default_factory=dict)

    @property
    def node_hours(self) -> float:
        return sum(job.nodes * job.duration_h for job in self.jobs)


@dataclass(frozen=True)
class _Request:
    """A job as its line describes it."""

    arrival_s: float
    duration_s: float
    devices: float


def read(path: Path, devices_per_node: int, whole_nodes_only: bool = False) -> Trace:
    """Trace in either format, recognised by its first line; gzipped or not."""
    text = decode(read_bytes(path, TraceError))
    lines = text.splitlines()
    if _is_swf(lines):
        requests = requests_of_swf(lines)
    else:
        requests = requests_of_table(
            parse_table(text, f'"{path}"', TraceError, most_lines=MOST_LINES)
        )
    trace = trace_of(requests, devices_per_node, whole_nodes_only)
    if not trace.jobs:
        raise TraceError(
            f'"{path}" has no job; ' + ("; ".join(reasons(trace)) or "it has no lines")
        )
    return trace


def reasons(trace: Trace) -> Iterator[str]:
    """Sentences on what was left out, one for each reason, the most frequent first."""
    for reason, skipped in sorted(trace.left_out.items(), key=lambda item: -item[1].lines):
        several = f"{skipped.lines:,} lines left out, the first is " if skipped.lines > 1 else ""
        yield f"{several}line {skipped.first}: {reason}"


def requests_of_table(table: Table) -> Iterator[tuple[int, _Request | str]]:
    """Requests of a table whose heading names time, seconds and number of GPUs."""
    table.require(*COLUMNS)
    for row in table:
        if misfit := table.misfit(row):
            yield table.line, misfit
            continue
        when, duration, devices = (table.cell(row, name) for name in COLUMNS)
        try:
            moment = datetime.fromisoformat(when)
        except ValueError:
            yield table.line, "not a timestamp (expected 2017-10-09 07:01:55)"
            continue
        # a time without a zone is read as UTC: the time zone where Anubis runs must not matter
        arrival = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
        yield table.line, _Request(arrival, parse_number(duration), parse_number(devices))


def requests_of_swf(lines: Iterable[str]) -> Iterator[tuple[int, _Request | str]]:
    """Requests in format version 2.2: 18 numbers a line, -1 for unknown, comments after a
    semicolon."""
    for number, line in enumerate(lines, start=1):
        words = line.partition(";")[0].split()
        if not words:
            continue
        if len(words) != SWF_FIELDS:
            yield number, f"expected {SWF_FIELDS} fields"
            continue
        values = [parse_number(word) for word in words]
        _, arrival, _, duration, allocated, _, _, requested, _, _, status, *_ = values
        if status in PIECES:
            yield number, "a piece of a job that has a line of its own"
            continue
        yield number, _Request(arrival, duration, allocated if allocated > 0 else requested)


def trace_of(
    requests: Iterable[tuple[int, _Request | str]],
    devices_per_node: int,
    whole_nodes_only: bool = False,
) -> Trace:
    """Jobs of the requests on whole nodes; a part of a node counts as one, or is left out."""
    kept: list[_Request] = []
    left_out: dict[str, SkippedLines] = {}
    least = devices_per_node if whole_nodes_only else 1
    for number, request in requests:
        reason = request if isinstance(request, str) else _trouble(request, least)
        if isinstance(request, _Request) and not reason:
            kept.append(request)
        else:
            skipped = left_out.get(reason, SkippedLines(lines=0, first=number))
            left_out[reason] = replace(skipped, lines=skipped.lines + 1)
    kept.sort(key=lambda request: request.arrival_s)
    begin_s = kept[0].arrival_s if kept else 0.0
    return Trace(
        jobs=tuple(
            TracedJob(
                arrival_h=(request.arrival_s - begin_s) / HOUR_S,
                nodes=math.ceil(request.devices / devices_per_node),
                duration_h=request.duration_s / HOUR_S,
            )
            for request in kept
        ),
        left_out=left_out,
    )


def stress(
    jobs: Sequence[TracedJob], nodes: int, span_h: float, load: float
) -> tuple[TracedJob, ...]:
    """The same jobs in the same order, repeated, so close that the nodes cannot keep up.

    `load` is the requested work as a multiple of what the nodes can do. A job arrives when those
    before it have requested that much; with `inf` all arrive at once.
    """
    if not any(job.nodes * job.duration_h > 0 for job in jobs):
        return ()
    asked_h, goal_h = 0.0, nodes * span_h * min(load, ENOUGH)
    needed = len(jobs) * goal_h / sum(job.nodes * job.duration_h for job in jobs)
    bound = MOST_JOBS * nodes * span_h / 24
    if needed > bound:
        raise TraceError(
            f"the jobs are so short that {needed:,.0f} of them would be needed to load {nodes:,}"
            f" nodes for {span_h / 24:g} days, expected at most {bound:,.0f}; set load: 0 to replay"
            " them as they came"
        )
    stressed_jobs: list[TracedJob] = []
    while asked_h < goal_h:
        job = jobs[len(stressed_jobs) % len(jobs)]
        arrival_h = asked_h / (nodes * load)
        stressed_jobs.append(replace(job, arrival_h=arrival_h))
        asked_h += job.nodes * job.duration_h
    return tuple(stressed_jobs)


def cut(jobs: Sequence[TracedJob], limit_h: float | None) -> tuple[TracedJob, ...]:
    """Jobs with those longer than the limit cut into several, each with its own nodes."""
    if limit_h is None:
        return tuple(jobs)
    return tuple(
        replace(job, duration_h=duration_h)
        for job in jobs
        for duration_h in _pieces(job.duration_h, limit_h)
    )


def _pieces(duration_h: float, limit_h: float) -> list[float]:
    """Durations of the pieces, all of the limit's length but the last."""
    pieces = max(1, math.ceil(duration_h / limit_h))
    return [limit_h] * (pieces - 1) + [min(limit_h, duration_h - limit_h * (pieces - 1))]


def rotate(jobs: Sequence[TracedJob], start: int) -> tuple[TracedJob, ...]:
    """Trace that starts at another of its jobs: another sample of the same requests."""
    if not jobs:
        return ()
    start %= len(jobs)
    begin_h, end_h = jobs[start].arrival_h, jobs[-1].arrival_h - jobs[start].arrival_h
    return (
        *(replace(job, arrival_h=job.arrival_h - begin_h) for job in jobs[start:]),
        *(replace(job, arrival_h=job.arrival_h + end_h) for job in jobs[:start]),
    )


def _is_swf(lines: Sequence[str]) -> bool:
    first = next((line for line in lines if line.strip()), "")
    return first.lstrip().startswith(";") or bool(re.fullmatch(r"[-+.\deE\s]+", first))


def _trouble(request: _Request, least_devices: int) -> str:
    """Reason why a request is not a job; empty if it is one."""
    for value, quantity in (
        (request.arrival_s, "its arrival"),
        (request.duration_s, "how long it ran"),
        (request.devices, "how much it asks for"),
    ):
        if not math.isfinite(value):
            return f"{quantity} is not a number"
    if request.duration_s < 0:
        return "how long it ran is not known"
    if request.duration_s == 0:
        return "ran for no time"
    if request.duration_s > LONGEST_S:
        return "ran for more than a century"
    if request.devices <= 0:
        return "asks for nothing"
    if request.devices < least_devices:
        return "asks for less than a node"
    return ""
