"""Scrapes of DLRover's xpu_timer on the ranks of a node, in the format of Prometheus (port 18889).

The format is that of intelligent-machine-learning/dlrover, xpu_timer (manager.cc and README of its
commits 1340e1ad and 0f2b5e7a; real scrapes are in DLRover's tests). `XPU_TIMER_COMMON_HANG` becomes
1 when a kernel of a rank, a matrix multiplication or a collective, has run for
XPU_TIMER_HANG_TIMEOUT (300 s by default), and stays 1. Ranks do not reach that at one moment.

Its latencies are averages in buckets by throughput (`level`): a slow rank and a fast one fill
different buckets, so they cannot be compared and are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from anubis.core.diagnose.evidence import Collector, JobEvidence, KernelTimer
from anubis.core.errors import EvidenceError
from anubis.core.text import escape_line
from anubis.readers.jobs.log_lines import log_files, read_lines
from anubis.readers.jobs.trace_reader import MOST_RANKS, Broken, TraceReader

MOST_LINES = 5_000_000  # of an answer; each rank has hundreds
HANG = "XPU_TIMER_COMMON_HANG"
RANK = re.compile(r'[{,] *rank="(\d{1,7})"')
VALUE = re.compile(r"\} +([01])(?:\.0+)?(?: +-?\d{1,18})?$")


def read_xpu_timer(path: Path) -> JobEvidence:
    """Read a scrape, or a folder of scrapes, one of each node."""
    timers: dict[int, bool] = {}
    broken = Broken()
    for of_file in broken.read(log_files(path), _read):
        for timer in of_file:
            timers[timer.rank] = timer.is_hung or timers.get(timer.rank, False)
    if not timers:
        raise broken.error(f'"{path}" has no timers')
    return JobEvidence(
        collectors=frozenset({Collector.TIMERS}),
        gaps=broken.gaps(Collector.TIMERS),
        timers=tuple(
            KernelTimer(rank=rank, is_hung=is_hung) for rank, is_hung in sorted(timers.items())
        ),
    )


def _read(file: Path) -> list[KernelTimer]:
    return parse_xpu_timer(read_lines(file), f'"{file}"')


def parse_xpu_timer(lines: Iterable[str], where: str) -> list[KernelTimer]:
    timers: list[KernelTimer] = []
    for number, line in enumerate(lines, start=1):
        if number > MOST_LINES:
            raise EvidenceError(f"{where}: more than {MOST_LINES:,} lines, the most that are read")
        if line.startswith(HANG):
            rank, value = RANK.search(line), VALUE.search(line.rstrip())
            if not (rank and value and int(rank[1]) < MOST_RANKS):
                shown = escape_line(line[:120])
                raise EvidenceError(f"{where}, line {number}: {shown}: expected a rank, and 0 or 1")
            timers.append(KernelTimer(rank=int(rank[1]), is_hung=value[1] == "1"))
    if not timers:
        raise EvidenceError(f"{where} has no {HANG}, expected what xpu_timer exposes")
    return timers


TRACE = TraceReader(
    place="xpu-timer",
    words="timers of kernels",
    help="What DLRover's xpu_timer exposes: a scrape, or one of each node.",
    brings=(Collector.TIMERS,),
    order=5,
    read=lambda path, _: read_xpu_timer(path),
)
