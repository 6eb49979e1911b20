"""What the kernel counts of the processes of this machine: the time that they waited for a
processor, which grows if others take it or if a limit is used up; for how long their main threads
have rested; how often they went to sleep; how many bytes they read and wrote; and whether they
visibly work, unlike an empty loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

WINDOW = 20  # samples
SHORTEST_S = 8.0  # shares of a shorter time say little
MOST_THREADS = 4096  # of a process
MOST_CHILDREN = 64  # of a rank: workers that load data, and what they started
RESTING = 0.005  # share of the time that a resting program may run: it may look at a clock
WANTING = 0.2  # share of the time that it waits for a processor: one that rests is woken up seldom
MOVED = ("rchar:", "wchar:")
# how threads begin to be called that only send, receive, and answer questions
HELPERS = ("gloo", "pt_gloo", "pt_nccl", "pt_workerserver", "NCCL")
RESTING_SLEEPS = 1.0  # a second, that it may go to sleep again
FAULTS_RATE = 10.0  # a second: pages that a program touches anew as it works
CHILDREN_RUN = 0.2  # share of the time that the programs run or would, which it started


@dataclass(frozen=True)
class _Work:
    """What a process has done so far: its main thread, and the time of its children as well."""

    at: float
    ran_s: float
    waited_s: float  # for a processor
    sleeps: int
    moved_bytes: int  # read and written, of files and pipes; 0 if the kernel does not tell
    faults: int = 0  # of pages, by the main thread
    children_run_s: float = 0.0  # or wait for a processor

    def is_busy_since(self, before: _Work | None) -> bool:
        """Return whether a program touched new memory, or what it started ran: a loop without
        end that does nothing does neither."""
        if before is None:
            return False
        passed_s = self.at - before.at
        touches = self.faults - before.faults > FAULTS_RATE * passed_s
        return touches or self.children_run_s - before.children_run_s > CHILDREN_RUN * passed_s

    def is_active_since(self, before: _Work | None) -> bool:
        if before is None:
            return True
        passed_s = self.at - before.at
        ran_s = abs(self.ran_s - before.ran_s)  # a child that ended takes its time with it
        slept = self.sleeps - before.sleeps
        wants = self.waited_s - before.waited_s > WANTING * passed_s  # it would run if it could
        return wants or ran_s > RESTING * passed_s or slept > RESTING_SLEEPS * passed_s


@dataclass(frozen=True)
class _Scheduled:
    """Times for which threads of a process have waited for a processor, and had one, so far."""

    waited_s: float  # all of them
    work_waited_s: float  # those that are no HELPERS
    work_ran_s: float


_NEVER = _Scheduled(0.0, 0.0, 0.0)


@dataclass
class ProcessorWatch:
    """Samples of processes by their ranks, and what the last samples show."""

    _seen: dict[int, deque[tuple[float, _Scheduled]]] = field(default_factory=dict)  # when
    _first: dict[int, tuple[float, _Scheduled]] = field(default_factory=dict)
    _work: dict[int, _Work] = field(default_factory=dict)
    _active_at: dict[int, float] = field(default_factory=dict)
    _busy: dict[int, bool] = field(default_factory=dict)

    def sample(self, pids: Mapping[int, int]) -> None:
        for rank, pid in pids.items():
            if (scheduled := _scheduled(pid)) is not None:
                samples = self._seen.setdefault(rank, deque(maxlen=WINDOW))
                samples.append((time.monotonic(), scheduled))
                self._first.setdefault(rank, samples[-1])
            if (work := _work_of(pid)) is not None:
                if work.is_active_since(before := self._work.get(rank)):
                    self._active_at[rank] = work.at
                self._busy[rank] = work.is_busy_since(before)
                self._work[rank] = work

    def share(self, rank: int) -> float | None:
        """Return the share of time that a rank waited; None if it was not sampled for long enough.
        All threads are counted: it may be above 1."""
        return self._rise(rank, attrgetter("waited_s"))

    def work_waits(self, rank: int) -> float | None:
        """Return the same of the threads that work."""
        return self._rise(rank, attrgetter("work_waited_s"))

    def work_ran(self, rank: int) -> float | None:
        """Return the share of time that they ran."""
        return self._rise(rank, attrgetter("work_ran_s"))

    def waited_before(self, rank: int, since: float, waited_s: float) -> float | None:
        """Return the share of time that the threads that work waited from `since`, when they had
        waited for `waited_s`, until the first sample; None if that is too short."""
        began, first = self._first.get(rank, (since, _NEVER))
        if not since or began - since < SHORTEST_S:
            return None
        return max(0.0, first.work_waited_s - waited_s) / (began - since)

    def _rise(self, rank: int, seconds: Callable[[_Scheduled], float]) -> float | None:
        samples = self._seen.get(rank)
        if not samples:
            return None
        (began, before), (ended, after) = samples[0], samples[-1]
        if ended - began < SHORTEST_S:
            return None
        return max(0.0, seconds(after) - seconds(before)) / (ended - began)

    def rest_s(self, rank: int) -> float | None:
        """Return for how long the main thread of a rank and its children have hardly run; None if
        the kernel does not count."""
        work = self._work.get(rank)
        return None if work is None else work.at - self._active_at[rank]

    def sleeps(self, rank: int) -> int | None:
        """Return how often the main thread of a rank has gone to sleep by itself so far."""
        work = self._work.get(rank)
        return None if work is None else work.sleeps

    def is_busy(self, rank: int) -> bool | None:
        """Return whether a rank visibly worked between the last two samples."""
        return self._busy.get(rank)

    def moved_bytes(self, rank: int) -> int | None:
        """Return how many bytes a rank and its children have read and written so far."""
        work = self._work.get(rank)
        return None if work is None else work.moved_bytes


def _scheduled(pid: int) -> _Scheduled | None:
    """Return how long a process has waited and run; None if it is gone, may not be read, or the
    kernel does not count."""
    waited_ns = work_waited_ns = work_ran_ns = 0
    try:
        for thread in list(Path("/proc", str(pid), "task").iterdir())[:MOST_THREADS]:
            ran, waited, _ = map(int, (thread / "schedstat").read_text().split())
            waited_ns += waited
            if not (thread / "comm").read_text(errors="replace").startswith(HELPERS):
                work_waited_ns += waited
                work_ran_ns += ran
    except (OSError, ValueError):
        return None
    return _Scheduled(waited_ns / 1e9, work_waited_ns / 1e9, work_ran_ns / 1e9)


def _work_of(pid: int) -> _Work | None:
    """Return what a process has done; None if it is gone or may not be looked at."""
    try:
        ran_ns, waited_ns = _main_times(pid)
        status = Path("/proc", str(pid), "task", str(pid), "status").read_text(errors="replace")
        sleeps = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        own = Path("/proc", str(pid), "task", str(pid), "stat").read_text(errors="replace")
        faults = int(own.rpartition(")")[2].split()[7])
    except (OSError, ValueError, IndexError):
        return None
    moved_bytes, children_ran_ns, children_waited_ns = _moved_bytes(pid), 0, 0
    for child in _descendants(pid):
        with suppress(OSError, ValueError):  # it ended meanwhile
            of_child_ns = _main_times(child)
            children_ran_ns += of_child_ns[0]
            children_waited_ns += of_child_ns[1]
            moved_bytes += _moved_bytes(child)
    return _Work(
        at=time.monotonic(),
        ran_s=(ran_ns + children_ran_ns) / 1e9,
        waited_s=waited_ns / 1e9,
        sleeps=sleeps,
        moved_bytes=moved_bytes,
        faults=faults,
        children_run_s=(children_ran_ns + children_waited_ns) / 1e9,
    )


def _moved_bytes(pid: int) -> int:
    try:
        lines = Path("/proc", str(pid), "io").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(MOVED))
    except (OSError, ValueError, IndexError):
        return 0


def _main_times(pid: int) -> tuple[int, int]:
    """Return for how many nanoseconds the main thread of a process ran, and waited for a
    processor."""
    ran, waited, _ = Path("/proc", str(pid), "task", str(pid), "schedstat").read_text().split()
    return int(ran), int(waited)


def _descendants(pid: int) -> list[int]:
    """Return the processes that a process and its threads started, and those that these did."""
    family = [pid]
    for member in family:
        if len(family) > MOST_CHILDREN:
            break
        with suppress(OSError):  # it ended meanwhile
            for thread in list(Path("/proc", str(member), "task").iterdir())[:MOST_THREADS]:
                words = (thread / "children").read_text().split()
                family += [int(word) for word in words if word.isdecimal()]
    return family[1 : MOST_CHILDREN + 1]


def kernel_function(pid: int) -> str:
    """Return the function of the kernel in which the main thread of a process sleeps; empty if it
    runs, or may not be looked at."""
    try:
        name = Path("/proc", str(pid), "wchan").read_text(errors="replace").strip()
    except OSError:
        return ""
    return name if name.isidentifier() else ""
