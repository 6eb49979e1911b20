"""The node around its GPUs: memory, processors, PCI Express, mounts, free space, the clock."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contract

from kit.background import begin
from kit.health.findings import Findings
from kit.sysfs import number, parse_list, text, unescape

PLACES = ("/", "/tmp", "/var", "/dev/shm")  # where a job that finds no room fails
# makers, and the classes under which their GPUs stand that compute
GPUS = {"0x10de": ("0x0300", "0x0302"), "0x1002": ("0x0380", "0x1200")}
AER = {"fatal": "FATAL", "nonfatal": "NONFATAL", "correctable": "COR"}
PATIENCE_S = 2.0  # a mount or a time service that takes longer hangs

MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4}


def report_host(findings: Findings, root: Path, mounts: list[str], gpus: dict[str, str]) -> None:
    memory(findings, root)
    processors(findings, root)
    edac(findings, root)
    pci_devices(findings, root, gpus)
    report_mounts(findings, root, mounts)
    clock(findings)


def memory(findings: Findings, root: Path) -> None:
    lines = text(root / "proc/meminfo").splitlines()
    facts = {
        name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)
    }
    if "MemTotal" in facts:
        findings.add("memory_gb", "node", facts["MemTotal"] * 1024 / 1e9)
    else:
        findings.miss("memory_gb", f"{root / 'proc/meminfo'} does not say")
    if "HugePages_Total" in facts:
        findings.facts["huge_pages"] = facts["HugePages_Total"]
    huge = re.search(r"\[(\w+)\]", text(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    if huge:
        findings.facts["transparent_huge_pages"] = huge[1]


def processors(findings: Findings, root: Path) -> None:
    folder = root / "sys/devices/system/cpu"
    online = parse_list(text(folder / "online"))
    if online:
        findings.add("cpus", "node", len(online))
    else:
        findings.miss("cpus", f"{folder / 'online'} does not say")
    governors = Counter(
        text(policy) for policy in folder.glob("cpu[0-9]*/cpufreq/scaling_governor")
    )
    if governors:
        slow = governors.total() - governors["performance"]
        findings.add("cpus_not_performance", "node", slow)
        findings.facts["governors"] = dict(governors)
    else:
        findings.miss("cpus_not_performance", "the kernel shows no frequency governor")


def edac(findings: Findings, root: Path) -> None:
    """Report memory errors that the memory controllers counted since the node was started."""
    controllers = sorted((root / "sys/devices/system/edac/mc").glob("mc[0-9]*"))
    for kind, name in (("correctable", "ce_count"), ("uncorrectable", "ue_count")):
        counts = [number(controller / name) for controller in controllers]
        readable = [count for count in counts if count is not None]
        if readable:
            findings.add(f"edac_errors:{kind}", "node", sum(readable))
        else:
            findings.miss("edac_errors", "no memory controller is watched (EDAC driver)")


# --- PCI Express ---------------------------------------------------------------------------


def pci_devices(findings: Findings, root: Path, gpus: dict[str, str]) -> None:
    """Report lost lanes and errors of adapters and drives, and errors of GPUs, whose lanes NVML
    gives."""
    cards = {device: root / "sys/bus/pci/devices" / place for device, place in gpus.items()}
    peripherals = {
        path.name: (path / "device").resolve()
        for kind in ("infiniband", "nvme")
        for path in sorted((root / "sys/class" / kind).glob("*"))
        if (path / "device/current_link_width").exists()
    }
    for device, place in peripherals.items():
        lanes(findings, device, place)
    for device, place in (cards | peripherals).items():
        for kind, word in AER.items():
            total = re.search(rf"^TOTAL_ERR_{word} (\d+)", text(place / f"aer_dev_{kind}"), re.M)
            if total:
                findings.add(f"pcie_errors:{kind}", device, int(total[1]))
            else:
                findings.miss("pcie_errors", "the kernel counts none (AER) for some devices")


def lanes(findings: Findings, device: str, place: Path) -> None:
    """Report lost lanes. A wide card in a narrower slot is as it should be, so the slot above
    counts too."""
    now = number(place / "current_link_width")
    widths = [number(place / "max_link_width"), number(place.parent / "max_link_width")]
    possible = [width for width in widths if width]
    if not now or not possible:
        findings.miss(f"pcie_width of {device}", "the kernel does not say")
        return
    findings.add("pcie_width", device, now)
    findings.add("pcie_lanes_missing", device, max(0, min(possible) - now))


def undriven_gpus(root: Path) -> int:
    """Count GPUs of NVIDIA and AMD on the bus that no driver has taken."""
    bus = root / "sys/bus/pci"
    if not (bus / "drivers").is_dir():
        return 0
    gpus = [
        device
        for device in (bus / "devices").glob("*")
        if text(device / "class").startswith(GPUS.get(text(device / "vendor"), ("none",)))
    ]
    return sum(not (gpu / "driver").exists() for gpu in gpus)


# --- mounts --------------------------------------------------------------------------------


def report_mounts(findings: Findings, root: Path, mounts: list[str]) -> None:
    table = text(root / "proc/self/mountinfo").splitlines()
    places = {unescape(line.split()[4]) for line in table}
    if not places and mounts:
        findings.miss("mount_missing", f"{root / 'proc/self/mountinfo'} cannot be read")
    for mount in mounts if places else ():
        findings.add("mount_missing", mount, mount not in places)
    seen = set()
    for place in dict.fromkeys((*PLACES, *(mount for mount in mounts if mount in places))):
        path = root / place.lstrip("/")
        answer = wait_for(lambda path=path: (path.stat().st_dev, os.statvfs(path)))
        if isinstance(answer, Exception):
            if not isinstance(answer, FileNotFoundError):
                findings.miss(f"free space of {place}", answer)
            continue
        device, space = answer
        if device not in seen or place in mounts:
            free_space(findings, place, space)
        seen.add(device)


def free_space(findings: Findings, place: str, space: os.statvfs_result) -> None:
    """Report the share that is free, of the space that any user may have."""
    usable = space.f_blocks - space.f_bfree + space.f_bavail
    if usable:
        findings.add("disk_free_share", place, space.f_bavail / usable)
    if space.f_files:  # some file systems have no fixed number of files
        findings.add("inodes_free_share", place, min(1.0, space.f_favail / space.f_files))


def wait_for(call: Callable[[], Any]) -> Any:
    """Return the answer or the error; a mount whose server is gone may never answer."""
    try:
        return begin(call).result(PATIENCE_S)
    except TimeoutError:
        return TimeoutError(f"no answer within {PATIENCE_S:g} s")
    except OSError as error:
        return error


# --- the clock -----------------------------------------------------------------------------


def clock(findings: Findings) -> None:
    """Report how far the clock is off, by the first time service that knows."""
    for tool, (question, offset_in) in CLOCKS.items():
        answer = answer_of(tool, *question)
        offset_ms = offset_in(answer) if answer else None
        if offset_ms is not None:
            findings.add("clock_offset_ms", "node", abs(offset_ms))
            findings.facts["clock_checked_by"] = tool
            return
    findings.miss("clock_offset_ms", f"no time service answers ({', '.join(CLOCKS)})")


def answer_of(tool: str, *arguments: str) -> str:
    path = shutil.which(tool)
    if path is None:
        return ""
    try:
        completed = subprocess.run(
            contract.bonded([path, *arguments]),
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed.stdout if completed.returncode == 0 else ""


def chrony_offset_ms(answer: str) -> float | None:
    """Parse the answer: the fifth word is the system clock's offset in seconds, the last one the
    leap state."""
    words = answer.strip().split(",")
    if len(words) < 14 or words[13] == "Not synchronised":
        return None
    return float(words[4]) * 1e3


def ntpq_offset_ms(answer: str) -> float | None:
    match = re.search(r"offset=([-+]?[\d.]+)", answer)
    return float(match[1]) if match else None


def timesyncd_offset_ms(answer: str) -> float | None:
    match = re.search(r"Offset: ([-+]?[\d.]+)(us|ms|s|min)\b", answer)
    return float(match[1]) * MS[match[2]] if match else None


# who may know how far the clock is off: the question, and how its answer is read
CLOCKS: dict[str, tuple[tuple[str, ...], Callable[[str], float | None]]] = {
    "chronyc": (("-c", "tracking"), chrony_offset_ms),
    "ntpq": (("-c", "rv 0 offset"), ntpq_offset_ms),
    "timedatectl": (("timesync-status",), timesyncd_offset_ms),
}
