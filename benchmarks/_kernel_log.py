"""What the kernel has logged of broken hardware: XIDs and SXIDs of NVIDIA's driver, machine checks.

Records are those of /dev/kmsg: `6,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has ...` with
the microseconds since the node was started. What the numbers mean stands with their limits.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from _findings import Findings
from _rdma import text

RECORD = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)$", re.M)
XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:]+)[^)]*\): (\d+)")
SXID = re.compile(r"SXid \(PCI:[0-9a-fA-F:.]+\): \d+, (Non-fatal|Fatal)")
BANK = re.compile(r"Machine Check(?: Exception)?: \w+ Bank \d+: ([0-9a-f]{16})")  # the status
DECODED = re.compile(r"\[Hardware Error\]: (Corrected|Uncorrected|Deferred)\b")  # AMD's driver
UNCORRECTED = 1 << 61  # of a machine check's status (Intel SDM 3B, IA32_MCi_STATUS)
MOST_SHOWN = 8


@dataclass(frozen=True)
class Record:
    age_s: float
    message: str


def records(root: Path) -> list[Record]:
    """All that the kernel still has; PermissionError and its like when it does not let us see."""
    log = root / "dev/kmsg"
    up_s = float(text(root / "proc/uptime").split()[0])
    handle = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        whole = b"".join(_chunks(handle)).decode(errors="replace")
    finally:
        os.close(handle)
    return [Record(up_s - int(us) / 1e6, message) for us, message in RECORD.findall(whole)]


def _chunks(handle: int) -> Iterator[bytes]:
    """One record at a time, as the device gives them."""
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


def read(found: Findings, root: Path, hours: float, gpus: dict[str, str]) -> None:
    """`gpus` are the devices' PCI addresses. What is older than `hours` is told, not counted."""
    try:
        log = records(root)
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or error
        found.miss("kernel log", f"{root / 'dev/kmsg'}: {reason}")
        return
    recent = [record.message for record in log if record.age_s <= hours * 3600]
    xids(found, recent, {address: device for device, address in gpus.items()})
    switches(found, recent)
    machine_checks(found, recent)
    shown = [
        f"{record.age_s / 3600:.1f} h ago: {record.message}"
        for record in log
        if XID.search(record.message) or SXID.search(record.message)
    ]
    found.facts["xid_log"] = shown[-MOST_SHOWN:]


def xids(found: Findings, messages: list[str], devices: dict[str, str]) -> None:
    """All of the node, and of each number and GPU; a GPU that is gone is called by its address."""
    counts: Counter[tuple[str, str]] = Counter()
    for match in filter(None, map(XID.search, messages)):
        address = match[1].lower()
        device = next((name for at, name in devices.items() if at.startswith(address)), None)
        counts[match[2], device or f"pci:{address}"] += 1
    found.add("xids", "node", counts.total())
    for (number, device), count in counts.items():
        found.add(f"xids:{number}", device, count)


def switches(found: Findings, messages: list[str]) -> None:
    counts = Counter(match[1] for match in filter(None, map(SXID.search, messages)))
    for word in ("Fatal", "Non-fatal") if counts else ():
        found.add(f"sxids:{word.lower().replace('-', '_')}", "node", counts[word])


def machine_checks(found: Findings, messages: list[str]) -> None:
    counts = {"corrected": 0, "uncorrected": 0}
    for message in messages:
        if bank := BANK.search(message):
            counts["uncorrected" if int(bank[1], 16) & UNCORRECTED else "corrected"] += 1
        elif decoded := DECODED.search(message):
            counts["uncorrected" if decoded[1] == "Uncorrected" else "corrected"] += 1
    for kind, count in counts.items():
        found.add(f"machine_checks:{kind}", "node", count)
