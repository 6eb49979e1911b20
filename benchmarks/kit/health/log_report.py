"""The kernel log in the report of node_health: XIDs, errors of NVSwitches, machine checks."""

from __future__ import annotations

import time
from collections.abc import Container
from pathlib import Path

from kit.gpus.readings import Unread
from kit.health.findings import Findings
from kit.health.kernel_log import (
    Record,
    is_about_gpus,
    journal_records,
    machine_checks,
    records,
    sxids,
    xids,
)

MOST_SHOWN = 8  # lines, the newest ones


def report_log(
    findings: Findings,
    root: Path,
    hours: float,
    gpus: dict[str, str],
    answering: Container[str] = (),
) -> None:
    """Report the kernel log. `gpus` are the devices' PCI addresses, `answering` those of which
    the driver says itself what they need. What is older than `hours` is noted, not counted."""
    try:
        log = readable_records(findings, root)
    except Unread as error:
        findings.miss("kernel log", error)
        return
    recent = [record.message for record in log if record.age_s <= hours * 3600]
    report_xids(findings, recent, gpus, answering)
    severities = sxids(recent)
    for severity in ("fatal", "non_fatal") if severities else ():
        findings.add(f"sxids:{severity}", "node", severities[severity])
    for kind, count in machine_checks(recent).items():
        findings.add(f"machine_checks:{kind}", "node", count)
    shown = [record for record in log if is_about_gpus(record.message)]
    findings.facts["xid_log"] = [
        f"{record.age_s / 3600:.1f} h ago: {record.message}" for record in shown[-MOST_SHOWN:]
    ]


def readable_records(findings: Findings, root: Path) -> list[Record]:
    """Return the kernel's log by itself, or else by the journal."""
    try:
        return records(root)
    except (OSError, ValueError) as error:
        reason = f"{root / 'dev/kmsg'}: {getattr(error, 'strerror', None) or error}"
    try:
        log = journal_records(root, time.time())
    except Unread as error:
        raise Unread(f"{reason}; {error}") from None
    findings.facts["kernel_log"] = f"by the journal ({reason})"
    return log


def report_xids(
    findings: Findings, messages: list[str], gpus: dict[str, str], answering: Container[str]
) -> None:
    """Report XIDs of the node, and of each number and GPU; a GPU that is gone is called by its
    address. What the log says that a GPU needs (154) counts if its driver no longer says it."""
    counts = xids(messages)
    findings.add("xids", "node", counts.total())
    for (number, address), count in counts.items():
        devices = (name for name, place in gpus.items() if place.startswith(address))
        device = next(devices, f"pci:{address}")
        if number != "154" or device not in answering:
            findings.add(f"xids:{number}", device, count)
