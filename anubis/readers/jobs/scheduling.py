"""The time that processes of this machine waited for a processor, as the kernel's scheduler counts
it for each thread. It grows if others take the processor, or if a limit is used up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

WINDOW = 20  # samples
SHORTEST_S = 8.0
MOST_THREADS = 4096


@dataclass
class ProcessorWatch:
    """Samples of processes by their ranks, and the share of the last samples in which they
    waited."""

    _seen: dict[int, deque[tuple[float, float]]] = field(default_factory=dict)  # when, seconds

    def sample(self, pids: Mapping[int, int]) -> None:
        for rank, pid in pids.items():
            if (waited_s := _waited_s(pid)) is not None:
                samples = self._seen.setdefault(rank, deque(maxlen=WINDOW))
                samples.append((time.monotonic(), waited_s))

    def share(self, rank: int) -> float | None:
        """Return the share of time that a rank waited; None if it was not sampled for long enough.
        All threads are counted: it may be above 1."""
        samples = self._seen.get(rank)
        if not samples:
            return None
        (began, before_s), (ended, after_s) = samples[0], samples[-1]
        if ended - began < SHORTEST_S:
            return None
        return max(0.0, after_s - before_s) / (ended - began)


def _waited_s(pid: int) -> float | None:
    """Return how long a process has waited; None if it is gone, may not be read, or the kernel does
    not count."""
    waited_ns = 0
    try:
        for thread in list(Path("/proc", str(pid), "task").iterdir())[:MOST_THREADS]:
            _, waited, _ = (thread / "schedstat").read_text().split()
            waited_ns += int(waited)
    except (OSError, ValueError):
        return None
    return waited_ns / 1e9
