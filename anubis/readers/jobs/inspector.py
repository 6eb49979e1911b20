"""Lines of NCCL Inspector: a line of JSON for each collective that ended, a file for each process.

The format is that of NVIDIA/nccl, ext-profiler/inspector, version v4.0 (its commit 1e0c869c; the
README there shows lines). `coll_sn` counts the calls of one function in one communicator. A line is
dated when it was written, at most one interval after its collective ended. Of several collectives
that end between two writings, only the last leaves a line, so only collectives that all ranks
recorded count.

It says nothing about a hang: a collective that never ended leaves no line. The rank that comes last
to collectives waits least in them, so it shows which rank is slow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

from anubis.core.diagnose.evidence import Collector, JobEvidence, Rise, StepTime, Transfer
from anubis.core.errors import EvidenceError
from anubis.core.text import escape_line
from anubis.readers.jobs.log_lines import read_lines
from anubis.readers.jobs.ranks import Membership, job_ranks
from anubis.readers.jobs.trace_reader import MOST_RANKS, Broken, TraceReader
from anubis.text.files import json_value

MOST_FILES = 20_000  # one for each rank
MOST_BYTES = 8 << 20  # of a file, from its end
MOST_LINES = 4_000  # of a file, from its end
FEWEST_LINES = 100  # of a file, however many there are
MOST_COLLECTIVES = 500_000  # of all files
LONGEST = 64 << 10  # letters of a line: a verbose one names every channel
PARTS = 6  # into which the time is divided, each counted as one step
FEWEST_IN_PART = 2  # collectives
FRESH_S, LONGEST_FRESH_S = 10.0, 60.0  # of a last line that shows progress
LINES = 3.0  # it goes on if the last line is not older than so many take
BY_HOST = "collective_cpu"  # a time that says when the host was through, not the device


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedCollective:
    member: Membership
    operation: str
    number: int
    size_bytes: int
    took_s: float
    at: float

    @property
    def key(self) -> tuple[str, str, int]:
        return self.member.communicator, self.operation, self.number


# --- reading -------------------------------------------------------------------------------------


def read_inspector(path: Path) -> JobEvidence:
    """Read all files of a folder, or one file for all."""
    files, broken = _files(path), Broken()
    limit = min(MOST_LINES, max(FEWEST_LINES, MOST_COLLECTIVES // max(1, len(files))))
    ended = [*chain.from_iterable(broken.read(files, partial(_read, limit=limit)))]
    if not ended:
        expected = "expected files of NCCL Inspector such as host-pid123.log, timed by the device"
        raise broken.error(f'"{path}" has no lines, {expected}')
    return evidence_of(ended, f'"{path}"', gaps=broken.gaps(Collector.STEPS))


def _read(file: Path, limit: int) -> list[EndedCollective]:
    lines = deque(read_lines(file, longest=LONGEST, most_bytes=MOST_BYTES), maxlen=limit)
    return parse_inspector(lines, f'"{file}"')


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    try:
        files = sorted(
            file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")
        )
    except OSError as cause:
        raise EvidenceError(f'cannot read "{path}": {cause.strerror}') from None
    if len(files) > MOST_FILES:
        raise EvidenceError(f'"{path}" has {len(files):,} files, at most {MOST_FILES:,} are read')
    return files


def parse_inspector(lines: Iterable[str], where: str) -> list[EndedCollective]:
    """Parse lines. The first and the last line may be torn; more than these is damage."""
    ended: list[EndedCollective] = []
    damage: list[str] = []
    number = 0
    for number, line in enumerate(filter(str.strip, lines), start=1):
        try:
            collective = _collective(json_value(line))
        except ValueError as cause:
            damage.append(f"{where}: line {number} of its end: {escape_line(str(cause))[:160]}")
        else:
            ended.extend(() if collective is None else (collective,))
    if damage and (not ended or len(damage) > 2):
        more = f" (and {len(damage) - 1:,} more of {number:,} lines)" if len(damage) > 1 else ""
        raise EvidenceError(f"{damage[0]}{more}")
    return ended


def _collective(document: Any) -> EndedCollective | None:
    """Return a collective; None if its time was taken on the host, where waiting does not show."""
    header, origin, call = (_table(document, name) for name in ("header", "metadata", "coll_perf"))
    if call.get("coll_timing_source") == BY_HOST:
        return None
    size = _whole(header, "n_ranks", MOST_RANKS)
    rank = _whole(header, "rank", MOST_RANKS)
    if rank >= size:
        raise ValueError(f"rank {rank} of {size}")
    return EndedCollective(
        member=Membership(
            communicator=_name(header, "id"),
            size=size,
            rank=rank,
            process=(_name(origin, "hostname"), _whole(origin, "pid", 1 << 40)),
        ),
        operation=_name(call, "coll"),
        number=_whole(call, "coll_sn", 1 << 62),
        size_bytes=_whole(call, "coll_msg_size_bytes", 1 << 62),
        took_s=_whole(call, "coll_exec_time_us", 10**12) / 1e6,
        at=_whole(origin, "dump_timestamp_us", 1 << 62) / 1e6,
    )


def _table(document: Any, name: str) -> Mapping[str, Any]:
    table = document.get(name) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise ValueError(f"it is no line of NCCL Inspector: it has no {name}")
    return table


def _name(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is no text")
    return escape_line(value[:80])


def _whole(table: Mapping[str, Any], key: str, limit: int) -> int:
    value = table.get(key)
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{key} is {escape_line(repr(value)[:40])}, expected a whole number")
    return value


# --- what it means -------------------------------------------------------------------------------


def evidence_of(
    ended: Sequence[EndedCollective], where: str, *, gaps: Mapping[Collector, str] | None = None
) -> JobEvidence:
    shared = sorted(_shared_collectives(_last_run(ended)), key=lambda collective: collective.at)
    steps = tuple(_step_times(shared))
    if not steps:
        raise EvidenceError(
            f"{where}: {len(ended):,} collectives, and no {PARTS * FEWEST_IN_PART} that all"
            f" ranks of a communicator recorded: no rank can be compared"
        )
    return JobEvidence(
        collectors=frozenset({Collector.STEPS, Collector.TRANSFERS}),
        gaps=gaps or {},
        steps=steps,
        transfers=tuple(collective.transfer for collective in shared),
        progress=tuple(_progress(_last_run(ended))),
    )


def _progress(ended: Sequence[EndedCollective]) -> Iterator[Rise]:
    """Yield the progress of the job, by the rank that has written nothing for longest; nothing
    unless all ranks have written."""
    ranks = job_ranks({collective.member for collective in ended})
    size = max(collective.member.size for collective in ended)
    lines: dict[int, list[EndedCollective]] = {}
    for collective in sorted(ended, key=lambda collective: collective.at):
        rank = ranks.get(collective.member.process)
        if rank is not None:
            lines.setdefault(rank, []).append(collective)
    if len(lines) == size:
        own = min(lines.values(), key=lambda own: own[-1].at)
        last = own[-1]
        alike = [line for line in own if line.key[:2] == last.key[:2]]
        gap_s = (last.at - own[0].at) / max(1, len(own) - 1)
        yield Rise(
            what="collectives",
            before=alike[0].number,
            after=last.number,
            since=alike[0].at,
            until=last.at,
            vouches_s=min(max(FRESH_S, LINES * gap_s), LONGEST_FRESH_S),
        )


@dataclass(frozen=True, slots=True)
class _Shared:
    """A collective that all ranks of its communicator recorded."""

    communicator: str
    what: str
    at: float
    took_s: Mapping[int, float]  # of ranks of the job
    stands_for: float  # how many calls: some left no line with somebody

    @property
    def transfer(self) -> Transfer:
        return Transfer(
            ranks=frozenset(self.took_s),
            what=self.what,
            took_s=min(self.took_s.values()),
            at=self.at,
        )


def _step_times(shared: Sequence[_Shared]) -> Iterator[StepTime]:
    """Yield, for equal parts of the time, how long each rank was in the collectives of each of its
    communicators. The rest of its time was its own."""
    if len(shared) < PARTS * FEWEST_IN_PART:
        return
    begin, length = shared[0].at, (shared[-1].at - shared[0].at) / PARTS
    if not 0 < length < math.inf:
        return
    parts: dict[int, dict[str, dict[int, float]]] = {}
    for collective in shared[1:]:  # the first one ran before its line was written
        part = min(int((collective.at - begin) / length), PARTS - 1)
        waits = parts.setdefault(part, {}).setdefault(collective.communicator, {})
        for rank, took_s in collective.took_s.items():
            waits[rank] = waits.get(rank, 0.0) + took_s * collective.stands_for
    for part, by_communicator in sorted(parts.items()):
        in_all: dict[int, float] = {}
        for waits in by_communicator.values():
            for rank, waited in waits.items():
                in_all[rank] = in_all.get(rank, 0.0) + waited
        for communicator, waits in sorted(by_communicator.items()):
            for rank, waited in sorted(waits.items()):
                yield StepTime(
                    rank=rank,
                    step=part,
                    duration_s=length,
                    own_s=max(0.0, length - in_all[rank]),
                    communicator=communicator,
                    collective_s=waited,
                    group_s=fmean(waits.values()),
                )


def _last_run(ended: Sequence[EndedCollective]) -> list[EndedCollective]:
    """Return what the last processes wrote: a job that was started again wrote into the same
    folder."""
    size = max(collective.member.size for collective in ended)
    latest = max(
        (collective for collective in ended if collective.member.size == size),
        key=lambda collective: collective.at,
    ).member.communicator
    processes = {
        collective.member.process
        for collective in ended
        if collective.member.communicator == latest
    }
    return [collective for collective in ended if collective.member.process in processes]


def _shared_collectives(ended: Sequence[EndedCollective]) -> Iterator[_Shared]:
    ranks = job_ranks({collective.member for collective in ended})
    met: dict[tuple[str, str, int], dict[int, EndedCollective]] = {}
    for collective in ended:
        rank = ranks.get(collective.member.process)
        if rank is not None:
            met.setdefault(collective.key, {})[rank] = collective
    entire = {
        key: by_rank
        for key, by_rank in met.items()
        if len(by_rank) == next(iter(by_rank.values())).member.size > 1
    }
    numbers: dict[tuple[str, str], list[int]] = {}
    for communicator, operation, number in entire:
        numbers.setdefault((communicator, operation), []).append(number)
    for (communicator, operation, _), by_rank in entire.items():
        of_these = numbers[communicator, operation]
        yield _Shared(
            communicator,
            f"{operation} of {next(iter(by_rank.values())).size_bytes:,} bytes",
            median(collective.at for collective in by_rank.values()),
            {rank: collective.took_s for rank, collective in by_rank.items()},
            (max(of_these) - min(of_these) + 1) / len(of_these),
        )


TRACE = TraceReader(
    place="inspector",
    words="lines of NCCL Inspector",
    help="The folder into which NCCL Inspector wrote, as JSON.",
    brings=(Collector.STEPS,),
    order=7,
    read=lambda path, _: read_inspector(path),
)
