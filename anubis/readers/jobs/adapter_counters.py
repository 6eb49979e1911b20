"""How far the error counters of this machine's RDMA adapters (HCAs) rose while a job was looked at.

The kernel shows the counters as files, those of InfiniBand and of RoCE. Others use the adapters
too, so a rise says nothing about the job alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from anubis.core.diagnose.adapters import COUNTERS
from anubis.core.diagnose.evidence import AdapterRise

PORTS = Path("/sys/class/infiniband")
FOLDERS = ("counters", "hw_counters")  # of a port
MOST_PORTS = 64  # of a machine
EVERY_S = 5.0  # some drivers ask the adapter for each number


@dataclass
class AdapterWatch:
    """Samples of all counters, at times that are handed in."""

    root: Path = field(default_factory=lambda: PORTS)
    _first: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    _last: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    _sampled_at: float | None = None

    def sample(self, now: float) -> None:
        if self._sampled_at is not None and now - self._sampled_at < EVERY_S:
            return
        self._sampled_at = now
        for device, counter, count in _counts(self.root):
            self._first.setdefault((device, counter), (now, count))
            self._last[device, counter] = now, count

    def rises(self) -> Iterator[AdapterRise]:
        for (device, counter), (ended, after) in self._last.items():
            began, before = self._first[device, counter]
            if after > before:  # fewer: the driver was loaded again
                rise, seen_s = after - before, ended - began
                yield AdapterRise(device=device, counter=counter, rise=rise, seen_s=seen_s)


def _counts(root: Path) -> Iterator[tuple[str, str, int]]:
    """Yield device, counter and count; of an adapter with several ports each is a device."""
    try:
        ports = sorted(root.glob("*/ports/*"))[:MOST_PORTS]
    except OSError:
        return
    port_counts = Counter(port.parents[1].name for port in ports)
    for port in ports:
        adapter = port.parents[1].name
        device = adapter if port_counts[adapter] == 1 else f"{adapter}/{port.name}"
        for name in COUNTERS:
            for folder in FOLDERS:
                count = _number(port / folder / name)
                if count is not None:
                    yield device, name, count


def _number(file: Path) -> int | None:
    """Return the number in a file of the kernel; None if there is none."""
    try:
        text = file.read_text().strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 21 else None
