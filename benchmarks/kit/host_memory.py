"""The host memory that a program may still take, and what it took.

Free is what the kernel calls available, or less: what is left of the program's own group (cgroup)
and of each around it, as of a container or a job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from kit.gpus.cards import expected_count, machine_root
from kit.sysfs import number, text

PROCESS_BYTES = 2 << 30  # Python, torch and what CUDA keeps on the host, less what programs share
WITHOUT_CUDA_BYTES = 1 << 29  # a rank that trains BERT's reduced shape took 0.34 GiB
LIMITS = {  # by cgroup version: the folder below which groups lie, a limit, what counts towards it
    "": ("", "memory.max", "memory.current"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
}
CACHES = re.compile(r"^(?:total_)?inactive_file (\d+)$", re.M)  # given back when it is asked for


def shortage(processes: int, process_bytes: int = PROCESS_BYTES, way_out: str = "free some") -> str:
    """Return the reason why so many processes of this size do not fit at once; "" if they do."""
    free, needed = free_bytes(), processes * process_bytes
    if free is None or free >= needed:
        return ""
    return (
        f"{processes} processes at once take up to {needed / 1e9:.3g} GB of host memory, and "
        f"{free / 1e9:.3g} GB are free here: {way_out}"
    )


def shortage_of_ranks() -> str:
    """Return the shortage of all ranks on this node together. The first of them asks, before they
    load torch."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return ""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return shortage(ranks, PROCESS_BYTES if expected_count() else WITHOUT_CUDA_BYTES)


def free_bytes(root: Path | None = None) -> int | None:
    """Return free memory; None if the kernel does not say."""
    root = root or machine_root()
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", text(root / "proc/meminfo"), re.M)
    free = [int(available[1]) * 1024] if available else []
    return min([*free, *left_in_groups(root)], default=None)


def left_in_groups(root: Path) -> Iterator[int]:
    for line in text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers not in LIMITS:
            continue
        mount, limit, used = LIMITS[controllers]
        top = root / "sys/fs/cgroup" / mount
        own = top / group.lstrip("/")
        for folder in (own, *own.parents):
            if not folder.is_relative_to(top):
                break
            allowed, taken = number(folder / limit), number(folder / used)
            if allowed is not None and taken is not None:
                caches = CACHES.search(text(folder / "memory.stat"))
                yield allowed - taken + (int(caches[1]) if caches else 0)


def peak_bytes() -> int | None:
    """Return the most memory that this process ever had, files that others share included."""
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", text(Path("/proc/self/status")), re.M)
    return int(peak[1]) * 1024 if peak else None
