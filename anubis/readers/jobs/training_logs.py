"""Logs of a job's ranks: errors, tracebacks, how far the watchdog saw each rank come, how processes
ended, and which rank and which address is on which node.

They are a folder with a file for each rank, torchrun's own folders, or one file in which the lines
of all ranks are mixed. The table of classes says what a line means. Lines of a rank that ends
because another one failed are notes there: they are not taken for causes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.core.diagnose.crash import AROUND_S, WAITED_S
from anubis.core.diagnose.error_classes import ErrorClasses, Recognised, match_rows
from anubis.core.diagnose.evidence import (
    Advance,
    Collector,
    Exit,
    Gravity,
    JobEvidence,
    JobPace,
    LogEvent,
    RankMap,
    Rise,
)
from anubis.core.diagnose.live_progress import AHEAD_S, pace_of_steps
from anubis.core.errors import EvidenceError
from anubis.core.text import escape_line
from anubis.readers.jobs.launcher_words import (
    HEAD,
    MARKS,
    NO_LABEL,
    REPEATED,
    SRUN,
    LauncherWords,
    LineLabel,
    exit_of,
    split_line,
    task_labels,
)
from anubis.readers.jobs.line_shapes import (
    CHAINED,
    ELASTIC,
    ENTRY,
    FAILED,
    LEVELS,
    PREFIX,
    QUOTE,
    RESTARTS,
    ROOT_CAUSE,
    TRACEBACK,
    WORLD_RANK,
    LineShape,
    LineShapes,
)
from anubis.readers.jobs.log_lines import (
    REPLACED,
    log_files,
    node_of_file,
    read_lines,
    split_stamp,
    time_of,
    written_at,
)
from anubis.readers.jobs.trace_reader import Broken, TraceReader

ATTEMPT = re.compile(r"^(?P<run>.*?)attempt_(?P<attempt>\d+)/(?P<local>\d+)/std(out|err)\.log")
OF_RANK = re.compile(r"(?:^|[._-])(?:rank|log|std(?:out|err))[._-]?(\d{1,6})(?:[._-]|$)", re.I)
ROTATED = re.compile(r"^(.+)[.-](\d{1,8})(?:\.gz)?$")  # by logrotate, or by Python's handlers
NUMBERED = re.compile(r"^(.*\D)(\d{1,6})(?:\.(?:log|out|err|txt))?(?:\.gz)?$")
BARE = re.compile(r"^(\d{1,6})\.?(?:log|out|err|txt)?(?:\.gz)?$")
NCCL = re.compile(
    r"(?:^|[\s\]])([A-Za-z0-9][\w.-]*):(\d+):(\d+) \[(-?\d+)\] (?:\S+ )?NCCL (WARN|INFO) ?(.*)"
)
OWN_ADDRESS = re.compile(
    r"[\w.-]+:\[?([0-9a-fA-F.:]+\.[\d.]+|[0-9a-fA-F:]{4,}:[0-9a-fA-F:]+)\]?(?:%\w+)?<\d+>"
)
OWN_RANK = re.compile(r"\brank (\d+) nranks (\d+) ")
FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)')
EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?::|$)")
WORK = re.compile(
    r"WorkNCCL\(SeqNum=(\d+), OpType=(\w+)[^)]*(?:\([^)]*\)[^)]*)*\) ran for (\d+) milliseconds"
)
STATUS = re.compile(
    r"last enqueued (?:NCCL )?work: (-?\d+), (?:last started[^:]*: (-?\d+), )?"
    r"last completed (?:NCCL )?work: (-?\d+)"
)
GROUP = re.compile(r"\[PG (?:ID )?(\d+)(?: PG GUID ([^ )]+\)?))? Rank (\d+)\]")
BARE_RANK = re.compile(r"(?<!\w)\[Rank (\d+)\]")
QUOTED = re.compile(r"\[Rank (\d{1,6}(?:,\d{1,6})*) Error Snippet\]")  # of Ray Train
WORKER = re.compile(r"\(ip=([^,\s]{1,64}), pid=(\d+)\) world_rank=(\d{1,6})\b")
LAUNCHER = re.compile(r"[/<](?:torch/distributed/|frozen runpy|torchrun\b)|bin/torchrun")
OF_LAUNCHER = re.compile(r"^[IWE]\d{4} .{1,60}torch/distributed/(?:elastic|run)")
FEWEST_STEPS = 3  # that show that a count rises
FRESH_S, LONGEST_FRESH_S = 3.0, 600.0  # of a last step that shows progress
STEPS = 3.0  # steps go on if the last one is not older than so many take
WAITED = re.compile(r"[Tt]imed? ?out (?:waiting|after) (\d{1,9}) ?(ms|milliseconds|s|seconds)\b")
DATED_WITHIN = 64  # lines: several ranks may write tracebacks at once
LONGEST_SHOWN = 240  # characters of a line
MOST_OF_FILE = 2000  # events: floods say nothing new
MOST_OF_KIND = 20  # of one speaker
MOST_SPEAKERS = 100_000  # ranks and processes that write into logs
# of a rank that went on after an error of its own. What it wrote before may stand after it: a
# buffer of 8 KiB is written when the process ends
LIVED_ON_STEPS, LIVED_ON_LETTERS = 10, 1 << 16
FEWEST_LETTERS = 1 << 14  # the same of steps of an hour: both buffers of Python's output
LIVED_ON_S = 60.0  # after an error, in which a job did ten steps and more
SAME_CLOCK_S = 2.0  # between lines of one process that go two ways
OWN_ERRORS = (Gravity.APPLICATION, Gravity.MEMORY)
OUTLIVED = (*OWN_ERRORS, Gravity.DISTRIBUTED)
MOST_MARKS = 400  # steps whose times are kept
MOST_REPLACED = 0.1  # of the letters of a log: an old encoding has less, a packed file has more
DEFAULT_GROUP = "default_pg"
WORLD = "world"


class Speaker(NamedTuple):
    """The writer of lines: by global rank, by rank on its node, or by process."""

    rank: int | None = None
    local: int | None = None
    process: str = ""


@dataclass(frozen=True, kw_only=True)
class LogSource:
    """A file, and what its name says."""

    path: Path
    earlier: tuple[Path, ...] = ()  # files of the same log before it was rotated, oldest first
    node: str = ""
    rank: int | None = None
    local: int | None = None

    def lines(self) -> Iterator[str]:
        for path in self.earlier:
            with suppress(EvidenceError):  # later ones say more
                yield from read_lines(path)
        yield from read_lines(self.path)


def read_training(
    path: Path, ranks: RankMap, classes: ErrorClasses, zone: tzinfo = UTC
) -> JobEvidence:
    """Read a file or a folder. Nodes whose ranks left no lines are reported as `unread`."""
    sources = sources_of(log_files(path), path, ranks)
    broken = Broken()
    shapes = LineShapes(classes=classes)
    readings = [*broken.read(sources, partial(_read, ranks, shapes, zone))]
    if not any(reading.is_text for reading in readings):
        raise broken.error(f'"{path}" has no text')
    return replace(gather(readings, ranks), gaps=broken.gaps(Collector.TRAINING_LOG))


def _read(ranks: RankMap, shapes: LineShapes, zone: tzinfo, source: LogSource) -> Reading:
    about = written_at(source.path)
    reading = Reading(source=source, ranks=ranks, shapes=shapes, zone=zone, about=about)
    reading.hear(source.lines())
    return reading


def sources_of(files: Iterable[Path], root: Path, ranks: RankMap) -> list[LogSource]:
    """Return the files of logs; if torchrun started a run again, only those of the last attempt."""
    nodes = tuple(dict.fromkeys(ranks.nodes.values()))
    last: dict[str, int] = {}
    named_files: list[tuple[LogSource, str, int]] = []
    for file, earlier in _join_rotated(files):
        node = node_of_file(file, root, nodes)
        match = ATTEMPT.match(file.as_posix())
        if match:
            attempt, run = int(match["attempt"]), match["run"]
            last[run] = max(last.get(run, 0), attempt)
            local = int(match["local"])
            source = LogSource(path=file, earlier=earlier, node=node, local=local)
            named_files.append((source, run, attempt))
            continue
        named = OF_RANK.search(file.name) or BARE.match(file.name)
        rank = int(named[1]) if named else None
        named_files.append((LogSource(path=file, earlier=earlier, node=node, rank=rank), "", 0))
    sources = [source for source, run, attempt in named_files if attempt == last.get(run, 0)]
    sources = _number_files(sources, ranks)
    return _place_numbers(sources, ranks) if ranks.nodes else _name_folders(sources, root)


def _join_rotated(files: Iterable[Path]) -> Iterator[tuple[Path, tuple[Path, ...]]]:
    """Yield each log with the files that it was before it was rotated, oldest first."""
    earlier: dict[Path, list[tuple[int, Path]]] = {}
    every = dict.fromkeys(files)
    for file in every:
        match = ROTATED.match(file.name)
        if match and (log := file.with_name(match[1])) in every:
            is_date = len(match[2]) == len("20261130")
            earlier.setdefault(log, []).append((int(match[2]) * (1 if is_date else -1), file))
    joined = {file for parts in earlier.values() for _, file in parts}
    for file in every:
        if file not in joined:
            yield file, tuple(part for _, part in sorted(earlier.get(file, ())))


def _number_files(sources: list[LogSource], ranks: RankMap) -> list[LogSource]:
    """Return files with their ranks also if only a number at the end of their names says it, as in
    `slurm-4711_0.out`: if such numbers are exactly those of the ranks."""
    series: dict[tuple[Path, str], list[tuple[int, LogSource]]] = {}
    for source in sources:
        match = NUMBERED.match(source.path.name)
        if match and source.rank is source.local is None:
            prefix = NUMBER.sub("#", match[1])  # it may name its node
            series.setdefault((source.path.parent, prefix), []).append((int(match[2]), source))
    ranked = {
        source.path: rank
        for files in series.values()
        if len(files) > 1
        and sorted(rank for rank, _ in files) == sorted(ranks.nodes or range(len(files)))
        for rank, source in files
    }
    return [replace(source, rank=ranked.get(source.path, source.rank)) for source in sources]


def _name_folders(sources: list[LogSource], root: Path) -> list[LogSource]:
    """Return files with the first folders that differ as their nodes, if a number is in several of
    these folders: then it is one of each folder, and which rank that is is unknown."""
    parts = [source.path.relative_to(root).parts[:-1] for source in sources]
    depth = next(
        (at for at, of_all in enumerate(zip(*parts, strict=False)) if len({*of_all}) > 1), 0
    )
    if not all(len(folders) > depth for folders in parts):
        return sources
    numbers = [source.rank if source.local is None else source.local for source in sources]
    places = {
        (number, folders[depth])
        for number, folders in zip(numbers, parts, strict=True)
        if number is not None
    }
    if len({number for number, _ in places}) == len(places):
        return sources
    return [
        replace(source, rank=None, local=number, node=folders[depth])
        for source, number, folders in zip(sources, numbers, parts, strict=True)
    ]


def _place_numbers(sources: list[LogSource], ranks: RankMap) -> list[LogSource]:
    """Return files whose numbers and nodes agree. If they do not, the numbers are of ranks on
    their nodes; or, if a node has not so many, all files lie on a node that only collects them."""
    named = [source for source in sources if source.rank is not None and source.node]
    if all(ranks.node_of(source.rank or 0) in ("", source.node) for source in named):
        return sources
    are_local = all(ranks.rank_on(source.node, source.rank or 0) is not None for source in named)
    return [
        source
        if source.rank is None or not source.node
        else replace(source, rank=None, local=source.rank)
        if are_local
        else replace(source, node="")
        for source in sources
    ]


@dataclass(kw_only=True)
class _Trace:
    """A traceback that is being written."""

    at: float | None
    by: float | None  # when it began at the latest; None: its own lines do not say
    frame: str = ""
    lines: int = 0
    chained: int | None = None  # the event that it follows from
    is_announced: bool = False  # `by` is of the line before it, which may be much older


@dataclass(kw_only=True)
class _StepRun:
    """Steps that a speaker counted upwards, with the times of their lines."""

    first: int
    since: float
    last: int
    until: float
    count: int = 1
    marks: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MOST_MARKS))

    def note(self, number: int, at: float) -> None:
        self.last, self.until, self.count = number, at, self.count + 1
        self.marks.append((number, at))

    @property
    def step_s(self) -> float:
        return (self.until - self.since) / max(1, self.count - 1)

    def progress(self, about: float) -> Rise:
        """Return the rise. Lines cannot be younger than the last change of their file, `about`: if
        they are, their clock is wrong, and they show no progress."""
        shows_it = self.count >= FEWEST_STEPS and self.until <= about + AHEAD_S
        return Rise(
            what="steps",
            before=self.first,
            after=self.last if shows_it else self.first,
            since=self.since,
            until=self.until,
            vouches_s=min(max(FRESH_S, STEPS * self.step_s), LONGEST_FRESH_S),
        )


@dataclass(kw_only=True)
class _Sequel:
    """What a speaker wrote after its last error."""

    letters: int = 0
    steps: int = 0
    began: float | None = None  # the first of these steps
    until: float = 0.0  # the last one

    def note_step(self, at: float | None) -> None:
        self.steps += 1
        if at is not None:
            self.began = at if self.began is None else self.began
            self.until = at

    @property
    def shows_life(self) -> bool:
        is_slow = self.began is not None and self.until - self.began >= HOUR_S
        enough = FEWEST_LETTERS if is_slow else LIVED_ON_LETTERS
        return self.steps >= LIVED_ON_STEPS and self.letters >= enough


@dataclass(kw_only=True)
class Reading:
    """The facts of one file, read line by line."""

    source: LogSource
    ranks: RankMap
    shapes: LineShapes
    about: float
    zone: tzinfo = UTC
    letters: int = 0  # of all lines
    replaced: int = 0  # of them, as they are no text
    events: list[tuple[Speaker, str, LogEvent]] = field(default_factory=list)  # speaker, host
    exits: list[Exit] = field(default_factory=list)
    words: LauncherWords = field(init=False)  # of Slurm and MPI's launchers
    is_nested: bool = False  # torchrun speaks: a task of the launcher around it is no rank
    progress: dict[tuple[Speaker, str], tuple[int, int, int, str]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)  # address → host
    process_ranks: dict[str, tuple[int, int]] = field(default_factory=dict)  # process → ranks, rank
    hosts: dict[int, str] = field(default_factory=dict)  # rank → host
    speakers: dict[Speaker, None] = field(default_factory=dict)
    steps: dict[Speaker, _StepRun] = field(default_factory=dict)
    began_at: float | None = None  # the first line that says when it was written
    restarted_at: float | None = None  # when the last attempt but one had failed
    _recent: deque[str] = field(default_factory=lambda: deque(maxlen=DATED_WITHIN))
    _line: str = ""  # that is read now, or what the engine of a container wrote before it
    _announced: dict[Speaker, float] = field(default_factory=dict)  # errors by their last lines
    _traces: dict[Speaker, _Trace] = field(default_factory=dict)
    _ended: dict[Speaker, int | None] = field(default_factory=dict)  # its last traceback's event
    _last_words: dict[Speaker, int] = field(default_factory=dict)  # events that an old line dates
    _linked: set[Speaker] = field(default_factory=set)  # their next traceback follows from the last
    _counts: dict[tuple[Speaker, str], int] = field(default_factory=dict)
    _sequels: dict[Speaker, _Sequel] = field(default_factory=dict)
    _lived_on: int = 0  # events that their speakers outlived
    _operations: dict[Speaker, str] = field(default_factory=dict)
    _entry: dict[str, str] = field(default_factory=dict)
    _failed_at: float | None = None  # an attempt; None: none, or it was the last
    _is_root: bool = False  # the table of the process that failed first
    _label: LineLabel = LineLabel()
    _block: Speaker | None = None  # whose traceback goes on in lines that have no label
    _stamp: str = ""  # of the engine of a container
    _prefixes: dict[tuple[int | None, str, str], Speaker] = field(default_factory=dict)
    _quoted: dict[str, tuple[int, ...]] = field(default_factory=dict)  # process → ranks it quotes

    def __post_init__(self) -> None:
        self.words = LauncherWords(ranks=self.ranks)

    @property
    def is_text(self) -> bool:
        return bool(self.letters) and self.replaced <= MOST_REPLACED * self.letters

    def hear(self, lines: Iterable[str]) -> None:
        unread = map(split_stamp, lines)
        head = list(islice(unread, HEAD))
        labels = task_labels((line for _, line in head), self.ranks)
        times = (time_of(stamp or line, self.about, self.zone) for stamp, line in head)
        self.began_at = next((at for at in times if at is not None), None)
        for self._stamp, line in chain(head, unread):
            self.letters += len(line.strip())
            self.replaced += line.count(REPLACED)
            self._label, text = split_line(line, labels, self.ranks)
            self._stamp = self._stamp or self._label.stamp
            if not self._stamp and self._label != NO_LABEL:
                self._stamp, text = split_stamp(text)
            if text:
                self._hear(text)
        if len(self.speakers) == 1:  # they were the last change of the file
            for place in self._last_words.values():
                self._redate(place, self.about)

    def _hear(self, line: str) -> None:
        shape = self.shapes.shape_of(line)
        self._line = self._stamp or line
        if self._stamp:
            self._recent.append(self._stamp)
        elif shape.is_dated:
            self._recent.append(line[:160])
        speaker, text = self._speaker(line, shape)
        if self._block and speaker == self._unnamed and self._is_open(self._block):
            speaker = self._block
        if self._last_words and speaker not in self._traces and text.strip():
            place = self._last_words.pop(speaker, None)
            at = None if place is None else time_of(self._line, self.about, self.zone)
            if place is not None and at is not None:
                self._redate(place, at)
        if not shape.is_usual and REPEATED in text:
            self._unname(text.partition(" [repeated")[0])
        if self._failed_at is not None and text.strip():
            self._goes_on(text)
        if self._sequels and (sequel := self._sequels.get(speaker)):
            sequel.letters += len(text)
        if shape.step:
            self._step(speaker, int(text[slice(*shape.step)]))
        if self._traces and speaker in self._traces and self._continue_trace(speaker, text):
            return
        host = ""
        if not shape.is_usual:
            source = self._hear_words(speaker, text)
            if source is None:
                return
            speaker, host = source
        elif self._announced or self._ended:
            self._announced.pop(speaker, None)
            if text.strip():
                self._ended.pop(speaker, None)
        recognised = match_rows(shape.rows, text) if shape.rows else None
        if recognised is None:
            return
        if text.startswith("srun: ") and (match := SRUN.search(text)):
            self._tell_of_task(match[1], match[2], recognised, text)
        else:
            self._tell(speaker, host, recognised, text)

    def _hear_words(self, speaker: Speaker, text: str) -> tuple[Speaker, str] | None:
        """Read what a line says apart from its class; return its writer and the host, or None if
        it has no class."""
        if TRACEBACK in text and "traceback :" not in text:
            chained = self._ended.pop(speaker, None)
            if speaker not in self._linked:
                chained = None  # of another process with the same label
            self._linked.discard(speaker)
            if self._label.is_of_block:
                self._begin_block(speaker)
            announced = self._announced.pop(speaker, None)
            own = time_of(self._stamp, self.about, self.zone) if self._stamp else None
            by = own or announced or self._own_date(speaker)
            self._traces[speaker] = _Trace(
                at=self._now(),
                by=by,
                chained=chained,
                is_announced=announced is not None and by == announced,
            )
            return None
        self._announced.pop(speaker, None)
        if any(level in text for level in LEVELS) and (at := self._own_date(speaker)):
            self._announced[speaker] = at
        if self._ended and text.startswith(CHAINED):
            self._linked.add(speaker)
        elif self._ended and text.strip():
            self._ended.pop(speaker, None)
        host = ""
        if "NCCL" in text and (match := NCCL.search(text)):
            host, process = match[1], f"{match[1]}:{match[2]}"
            if match[5] == "INFO":
                self._learn(process, host, match[6])
                return None
            if speaker.rank is None and speaker.local is None:
                speaker = Speaker(process=process)
        if ROOT_CAUSE in text or text.startswith("===="):
            self._is_root = ROOT_CAUSE in text
        if " : " in text or "exitcode" in text or "rank" in text:
            self._read_table(text)
        if WORLD_RANK in text and (match := WORKER.search(text)):
            self.process_ranks[f"{match[1]}:{match[2]}"] = (1, int(match[3]))
        if FAILED in text or RESTARTS in text:
            self._failed_at = self._now() or 0.0
        if ELASTIC in text:
            self.is_nested = True
        if any(mark in text for mark in MARKS):
            self.words.hear(text, self._now())
        return speaker, host

    # --- who speaks ---

    def _speaker(self, line: str, shape: LineShape) -> tuple[Speaker, str]:
        label, prefix = self._label, line[: shape.prefix]
        may_be_quoted = self._quoted or label.process or not shape.is_usual
        own = None if may_be_quoted else self._prefixes.get((label.rank, label.node, prefix))
        if own is None:
            own = self._find_speaker(line, prefix)
            self._know(own)
            if not may_be_quoted and len(self._prefixes) < MOST_SPEAKERS:
                self._prefixes[label.rank, label.node, prefix] = own
        return own, line[shape.prefix :]

    @property
    def _unnamed(self) -> Speaker:
        """The writer of a line that names none."""
        return Speaker(rank=self.source.rank, local=self.source.local)

    def _find_speaker(self, line: str, prefix: str) -> Speaker:
        label, node = self._label, self._label.node
        self._quote(line)
        own = self._unnamed
        if label.rank is not None:
            own = Speaker(rank=label.rank)
        elif quoted := self._quoted.get(label.process):
            own = Speaker(rank=quoted[0])
        elif label.process:
            own = Speaker() if REPEATED in line else Speaker(process=label.process)
        elif node:  # of a launcher: its own words are no rank's
            own = Speaker(process=f"{node}:launcher")
        if match := PREFIX.match(prefix):
            if match[1]:
                own = Speaker(rank=int(match[2]))
            elif node:
                own = Speaker(rank=self.ranks.rank_on(node, int(match[2])))
            elif own.rank is None:
                own = Speaker(local=int(match[2]))
            if (inner := PREFIX.match(prefix[match.end() :])) and inner[1]:
                own = Speaker(rank=int(inner[2]))
        return own

    def _quote(self, line: str) -> None:
        """Note of which ranks Ray's controller quotes the error that follows."""
        if QUOTE in line and (match := QUOTED.search(line)):
            self._quoted[self._label.process] = tuple(map(int, match[1].split(",")))

    def _unname(self, text: str) -> None:
        """Forget which process of Ray wrote a text that others wrote as well."""
        self.events = [
            (Speaker(), "", event) if speaker.process and event.text.startswith(text) else entry
            for entry in self.events
            for speaker, _, event in (entry,)
        ]

    def _know(self, speaker: Speaker) -> None:
        if len(self.speakers) < MOST_SPEAKERS:
            self.speakers[speaker] = None

    def _begin_block(self, speaker: Speaker) -> None:
        """Take the lines without a label that follow for the speaker's. If another block is open,
        lines of both are mixed, and belong to none."""
        is_mixed = self._block is not None and self._block in self._traces
        if is_mixed and self._block is not None:
            del self._traces[self._block]
        self._block = None if is_mixed else speaker

    def _is_open(self, speaker: Speaker) -> bool:
        return speaker in self._traces or speaker in self._ended or speaker in self._linked

    # --- how far, and in which attempt ---

    def _step(self, speaker: Speaker, number: int) -> None:
        """Note a step, if the line says when it was written."""
        at = time_of(self._line, self.about, self.zone)
        if sequel := self._sequels.get(speaker):
            sequel.note_step(at)
            if sequel.shows_life:
                self._outlive(speaker)
        if at is None:
            return
        run = self.steps.get(speaker)
        if run is None or number < run.last or at < run.until:
            self.steps[speaker] = _StepRun(first=number, since=at, last=number, until=at)
        elif number > run.last:
            run.note(number, at)

    def _outlive(self, speaker: Speaker) -> None:
        """Make notes of the errors of a rank that has gone on since: they ended nothing."""
        del self._sequels[speaker]
        for place, (author, host, event) in enumerate(self.events):
            if author == speaker and event.gravity in OWN_ERRORS:
                self.events[place] = (author, host, replace(event, gravity=Gravity.NOTE))
                self._counts[speaker, event.code] = 0
                self._lived_on += 1

    def is_followed(self, speaker: Speaker, event: LogEvent) -> bool:
        """Return whether the speaker counted steps after its last error. They may have been in a
        buffer until it ended, so they do not prove that it went on."""
        sequel = self._sequels.get(speaker)
        return event.gravity in OWN_ERRORS and bool(sequel and sequel.steps >= LIVED_ON_STEPS)

    def lived_until(self) -> Iterator[float]:
        """Yield times before which no error ended the job, as it did steps for a while since. The
        file was written no earlier than its lines were."""
        for run in self.steps.values():
            if run.count > LIVED_ON_STEPS:
                yield min(run.until, self.about) - max(LIVED_ON_S, LIVED_ON_STEPS * run.step_s)

    def _goes_on(self, text: str) -> None:
        """Read what follows the failure of an attempt: the launcher's own words, or another
        attempt, which makes all before it void."""
        if OF_LAUNCHER.match(text) or TRACEBACK in text:
            return
        failed_at, self._failed_at = self._failed_at, None
        if LAUNCHER.search(text) or text.startswith(("=", "-")):
            return
        self.restarted_at = failed_at
        self.forget()

    def forget(self) -> None:
        """Forget what was read so far, but for the speakers."""
        for lines in (self.events, self.exits, self.words):
            lines.clear()
        tables = (self.progress, self.steps, self._counts, self._ended, self._operations)
        for table in (*tables, self._sequels, self._last_words):
            table.clear()
        self._lived_on = 0

    # --- what is reported ---

    def _tell(
        self,
        speaker: Speaker,
        host: str,
        recognised: Recognised,
        text: str,
        detail: str = "",
        trace: _Trace | None = None,
    ) -> int | None:
        """Return the event's place among those of the file; None if there are enough of its
        kind."""
        code = recognised.kind.code
        lasted_s, operation = 0.0, ""
        if speaker == Speaker() and (match := BARE_RANK.search(text)):
            speaker = Speaker(rank=int(match[1]))
            self._know(speaker)
        if match := WORK.search(text):
            lasted_s, operation = int(match[3]) / 1000, match[2]
            self._operations[speaker] = operation
        elif match := WAITED.search(text):
            lasted_s = int(match[1]) / (1000 if match[2].startswith("m") else 1)
        if match := STATUS.search(text):
            self._progress(speaker, match, text)
        count = self._counts.get((speaker, code), 0)
        self._counts[speaker, code] = count + 1
        if recognised.gravity in OWN_ERRORS and speaker != Speaker():
            self._sequels[speaker] = _Sequel()
        if count >= MOST_OF_KIND or len(self.events) - self._lived_on >= MOST_OF_FILE:
            return None
        event = LogEvent(
            collector=Collector.TRAINING_LOG,
            code=code,
            gravity=recognised.gravity,
            text=escape_line(text.strip())[:LONGEST_SHOWN],
            at=trace.at if trace else self._now(),
            written_by=(trace.by if trace else self._own_date(speaker)) or self.about,
            peer=_peer(recognised.parts),
            device=recognised.parts.get("device", ""),
            detail=detail or f"{code}: {remove_numbers(text)}",
            lasted_s=lasted_s,
        )
        also = self._quoted.get(self._label.process, ())[1:]
        self.events += [(Speaker(rank=rank), "", event) for rank in also]
        self.events.append((speaker, host, event))
        return len(self.events) - 1

    def _tell_of_task(self, host: str, task: str, recognised: Recognised, text: str) -> None:
        """Report srun's words about a task, which may stand in the log of another rank or node."""
        is_rank = task.isdecimal() and self.words.is_on(int(task), host)
        speaker = Speaker(rank=int(task)) if is_rank else Speaker()
        place = self._tell(speaker, "", recognised, text)
        if place is not None:
            event = replace(self.events[place][2], node=self.ranks.node_named(host))
            self.events[place] = speaker, "", event

    def _now(self) -> float | None:
        """Return the time of the last line that says when it was written."""
        times = (time_of(line, self.about, self.zone) for line in reversed(self._recent))
        return next((moment for moment in times if moment is not None), None)

    def _own_date(self, speaker: Speaker) -> float | None:
        """Return the time that the line itself states, unless steps of its speaker that stand
        before it are later: then its clock is another one."""
        at = time_of(self._line, self.about, self.zone)
        run = self.steps.get(speaker)
        return None if at is None or (run and run.until > at + SAME_CLOCK_S) else at

    # --- tracebacks ---

    def _continue_trace(self, speaker: Speaker, text: str) -> bool:
        """Return true if the line belongs to the traceback that its speaker writes."""
        trace = self._traces[speaker]
        trace.lines += 1
        if frame := FRAME.match(text):
            trace.frame = f"{frame[3].strip()} ({frame[1].rpartition('/')[2]}:{frame[2]})"
            return True
        if not text.strip() or text[0] in " \t|+" or trace.lines > MOST_OF_FILE:
            if trace.lines > MOST_OF_FILE:
                del self._traces[speaker]
            return True
        del self._traces[speaker]
        if not EXCEPTION.match(text):
            return False
        self._note_exception(speaker, trace, text)
        return True

    def _note_exception(self, speaker: Speaker, trace: _Trace, text: str) -> None:
        recognised = self.shapes.classes.match_training(text) or self.shapes.classes.match_training(
            TRACEBACK
        )
        if recognised is None:
            return
        detail = f"{remove_numbers(text)} in {trace.frame}"
        if trace.chained is not None:
            _, _, first = self.events[trace.chained]
            self._ended[speaker] = trace.chained
            if first.code != "python-error" or recognised.kind.code == "python-error":
                return  # it follows from the first
        place = self._tell(speaker, "", recognised, f"{text} in {trace.frame}", detail, trace)
        self._quoted.pop(self._label.process, None)
        if place is None:
            return
        if trace.chained is not None:
            self.events[trace.chained] = self.events.pop()
            place = trace.chained
        self._ended[speaker] = place
        if trace.is_announced:
            self._last_words[speaker] = place

    def _redate(self, place: int, at: float) -> None:
        """Let an event be no older than `at` for certain."""
        speaker, host, event = self.events[place]
        written_by = max(event.written_by or at, at)
        self.events[place] = speaker, host, replace(event, written_by=written_by)

    # --- how far, how ended, who is where ---

    def _progress(self, speaker: Speaker, match: re.Match[str], text: str) -> None:
        group = GROUP.search(text)
        name = "" if group is None else group[2] or f"PG {group[1]}"
        inside = int(group[3]) if group else -1
        if DEFAULT_GROUP in name or name in ("", "PG 0"):
            name = WORLD
        self.progress[speaker, name] = (
            int(match[1]),
            int(match[3]),
            inside,
            self._operations.get(speaker, ""),
        )

    def _learn(self, process: str, host: str, text: str) -> None:
        if "Using" in text:
            for address in OWN_ADDRESS.findall(text):
                self.addresses[address] = host
        elif match := OWN_RANK.search(text):
            size = int(match[2])
            if size > self.process_ranks.get(process, (0, 0))[0]:
                self.process_ranks[process] = (size, int(match[1]))

    def _read_table(self, text: str) -> None:
        """Read a line of torchrun's table of processes that failed."""
        match = ENTRY.match(text)
        if match is None:
            return
        self._entry[match[1]] = match[2].strip()
        if match[1] != "exitcode" or "rank" not in self._entry:
            return
        rank = re.match(r"\d{1,6}\b", self._entry["rank"])
        code = re.match(r"-?\d{1,6}\b", match[2])
        if rank and code:
            at = time_of(self._entry.get("time", ""), self.about, self.zone)
            ended = exit_of(int(rank[0]), int(code[0]), at)
            self.exits.append(replace(ended, is_first=self._is_root))
            host = self._entry.get("host", "")
            if host.partition(".")[0] not in ("", "localhost"):  # a host without a name in DNS
                self.hosts[int(rank[0])] = host
        self._entry = {}


HEX = re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{8,}\b")
PATH = re.compile(r"(?:/[\w.@+-]+){2,}")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
PREAMBLE = re.compile(r"^.*?(?:\w+\.(?:cpp|cc|h|py):#?\d*\] ?|NCCL WARN )")


def remove_numbers(text: str) -> str:
    """Remove addresses, paths and numbers from a text, so that it is the same on all ranks."""
    text = PREAMBLE.sub("", text)
    text = PATH.sub("PATH", HEX.sub("#", text))
    return escape_line(NUMBER.sub("#", text).strip())[:LONGEST_SHOWN]


def _peer(parts: Mapping[str, str]) -> str:
    """Return the peer without its port: an address, a host, or `rank 3`."""
    if "rank" in parts:
        return f"rank {int(parts['rank'])}"
    peer = parts.get("peer", "").partition("<")[0].partition("%")[0]
    if peer.startswith("["):
        return peer[1:].partition("]")[0]
    if "]:" in peer:
        return peer.partition("]")[0]
    return peer.partition(":")[0] if peer.count(":") == 1 else peer


# --- all files together --------------------------------------------------------------------


def gather(readings: Iterable[Reading], ranks: RankMap) -> JobEvidence:
    readings = list(readings)
    _drop_earlier_runs(readings)
    placed = _add_places(readings, ranks)
    processes: dict[str, tuple[int, int]] = {}
    for reading in readings:
        for process, (size, rank) in reading.process_ranks.items():
            processes[process] = max(processes.get(process, (0, 0)), (size, rank))
    places = _Places(ranks=placed, processes={name: rank for name, (_, rank) in processes.items()})
    restarts = (reading.restarted_at for reading in readings)
    restarted_at = max((at for at in restarts if at is not None), default=0.0)
    lived_until = max((at for reading in readings for at in reading.lived_until()), default=0.0)
    log: list[LogEvent] = []
    read: set[str] = set()
    spoken: set[int] = set()
    advances: dict[tuple[int, str], Advance] = {}
    for reading in readings:
        for speaker, host, event in reading.events:
            if event.at is not None and event.at < restarted_at:
                continue  # in an earlier attempt
            if event.gravity in OUTLIVED:
                event = _date_by_life(event, lived_until)
            spoke, node = places.locate(speaker, host, reading.source)
            is_followed = reading.is_followed(speaker, event)
            log.append(replace(event, rank=spoke, node=event.node or node, is_followed=is_followed))
        named: set[str] = set()
        for speaker in reading.speakers:
            spoke, node = places.locate(speaker, "", reading.source)
            spoken |= set() if spoke is None else {spoke}
            named |= {node} - {""}
        read |= named
        if len(named) > 1:  # a file for the whole job: a node that is not in it wrote nothing
            read |= {*placed.nodes.values()}
        if reading.source.node:
            read.add(reading.source.node)
        for (speaker, group), status in reading.progress.items():
            spoke, _ = places.locate(speaker, "", reading.source)
            if spoke is not None:
                advances[spoke, group] = _advance(spoke, group, status)
    is_nested = any(reading.is_nested for reading in readings)
    exits = tuple(
        ended
        for reading in readings
        for ended in (*reading.exits, *(() if is_nested else reading.words.exits))
        if ended.at is None or ended.at >= restarted_at
    )
    collectors = {Collector.TRAINING_LOG}
    collectors |= {Collector.EXITS} if exits else set()
    collectors |= {Collector.PROGRESS} if advances else set()
    lost = {
        placed.node_named(host) or host: reading.about if at is None else at
        for reading in readings
        for host, at in reading.words.lost_nodes.items()
    }
    collectors |= {Collector.REACH} if lost else set()
    return JobEvidence(
        collectors=frozenset(collectors),
        ranks=placed,
        log=tuple(log),
        exits=exits,
        unreachable=lost,
        advances=_add_members(advances, placed),
        mute=frozenset(spoken - {rank for rank, _ in advances}),
        progress=_steps_of(readings),
        pace=_pace_of(readings),
        unread=frozenset(placed.nodes.values()) - read,
    )


def _date_by_life(event: LogEvent, lived_until: float) -> LogEvent:
    """Make a note of an error that the job outlived. If only the line that gives the error its time
    is older than that, the error is not of that time."""
    if (event.written_by or lived_until) < lived_until:
        return replace(event, gravity=Gravity.NOTE)
    if event.at is not None and event.at < lived_until:
        return replace(event, at=None, by=event.written_by)
    return event


def _drop_earlier_runs(readings: Iterable[Reading]) -> None:
    """Empty the files that were complete long before another one began: no rank waits so long for
    one that ended at its start. A file without times is taken to have begun a day before its
    end."""
    begins = max(
        (
            reading.about - DAY_S
            if reading.began_at is None
            else min(reading.began_at, reading.about)  # its clock may be that of another zone
            for reading in readings
        ),
        default=0.0,
    )
    for reading in readings:
        if reading.about < begins - WAITED_S - AROUND_S:
            reading.forget()


def _steps_of(readings: Iterable[Reading]) -> tuple[Rise, ...]:
    """Return the steps of the job. All ranks do a step together; if several count steps, the one
    that counted last least often counts."""
    runs = [run.progress(reading.about) for reading in readings for run in reading.steps.values()]
    return tuple(sorted(runs, key=lambda run: run.until + run.vouches_s)[:1])


def _pace_of(readings: Iterable[Reading]) -> JobPace | None:
    """Return the pace of the job, by the writer that counted most steps."""
    runs = (run.marks for reading in readings for run in reading.steps.values())
    return pace_of_steps([*max(runs, key=len, default=())])


def _add_places(readings: Iterable[Reading], ranks: RankMap) -> RankMap:
    """Add addresses and places that the logs give; those that were given in the request are
    better."""
    nodes, addresses = dict(ranks.nodes), dict(ranks.addresses)

    def node(host: str) -> str:
        return ranks.node_named(host) or ("" if ranks.nodes else host)

    for reading in readings:
        for address, host in reading.addresses.items():
            if node(host):
                addresses.setdefault(address, node(host))
        for rank, host in reading.hosts.items():
            if node(host):
                nodes.setdefault(rank, node(host))
        for process, (_, rank) in reading.process_ranks.items():
            if not ranks.nodes:
                nodes.setdefault(rank, process.partition(":")[0])
    for name in set(nodes.values()):
        addresses.setdefault(name, name)
    return RankMap(nodes=nodes, stages=ranks.stages, addresses=addresses)


@dataclass(frozen=True, kw_only=True)
class _Places:
    ranks: RankMap
    processes: Mapping[str, int]

    def locate(self, speaker: Speaker, host: str, source: LogSource) -> tuple[int | None, str]:
        """Return the global rank and the node of a speaker, as far as they are known."""
        rank = speaker.rank
        host = host or speaker.process.partition(":")[0]
        node = source.node or self.ranks.node_named(host)
        if rank is None and speaker.process in self.processes:
            rank = self.processes[speaker.process]
        is_of_folder = source.node and not self.ranks.nodes  # whose ranks are unknown
        if rank is None and speaker.local is not None and not is_of_folder:
            rank = self._global(speaker.local, node)
        if rank is not None and not node:
            node = self.ranks.node_of(rank)
        if not node and not self.ranks.nodes:
            node = host
        return rank, node

    def _global(self, local: int, node: str) -> int | None:
        """Return the global rank of a local one on this node; None if the node is not known."""
        nodes = set(self.ranks.nodes.values())
        if len(nodes) == 1:
            node = next(iter(nodes))
        if not nodes:
            return local
        return self.ranks.rank_on(node, local)


def _advance(rank: int, group: str, status: tuple[int, int, int, str]) -> Advance:
    enqueued, completed, _, operation = status
    return Advance(
        rank=rank,
        communicator=group,
        members=(),
        enqueued=max(enqueued, 0),
        completed=max(completed, 0),
        operation=operation,
    )


def _add_members(
    advances: Mapping[tuple[int, str], Advance], ranks: RankMap
) -> tuple[Advance, ...]:
    """Complete the groups: the job's first group has all ranks; others have those that reported on
    them, as logs do not list members."""
    members: dict[str, tuple[int, ...]] = {}
    for rank, group in sorted(advances):
        members[group] = (*members.get(group, ()), rank)
    if WORLD in members:
        members[WORLD] = tuple(sorted({*members[WORLD], *ranks.nodes}))
    return tuple(
        replace(advance, members=members[group]) for (_, group), advance in sorted(advances.items())
    )


TRACE = TraceReader(
    place="logs",
    words="training logs",
    help="The output of its ranks: a folder, or one file for all.",
    brings=(Collector.TRAINING_LOG, Collector.EXITS),
    order=1,
    read=lambda path, context: read_training(path, context.ranks, context.classes, context.zone),
)
