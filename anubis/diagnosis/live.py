"""Asks the ranks of a job on this machine what they do, while they run or hang: how far their
collectives are, where their programs stand, and whether they answer at all.

The ranks announce themselves in a folder (hook/sitecustomize.py). All are asked at once, with one
deadline; whoever does not answer by then is looked at from outside.
"""

from __future__ import annotations

import http.client
import re
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from anubis.core.diagnosing.evidence import (
    Collector,
    JobEvidence,
    ProcessState,
    Pulse,
    RankMap,
    Stack,
)
from anubis.core.diagnosing.live_progress import Standstill, steps_of
from anubis.core.errors import EvidenceError
from anubis.core.text import one_line
from anubis.diagnosis.flight_recorder import FlightDump, evidence_of, parse_dump
from anubis.diagnosis.scheduling import ProcessorWatch
from anubis.diagnosis.sockets import SocketWatch
from anubis.files import json_value, read_text

HOOK = Path(__file__).parent / "hook"
FOLDER_VARIABLE = "ANUBIS_LIVE_DIR"
DEADLINE_S = 3.0
MOST_BYTES = 64 << 20
MOST_RANKS = 4096  # of one machine
LARGEST_RANK = 1_000_000
LARGEST_PID = 1 << 22  # of Linux
AT_ONCE = 64
PULSE_EVERY_S = 0.05
PULSES_A_SAMPLE = 4  # of connections: they cost more to look at
LONGEST_HOST = 255
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>\S+)')
FRAMES = 40


@dataclass(frozen=True, kw_only=True)
class LiveRank:
    """A rank as it announced itself."""

    rank: int
    pid: int
    socket: str
    world: int = 0
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class LiveAnswer:
    rank: LiveRank
    pulse: Pulse
    dump: FlightDump | None = None
    frames: tuple[str, ...] = ()
    why_not: str = ""


def hooked(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment in which a job has to be started, so that it can be asked."""
    paths = [str(HOOK), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": ":".join(paths), FOLDER_VARIABLE: str(folder)}


def announced(folder: Path) -> list[LiveRank]:
    try:
        files = sorted(folder.glob("*.json"))[:MOST_RANKS]
    except OSError as cause:
        raise EvidenceError(f'cannot read "{folder}": {cause.strerror}') from None
    return [_announced(file) for file in files]


def _announced(file: Path) -> LiveRank:
    try:
        words = json_value(read_text(file, EvidenceError, limit=1 << 16))
        rank = LiveRank(
            rank=int(words["rank"]),
            pid=int(words["pid"]),
            socket=str(words["socket"]),
            world=int(words.get("world", 0)),
            host=one_line(str(words.get("host", "")))[:LONGEST_HOST],
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise EvidenceError(f'"{file}" is no announcement of a rank') from None
    if not (0 <= rank.rank < LARGEST_RANK and 0 < rank.pid < LARGEST_PID):
        raise EvidenceError(f'"{file}" announces no rank and no process that can be')
    return rank


def ask_ranks(
    folder: Path, job: str = "", *, deadline_s: float = DEADLINE_S, stacks: bool = True
) -> JobEvidence:
    ranks = announced(folder)
    if not ranks:
        raise EvidenceError(
            f'no rank has announced itself in "{folder}": was the job started with {HOOK} on'
            f" PYTHONPATH and {FOLDER_VARIABLE} set?"
        )
    return live_evidence(_answers(ranks, deadline_s, stacks), job, time.time())


@dataclass(frozen=True, kw_only=True)
class LiveLook:
    """What was seen of a running job at once. `still_since`: it hangs."""

    evidence: JobEvidence
    still_since: float | None


def watch_ranks(folder: Path, job: str = "", *, every_s: float = 1.0) -> Iterator[LiveLook]:
    """Looks at a job, without end. Stacks are asked for only where it stands still. Between looks
    it is noted which process ends first: the launcher soon ends all."""
    standstill, sockets, processors = Standstill(), SocketWatch(), ProcessorWatch()
    gone: dict[int, float] = {}
    while True:
        began = time.monotonic()
        ranks = announced(folder)
        if ranks:
            evidence = _timed(ask_ranks(folder, job, stacks=False), ranks, gone)
            if (since := standstill.since(evidence)) is not None:
                evidence = _timed(ask_ranks(folder, job), ranks, gone)
            processors.sample({rank.rank: rank.pid for rank in ranks if rank.rank not in gone})
            evidence = _watched(evidence, sockets, processors)
            yield LiveLook(evidence=evidence, still_since=since)
        for pulse in count():
            if time.monotonic() >= began + every_s:
                break
            _note_ends(ranks, gone)
            if pulse % PULSES_A_SAMPLE == 0:
                sockets.sample({rank.rank: rank.pid for rank in ranks if rank.rank not in gone})
            time.sleep(PULSE_EVERY_S)


def _watched(
    evidence: JobEvidence, sockets: SocketWatch, processors: ProcessorWatch
) -> JobEvidence:
    connections = tuple(sockets.connections())
    return replace(
        evidence,
        collectors=evidence.collectors | ({Collector.CONNECTIONS} if connections else set()),
        connections=connections,
        processes=tuple(
            replace(process, waits=processors.share(process.rank)) for process in evidence.processes
        ),
    )


def _note_ends(ranks: list[LiveRank], gone: dict[int, float]) -> None:
    now = time.time()
    for rank in ranks:
        if rank.rank not in gone and pulse_of(rank.pid) is Pulse.GONE:
            gone[rank.rank] = now


def _timed(evidence: JobEvidence, ranks: list[LiveRank], gone: dict[int, float]) -> JobEvidence:
    _note_ends(ranks, gone)
    return replace(
        evidence,
        processes=tuple(
            replace(process, at=gone.get(process.rank, process.at))
            for process in evidence.processes
        ),
    )


def _answers(ranks: list[LiveRank], deadline_s: float, stacks: bool) -> list[LiveAnswer]:
    until = time.monotonic() + deadline_s
    pool = ThreadPoolExecutor(max_workers=min(AT_ONCE, len(ranks)))
    questions = {pool.submit(_ask, rank, until, stacks): rank for rank in ranks}
    ended, _ = wait(questions, timeout=deadline_s + 0.5)
    pool.shutdown(wait=False, cancel_futures=True)
    return [
        future.result() if future in ended else _outside(rank, "no answer in time")
        for future, rank in questions.items()
    ]


def _ask(rank: LiveRank, until: float, stacks: bool) -> LiveAnswer:
    if (pulse := pulse_of(rank.pid)) is not Pulse.ANSWERS:
        return LiveAnswer(rank=rank, pulse=pulse)
    try:
        trace = _post(rank.socket, "fr_trace_json", until)
        dump = parse_dump(trace, f"rank {rank.rank}")
        frames = parse_stack(_post(rank.socket, "dump_traceback", until)) if stacks else ()
    except (OSError, http.client.HTTPException, EvidenceError) as cause:
        return _outside(rank, one_line(str(cause))[:200] or "no answer")
    return LiveAnswer(rank=rank, pulse=Pulse.ANSWERS, dump=dump, frames=frames)


def _outside(rank: LiveRank, why_not: str) -> LiveAnswer:
    return LiveAnswer(rank=rank, pulse=pulse_of(rank.pid), why_not=why_not)


def pulse_of(pid: int) -> Pulse:
    """By what the kernel says of a process: an ended one that nobody waited for is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return Pulse.GONE
    state = status.rpartition(")")[2].split()[:1]
    if state in (["T"], ["t"]):
        return Pulse.STOPPED
    return Pulse.GONE if state in (["Z"], ["X"]) else Pulse.ANSWERS


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str, until: float) -> None:
        super().__init__("localhost", timeout=max(0.05, until - time.monotonic()))
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _post(path: str, handler: str, until: float) -> bytes:
    connection = _Unix(path, until)
    try:
        connection.request("POST", f"/handler/{handler}", body=b"")
        answer = connection.getresponse()
        data = answer.read(MOST_BYTES + 1)
    finally:
        connection.close()
    if answer.status != 200 or len(data) > MOST_BYTES:
        raise EvidenceError(f"{handler} was answered with {answer.status} and {len(data)} bytes")
    return data


def parse_stack(text: bytes) -> tuple[str, ...]:
    """Of `faulthandler`'s words on all threads: the main thread, outermost call first."""
    threads = text[: 1 << 20].decode(errors="replace").split("\n\n")
    main = next((part for part in reversed(threads) if _FRAME.search(part)), "")
    frames = [
        one_line(f"{match['name']} ({match['file']}:{match['line']})")[:200]
        for match in _FRAME.finditer(main)
    ]
    return tuple(reversed(frames[:FRAMES]))


def live_evidence(answers: list[LiveAnswer], job: str, at: float) -> JobEvidence:
    dumps = {answer.rank.rank: answer.dump for answer in answers if answer.dump}
    world = max((answer.rank.world for answer in answers), default=0)
    everybody = {*range(min(world, MOST_RANKS)), *(answer.rank.rank for answer in answers)}
    hosts = {answer.rank.rank: answer.rank.host for answer in answers if answer.rank.host}
    recorded = evidence_of(dumps, job=job, at=at, expected=everybody)
    silent = [answer for answer in answers if answer.why_not and answer.pulse is Pulse.ANSWERS]
    gaps = {}
    if silent:
        first = silent[0]
        gaps[Collector.STACKS] = f"rank {first.rank.rank} did not answer: {first.why_not}"
    steps = tuple(steps_of(recorded.calls))
    met = {Collector.PROCESSES, Collector.STACKS, *((Collector.STEPS,) if steps else ())}
    return replace(
        recorded,
        collectors=recorded.collectors | met,
        ranks=RankMap(nodes=hosts, addresses={host: host for host in hosts.values()}),
        steps=steps,
        gaps=gaps,
        stacks=tuple(
            Stack(rank=answer.rank.rank, frames=answer.frames)
            for answer in answers
            if answer.frames
        ),
        processes=tuple(
            ProcessState(rank=answer.rank.rank, pulse=answer.pulse, at=at) for answer in answers
        ),
        alive=any(answer.pulse is not Pulse.GONE for answer in answers),
    )
