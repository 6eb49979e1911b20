"""Kernel logs of a job's nodes, as events: the output of `dmesg`, `journalctl -k` or /dev/kmsg.

The table of classes says what a line means. If lines give only seconds since the start of the node,
or since the line before, or no time at all, it is not known when they were written. A line without
any mark of a kernel log counts only if a class recognises it; how many did not is told.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from pathlib import Path

from anubis.core.diagnose.classes import ErrorClasses, Recognised
from anubis.core.diagnose.evidence import Collector, JobEvidence, LogEvent, RankMap
from anubis.core.errors import EvidenceError
from anubis.core.text import escape_line
from anubis.readers.jobs.log_lines import log_files, node_of_file, read_lines, time_of, written_at
from anubis.readers.jobs.trace_reader import TraceReader

KMSG = re.compile(r"^\d+,\d+,\d+,[^;]*;(.*)$")
# seconds since the start of the node, or (`dmesg --show-delta`, `--reltime`) since the line before
SINCE_START = re.compile(
    r"^(?:\w+ *:\w+ *: )?\[(?: *\d+\.\d+(?: *< *\d+\.\d+>)?|< *\d+\.\d+>| *\+\d+\.\d+|"
    r"\w{3} ?\d{1,2} \d\d:\d\d)\](?:\[[^\]]*\])? ?(.*)$"
)
WITH_DATE = re.compile(
    r"^(?:\w+ *:\w+ *: )?\[\w{3} \w{3} +\d+ [\d:]+ \d{4}(?: *< *\d+\.\d+>)?\] ?(.*)$"
)
JOURNAL = re.compile(
    r"^(?:\d{4}-\d\d-\d\dT\S+|\w{3} +\d+ [\d:]+) (?:(\S+) (\S+?)(?:\[\d+\])?: )?"
    r"(?:\[ *\d+\.\d+\] ?)?(.*)$"
)
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F:]+)[^)]*\): (\d{1,6})(.*)")
NAMED_GPU = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})")
LONGEST_SHOWN = 240  # characters of a line
FIRST, LAST = 20, 80  # events of one kind and device that are kept of a node


@dataclass(frozen=True, kw_only=True)
class KernelLine:
    message: str
    at: float | None = None
    host: str = ""
    is_marked: bool = True  # it has the mark of a kernel log


def read_kernel(
    path: Path, ranks: RankMap, classes: ErrorClasses, zone: tzinfo = UTC
) -> JobEvidence:
    """Read a file, or a folder of files that are named after nodes, or are in folders that are."""
    nodes = tuple(dict.fromkeys(ranks.nodes.values()))
    events: list[LogEvent] = []
    seen: set[str] = set()
    files = log_files(path)
    lines, dropped = 0, 0
    for file in files:
        node = node_of_file(file, path, nodes)
        if not node and len(nodes) == len(files) == 1:
            node = nodes[0]
        reader = _Lines(about=written_at(file), zone=zone)
        events_of_file = parse_kernel(reader.read(read_lines(file), classes), classes)
        lines, dropped = lines + reader.count, dropped + reader.dropped
        for event in events_of_file:
            owner = node or ranks.node_named(event.node)
            if not owner and not nodes:
                owner = event.node or file.name.partition(".")[0]
            events.append(replace(event, node=owner))
        seen |= {node} if node else {ranks.node_named(host) for host in reader.hosts}
    if not lines:
        raise EvidenceError(f'"{path}" has no line of a kernel log')
    return JobEvidence(
        job="",
        at=0.0,
        collectors=frozenset({Collector.KERNEL_LOG}),
        gaps={Collector.KERNEL_LOG: _dropped(dropped, lines)} if dropped else {},
        log=tuple(events),
        unread=frozenset(nodes) - seen,
    )


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
        for line in lines:
            for entry in kernel_lines(line, self.about, self.zone):
                if not entry.is_marked and _recognise(entry.message, classes)[0] is None:
                    self.dropped += 1
                    continue
                self.count += 1
                if entry.host:
                    self.hosts.add(entry.host)
                yield entry


def kernel_lines(line: str, about: float, zone: tzinfo = UTC) -> Iterator[KernelLine]:
    """Yield the messages of the kernel in one line of a file: none, one, or several that one record
    holds."""
    if not line.strip():
        return
    if line.startswith("{"):
        yield from _parse_json(line)
        return
    if match := KMSG.match(line):
        for message in re.split(r"\\x0a|\\n", match[1]):
            yield KernelLine(message=message)
    elif match := SINCE_START.match(line):
        yield KernelLine(message=match[1])
    elif match := WITH_DATE.match(line):
        yield KernelLine(message=match[1], at=time_of(line, about, zone))
    elif match := JOURNAL.match(line):
        host, tag, message = match[1] or "", match[2] or "kernel", match[3]
        if tag == "kernel":
            yield KernelLine(message=message, at=time_of(line, about, zone), host=host)
    else:  # a line that follows the first of its record, or `dmesg --notime`
        yield KernelLine(message=line.strip(), is_marked="NVRM:" in line)


def _parse_json(line: str) -> Iterator[KernelLine]:
    """Parse a line of `journalctl -o json`. A message with odd bytes is a list of numbers there."""
    try:
        record = json.loads(line)
        message = record.get("MESSAGE", "")
        if isinstance(message, list):
            message = bytes(message).decode(errors="replace")
        at = int(record["__REALTIME_TIMESTAMP"]) / 1e6 if "__REALTIME_TIMESTAMP" in record else None
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        return
    if record.get("_TRANSPORT", "kernel") == "kernel" and isinstance(message, str):
        for text in message.splitlines():
            yield KernelLine(message=text, at=at, host=str(record.get("_HOSTNAME", "")))


def parse_kernel(lines: Iterable[KernelLine], classes: ErrorClasses) -> tuple[LogEvent, ...]:
    """Return the first and the last events of each kind and device."""
    kept = _Kept()
    gpu = ""
    for line in lines:
        if match := NAMED_GPU.search(line.message):
            gpu = match[1].lower()
        recognised, device = _recognise(line.message, classes)
        if recognised is None:
            continue
        if not device and recognised.kind.code == "gpu-fallen-off":
            device = gpu
        kept.add(
            LogEvent(
                collector=Collector.KERNEL_LOG,
                code=recognised.kind.code,
                gravity=recognised.gravity,
                text=escape_line(line.message)[:LONGEST_SHOWN],
                node=line.host,
                at=line.at,
                peer=recognised.parts.get("peer", ""),
                device=device,
                detail=recognised.kind.code,
            )
        )
    return kept.events


def _recognise(message: str, classes: ErrorClasses) -> tuple[Recognised | None, str]:
    if "Xid" in message and (match := XID.search(message)):
        return classes.match_xid(int(match[2]), match[3]), match[1].lower()
    recognised = classes.match_kernel(message)
    return recognised, recognised.parts.get("device", "").lower() if recognised else ""


class _Kept:
    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str], list[tuple[int, LogEvent]]] = {}
        self._last: dict[tuple[str, str, str], deque[tuple[int, LogEvent]]] = {}
        self._count = 0

    def add(self, event: LogEvent) -> None:
        self._count += 1
        key = event.node, event.code, event.device
        first = self._first.setdefault(key, [])
        if len(first) < FIRST:
            first.append((self._count, event))
        else:
            self._last.setdefault(key, deque(maxlen=LAST)).append((self._count, event))

    @property
    def events(self) -> tuple[LogEvent, ...]:
        kept = [entry for entries in self._first.values() for entry in entries]
        kept += [entry for entries in self._last.values() for entry in entries]
        return tuple(event for _, event in sorted(kept, key=lambda entry: entry[0]))


TRACE = TraceReader(
    place="kernel",
    words="kernel logs",
    help="Kernel logs of its nodes: a folder with a file for each, or one file.",
    brings=(Collector.KERNEL_LOG,),
    order=2,
    read=lambda path, context: read_kernel(path, context.ranks, context.classes, context.zone),
)
