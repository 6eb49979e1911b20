"""What other programs may have cost each sample: a program shows its host only while it has its
processors.

Threads that wait for a processor are counted by the kernel (schedstat). Of that time, what a quota
kept from them is the host's own, and no more than what other programs ran is due to others
(/proc/stat, less this program's own processes). A hypervisor's steal is other guests' time. Others
on other processors take memory bandwidth, but none by running on those that a quota kept from this
program. Interrupts, a low clock and processors that are missing
count as nothing here, and so does whatever cannot be read. Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Self

import contract

from kit.sysfs import text

LEAST = 0.01  # a smaller share is lost on an idle machine too, as threads wake up
HUM = 0.02  # share of all processors that daemons take on every node
BESIDE = 2.0  # a core alone can draw about twice its share of a socket's memory bandwidth
TICKS = os.sysconf("SC_CLK_TCK")
THREAD_BYTES = 128  # of a thread's schedstat: three numbers
QUOTAS = {"": "", "cpu": "cpu", "cpu,cpuacct": "cpu,cpuacct"}  # folders, by controllers of a group
THROTTLED = re.compile(r"^throttled_(usec|time) (\d+)$", re.M)
UNITS = {"usec": 1e6, "time": 1e9}  # of cgroups of version 2 and 1


class Seconds(list[float]):
    """The durations of samples; `taken` has the share of each that others may have cost it."""

    def __init__(self, seconds: Iterable[float], taken: Iterable[float] = ()) -> None:
        super().__init__(seconds)
        self.taken = list(taken)

    def drop_first(self, samples: int) -> Seconds:
        return Seconds(self[samples:], self.taken[samples:])

    def divide(self, calls: int) -> Seconds:
        """Return the duration of each call, if each sample has so many."""
        return Seconds((duration / calls for duration in self), self.taken)


@dataclass(frozen=True)
class Account:
    """What the processors of the machine did until now."""

    at: float
    busy_s: float  # for programs, those of this one included
    stolen_s: float  # by other guests of the hypervisor
    own_s: float  # for all processes of this program
    throttled_s: float  # for which a quota kept this program's group from running
    processors: int


def shares_taken(
    seconds: Sequence[float],
    waits_s: Sequence[float],
    before: Account,
    after: Account,
    *,
    needs_host_memory: bool = True,
) -> list[float]:
    """Return the share of each sample that others may have cost it, at most.

    `waits_s`: how long threads of the program waited for a processor, together, in each sample. One
    thread that waits may stop all others.
    """
    elapsed_s = after.at - before.at
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    others_s = max(0.0, others_s) + max(0.0, after.stolen_s - before.stolen_s)
    waited_s = sum(waits_s)
    throttled_s = after.throttled_s - before.throttled_s
    due_s = min(others_s, waited_s - throttled_s)
    due = max(0.0, due_s) / waited_s if waited_s > 0 else 0.0
    beside = 0.0
    if needs_host_memory and elapsed_s > 0:
        every_s = elapsed_s * after.processors
        own_s = after.own_s - before.own_s
        beside_s = min(others_s, every_s - own_s - throttled_s)
        beside = BESIDE * max(0.0, beside_s / every_s - HUM)
    shares = (
        min(1.0, beside + due * max(0.0, wait) / spent) if spent > 0 else 0.0
        for spent, wait in zip(seconds, waits_s, strict=True)
    )
    return [round(share, 3) if share >= LEAST else 0.0 for share in shares]


# --- what the kernel counts ------------------------------------------------------------------


def read_account(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Account:
    ticks = [int(word) for word in text(proc / "stat").partition("\n")[0].split()[1:9]]
    user, nice, system, *_, stolen = ticks if len(ticks) == 8 else [0] * 8
    return Account(
        at=perf_counter(),
        busy_s=(user + nice + system) / TICKS,
        stolen_s=stolen / TICKS,
        own_s=own_seconds(proc, program()),
        throttled_s=throttled_seconds(proc, groups),
        processors=os.cpu_count() or 1,
    )


def program() -> int:
    """Return the process from which all of this program descend: ranks, and GPUs measured at once,
    are children of one."""
    is_child = contract.ONE_GPU in os.environ or "RANK" in os.environ
    return os.getppid() if is_child else os.getpid()


def own_seconds(proc: Path, program: int) -> float:
    """Return what the processes below one have run, with those that have ended."""
    parents, spent = {}, {}
    for pid, parent, ticks in processes(proc):
        parents[pid], spent[pid] = parent, ticks
    own, new = {program}, {program}
    while new:
        new = {pid for pid, parent in parents.items() if parent in own} - own
        own |= new
    return sum(spent.get(pid, 0) for pid in own) / TICKS


def processes(proc: Path) -> Iterator[tuple[int, int, int]]:
    """Yield each process, its parent, and what it and its ended children ran, in ticks."""
    for folder in proc.glob("[0-9]*"):
        # its command is in brackets, and may have spaces and brackets itself
        words = text(folder / "stat").rpartition(")")[2].split()
        if len(words) > 14:
            yield int(folder.name), int(words[1]), sum(map(int, words[11:15]))


def throttled_seconds(proc: Path, groups: Path) -> float:
    """Return for how long quotas of this process' group, or of one around it, kept it waiting."""
    longest = 0.0
    for line in text(proc / "self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers in QUOTAS:
            top = groups / QUOTAS[controllers]
            own = top / group.lstrip("/")
            folders = [folder for folder in (own, *own.parents) if folder.is_relative_to(top)]
            for folder in folders:
                if match := THROTTLED.search(text(folder / "cpu.stat")):
                    longest = max(longest, int(match[2]) / UNITS[match[1]])
    return longest


class Threads:
    """The waits of threads of this process: of all, or of the one that asks."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._files: list[int] = []
        self._waited: dict[int, int] = {}  # nanoseconds, by file; a thread that ended keeps its own
        for folder in folders:
            with suppress(OSError):
                self._files.append(os.open(folder / "schedstat", os.O_RDONLY))

    @classmethod
    def all(cls) -> Self:
        return cls(Path("/proc/self/task").glob("*"))

    @classmethod
    def this_one(cls) -> Self:
        return cls([Path("/proc/thread-self")])

    def waited_s(self) -> float:
        for file in self._files:
            with suppress(OSError, ValueError, IndexError):
                self._waited[file] = int(os.pread(file, THREAD_BYTES, 0).split()[1])
        return sum(self._waited.values()) / 1e9

    def close(self) -> None:
        for file in self._files:
            os.close(file)


@dataclass
class Possession:
    """Stamps between the samples of a series: what was waited for in each of them."""

    threads: Threads
    ended: list[float] = field(default_factory=list)  # the moment of each stamp, ...
    begun: list[float] = field(default_factory=list)  # ... and when the next sample began
    waited_s: list[float] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.before = read_account()
        return self

    def __exit__(self, *_: object) -> None:
        self.after = read_account()
        self.threads.close()

    def stamp(self) -> None:
        """End a sample, and begin the next one."""
        self.ended.append(perf_counter())
        self.waited_s.append(self.threads.waited_s())
        self.begun.append(perf_counter())

    @property
    def between_s(self) -> list[float]:
        """The time between stamps, without that of stamping."""
        return [end - start for start, end in zip(self.begun, self.ended[1:], strict=False)]

    @property
    def waits_s(self) -> list[float]:
        return [after - before for before, after in pairwise(self.waited_s)]

    def seconds_on_host(self) -> Seconds:
        """Return the durations of what ran between stamps."""
        spent = self.between_s
        return Seconds(spent, shares_taken(spent, self.waits_s, self.before, self.after))

    def seconds_on_gpu(self, spent: Sequence[float]) -> Seconds:
        """Return these durations on a GPU of work that this thread gave it between stamps.

        The GPU can have waited for the thread only if it reached a sample before it was given all
        of it.
        """
        reached, waits = self.ended[0], []
        for duration, wait, full in zip(spent, self.waits_s, self.ended[1:], strict=True):
            waits.append(min(wait, max(0.0, full - reached)))
            reached += duration
        taken = shares_taken(spent, waits, self.before, self.after, needs_host_memory=False)
        return Seconds(spent, taken)
