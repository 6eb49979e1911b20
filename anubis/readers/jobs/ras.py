"""Reports of NCCL's RAS, as text or as JSON: which processes of a job answer the others, and how
many collectives each rank has launched.

Both formats are those of NVIDIA/nccl, src/ras/client_support.cc (its commit ebd1e929), and of the
guide's page on RAS: text since 2.24, where only ranks that differ from the rest are named; JSON
since 2.28, with all of them, and without some commas in 2.28.9. Text of 2.24 names missing ranks by
their number alone. A host is its address.

In a job at work, too, some ranks have launched less than others. So counts only count if they have
not moved between two reports, and only if a single rank is behind: RAS counts neither sends nor
receives, so of several ranks it is not known which one the others wait for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from anubis.core.diagnose.evidence import Advance, Collector, JobEvidence, ProcessState, Pulse, Rise
from anubis.core.errors import EvidenceError
from anubis.core.text import escape_line
from anubis.readers.jobs.log_lines import time_of
from anubis.readers.jobs.ranks import JobProcess, Membership, job_ranks
from anubis.readers.jobs.trace_reader import MOST_RANKS, Broken, TraceReader
from anubis.text.files import json_value, read_text

MOST_BYTES = 64 << 20  # of a file
MOST_FILES = 200  # reports: one is enough, several show whether the job goes on
MOST_LINES = 2_000_000  # of a report: dozens for each rank
FRESH_S = 30.0  # a report is not older when it is asked what it shows
MOST_LISTED = 2_000_000  # ranks of all communicators in a text
ONE_REPORT = (
    "one report of RAS does not show which rank holds up a job: take another one some seconds"
    " later, and give both"
)
LAUNCHED_ONCE = "collectives"  # 2.24 does not count by function


@dataclass(kw_only=True)
class RasCommunicator:
    name: str  # its hash
    size: int
    missing: set[int] = field(default_factory=set)  # ranks whose processes do not answer
    launched: dict[str, dict[int, int]] = field(default_factory=dict)  # function → rank → how many
    processes: dict[int, JobProcess] = field(default_factory=dict)  # of ranks


@dataclass(frozen=True, kw_only=True)
class RasReport:
    communicators: tuple[RasCommunicator, ...]
    taken: str = ""  # its date, as it stands there; text has none

    @property
    def size(self) -> int:
        return max((communicator.size for communicator in self.communicators), default=0)


# --- reading -------------------------------------------------------------------------------------


def read_ras(path: Path) -> JobEvidence:
    """Read a file of one report or of several, or a folder of such files in the order of their
    names."""
    files = _files(path) if path.is_dir() else [path]
    broken = Broken()
    reports = [*chain.from_iterable(broken.read(files, _read))]
    if not reports:
        raise broken.error(f'"{path}" has no reports of RAS')
    if all(report.taken for report in reports):
        reports.sort(key=lambda report: report.taken)
    if not reports[-1].size:
        raise EvidenceError(f'"{path}": RAS reports no communicators: the job had none left')
    evidence = evidence_of(reports)
    return replace(evidence, gaps={**broken.gaps(Collector.PROCESSES), **evidence.gaps})


def _read(file: Path) -> list[RasReport]:
    return parse_ras(read_text(file, EvidenceError, limit=MOST_BYTES), f'"{file}"')


def _files(folder: Path) -> list[Path]:
    try:
        files = sorted(
            file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")
        )
    except OSError as cause:
        raise EvidenceError(f'cannot read "{folder}": {cause.strerror}') from None
    if not files:
        raise EvidenceError(f'"{folder}" has no files, expected reports of RAS')
    if len(files) > MOST_FILES:
        raise EvidenceError(f'"{folder}" has {len(files):,} files, at most {MOST_FILES} are read')
    return files


def parse_ras(text: str, where: str) -> list[RasReport]:
    if text.lstrip().startswith("{"):
        return [_parse_json(part, where) for part in DOCUMENT_END.split(text.strip())]
    parts = [part for part in REPORT_START.split(text) if "Communicators..." in part]
    if not parts:
        raise EvidenceError(f"{where} is no report of NCCL's RAS: it has no list of communicators")
    return [_parse_text(part, where) for part in parts]


REPORT_START = re.compile(r"(?m)^(?=[ \t]*Job summary)")
DOCUMENT_END = re.compile(r"(?<=\})\s*\n(?=\{)")
NO_COMMA = re.compile(r'(?m)(?<=[\w"}\]])(?=[ \t]*\n[ \t]*")')


# --- JSON ----------------------------------------------------------------------------------------


def _parse_json(text: str, where: str) -> RasReport:
    try:
        try:
            document = json_value(text)
        except ValueError:
            document = json_value(NO_COMMA.sub(",", text))
        listed = _list(_table(document), "communicators")
        communicators = tuple(map(_communicator, listed))
    except ValueError as cause:
        raise EvidenceError(
            f"{where} is no report of NCCL's RAS: {escape_line(str(cause))[:200]}"
        ) from None
    return RasReport(communicators=communicators, taken=_text(document.get("timestamp")))


def _communicator(value: object) -> RasCommunicator:
    table = _table(value)
    communicator = RasCommunicator(
        name=_text(table.get("hash")).removeprefix("0x").rjust(16, "0"),
        size=_whole(table, "size", MOST_RANKS),
    )
    for entry in map(_table, _list(table, "ranks")):
        rank = _place(entry, communicator)
        counts = _table(entry.get("collective_counts", {}))
        for name in counts:
            count = _whole(counts, name, 1 << 62)
            communicator.launched.setdefault(_text(name), {})[rank] = count
    for entry in map(_table, _list(table, "missing_ranks")):
        rank = _place(entry, communicator)
        status = entry.get("status")
        if isinstance(status, dict) and True in (
            status.get("unresponsive"),
            status.get("considered_dead"),
        ):
            communicator.missing.add(rank)
    return communicator


def _place(entry: Mapping[str, Any], communicator: RasCommunicator) -> int:
    """Return the number of a rank in its communicator, and keep its process."""
    rank = _whole(entry, "rank", max(1, communicator.size))
    host, pid = _text(entry.get("host")), entry.get("pid")
    if host and type(pid) is int and pid > 0:
        communicator.processes[rank] = (host, pid)
    return rank


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{escape_line(repr(value)[:40])} is no table")
    return value


def _list(table: Mapping[str, Any], key: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list) or (key == "communicators" and key not in table):
        raise ValueError(f"it has no list of {key}")
    return value


def _text(value: object) -> str:
    return escape_line(value[:80]) if isinstance(value, str) else ""


def _whole(table: Mapping[str, Any], key: str, limit: int) -> int:
    value = table.get(key)
    if type(value) is not int or not 0 <= value < limit:
        shown = escape_line(repr(value)[:40])
        raise ValueError(f"{escape_line(key[:40])} is {shown}, expected a whole number")
    return value


# --- text ----------------------------------------------------------------------------------------

GROUP = re.compile(
    r"(\d{1,7}) +\d{1,9} +\d{1,7} +\d{1,7}(?:-\d{1,7})? +(\d{1,7}) +\d{1,9} +[A-Z]+ "
)
SECTION = re.compile(r"#(\d{1,7})-\d{1,9} \(([0-9a-f]{1,16})\) ([A-Z]+)$")
MISSING_RANKS = re.compile(r"The missing ranks?: *([\d, ]{1,200})$")
DIFFERENT = re.compile(r"Communicator ranks have different (\w{1,40}) ?(\w{0,40})")
SEVERAL = re.compile(
    r"(\d{1,7}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)"
)
RANK = re.compile(
    r"Rank (\d{1,7})"
    r"(?: has (?:(launched up to operation) (\d{1,18})|(not launched) any operations))?"
    r"(?:.* process (\d{1,9}) on node (\S{1,80}))?"
)


@dataclass(kw_only=True)
class _Tally:
    """The counts of ranks of one communicator for one function, while lines are read."""

    function: str
    named: dict[int, int] = field(default_factory=dict)  # ranks that are named
    several: list[tuple[int, int]] = field(default_factory=list)  # how many, and how far

    def ranks(self, size: int) -> dict[int, int]:
        """Return the counts of all ranks, if those that are not named have all the same; else of
        none."""
        unnamed = [
            far
            for count, far in self.several
            if count > sum(launched == far for launched in self.named.values())
        ]
        if len(unnamed) != 1:
            return self.named if len(self.named) == size else {}
        return {rank: self.named.get(rank, unnamed[0]) for rank in range(size)}


class _TextReport:
    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}  # of groups of communicators, by their numbers
        self.communicators: dict[str, RasCommunicator] = {}
        self.here: RasCommunicator | None = None  # of the section that is being read
        self.section = ""
        self.tally: _Tally | None = None
        self.listed = 0  # ranks

    def read(self, line: str) -> None:
        if match := SECTION.match(line):
            self._close()
            size = self.sizes.get(match[1], 0)
            self.here = self.communicators.setdefault(
                match[2].rjust(16, "0"), RasCommunicator(name=match[2].rjust(16, "0"), size=size)
            )
            self.section = match[3]
        elif not line:
            return
        elif line.isalpha() and line.isupper():  # a section of the whole job: DEAD, TIMEOUT
            self._close()
        elif self.here is None:
            if match := GROUP.match(line):
                self.sizes[match[1]] = int(match[2])
        elif self.section == "INCOMPLETE":
            self._incomplete(line, self.here)
        elif self.section == "MISMATCH":
            self._mismatch(line, self.here)

    def _incomplete(self, line: str, here: RasCommunicator) -> None:
        if match := MISSING_RANKS.match(line):
            here.missing |= {int(rank) for rank in re.findall(r"\d{1,7}", match[1])}
        elif match := RANK.match(line):
            here.missing.add(self._rank(match, here))

    def _mismatch(self, line: str, here: RasCommunicator) -> None:
        if match := DIFFERENT.match(line):
            self._end_tally()
            if "operation" in line:
                function = match[1] if match[1] != "collective" else LAUNCHED_ONCE
                self.tally = _Tally(function=function)
        elif self.tally is None:
            return
        elif match := SEVERAL.match(line):
            self.tally.several.append((int(match[1]), int(match[2] or 0)))
        elif match := RANK.match(line):
            rank = self._rank(match, here)
            if match[2] or match[4]:
                self.tally.named[rank] = int(match[3] or 0)
            elif self.tally.several:
                self.tally.named[rank] = self.tally.several[-1][1]

    def _rank(self, match: re.Match[str], here: RasCommunicator) -> int:
        if match[5]:
            here.processes[int(match[1])] = (escape_line(match[6]), int(match[5]))
        return int(match[1])

    def _end_tally(self) -> None:
        if self.tally and self.here:
            self.listed += self.here.size
            if self.listed > MOST_LISTED:
                raise ValueError(f"its communicators have more than {MOST_LISTED:,} ranks")
            if ranks := self.tally.ranks(self.here.size):
                self.here.launched[self.tally.function] = ranks
        self.tally = None

    def _close(self) -> None:
        self._end_tally()
        self.here, self.section = None, ""

    def whole(self) -> RasReport:
        self._close()
        named = list(self.communicators.values())
        rest = [RasCommunicator(name="", size=size) for size in set(self.sizes.values())]
        return RasReport(communicators=(*named, *rest))


def _parse_text(text: str, where: str) -> RasReport:
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise EvidenceError(f"{where}: {len(lines):,} lines, at most {MOST_LINES:,} are read")
    report = _TextReport()
    try:
        for line in lines:
            report.read(line[:1000].strip())
        complete = report.whole()
    except ValueError as cause:
        raise EvidenceError(f"{where}: {cause}") from None
    for communicator in complete.communicators:
        ranks = {*communicator.missing, *communicator.processes}
        ranks |= {rank for counts in communicator.launched.values() for rank in counts}
        if max(ranks, default=-1) >= communicator.size:
            raise EvidenceError(
                f"{where}: communicator {communicator.name} has {communicator.size} ranks, and"
                f" rank {max(ranks)} is one of them"
            )
    return complete


# --- what it means -------------------------------------------------------------------------------


def evidence_of(reports: Sequence[RasReport]) -> JobEvidence:
    """Return the evidence in the last report, and in what did not move since the one before it."""
    last = _Places(reports[-1])
    gaps: dict[Collector, str] = {}
    processes: list[ProcessState] = []
    unheard = sorted(last.unheard())
    if 2 * len(unheard) < last.report.size:
        processes = [ProcessState(rank=rank, pulse=Pulse.UNHEARD) for rank in unheard]
    elif unheard:
        gaps[Collector.PROCESSES] = (
            f"RAS: {len(unheard)} of {last.report.size} ranks do not answer the one that was"
            f" asked, so that one may be cut off itself"
        )
    why, advances = _standing(reports)
    collectors = {Collector.PROCESSES, *((Collector.PROGRESS,) if not why else ())}
    if why:
        gaps[Collector.PROGRESS] = why
    return JobEvidence(
        collectors=frozenset(collectors),
        gaps=gaps,
        processes=tuple(processes),
        advances=advances,
        progress=tuple(_progress(reports[-2:])),
    )


def _progress(reports: Sequence[RasReport]) -> Iterator[Rise]:
    """Yield a rise between two dated reports if each rank launched more: that of the rank which
    launched least."""
    if len(reports) < 2:
        return
    (since, before), (until, after) = (
        (time_of(report.taken, 0.0), _count_launches(report)) for report in reports
    )
    rises = [(before.get(rank, count), count) for rank, count in after.items()]
    if since is not None and until is not None and len(rises) == reports[-1].size:
        least = min(rises, key=lambda rise: rise[1] - rise[0])
        yield Rise(
            what="launches of collectives",
            before=least[0],
            after=least[1],
            since=since,
            until=until,
            vouches_s=FRESH_S,
        )


def _count_launches(report: RasReport) -> dict[int, int]:
    """Count the launches of each rank in communicators of the whole job."""
    counts: dict[int, int] = {}
    for communicator in report.communicators:
        for by_rank in communicator.launched.values() if communicator.size == report.size else ():
            for rank, count in by_rank.items():
                counts[rank] = counts.get(rank, 0) + count
    return counts


class _Places:
    """A report, in ranks of the job."""

    def __init__(self, report: RasReport) -> None:
        self.report = report
        self.ranks = job_ranks(_memberships(report.communicators))

    def job_rank(self, communicator: RasCommunicator, rank: int) -> int | None:
        if communicator.size == self.report.size:
            return rank
        process = communicator.processes.get(rank)
        return None if process is None else self.ranks.get(process)

    def unheard(self) -> set[int]:
        return {
            place
            for communicator in self.report.communicators
            for rank in communicator.missing
            if (place := self.job_rank(communicator, rank)) is not None
        }


def _memberships(communicators: Iterable[RasCommunicator]) -> Iterator[Membership]:
    for communicator in communicators:
        for rank, process in communicator.processes.items():
            yield Membership(
                communicator=communicator.name, size=communicator.size, rank=rank, process=process
            )


def _standing(reports: Sequence[RasReport]) -> tuple[str, tuple[Advance, ...]]:
    """Return the reason why it is not known how far ranks are, or how far they are."""
    last, before = reports[-1], reports[-2] if len(reports) > 1 else None
    if before is None or (last.taken and last.taken == before.taken):
        return ONE_REPORT, ()
    if _counts(last) != _counts(before):
        return (
            "RAS: ranks launched more between its last two reports: those behind are only late",
            (),
        )
    advances = tuple(_advances(last))
    behind = {advance.rank for advance in advances if advance.enqueued == advance.completed}
    if len(behind) > 1:
        ranks = ", ".join(map(str, sorted(behind)[:4]))
        more = f" and {len(behind) - 4} more" if len(behind) > 4 else ""
        why = f"ranks {ranks}{more} launched less than the others, but not which of them the others"
        return f"RAS shows that {why} wait for: it counts no sends and receives", ()
    return "", advances


def _counts(report: RasReport) -> dict[str, dict[str, dict[int, int]]]:
    return {
        communicator.name: communicator.launched
        for communicator in report.communicators
        if communicator.launched
    }


def _advances(report: RasReport) -> Iterator[Advance]:
    """Yield the advance of each rank if ranks launched one function differently often: those that
    launched least have finished theirs, as far as is known, and the others wait in the next one."""
    places = _Places(report)
    for communicator in report.communicators:
        for function, counts in sorted(communicator.launched.items()):
            if len(set(counts.values())) < 2:
                continue
            places_of = {
                rank: place
                for rank in {*counts, *communicator.missing}
                if (place := places.job_rank(communicator, rank)) is not None
            }
            if not counts.keys() <= places_of.keys():
                continue
            least = min(counts.values())
            for rank, count in sorted(counts.items()):
                yield Advance(
                    rank=places_of[rank],
                    communicator=f"{function} of communicator {communicator.name}",
                    members=tuple(sorted(places_of.values())),
                    enqueued=count,
                    completed=least,
                    operation=function,
                )


TRACE = TraceReader(
    place="ras",
    words="reports of RAS",
    help="Reports of NCCL's RAS, text or JSON: a file, or a folder of several.",
    brings=(Collector.PROGRESS, Collector.PROCESSES),
    order=4,
    read=lambda path, _: read_ras(path),
)
