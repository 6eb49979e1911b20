"""The ranks of a running job as evidence: those of this machine are observed for a while, those of
several machines are read from files that were written on each."""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from anubis.core.diagnose.evidence import MAY_WAIT, Collector, JobEvidence, Pulse
from anubis.core.diagnose.hang import rank_list
from anubis.core.diagnose.live_progress import ALONE_S, LONGEST_STILL_S, proof
from anubis.core.errors import EvidenceError
from anubis.readers.jobs.hook.sitecustomize import LAUNCHERS, job_of
from anubis.readers.jobs.live import (
    FOLDER_VARIABLE,
    LiveAnswer,
    LiveJob,
    LiveLook,
    LiveRank,
    ask_ranks,
    evidence_of_looks,
    find_ranks,
    hang_together,
    ranks_in,
    read_past,
    refusals,
    require_one_job,
    stall_of,
    watch_ranks,
)
from anubis.readers.jobs.trace_reader import Broken, TraceReader
from anubis.text.files import json_value, read_text, write_whole
from anubis.text.reading import read
from anubis.text.wording import moment, time_span

LIVE_S = 20.0  # how long running processes are observed
KEPT_S = 10.0  # the same if other machines observe at the same time
MOST_CALLS = 1 << 18  # of all ranks of a job, that one machine reads
FEWEST_CALLS = 64  # of a rank
UNTOLD_S = LONGEST_STILL_S + 5.0  # the same if they seem to stand still


def read_live(path: Path) -> JobEvidence:
    """Evidence of running processes, with the reason why some ranks cannot be asked."""
    refused = refusals(path) if path.is_dir() else ""
    try:
        evidence = _observe_ranks(path)
    except EvidenceError:
        if refused:
            raise EvidenceError(refused) from None
        raise
    gaps = {Collector.PROCESSES: refused} if refused else {}
    return replace(evidence, gaps={**evidence.gaps, **gaps})


def write_live(place: Path, folder: Path) -> Path:
    """Write what this machine's ranks report, for a diagnosis of all machines of their job."""
    return write_look(_observe(place, KEPT_S), folder)


def look_here(place: Path) -> bytes:
    """The same, packed, of the ranks that announced themselves on this machine: others may share
    the folder."""
    look = _observe(place, KEPT_S)
    here = ("", socket.gethostname())
    answers = tuple(answer for answer in look.answers if answer.rank.host in here)
    if not answers:
        raise EvidenceError(f'no rank in "{place}" is of this machine')
    world = max(answer.rank.world for answer in answers)
    kept = max(FEWEST_CALLS, MOST_CALLS // max(world, 1))
    return pack_look(replace(look, answers=tuple(_shortened(answer, kept) for answer in answers)))


def _shortened(answer: LiveAnswer, kept: int) -> LiveAnswer:
    """An answer with the last calls of its recorder, and all that did not end: a large job has more
    than one machine can read. The first rank keeps all: it shows how fast the job was."""
    try:
        document = json_value(answer.trace)
        entries = document["entries"]
        if answer.rank.rank == 0 or len(entries) <= kept:
            return answer
        document["entries"] = [
            *(entry for entry in entries[:-kept] if not _has_ended(entry)),
            *entries[-kept:],
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return answer  # who diagnoses says what is wrong with it
    return replace(answer, trace=json.dumps(document, separators=(",", ":")))


def _has_ended(entry: Mapping[str, object]) -> bool:
    return bool(entry.get("retired")) or entry.get("state") == "completed"


def _observe_ranks(path: Path) -> JobEvidence:
    files, broken = look_files(path), Broken()
    now = time.time()  # wall clock: looks are dated by it
    looks = read_looks(files, broken, now) if files else [_observe(path, LIVE_S)]
    evidence = evidence_of_job(looks)
    return replace(evidence, gaps={**broken.gaps(Collector.PROCESSES), **evidence.gaps})


def evidence_of_job(looks: Sequence[LiveLook]) -> JobEvidence:
    """Evidence of the ranks. If the job works, no rank counts as absent, only as late."""
    evidence = evidence_of_looks(looks)
    if hang_together(looks, evidence):
        return replace(evidence, stall=stall_of(looks, evidence))
    at_work = frozenset({Collector.PROGRESS, Collector.CALLS})
    storing = [rank for look in looks for rank in look.storing]
    alone = [rank for look in looks for rank in look.alone]
    if (storing or alone) and not (evidence.gaps.get(Collector.PROGRESS) or proof(evidence)):
        doing = "busy with files or a download" if storing else "at work"
        why = f"{MAY_WAIT} {rank_list(storing or alone)}, {doing}{_limit(looks, storing)}"
        evidence = replace(evidence, gaps={**evidence.gaps, Collector.PROGRESS: why})
    return replace(evidence, collectors=evidence.collectors - at_work, advances=(), calls=())


def _limit(looks: Sequence[LiveLook], storing: Sequence[int]) -> str:
    """Words for the time at which a job that still waits for a rank at work hangs, if its records
    show since when it waits."""
    quiet_s = min((look.quiet_s for look in looks if look.quiet_s), default=0.0)
    if storing or not quiet_s:
        return ""
    hangs_at = max(look.at for look in looks) + ALONE_S - quiet_s
    return f" for {time_span(quiet_s)} so far: if they still wait at {moment(hangs_at)}, it hangs"


def _observe(place: Path, seconds: float) -> LiveLook:
    """Watch ranks until they stand still or are shown to work; if neither is clear in time, for as
    long as a pause may last."""
    present = _rank_finder(place)
    look = ask_ranks(present())  # raises an error that says why if no rank can be asked
    began = time.monotonic()
    for look in watch_ranks(present):
        spent_s = time.monotonic() - began
        if look.hangs or spent_s >= (seconds if look.is_told else max(seconds, UNTOLD_S)):
            break
    past = {answer.rank.rank: read_past(answer.rank) for answer in look.answers}
    return replace(look, past={rank: parts for rank, parts in past.items() if parts})


def _rank_finder(place: Path) -> Callable[[], list[LiveRank]]:
    """Make a function that finds the ranks. `place`: the folder in which ranks announce themselves,
    or /proc/PID of a process that started them."""
    if place.parent != PROC:
        return partial(ranks_in, place)
    pid = int(place.name) if place.name.isdecimal() else 0
    if folder := live_folder(pid):
        return _announced_rank_finder(folder, pid)
    ranks = ranks_of_process(pid)
    return lambda: ranks


def _announced_rank_finder(folder: Path, pid: int) -> Callable[[], list[LiveRank]]:
    """Make a function that finds the ranks of one job in a folder that others may use, too: the job
    of the ranks that a process is or has started. If none of these has announced itself, such as
    those of Ray, which another process starts, the folder has to be of one job."""
    ranks = {rank.pid: rank for rank in find_ranks(folder)}
    own = [ranks[member] for member in _topmost(pid, ranks.__contains__)]
    _require_one_job(own, pid)
    if not own:
        return partial(ranks_in, folder)
    job = LiveJob.recognise(own)
    return lambda: [rank for rank in find_ranks(folder) if job.includes(rank)]


def _require_one_job(ranks: Iterable[LiveRank], pid: int) -> None:
    require_one_job(ranks, f"process {pid}", "name the process that started those of one")


TRACE = TraceReader(
    place="live",
    words="processes to ask",
    help="The folder in which its processes announce themselves, to be asked while it hangs; "
    "or the one that --live-to wrote into.",
    brings=(Collector.PROCESSES, Collector.STACKS, Collector.CONNECTIONS),
    order=0,  # a process may end while it is observed, and then its logs say why
    read=lambda path, _: read_live(path),
)


# --- looks that are kept as files ------------------------------------------------------------

SUFFIX = ".look"
MOST_FILES = 65_536  # looks, one for each machine
TOGETHER_S = 120.0  # looks of one question are not further apart


def write_look(look: LiveLook, folder: Path) -> Path:
    """Write a look into a file that is named after this machine."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise EvidenceError(f'cannot make "{folder}": {cause.strerror}') from None
    file = folder / f"{socket.gethostname()}{SUFFIX}"
    write_whole(file, pack_look(look), EvidenceError, "the answers of this machine's ranks")
    return file


def pack_look(look: LiveLook) -> bytes:
    return gzip.compress(json.dumps(asdict(look)).encode(), mtime=0)


def look_files(place: Path) -> list[Path]:
    """List the files of looks; none if the place is neither such a file nor a folder of them."""
    if place.suffix == SUFFIX:
        return [place]
    try:
        return sorted(place.glob(f"*{SUFFIX}"))[:MOST_FILES]
    except OSError as cause:
        raise EvidenceError(f'cannot read "{place}": {cause.strerror}') from None


def read_looks(files: Sequence[Path], broken: Broken, now: float) -> list[LiveLook]:
    """Read looks that were taken at one time, at most one of each rank. Files of an earlier request
    do not count, nor those of a machine whose clock is ahead, nor those of a machine whose ranks
    were found on another one later."""
    looks = [look for look in broken.read(files, read_look) if look.at <= now + TOGETHER_S]
    newest = max((look.at for look in looks), default=0.0)
    together = [look for look in looks if newest - look.at <= TOGETHER_S]
    answers = [answer for look in together for answer in look.answers]
    alive = (answer.rank for answer in answers if answer.pulse is not Pulse.GONE)
    require_one_job(alive, "the folder of looks")
    seen: set[int] = set()
    kept = []
    for look in sorted(together, key=lambda look: look.at, reverse=True):
        ranks = {answer.rank.rank for answer in look.answers}
        if not ranks & seen:
            seen |= ranks
            kept.append(look)
    if not kept:
        raise broken.error("the looks are of a time that is yet to come: a clock is wrong")
    return kept


def read_look(file: Path) -> LiveLook:
    return parse_look(read_text(file, EvidenceError), f'"{file}"')


def parse_look(text: str, where: str) -> LiveLook:
    try:
        document = json_value(text)
    except ValueError as cause:
        raise EvidenceError(f"{where} is no look at ranks: {cause}") from None
    return read(document, LiveLook, where, EvidenceError)


# --- processes of this machine -----------------------------------------------------------------

PROC = Path("/proc")
MOST_BYTES = 4 << 20  # of an environment


def ranks_of_process(pid: int) -> list[LiveRank]:
    """Return the ranks among a process and all that it started. What a rank started has its
    environment, too, or is of another job."""
    if not (PROC / str(pid)).exists():
        raise EvidenceError(f"there is no process {pid} on this machine")
    environments = {member: _environment(member) for member in _family(pid)}
    names = next(
        (names for names in LAUNCHERS if any(names[0] in its for its in environments.values())),
        LAUNCHERS[0],
    )
    ranks: list[LiveRank] = []
    for member in _topmost(pid, lambda member: names[0] in environments.get(member, {})):
        rank, world, here = (_number_in(environments[member], name) for name in names)
        if rank is not None:
            ranks.append(
                LiveRank(
                    rank=rank,
                    pid=member,
                    socket="",
                    host=socket.gethostname(),
                    world=world or 0,
                    here=here or 0,
                    job=job_of(environments[member]),
                )
            )
    if not ranks:
        raise EvidenceError(
            f"process {pid} has no rank of a job, nor has any that it started: none has"
            f" {' or '.join(names[0] for names in LAUNCHERS)} in an environment that may be read"
        )
    _require_one_job(ranks, pid)
    return list({rank.rank: rank for rank in reversed(ranks)}.values())[::-1]


def live_folder(pid: int) -> Path | None:
    """Return the folder in which the ranks of a job announce themselves; None if they were not
    started with the hook."""
    members = _topmost(pid, lambda member: bool(_environment(member).get(FOLDER_VARIABLE)))
    folders = {_environment(member)[FOLDER_VARIABLE] for member in members}
    if len(folders) > 1:
        raise EvidenceError(
            f"process {pid} started jobs with {len(folders)} folders in {FOLDER_VARIABLE}: name the"
            " process that started one of them"
        )
    return Path(folders.pop()) if folders else None


def _family(pid: int) -> list[int]:
    """Return a process and all below it, parents before children."""
    return _descendants(pid, lambda _: False)


def _topmost(pid: int, is_sought: Callable[[int], bool]) -> list[int]:
    """Return those of a process and all below it that are sought, without any below these."""
    return [member for member in _descendants(pid, is_sought) if is_sought(member)]


def _descendants(pid: int, is_last: Callable[[int], bool]) -> list[int]:
    children: dict[int, list[int]] = {}
    for process, parent in _parents():
        children.setdefault(parent, []).append(process)
    family = [pid]
    for member in family:
        if not is_last(member):
            family += sorted(children.get(member, ()))
    return family


def _parents() -> Iterable[tuple[int, int]]:
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            try:
                status = Path(entry.path, "stat").read_text(errors="replace")
            except OSError:
                continue  # it ended meanwhile
            yield int(entry.name), int(status.rpartition(")")[2].split()[1])


def _environment(pid: int) -> Mapping[str, str]:
    """Return the environment with which the process began; empty for somebody else's process."""
    try:
        with (PROC / str(pid) / "environ").open("rb") as file:
            entries = file.read(MOST_BYTES).decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _number_in(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").partition("(")[0]  # 4(x2): of Slurm, on each node
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else None
