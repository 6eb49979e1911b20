"""Live evidence of the ranks of a job on this machine, while they run or hang: how far their
collectives are, the stacks of their programs, and whether they answer at all.

The ranks announce themselves in a folder (hook/sitecustomize.py). All are asked at once, with one
deadline; a rank that does not answer by then is examined from outside.
"""

from __future__ import annotations

import http.client
import math
import os
import re
import socket
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

from anubis.core.diagnose.evidence import (
    AdapterRise,
    Collector,
    Connection,
    JobEvidence,
    PastPart,
    ProcessState,
    Pulse,
    Rise,
    Stack,
    Stall,
)
from anubis.core.diagnose.live_progress import (
    COLLECTIVES,
    STILL_S,
    RankCount,
    Standstill,
    is_waiting,
    pace_of,
    progress_of,
    rest_of,
    steps_of,
)
from anubis.core.errors import EvidenceError
from anubis.core.text import escape_line
from anubis.readers.jobs.adapter_counters import AdapterWatch
from anubis.readers.jobs.flight_recorder import FlightDump, evidence_of, parse_dump
from anubis.readers.jobs.scheduling import ProcessorWatch, kernel_function
from anubis.readers.jobs.sockets import SocketWatch
from anubis.readers.jobs.trace_reader import MOST_RANKS
from anubis.text.files import json_value, read_text

PROC = Path("/proc")
HOOK = Path(__file__).parent / "hook"
FOLDER_VARIABLE = "ANUBIS_LIVE_DIR"
UNHOOKED = "it was started without the hook (--hook)"
DEADLINE_S = 3.0  # for all ranks of a machine; one that works answers at once
MOST_BYTES = 64 << 20  # a rank that lies cannot fill the memory
MOST_HERE = 4096  # ranks of one machine
LARGEST_PID = 1 << 22  # of Linux, whose processes have smaller ones
ENDED = LARGEST_PID  # so a signal to it reaches nobody
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
TOGETHER_S = 60  # launchers of one job's ranks on a machine begin within this
AT_ONCE = 64  # ranks, each by a thread
PULSE_EVERY_S = 0.05  # collectives take milliseconds
PULSES_A_SAMPLE = 4  # of connections: they cost more to look at
LONGEST_HOST = 255  # characters of a host's name
LONGEST_NOTE = 200  # characters of a reason that a rank gives
MOST_THREADS = 64  # of a rank; the main thread is the last in its text
BOOTSTRAP = ("threading.py", "concurrent/futures/thread.py")  # files in which every thread begins
_OWN_FILE = str(HOOK / "sitecustomize.py")
_OWN_THREAD = re.compile(r'/hook/sitecustomize\.py", line \d+ in _record')
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>\S+)')
FRAMES = 40  # of a stack, from the top
MOST_PAST_BYTES = 1 << 20  # of a rank's notes
MOST_PARTS = 256  # of them: the hook writes 150 at most


Number = TypeVar("Number", bool, int, float)


@dataclass(frozen=True, kw_only=True)
class LiveRank:
    """A rank as it announced itself."""

    rank: int
    pid: int
    socket: str  # empty: it opened none
    host: str = ""
    world: int = 0  # ranks of the job
    here: int = 0  # and of it on this machine; 0: its launcher does not tell
    job: str = ""  # as its launcher names it; empty: it does not
    began: int = 0  # when its process did, in ticks since its machine did; 0: unknown
    joined: float = 0.0  # by the clock of its machine since that began; 0: unknown
    waited_s: float = 0.0  # that its program had waited for a processor by then


@dataclass(frozen=True, kw_only=True)
class LiveAnswer:
    rank: LiveRank
    pulse: Pulse
    trace: str = ""  # what its flight recorder told, as JSON
    stacks: tuple[Stack, ...] = ()  # of its threads
    why_not: str = ""
    blocked_in: str = ""  # function of the kernel


def add_hook(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with which a job has to be started so that its ranks answer."""
    paths = [str(HOOK), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": ":".join(paths), FOLDER_VARIABLE: str(folder)}


def find_ranks(folder: Path) -> list[LiveRank]:
    try:
        files = sorted(folder.glob("*.json"))[:MOST_HERE]
        if files and folder.stat().st_mode & 0o022:
            raise EvidenceError(
                f'others may write to "{folder}": files there may not be from the ranks'
            )
    except OSError as cause:
        raise EvidenceError(f'cannot read "{folder}": {cause.strerror}') from None
    namespaces = PidNamespaces()
    return [_read_rank(file, namespaces) for file in files]


def _read_rank(file: Path, namespaces: PidNamespaces) -> LiveRank:
    """Read the announcement of a rank; only the rank's own user may write it, and only from the
    folder."""
    try:
        owner, status = file.parent.stat().st_uid, file.lstat()
    except OSError as cause:
        raise EvidenceError(f'cannot read "{file}": {cause.strerror}') from None
    if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
        raise EvidenceError(f'"{file}" is no file of the owner of its folder')
    try:
        words = json_value(read_text(file, EvidenceError, limit=1 << 16))
        rank = LiveRank(
            rank=int(words["rank"]),
            pid=int(words["pid"]),
            socket=_socket_path(file, str(words["socket"])),
            host=escape_line(str(words.get("host", "")))[:LONGEST_HOST],
            world=int(words.get("world", 0)),
            here=int(words.get("here", 0)),
            job=escape_line(str(words.get("job", "")))[:LONGEST_NOTE],
            began=int(words.get("began", 0)),
            joined=_seconds(words.get("joined", 0.0)),
            waited_s=_seconds(words.get("waited_ns", 0)) / 1e9,
        )
        namespace = int(words.get("pid_namespace", 0))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise EvidenceError(f'"{file}" is no announcement of a rank') from None
    if not (0 <= rank.rank < MOST_RANKS and 0 < rank.pid < LARGEST_PID):
        raise EvidenceError(f'"{file}" announces no rank and no process that can be')
    if namespace:
        rank = _translate_pid(rank, namespace, namespaces)
    if rank.began and began_at(rank.pid) != rank.began:  # its id is that of another process by now
        rank = replace(rank, pid=ENDED)
    with suppress(OSError):  # it has ended
        if (user := Path(f"/proc/{rank.pid}").stat().st_uid) != owner:
            raise EvidenceError(
                f'"{file}" of user {owner} announces process {rank.pid}, which is of user {user}'
            )
    return rank


def began_at(pid: int) -> int:
    """Return when a process began, in ticks since the machine did; 0 if it is gone."""
    return _status(pid, 19)


def _parent_of(pid: int) -> int:
    return _status(pid, 1)


def _status(pid: int, place: int) -> int:
    """Return a number that the kernel shows of a process; 0 if that is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return int(status.rpartition(")")[2].split()[place])
    except (OSError, IndexError, ValueError):
        return 0


def _seconds(word: float) -> float:
    """Return a time; 0 if it is none."""
    return number if math.isfinite(number := float(word)) else 0.0


def _translate_pid(rank: LiveRank, namespace: int, namespaces: PidNamespaces) -> LiveRank:
    """The rank with the id of its process on this machine, if it announced one of a namespace."""
    try:
        pid = namespaces.id_here(namespace, rank.pid)
    except OSError as cause:
        raise EvidenceError(
            f"which process rank {rank.rank} is cannot be read here: {cause.filename}:"
            f" {cause.strerror}"
        ) from None
    if pid == rank.pid:
        return rank
    host = rank.host if pid is None else socket.gethostname()
    return replace(rank, pid=ENDED if pid is None else pid, host=host)


def _socket_path(file: Path, socket: str) -> str:
    """Return the path of a socket in this folder, whatever folder was announced: nothing elsewhere
    is asked."""
    return str(file.with_name(socket.rpartition("/")[2])) if socket else ""


@dataclass(frozen=True, kw_only=True)
class LiveLook:
    """What was seen of the ranks of one machine at one time."""

    at: float
    answers: tuple[LiveAnswer, ...]
    ended: Mapping[int, float] = field(default_factory=dict)  # when ranks were seen to end
    connections: tuple[Connection, ...] = ()
    adapters: tuple[AdapterRise, ...] = ()
    waits: Mapping[int, float] = field(default_factory=dict)  # ranks, and how much for a processor
    work_waits: Mapping[int, float] = field(default_factory=dict)  # of their threads that work,
    work_ran: Mapping[int, float] = field(default_factory=dict)  # which had one for so much
    waited_before: Mapping[int, float] = field(default_factory=dict)  # since ranks joined
    times_seen: Mapping[int, int] = field(default_factory=dict)  # ranks: looks at its main thread,
    times_at_work: Mapping[int, int] = field(default_factory=dict)  # those without a wait for ranks
    past: Mapping[int, tuple[PastPart, ...]] = field(default_factory=dict)  # ranks' own notes
    rests: Mapping[int, float] = field(default_factory=dict)  # ranks, and for how long
    sleeps: Mapping[int, int] = field(default_factory=dict)  # ranks, and how often they slept
    moved_bytes: Mapping[int, int] = field(default_factory=dict)  # of ranks, read and written
    storing: tuple[int, ...] = ()  # ranks that read, write or load much: others may wait for them
    alone: tuple[int, ...] = ()  # ranks that visibly work: likewise
    busy: Mapping[int, bool] = field(default_factory=dict)  # ranks whose memory or children show it
    late: tuple[int, ...] = ()  # ranks that do not answer, and did so not long ago
    quiet_s: float = 0.0  # for so long nothing has moved
    limit_s: float = STILL_S  # for so long it may pause
    overcome_s: float = 0.0  # the same by its own past
    rest_s: float = 0.0  # for so long its programs have rested, if that shows that it hangs
    hangs: bool = False
    counts: tuple[RankCount, ...] = ()  # how far ranks came while they were looked at
    fresh_s: float = 0.0  # what moved so lately moves
    is_told: bool = True  # more looks would say no more


def ranks_in(folder: Path) -> list[LiveRank]:
    """Return the ranks of the job that announced itself in a folder. Those of earlier jobs, which
    have ended, do not count: as ranks of this one they would be gone."""
    ranks = find_ranks(folder)
    if not ranks:
        raise EvidenceError(
            f'"{folder}" has no rank that announced itself: was the job started with {HOOK} on'
            f" PYTHONPATH and {FOLDER_VARIABLE} set?"
        )
    here = [rank for rank in ranks if rank.host in ("", socket.gethostname())]
    alive = [rank for rank in here if pulse_of(rank.pid) is not Pulse.GONE]
    require_one_job(alive, f'"{folder}"')
    if not here:
        return ranks
    job = LiveJob.recognise(alive or [max(here, key=lambda rank: rank.began)])
    return [rank for rank in ranks if job.includes(rank)]


@dataclass(frozen=True, kw_only=True)
class LiveJob:
    """What tells the ranks of a job from those of another one that uses, or has used, the same
    folder."""

    pids: frozenset[int]  # of ranks that are known to be of it
    name: str
    world: int
    launched: int  # when the first launcher of these was, in ticks since the machine began

    @classmethod
    def recognise(cls, ranks: Collection[LiveRank]) -> LiveJob:
        return cls(
            pids=frozenset(rank.pid for rank in ranks),
            name=max(rank.job for rank in ranks),
            world=max(rank.world for rank in ranks),
            launched=min(began_at(_parent_of(rank.pid)) for rank in ranks),
        )

    def includes(self, rank: LiveRank) -> bool:
        is_here = rank.host in ("", socket.gethostname())
        is_earlier = is_here and 0 < rank.began < self.launched - TOGETHER_S * TICKS_PER_S
        is_as_large = rank.world in (0, self.world) or not self.world or not is_here
        return rank.pid in self.pids or (rank.job == self.name and is_as_large and not is_earlier)


def require_one_job(
    ranks: Iterable[LiveRank],
    where: str,
    advice: str = f"set another {FOLDER_VARIABLE} for each job",
) -> None:
    """Raise an error if living ranks are of several jobs, of which one may be dead and one well."""
    jobs, worlds = set[str](), set[int]()
    for rank in ranks:
        jobs.add(rank.job)
        worlds.add(rank.world)
    if len(jobs - {""}) > 1 or len(worlds - {0}) > 1:
        raise EvidenceError(f"{where} has ranks of several jobs: {advice}")


def refusals(folder: Path) -> str:
    """Say why ranks did not announce themselves, as the hook in them noted; empty if none noted
    anything."""
    present = {rank.rank for rank in find_ranks(folder)}
    why: dict[int, str] = {}
    for file in sorted(folder.glob("*.refused"))[:MOST_HERE]:
        is_note = file.stem.isdigit() and stat.S_ISREG(file.lstat().st_mode)
        if is_note and int(file.stem[:7]) not in present:
            note = read_text(file, EvidenceError, limit=1 << 12)
            why[int(file.stem[:7])] = escape_line(note)[:LONGEST_NOTE]
    if not why:
        return ""
    first = min(why)
    more = f", nor could {len(why) - 1} of the others" if len(why) > 1 else ""
    return f"rank {first} could not be asked: {why[first] or 'its hook does not say why'}{more}"


def ask_ranks(ranks: Sequence[LiveRank]) -> LiveLook:
    # wall clock: logs and dumps are dated by it
    return LiveLook(at=time.time(), answers=tuple(_answers(ranks)))


def watch_ranks(
    present: Callable[[], Sequence[LiveRank]], *, every_s: float = 1.0
) -> Iterator[LiveLook]:
    """Look at a job, without end; `present` returns the ranks that are there by now. Between looks
    the first process to end is noted: the launcher soon ends all."""
    standstill, sockets, processors = Standstill(), SocketWatch(), ProcessorWatch()
    adapters = AdapterWatch()
    gone: dict[int, float | None] = {}
    met: set[int] = set()  # while they ran
    while True:
        began = time.monotonic()
        ranks = present()
        if ranks:
            look = ask_ranks(ranks)
            met |= {answer.rank.rank for answer in look.answers if answer.pulse is not Pulse.GONE}
            _note_ends(ranks, met, gone)
            processors.sample(_running(ranks, gone))
            adapters.sample(began)
            look = replace(
                look,
                ended={rank: at for rank, at in gone.items() if at is not None},
                connections=tuple(sockets.connections()),
                adapters=tuple(adapters.rises()),
                waits=_known(ranks, processors.share),
                work_waits=_known(ranks, processors.work_waits),
                work_ran=_known(ranks, processors.work_ran),
                waited_before=_waited_before(ranks, processors),
                rests=_known(ranks, processors.rest_s),
                sleeps=_known(ranks, processors.sleeps),
                busy=_known(ranks, processors.is_busy),
                moved_bytes={
                    rank: moved + sockets.loaded_bytes(rank)
                    for rank, moved in _known(ranks, processors.moved_bytes).items()
                },
            )
            hangs = standstill.observe(evidence_of_looks([look])) is not None
            yield replace(
                look,
                quiet_s=standstill.quiet_s,
                limit_s=standstill.limit_s,
                overcome_s=standstill.overcome_s,
                rest_s=standstill.rest_s,
                storing=standstill.storing,
                alone=standstill.alone,
                late=standstill.late,
                times_seen=dict(standstill.times_seen),
                times_at_work=dict(standstill.times_at_work),
                hangs=hangs,
                counts=standstill.counts,
                fresh_s=standstill.fresh_s,
                is_told=standstill.is_settled,
            )
        for pulse in count():
            if time.monotonic() >= began + every_s:
                break
            _note_ends(ranks, met, gone)
            if pulse % PULSES_A_SAMPLE == 0:
                sockets.sample(_running(ranks, gone))
            time.sleep(PULSE_EVERY_S)


def _known(
    ranks: Sequence[LiveRank], value_of: Callable[[int], Number | None]
) -> dict[int, Number]:
    values = {rank.rank: value_of(rank.rank) for rank in ranks}
    return {rank: value for rank, value in values.items() if value is not None}


def _waited_before(ranks: Sequence[LiveRank], processors: ProcessorWatch) -> dict[int, float]:
    shares = {
        rank.rank: processors.waited_before(rank.rank, rank.joined, rank.waited_s) for rank in ranks
    }
    return {rank: share for rank, share in shares.items() if share is not None}


def _running(ranks: Sequence[LiveRank], gone: Collection[int]) -> dict[int, int]:
    return {rank.rank: rank.pid for rank in ranks if rank.rank not in gone}


def _note_ends(
    ranks: Sequence[LiveRank], met: Collection[int], gone: dict[int, float | None]
) -> None:
    """Note when ranks ended; the time is unknown if they were gone before the first look."""
    now = time.time()  # wall clock: logs and dumps are dated by it
    for rank in ranks:
        if rank.rank not in gone and pulse_of(rank.pid) is Pulse.GONE:
            gone[rank.rank] = now if rank.rank in met else None


def read_past(rank: LiveRank) -> tuple[PastPart, ...]:
    """Return what a rank noted of its past; nothing if it sends no messages, or if that is no
    note."""
    file = Path(rank.socket or "none").with_suffix(".past")
    try:
        status, owner = file.lstat(), file.parent.stat().st_uid
        if not (rank.socket and stat.S_ISREG(status.st_mode) and status.st_uid == owner):
            return ()
        words = json_value(read_text(file, EvidenceError, limit=MOST_PAST_BYTES))
        waits = [is_waiting(str(place).split(";")) for place in words["places"]]
        return tuple(islice(_past_parts(words["parts"], waits), MOST_PARTS))
    except (OSError, EvidenceError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return ()


def _past_parts(parts: Iterable[Any], waits: Sequence[bool]) -> Iterator[PastPart]:
    for until, length_s, messages, looks in parts:
        counts = {int(place): max(0, int(count)) for place, count in looks.items()}
        at_work = sum(n for place, n in counts.items() if place < 0 or not waits[place])
        if _seconds(length_s) > 0:
            yield PastPart(
                until=_seconds(until),
                length_s=_seconds(length_s),
                messages=max(0, int(messages)),
                looks=sum(counts.values()),
                at_work=at_work,
            )


def _answers(ranks: Sequence[LiveRank]) -> list[LiveAnswer]:
    until = time.monotonic() + DEADLINE_S
    pool = ThreadPoolExecutor(max_workers=min(AT_ONCE, len(ranks)))
    questions = {pool.submit(_ask, rank, until): rank for rank in ranks}
    ended, _ = wait(questions, timeout=DEADLINE_S + 0.5)
    pool.shutdown(wait=False, cancel_futures=True)
    return [
        future.result() if future in ended else _look_from_outside(rank, "no answer in time")
        for future, rank in questions.items()
    ]


def _ask(rank: LiveRank, until: float) -> LiveAnswer:
    """Ask a rank for its recorder, which needs no interpreter, and for its stacks, which do."""
    if pulse_of(rank.pid) is not Pulse.ANSWERS:
        return _look_from_outside(rank)
    if not rank.socket:
        return _look_from_outside(rank, UNHOOKED)
    trace, why_not, is_late = "", "", False
    stacks: tuple[Stack, ...] = ()
    try:
        trace = _post(rank.socket, "fr_trace_json", until).decode(errors="replace")
        stacks = parse_stacks(_post(rank.socket, "dump_traceback", until), rank.rank)
    except (OSError, http.client.HTTPException, EvidenceError) as cause:
        why_not = escape_line(str(cause))[:200] or "no answer"
        is_late = isinstance(cause, TimeoutError)
    seen = _look_from_outside(rank, why_not)
    pulse = Pulse.MUTE if is_late and seen.pulse is Pulse.ANSWERS else seen.pulse
    return replace(seen, pulse=pulse, trace=trace, stacks=stacks)


def _look_from_outside(rank: LiveRank, why_not: str = "") -> LiveAnswer:
    return LiveAnswer(
        rank=rank, pulse=pulse_of(rank.pid), why_not=why_not, blocked_in=kernel_function(rank.pid)
    )


def pulse_of(pid: int) -> Pulse:
    """Return the state of a process as the kernel shows it; an ended one whose parent has not
    waited for it is gone."""
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


def parse_stacks(text: bytes, rank: int) -> tuple[Stack, ...]:
    """Return the stacks of all threads from `faulthandler`'s text, the main thread's first."""
    parts = text[: 1 << 20].decode(errors="replace").split("\n\n")
    parts = [part for part in parts if not _OWN_THREAD.search(part)]
    threads = [frames for part in parts if (frames := _frames(part))][-MOST_THREADS:]
    return tuple(
        Stack(rank=rank, frames=frames, thread="" if place == 0 else _thread_name(frames))
        for place, frames in enumerate(reversed(threads))
    )


def _frames(part: str) -> tuple[str, ...]:
    frames = [
        escape_line(f"{match['name']} ({match['file']}:{match['line']})")[:200]
        for match in islice(_FRAME.finditer(part), FRAMES)
        if match["file"] != _OWN_FILE
    ]
    return tuple(reversed(frames))


def _thread_name(frames: Sequence[str]) -> str:
    """Name a thread by the function that it began with."""
    own = (frame for frame in frames if not frame.rpartition(":")[0].endswith(BOOTSTRAP))
    return next(own, frames[0]).partition(" ")[0]


def hang_together(looks: Sequence[LiveLook], evidence: JobEvidence) -> bool:
    """Return true if the job hangs: one machine says so itself; of several machines, which are
    looked at one after the other, nothing moves on any, and a rank waits or does not answer, or
    their ranks rest."""
    if len(looks) == 1:
        return looks[0].hangs
    if any(look.storing or look.alone for look in looks):
        return False
    waits = any(advance.enqueued > advance.completed for advance in evidence.advances)
    is_out = any(process.pulse is not Pulse.ANSWERS for process in evidence.processes)
    is_still = all(look.hangs or look.quiet_s >= look.limit_s for look in looks)
    if (waits or is_out) and is_still:
        return True
    moves = any(
        count.what == COLLECTIVES and count.is_fresh(look.at, look.fresh_s)
        for look in looks
        for count in look.counts
    )
    rests = all(look.rest_s for look in looks) or rest_of(evidence.processes) > 0
    is_new = all(look.quiet_s >= look.overcome_s for look in looks if look.quiet_s)
    return rests and is_new and not moves


def stall_of(looks: Sequence[LiveLook], evidence: JobEvidence) -> Stall | None:
    """Return the stall of the job; None if no rank waits or rests: then a process that does not
    answer says more."""
    at = max(look.at for look in looks)
    waiting = [advance for advance in evidence.advances if advance.enqueued > advance.completed]
    if waiting:
        quiet_s = min(look.quiet_s for look in looks)
        first = min(waiting, key=lambda advance: (advance.rank, advance.communicator))
        return Stall(
            since=at - quiet_s,
            sentence=(
                f"no collective was launched or finished for {quiet_s:.0f} s, and rank {first.rank}"
                f" waits: it launched {first.enqueued} and finished {first.completed}"
            ),
        )
    rest_s = rest_of(evidence.processes)
    if rest_s:
        resting = sum((process.rests_s or 0.0) >= rest_s for process in evidence.processes)
        resting_ranks = (
            f"the main threads of {resting} of {len(evidence.processes)} ranks have not run"
        )
    elif rest_s := min(look.rest_s for look in looks):
        resting_ranks = "no program has been at another place, or none has answered,"
    else:
        return None
    return Stall(since=at - rest_s, sentence=f"{resting_ranks} for {rest_s:.0f} s")


def evidence_of_looks(looks: Sequence[LiveLook]) -> JobEvidence:
    """Combine one look at each machine into the evidence of one job."""
    answers = [answer for look in looks for answer in look.answers]
    ranks = [answer.rank for answer in answers]
    dumps, unread = _dumps_of(answers)
    all_ranks, unasked = _expected_ranks(ranks)
    recorded = evidence_of(
        dumps, at=max((look.at for look in looks), default=0.0), expected=all_ranks
    )
    steps = tuple(steps_of(recorded.calls))
    hangs = any(look.hangs for look in looks)
    connections = tuple(wire for look in looks for wire in look.connections)
    met = {Collector.PROCESSES}
    met |= {Collector.STACKS} if dumps else set()
    met |= {Collector.STEPS} if steps else set()
    met |= {Collector.CONNECTIONS} if connections else set()
    gaps = {Collector.STACKS: unread, Collector.PROGRESS: unasked}
    hosts = {rank.rank: rank.host for rank in ranks if rank.host}
    return replace(
        recorded,
        collectors=recorded.collectors | met,
        ranks=replace(
            recorded.ranks, nodes=hosts, addresses={host: host for host in hosts.values()}
        ),
        steps=steps,
        pace=pace_of(recorded.calls),
        progress=() if unasked or hangs else tuple(_progress(looks)),
        mute=frozenset(_present_ranks(answers)) - {advance.rank for advance in recorded.advances},
        gaps={name: why for name, why in gaps.items() if why},
        connections=connections,
        adapters=tuple(rise for look in looks for rise in _adapters(look)),
        stacks=tuple(stack for answer in answers for stack in answer.stacks),
        processes=tuple(state for look in looks for state in _states(look)),
        alive=any(answer.pulse is not Pulse.GONE for answer in answers),
    )


def _adapters(look: LiveLook) -> Iterator[AdapterRise]:
    host = next((answer.rank.host for answer in look.answers), "")
    return (replace(rise, node=host) for rise in look.adapters)


def _progress(looks: Iterable[LiveLook]) -> Iterator[Rise]:
    for look in looks:
        yield from progress_of(look.counts, look.at, look.fresh_s)


def _present_ranks(answers: Iterable[LiveAnswer]) -> Iterator[int]:
    """Yield ranks that are there, whether they answered or not."""
    for answer in answers:
        if answer.pulse in (Pulse.ANSWERS, Pulse.MUTE) and answer.rank.socket:
            yield answer.rank.rank


def _states(look: LiveLook) -> Iterator[ProcessState]:
    for answer in look.answers:
        rank = answer.rank.rank
        yield ProcessState(
            rank=rank,
            pulse=answer.pulse,
            at=look.ended.get(rank) if answer.pulse is Pulse.GONE else look.at,
            waits=look.waits.get(rank),
            work_waits=look.work_waits.get(rank),
            work_ran=look.work_ran.get(rank),
            waited_before=look.waited_before.get(rank),
            times_seen=look.times_seen.get(rank, 0),
            times_at_work=look.times_at_work.get(rank, 0),
            past=look.past.get(rank, ()),
            rests_s=look.rests.get(rank),
            sleeps=look.sleeps.get(rank),
            moved_bytes=look.moved_bytes.get(rank),
            is_busy=look.busy.get(rank, False),
            blocked_in=answer.blocked_in,
            is_deaf=answer.pulse is Pulse.MUTE and not answer.trace,
            is_late=rank in look.late,
        )


def _dumps_of(answers: Iterable[LiveAnswer]) -> tuple[dict[int, FlightDump], str]:
    """Return the dumps, and the reason why the first present rank without a dump has none."""
    dumps: dict[int, FlightDump] = {}
    sentences: list[str] = []
    for answer in answers:
        rank = answer.rank.rank
        is_there = answer.pulse in (Pulse.ANSWERS, Pulse.MUTE)
        why_not = answer.why_not if is_there else ""
        try:
            if answer.trace:
                dumps[rank] = parse_dump(answer.trace.encode(), f"rank {rank}")
        except EvidenceError as error:
            why_not = str(error)
        if why_not:
            sentences.append(f"rank {rank} did not answer: {why_not}")
    return dumps, next(iter(sentences), "")


def _expected_ranks(ranks: Sequence[LiveRank]) -> tuple[frozenset[int], str]:
    """Return the ranks that should have left a record: all ranks of the job, if all of its machines
    were asked. Else return a sentence too: nothing is known of ranks on other machines."""
    present = frozenset(rank.rank for rank in ranks)
    world = min(max((rank.world for rank in ranks), default=0), MOST_RANKS)
    on_host = {rank.host: rank.here for rank in ranks}
    if len(present) >= world or (all(on_host.values()) and sum(on_host.values()) >= world):
        return present | frozenset(range(world)), ""
    return present, (
        f"{len(present)} of {world} ranks are on the machines that were asked: look at the others"
        " with --live-to"
    )


class PidNamespaces:
    """The processes of this machine that count their ids by themselves, as those of pods do, now.
    The kernel shows the ids here to those who may trace the process, such as its own user.
    """

    def id_here(self, namespace: int, pid: int) -> int | None:
        """Return the id on this machine; `ENDED` if others of the namespace are here, and it is
        not; None if none is here."""
        if namespace == self._own:
            return pid
        members = self._members.get(namespace)
        return None if members is None else members.get(pid, ENDED)

    @cached_property
    def _own(self) -> int:
        return _namespace(PROC / "self")

    @cached_property
    def _members(self) -> dict[int, dict[int, int]]:
        members: dict[int, dict[int, int]] = {}
        for place in PROC.iterdir():
            if place.name.isdecimal():
                with suppress(OSError, ValueError, IndexError):  # it ended, or is of another user
                    status = (place / "status").read_text(errors="replace")
                    inner = int(status.partition("\nNSpid:")[2].partition("\n")[0].split()[-1])
                    members.setdefault(_namespace(place), {})[inner] = int(place.name)
        return members


def _namespace(place: Path) -> int:
    return (place / "ns/pid").stat().st_ino
