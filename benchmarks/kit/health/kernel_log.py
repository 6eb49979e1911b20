"""Broken hardware in the kernel's log: XIDs, errors of NVSwitches, machine checks.

Records are those of /dev/kmsg: `6,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has ...` with
the microseconds since the node was started. The meaning of the numbers is beside their limits.
Nothing here reports or judges.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from contract import NotApplicable, Unmeasured

from kit.gpus.readings import Unread
from kit.sysfs import text
from kit.tools import find, run

PATIENCE_S = 10.0  # with journalctl
RECORD = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)$", re.M)
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F:]+)[^)]*\): (\d+)")
# of XID 154, which says what the driver wants to be done from now on: 0 is nothing
RECOVERY = re.compile(r"recovery action changed from .* to 0x([0-9a-fA-F]+)")
# of XIDs of NVLink 5, whose lines give their severity: NVIDIA's catalog says to ignore these
NVLINK_5, MILD = {str(number) for number in range(144, 151)}, re.compile(r"\bnon-?fatal\b", re.I)
SXID = re.compile(r"SXid \(PCI:[0-9a-fA-F:.]+\): \d+, (Non-fatal|Fatal)")
BANK = re.compile(r"Machine Check(?: Exception)?: \w+ Bank \d+: ([0-9a-f]{16})")  # the status
DECODED = re.compile(r"\[Hardware Error\]: (Corrected|Uncorrected|Deferred)\b")  # AMD's driver
# what the firmware found, as on Grace: two lines of an error, those of PCIe and others left out
BY_FIRMWARE = re.compile(
    r"\[Hardware Error\]:\s+(?:Error \d+, type: (\w+)|section_type: .*\b(?:memory|processor) error)"
)
BY_SEVERITY = {"corrected": "corrected", "recoverable": "uncorrected", "fatal": "uncorrected"}
UNCORRECTED = 1 << 61  # of a machine check's status (Intel SDM 3B, IA32_MCi_STATUS)


@dataclass(frozen=True)
class Record:
    age_s: float
    message: str


def records(root: Path) -> list[Record]:
    """Return all that the kernel still has. OSError or ValueError: it does not let us see."""
    log = root / "dev/kmsg"
    up_s = float(text(root / "proc/uptime").partition(" ")[0])
    handle = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        log_text = b"".join(_chunks(handle)).decode(errors="replace")
    finally:
        os.close(handle)
    return [Record(up_s - int(us) / 1e6, message) for us, message in RECORD.findall(log_text)]


def journal_records(root: Path, now: float) -> list[Record]:
    """Return what the journal has of the kernel since the node was started: for a log that this
    process may not read itself. Unread: there is no journal, or it shows nothing of the kernel,
    which a user without the right to it cannot tell from silence."""
    folder = root / "var/log/journal"
    place = ["--directory", str(folder)] if folder.is_dir() else []
    words = ["-k", "-b", "-o", "json", "--output-fields=MESSAGE", "--no-pager", *place]
    try:
        output = run([find("journalctl"), *words], PATIENCE_S)
    except (NotApplicable, Unmeasured) as error:
        raise Unread(str(error)) from None
    entries = [json.loads(line) for line in output.stdout.splitlines() if line.startswith("{")]
    if output.exit_code or not entries:
        raise Unread(f"the journal shows nothing of the kernel: {output.last_words()}")
    return [
        Record(now - int(entry["__REALTIME_TIMESTAMP"]) / 1e6, entry["MESSAGE"])
        for entry in entries
        if isinstance(entry.get("MESSAGE"), str)  # else it is no text
    ]


def _chunks(handle: int) -> Iterator[bytes]:
    """Yield one record at a time, as the device gives them."""
    while True:
        try:
            chunk = os.read(handle, 1 << 16)
        except BrokenPipeError:  # it was overwritten before we came to it
            continue
        except BlockingIOError:
            return
        if not chunk:
            return
        yield chunk


def xids(messages: Iterable[str]) -> Counter[tuple[str, str]]:
    """Count XIDs by number and PCI address; 154 only if what it asks for was not done since, and
    non-fatal ones of NVLink 5 under a name of their own."""
    matches = [match for match in map(XID.search, messages) if match]
    counts = Counter((kind_of(match), match[1].lower()) for match in matches)
    for match in matches:  # the last word on each GPU stands
        if match[2] == "154":
            action = RECOVERY.search(match.string)
            counts["154", match[1].lower()] = int(not (action and int(action[1], 16) == 0))
    return +counts


def kind_of(xid: re.Match[str]) -> str:
    is_mild = xid[2] in NVLINK_5 and MILD.search(xid.string)
    return f"{xid[2]}_nonfatal" if is_mild else xid[2]


def sxids(messages: Iterable[str]) -> Counter[str]:
    """Count errors of NVSwitches that were "fatal" and "non_fatal"."""
    matches = filter(None, map(SXID.search, messages))
    return Counter(match[1].lower().replace("-", "_") for match in matches)


def machine_checks(messages: Iterable[str]) -> dict[str, int]:
    counts = {"corrected": 0, "uncorrected": 0}
    severity = ""  # of the error that the firmware reports
    for message in messages:
        if bank := BANK.search(message):
            counts["uncorrected" if int(bank[1], 16) & UNCORRECTED else "corrected"] += 1
        elif decoded := DECODED.search(message):
            counts["uncorrected" if decoded[1] == "Uncorrected" else "corrected"] += 1
        elif line := BY_FIRMWARE.search(message):
            if line[1]:
                severity = line[1]
            elif kind := BY_SEVERITY.get(severity):
                counts[kind] += 1
    return counts


def is_about_gpus(message: str) -> bool:
    return bool(XID.search(message) or SXID.search(message))
