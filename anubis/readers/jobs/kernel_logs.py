"""Kernel logs of a job's nodes, as events: messages in the forms in which programs save them, which
are dmesg, journalctl, a syslog daemon and /dev/kmsg.

Some forms have a date, some the time since the start of the node, some neither: of such a line it
is unknown when it was written. The table of classes says what a line means. A line without any mark
of a kernel log counts only if a class recognises it; how many did not is reported.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import partial
from pathlib import Path
from typing import Any

from anubis.core.diagnose.error_classes import ErrorClasses, Recognised
from anubis.core.diagnose.evidence import Collector, JobEvidence, LogEvent, RankMap
from anubis.core.text import escape_line
from anubis.readers.jobs.log_lines import (
    log_files,
    node_of_file,
    read_lines,
    split_stamp,
    time_of,
    written_at,
)
from anubis.readers.jobs.trace_reader import Broken, TraceReader

# the priority of syslog, its version (RFC 5424), and the words of `dmesg --decode`
PRIORITY = re.compile(r"^(?:<\d{1,3}>)?(1 (?=\d{4}-))?(?:\w+ *:\w+ *: )?")
KMSG = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)$")
SINCE_START = re.compile(
    r"^\[ *(\d+\.\d+)(?: *< *\d+\.\d+ *>)?\](?:\[[^\]]*\])? ?(?:(\S+) kernel: )?(.*)$"
)
# since the line before (`dmesg --show-delta`, `--reltime`)
DELTA = re.compile(r"^\[(?:< *\d+\.\d+>| *\+\d+\.\d+|\w{3} ?\d{1,2} \d\d:\d\d)\] ?(.*)$")
WITH_DATE = re.compile(r"^\[(\w{3} \w{3} +\d+ [\d:]+ \d{4})(?: *< *\d+\.\d+ *>)?\] ?(.*)$")
STAMPED = re.compile(
    r"^(\w{3} \d{4}-\d\d-\d\d [\d:]{8}(?:\.\d+)? \S+"
    r"|\d{4}-\d\d-\d\d[T ][\d:]{8}(?:[.,]\d+)?(?: ?Z| ?[+-]\d\d:?\d\d)?"
    r"|\w{3} +\d{1,2} [\d:]{8}(?:\.\d+)?|\d{9,10}\.\d{6}) (.*)$"
)
UNIX = re.compile(r"\d+\.\d+")
# what was written around a line: by the engine of a container, by pdsh or clush
OF_CONTAINER = re.compile(r'^\{"log":|^\S{19,35} (?:std(?:out|err) [FP] |\[ *\d+\.\d+\])')
OF_NODE = re.compile(
    r"^([\w.-]{1,255}): (?=\[ *\d+\.\d+\]|\[\w{3} \w{3} |\w{3} [ \d]\d \d\d:|\d{4}-\d\d-\d\d[T ])"
)
OF_KERNEL = re.compile(
    r"^(\S+) kernel(?:\[\d+\])?(?:: | \S+ \S+ (?:-|\[.*?\]) )(?:\[ *\d+\.\d+\] ?)?(.*)$"
)
OF_PROGRAM = re.compile(r"^\S+ \S+?(?:\[\d+\])?: ")
FIELD = re.compile(r"^\s*(\w+)=(.*)$")
FIRST_FIELDS = ("__CURSOR=", "__REALTIME_TIMESTAMP=")  # of a record of `journalctl -o export`
VERBOSE = re.compile(r"^(\w{3} \d{4}-\d\d-\d\d [\d:]{8}\.\d+ \S+) \[s=")
MOST_LINES = 200  # of one record


@dataclass(frozen=True, kw_only=True)
class KernelLine:
    message: str
    at: float | None = None
    since_s: float | None = None  # the start of the node
    host: str = ""
    is_marked: bool = True  # it has the mark of a kernel log


def kernel_lines(lines: Iterable[str], about: float, zone: tzinfo = UTC) -> Iterator[KernelLine]:
    """Yield the messages of the kernel in the lines of a file. What dmesg printed in a container
    may be older than its engine's stamp, so that dates only lines without a time of their own."""
    stamp, node = "", ""

    def unwrap() -> Iterator[str]:
        nonlocal stamp, node
        for line in lines:
            stamp, text = split_stamp(line) if OF_CONTAINER.match(line) else ("", line)
            match = OF_NODE.match(text)
            node = match[1] if match else ""
            yield text[match.end() :] if match else text

    for record in _records(unwrap()):
        parsed = (
            _parse(record, about, zone)
            if isinstance(record, str)
            else _messages(record, about, zone)
        )
        for line in parsed:
            if stamp and line.at is None and line.since_s is None:
                line = replace(line, at=time_of(stamp, about, zone))
            yield replace(line, host=node) if node and not line.host else line


def _parse(line: str, about: float, zone: tzinfo) -> Iterator[KernelLine]:
    """Yield what one line holds: no message, one, or several."""
    head = PRIORITY.match(line)
    text = line[head.end() :] if head else line
    if match := KMSG.match(text):
        for message in re.split(r"\\x0a|\\n", match[2]):
            yield KernelLine(message=message, since_s=int(match[1]) / 1e6)
    elif match := SINCE_START.match(text):
        yield KernelLine(message=match[3], since_s=float(match[1]), host=match[2] or "")
    elif match := DELTA.match(text):
        yield KernelLine(message=match[1])
    elif match := WITH_DATE.match(text):
        yield KernelLine(message=match[2], at=time_of(match[1], about, zone))
    elif match := STAMPED.match(text):
        at = float(match[1]) if UNIX.fullmatch(match[1]) else time_of(match[1], about, zone)
        is_dmesg = "," in match[1]  # dmesg alone writes its fractions so, and names no host
        is_version_1 = bool(head and head[1])
        yield from _kernel_messages(match[2], at, is_dmesg=is_dmesg, is_version_1=is_version_1)
    else:  # a line that follows the first of its record, or `dmesg --notime`
        yield KernelLine(message=line.strip(), is_marked="NVRM:" in line)


def _kernel_messages(
    text: str, at: float | None, *, is_dmesg: bool, is_version_1: bool
) -> Iterator[KernelLine]:
    if not is_dmesg and (match := OF_KERNEL.match(text)):
        yield KernelLine(message=match[2], at=at, host=match[1])
    elif is_dmesg or not (is_version_1 or OF_PROGRAM.match(text)):
        yield KernelLine(message=text, at=at)


# --- records of several lines --------------------------------------------------------------------

KernelRecord = Mapping[str, Any]  # of journald, or of `dmesg --json`


@dataclass
class _Record:
    """A record that is being read: lines of JSON, or fields."""

    lines: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)

    def end(self) -> Iterator[KernelRecord]:
        fields, self.fields = self.fields, {}
        if fields:
            yield fields


def _records(lines: Iterable[str]) -> Iterator[str | KernelRecord]:
    """Yield single lines, and records that are written as JSON or as lines of fields."""
    record = _Record()
    for line in lines:
        text = line.lstrip("\x1e").removeprefix("data: ")  # `-o json-seq`, `-o json-sse`
        bare = text.strip()
        if bare == "{":
            record.lines = [bare]
        elif record.lines:
            record.lines.append(bare)
            if bare in ("}", "},"):
                yield from _json("".join(record.lines).rstrip(","))
            if bare in ("}", "},") or len(record.lines) > MOST_LINES:
                record.lines = []
        elif text.startswith("{"):
            yield from _json(text)
        elif text.startswith(FIRST_FIELDS) or (record.fields and FIELD.match(text)):
            yield from _field(record, text)
        elif match := VERBOSE.match(text):
            yield from record.end()
            record.fields = {"at": match[1]}
        else:
            yield from record.end()
            if bare.strip("[]{}, "):
                yield text
    yield from record.end()


def _field(record: _Record, text: str) -> Iterator[KernelRecord]:
    name, _, value = text.strip().partition("=")
    if name in record.fields:
        yield from record.end()
    record.fields[name] = value


def _json(text: str) -> Iterator[KernelRecord]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(record, dict):
        yield record


def _messages(record: KernelRecord, about: float, zone: tzinfo) -> Iterator[KernelLine]:
    """Yield the messages of a record. A message with odd bytes is a list of numbers there."""
    message = record.get("MESSAGE", record.get("msg", ""))
    try:
        if isinstance(message, list):
            message = bytes(message).decode(errors="replace")
        stamp = record.get("__REALTIME_TIMESTAMP")
        at = time_of(str(record.get("at", "")), about, zone) if stamp is None else int(stamp) / 1e6
        since_s = float(record["time"]) if "msg" in record else None
    except (ValueError, TypeError, KeyError, OverflowError):
        return
    if record.get("_TRANSPORT", "kernel") == "kernel" and isinstance(message, str):
        for text in message.splitlines():
            host = str(record.get("_HOSTNAME", ""))
            yield KernelLine(message=text, at=at, since_s=since_s, host=host)


# --- when a line was written that gives only the time since the start ---------------------

NEW_START_S = 1.0  # processors write their lines in another order by less
KNOWN_TIME = re.compile(r"\baudit\((\d{9,10}\.\d+):|setting system clock to \S+ \S+ \((\d{9,10})\)")


@dataclass
class _Start:
    """One start of a node, by the lines that were written since."""

    last_s: float = 0.0
    at: float | None = None  # when it was, if a line says so


@dataclass
class StartClock:
    """Dates lines that give only the time since the start of their node: by a line that has both
    times, else by the file, which is not older than its last line."""

    written_at: float
    _starts: list[_Start] = field(default_factory=lambda: [_Start()])

    def observe(self, line: KernelLine) -> int:
        """Take in the next line. Return the number of its start."""
        if line.since_s is not None:
            if line.since_s < self._starts[-1].last_s - NEW_START_S:
                self._starts.append(_Start())
            start = self._starts[-1]
            start.last_s = max(start.last_s, line.since_s)
            if match := KNOWN_TIME.search(line.message):
                start.at = float(match[1] or match[2]) - line.since_s
        return len(self._starts) - 1

    def date(self, line: KernelLine, number: int) -> tuple[float | None, float | None]:
        """Return when a line was written, and when at the latest if that is unknown."""
        if line.at is not None or line.since_s is None:
            return line.at, None
        start = self._starts[number]
        if start.at is not None:
            return start.at + line.since_s, None
        return None, self.written_at - (start.last_s - line.since_s)


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
            if not line.is_marked and recognise(line.message, classes)[0] is None:
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
    kept, clocks = _Kept(), defaultdict[str, StartClock](lambda: StartClock(written))
    gpu = ""
    for line in lines:
        start = clocks[line.host].observe(line)
        if match := NAMED_GPU.search(line.message):
            gpu = match[1].lower()
        recognised, device = recognise(line.message, classes)
        if recognised is None:
            continue
        if not device and recognised.kind.code == "gpu-fallen-off":
            device = gpu
        kept.add(_Seen(line=line, start=start, recognised=recognised, device=device))
    return tuple(_event(seen, clocks[seen.line.host]) for seen in kept.events)


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


def recognise(message: str, classes: ErrorClasses) -> tuple[Recognised | None, str]:
    """Return the class of a message, and the device that it names."""
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
