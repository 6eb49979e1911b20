"""Messages of the kernel in the forms in which programs save them: dmesg, journalctl, a syslog
daemon and /dev/kmsg.

Some forms have a date, some the time since the start of the node, some neither. Nothing here knows
what a message means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from anubis.readers.jobs.log_lines import time_of

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
    """Yield the messages of the kernel in the lines of a file."""
    for record in _records(lines):
        if isinstance(record, str):
            yield from _parse(record, about, zone)
        else:
            yield from _messages(record, about, zone)


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
