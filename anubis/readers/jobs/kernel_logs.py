"""Kernel logs of a job's nodes, as events.

The table of classes says what a line means. Of a line that gives neither its date nor the time
since the start of its node it is unknown when it was written. A line without any mark of a kernel
log counts only if a class recognises it; how many did not is told.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import partial
from pathlib import Path

from anubis.core.diagnose.classes import ErrorClasses, Recognised
from anubis.core.diagnose.evidence import Collector, JobEvidence, LogEvent, RankMap
from anubis.core.text import escape_line
from anubis.readers.jobs.kernel_lines import KernelLine, StartClock, kernel_lines
from anubis.readers.jobs.log_lines import log_files, node_of_file, read_lines, written_at
from anubis.readers.jobs.trace_reader import Broken, TraceReader

XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F:]+)[^)]*\): (\d{1,6})(.*)")
NAMED_GPU = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})")
LONGEST_SHOWN = 240  # characters of a line
FIRST, LAST = 20, 80  # events of one kind and device that are kept of a node


def read_kernel(
    path: Path, ranks: RankMap, classes: ErrorClasses, zone: tzinfo = UTC
) -> JobEvidence:
    """Read a file, or a folder of files that are named after nodes, or are in folders that are."""
    nodes = tuple(dict.fromkeys(ranks.nodes.values()))
    files, broken = log_files(path), Broken()
    events: list[LogEvent] = []
    seen: set[str] = set()
    lines, dropped = 0, 0
    for file, reader, events_of_file in broken.read(files, partial(_read, classes, zone)):
        node = node_of_file(file, path, nodes)
        if not node and len(nodes) == len(files) == 1:
            node = nodes[0]
        lines, dropped = lines + reader.count, dropped + reader.dropped
        for event in events_of_file:
            owner = node or ranks.node_named(event.node)
            if not owner and not nodes:
                owner = event.node or file.name.partition(".")[0]
            events.append(replace(event, node=owner))
        seen |= {node} if node else {ranks.node_named(host) for host in reader.hosts}
    if not lines:
        raise broken.error(f'"{path}" has no line of a kernel log')
    if dropped:
        broken.reasons.append(_dropped(dropped, lines))
    return JobEvidence(
        job="",
        at=0.0,
        collectors=frozenset({Collector.KERNEL_LOG}),
        gaps=broken.gaps(Collector.KERNEL_LOG),
        log=tuple(events),
        unread=frozenset(nodes) - seen,
    )


def _read(
    classes: ErrorClasses, zone: tzinfo, file: Path
) -> tuple[Path, _Lines, tuple[LogEvent, ...]]:
    reader = _Lines(about=written_at(file), zone=zone)
    messages = reader.read(read_lines(file), classes)
    return file, reader, parse_kernel(messages, classes, reader.about)


def _dropped(count: int, lines: int) -> str:
    is_one = count == 1
    return (
        f"{count:,} of {count + lines:,} lines of kernel logs {'was' if is_one else 'were'} left"
        f" out: {'it has' if is_one else 'they have'} no stamp of dmesg or of a journal"
    )


@dataclass(kw_only=True)
class _Lines:
    """Lines as messages of the kernel, and how many there were. Lines of other programs in a
    journal are no messages of the kernel, and are not counted as left out."""

    about: float
    zone: tzinfo
    count: int = 0
    dropped: int = 0
    hosts: set[str] = field(default_factory=set)

    def read(self, lines: Iterable[str], classes: ErrorClasses) -> Iterator[KernelLine]:
        for line in kernel_lines(lines, self.about, self.zone):
            if not line.is_marked and _recognise(line.message, classes)[0] is None:
                self.dropped += 1
                continue
            self.count += 1
            if line.host:
                self.hosts.add(line.host)
            yield line


def parse_kernel(
    lines: Iterable[KernelLine], classes: ErrorClasses, written: float
) -> tuple[LogEvent, ...]:
    """Return the first and the last events of each kind and device. `written`: when the file
    was."""
    kept, clock = _Kept(), StartClock(written)
    gpu = ""
    for line in lines:
        start = clock.observe(line)
        if match := NAMED_GPU.search(line.message):
            gpu = match[1].lower()
        recognised, device = _recognise(line.message, classes)
        if recognised is None:
            continue
        if not device and recognised.kind.code == "gpu-fallen-off":
            device = gpu
        kept.add(_Seen(line=line, start=start, recognised=recognised, device=device))
    return tuple(_event(seen, clock) for seen in kept.events)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A line that a class recognises. It is dated once its file was read to the end."""

    line: KernelLine
    start: int
    recognised: Recognised
    device: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.line.host, self.recognised.kind.code, self.device


def _event(seen: _Seen, clock: StartClock) -> LogEvent:
    at, by = clock.date(seen.line, seen.start)
    return LogEvent(
        collector=Collector.KERNEL_LOG,
        code=seen.recognised.kind.code,
        gravity=seen.recognised.gravity,
        text=escape_line(seen.line.message)[:LONGEST_SHOWN],
        node=seen.line.host,
        at=at,
        by=by,
        peer=seen.recognised.parts.get("peer", ""),
        device=seen.device,
        detail=seen.recognised.kind.code,
    )


def _recognise(message: str, classes: ErrorClasses) -> tuple[Recognised | None, str]:
    if "Xid" in message and (match := XID.search(message)):
        return classes.match_xid(int(match[2]), match[3]), match[1].lower()
    recognised = classes.match_kernel(message)
    return recognised, recognised.parts.get("device", "").lower() if recognised else ""


class _Kept:
    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str], list[tuple[int, _Seen]]] = {}
        self._last: dict[tuple[str, str, str], deque[tuple[int, _Seen]]] = {}
        self._count = 0

    def add(self, seen: _Seen) -> None:
        self._count += 1
        first = self._first.setdefault(seen.key, [])
        if len(first) < FIRST:
            first.append((self._count, seen))
        else:
            self._last.setdefault(seen.key, deque(maxlen=LAST)).append((self._count, seen))

    @property
    def events(self) -> tuple[_Seen, ...]:
        kept = [entry for entries in self._first.values() for entry in entries]
        kept += [entry for entries in self._last.values() for entry in entries]
        return tuple(seen for _, seen in sorted(kept, key=lambda entry: entry[0]))


TRACE = TraceReader(
    place="kernel",
    words="kernel logs",
    help="Kernel logs of its nodes: a folder with a file for each, or one file.",
    brings=(Collector.KERNEL_LOG,),
    order=2,
    read=lambda path, context: read_kernel(path, context.ranks, context.classes, context.zone),
)
