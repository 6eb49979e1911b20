"""Telemetry of a node's processors, memory and file systems, as its kernel shows them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kit.sysfs import unescape

from telemetry.sources import KernelFile, Line, Place, Sampled, labels, numbered_lines

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
TICKS = os.sysconf("SC_CLK_TCK")
LOOKED_FOR_EVERY = 10  # samples: mounts come and go seldom
DISKS = ("ext4", "xfs", "btrfs", "zfs")
NO_DISK = "no file system on a disk is mounted"


class Host:
    """Telemetry of CPU and memory."""

    def __init__(self, place: Place) -> None:
        self._stat = KernelFile(place.proc / "stat")
        self._meminfo = KernelFile(place.proc / "meminfo")
        self._ticks: tuple[int, int] | None = None  # idle, all

    def read(self, now: float) -> Sampled:
        sampled = Sampled()
        sampled.add("cpu_use", "node", self._cpu_use())
        memory = memory_bytes(self._meminfo.read(512))
        if "MemAvailable" in memory and memory.get("MemTotal"):
            used = 1 - memory["MemAvailable"] / memory["MemTotal"]
            sampled.add("memory_use", "node", 100 * used)
        else:
            sampled.absent["memory_use"] = f"{self._meminfo.path} does not say"
        if self._ticks is None:
            sampled.absent["cpu_use"] = f"{self._stat.path} does not say"
        sampled.lines = lambda: (*cpu_lines(self._stat.whole()), *memory_lines(memory))
        return sampled

    def _cpu_use(self) -> float | None:
        before, self._ticks = self._ticks, ticks_of(self._stat.read(512))
        if before is None or self._ticks is None:
            return None
        idle, spent = (now - then for now, then in zip(self._ticks, before, strict=True))
        return 100 * (1 - idle / spent) if 0 <= idle <= spent and spent else None


def ticks_of(stat: bytes) -> tuple[int, int] | None:
    """Return idle and all ticks of all processors; a guest's are among its host's."""
    words = stat.partition(b"\n")[0].split()
    if len(words) <= len(MODES) or words[0] != b"cpu":
        return None
    ticks = [int(word) for word in words[1 : len(MODES) + 1]]
    return ticks[MODES.index("idle")], sum(ticks)


def cpu_lines(stat: bytes) -> Iterator[Line]:
    for name, words in numbered_lines(stat):
        if name.startswith("cpu") and name != "cpu":
            for mode, word in zip(MODES, words, strict=False):
                where = labels(cpu=name.removeprefix("cpu"), mode=mode)
                yield Line("node_cpu_seconds_total", where, int(word) / TICKS)


def memory_bytes(meminfo: bytes) -> dict[str, int]:
    return {
        name: int(words[0]) * 1024
        for name, words in numbered_lines(meminfo)
        if name in ("MemTotal", "MemFree", "MemAvailable") and len(words) == 2
    }


def memory_lines(memory: dict[str, int]) -> Iterator[Line]:
    for name, size in memory.items():
        yield Line(f"node_memory_{name}_bytes", "", size)


class FileSystems:
    """Use of the disks of this machine; disks of other machines may never answer."""

    def __init__(self, place: Place) -> None:
        self._root, self._asked = place.root, 0
        self._mounts = KernelFile(place.root / "proc/self/mounts")  # a process has its own
        self._places: list[tuple[str, str, str]] = []

    def read(self, now: float) -> Sampled:
        if self._asked % LOOKED_FOR_EVERY == 0:
            self._places = local(self._mounts.whole().decode(errors="replace"))
        self._asked += 1
        sampled, spaces = Sampled(), list[tuple[str, os.statvfs_result]]()
        for device, place, kind in self._places:
            try:
                space = os.statvfs(self._root / place.lstrip("/"))
            except OSError:
                continue
            spaces.append((labels(device=device, fstype=kind, mountpoint=place), space))
        size = sum(space.f_blocks * space.f_frsize for _, space in spaces)
        if size:
            free = sum(space.f_bavail * space.f_frsize for _, space in spaces)
            sampled.add("disk_use", "node", 100 * (1 - free / size))
        else:
            sampled.absent["disk_use"] = NO_DISK
        sampled.lines = lambda: file_system_lines(spaces)
        return sampled


def local(mounts: str) -> list[tuple[str, str, str]]:
    """Return device, place and kind, each device once; in a container the root, whatever it is
    on."""
    places: dict[str, tuple[str, str, str]] = {}
    roots: list[tuple[str, str, str]] = []
    for line in mounts.splitlines():
        device, place, kind = map(unescape, line.split()[:3])
        if kind in DISKS:
            places.setdefault(device, (device, place, kind))
        elif place == "/":
            roots.append((device, place, kind))
    return list(places.values()) or roots[-1:]


def file_system_lines(spaces: list[tuple[str, os.statvfs_result]]) -> Iterator[Line]:
    for where, space in spaces:
        yield Line("node_filesystem_size_bytes", where, space.f_blocks * space.f_frsize)
        yield Line("node_filesystem_free_bytes", where, space.f_bfree * space.f_frsize)
        yield Line("node_filesystem_avail_bytes", where, space.f_bavail * space.f_frsize)
