"""Lines of the kernel's log as they are written, for the service that knows what they mean.

Records are those of /dev/kmsg: `6,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has ...` with
the priority, a sequence number and the microseconds since the node was started. Only the kernel's
own records count: whoever may write to /dev/kmsg leaves another facility there. Most lines are left
out by a cheap search, and one that is repeated is passed on ever more rarely, so that a storm of
lines costs the node and the service little. Nothing here judges.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from telemetry.sources import Line

DEVICE = Path("dev/kmsg")
BOOT_ID = Path("sys/kernel/random/boot_id")
EVERY_S = 0.25  # between two looks at a quiet log
BACK_S = 3600.0  # an agent that begins passes on lines of the last hour
TRIED_AGAIN_AFTER_S = 30.0  # a log that cannot be read
AT_ONCE = 1 << 16  # bytes; /dev/kmsg gives one record
LONGEST = 600  # letters of a line
LONGEST_RECORD = 1 << 14  # bytes: what is longer is no record
WARNING = 4  # levels from here down to 0 are warnings and worse
RECORD = re.compile(rb"(\d{1,6}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)")
# of lines that drivers write without calling them warnings
WORDS = re.compile(rb"NVRM|nvidia|Link|link|LINK|Hardware Error|oom-kill|ut of memory|AER: |lost")
XID = re.compile(rb"NVRM: Xid \([^)]*\): \d+")
NUMBERS = re.compile(rb"0x[0-9a-f]+|\d+")
ESCAPED_END = b"\\x0a"  # of a line, within a record
FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0  # between two lines of a kind; it doubles
MOST_KINDS = 1000  # drivers have some hundreds


@dataclass(frozen=True)
class LogLine:
    id: str  # unique since the node was started
    at: float
    up_s: float  # since the start of the node
    text: str


@dataclass
class _Pause:
    until: float
    length_s: float = FIRST_PAUSE_S


class Pacing:
    """Lets the first line of each kind through, and later ones ever more rarely."""

    def __init__(self) -> None:
        self._pauses: dict[bytes, _Pause] = {}

    def lets_through(self, text: bytes, now: float) -> bool:
        kind = kind_of(text)
        pause = self._pauses.get(kind)
        if pause is None:
            return self._begin(kind, now)
        if now < pause.until:
            return False
        is_new = now >= pause.until + LONGEST_PAUSE_S
        pause.length_s = FIRST_PAUSE_S if is_new else min(2 * pause.length_s, LONGEST_PAUSE_S)
        pause.until = now + pause.length_s
        return True

    def _begin(self, kind: bytes, now: float) -> bool:
        if len(self._pauses) >= MOST_KINDS:
            self._pauses = {name: p for name, p in self._pauses.items() if now < p.until}
        if len(self._pauses) >= MOST_KINDS and not XID.match(kind):
            return False
        self._pauses[kind] = _Pause(now + FIRST_PAUSE_S)
        return True


def kind_of(text: bytes) -> bytes:
    """Return what lines that repeat each other have in common: their words, or an XID's number."""
    if match := XID.match(text):
        return match[0]
    return NUMBERS.sub(b"", text[:200])


class KernelLines:
    """Follows the kernel's log, and passes on lines that may mean something."""

    def __init__(
        self,
        log: Path,
        tell: Callable[[LogLine], None],
        clock: Callable[[], float] = time.time,
        up: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._tell, self._clock, self._up = log, tell, clock, up
        self._pacing = Pacing()
        self._handle, self._rest = -1, b""
        self._seen = self._missed = 0
        self.reason = "not read yet"  # why the log cannot be read; empty: it is followed

    def run(self) -> None:
        while True:
            if not self.read():
                time.sleep(TRIED_AGAIN_AFTER_S if self.reason else EVERY_S)

    def read(self) -> bool:
        """Take what was written since; return whether there may be more."""
        try:
            if self._handle < 0:
                self._handle = os.open(self._log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._rest, self.reason = b"", ""
            chunk = os.read(self._handle, AT_ONCE)
        except BlockingIOError:
            return False
        except BrokenPipeError:  # records were overwritten before this came to them
            self._missed += 1
            return True
        except OSError as error:
            self._close()
            self.reason = f'"{self._log}": {error.strerror}'
            return False
        for line in self._whole_lines(chunk):
            self._take(line)
        return bool(chunk)

    def _whole_lines(self, chunk: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_RECORD:
            self._rest = b""
        yield from lines

    def _take(self, line: bytes) -> None:
        record = RECORD.fullmatch(line)
        if record is None or int(record[1]) >> 3:  # a field of a record, or not the kernel's own
            return
        self._seen += 1
        text = record[4].partition(ESCAPED_END)[0]
        if int(record[1]) > WARNING and not WORDS.search(text):
            return
        up_s = int(record[3]) / 1e6
        age_s = self._up() - up_s
        if age_s > BACK_S or not self._pacing.lets_through(text, self._up()):
            return
        shown = text.decode(errors="replace")[:LONGEST]
        at = self._clock() - max(0.0, age_s)
        self._tell(LogLine(f"kmsg-{int(record[2])}", round(at, 3), up_s, shown))

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

    def lines(self) -> Iterator[Line]:
        yield Line("anubis_agent_kernel_log", "", not self.reason)
        yield Line("anubis_agent_kernel_records_total", "", self._seen)
        yield Line("anubis_agent_kernel_gaps_total", "", self._missed)
