"""Looks at the ranks of a job on this node when the keeper asks for it.

    POST /looks/JOB   begins a look, or joins the one that goes on, and answers at once
    GET  /looks/JOB   what it brought: what `anubis diagnose --live-to` writes

The look is Anubis' own program, in a process of the job's owner with nothing of this agent's
environment. One goes on at a time, for a limited time, with a limited answer. A folder counts only
if no stranger could have put it there, and a process only by the group in which Slurm holds it:
names and variables of processes are their owner's words.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

FORM = 1  # raised when older readers can no longer read the answers
LIMIT_S = 90.0  # of a look; a job that seems to stand still is looked at for 65 s
KEPT_S = 120.0  # an answer, for those who ask for it
MOST_BYTES = 8 << 20  # of an answer
MOST_MEMORY = 2 << 30  # of the process that looks
MOST_WORDS = 2000  # bytes of a reason
CHUNK = 1 << 16  # bytes at a time
PACKED = b"\x1f\x8b"  # as gzip begins
_NAME = r"[A-Za-z0-9][\w.@+-]{0,252}"
JOB_ID = re.compile(rf"{_NAME}(/{_NAME}){{0,2}}", re.ASCII)  # of Slurm, or as Kubernetes has it
PLACE = "{job}"
HOOKED = b"ANUBIS_LIVE_DIR="  # in the environment of a rank that can be asked
SLURM = r"\d*:[^:]*:/(slurm(_\w+)?/uid_\d+|system\.slice/(\w+_)?slurmstepd\.scope)/job_{}(/.*)?"
LOOKS = [sys.executable, "-I", "-m", "anubis", "diagnose", "--live-to", "-"]
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}

Answer = tuple[int, str, str | bytes]  # status, kind of content, content


class RefusedError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Found:
    """Where the ranks of a job are on this node, and whose they are."""

    words: Sequence[str]  # for the program that looks
    user: int
    group: int


@dataclass
class JobLook:
    job: str
    begun: float = field(default_factory=time.monotonic)
    is_over: bool = False
    brought: bytes = b""
    why_not: str = ""


class JobLooks:
    """The looks that go on and that were taken: one at a time, the last one kept for a while."""

    def __init__(self, node: str, folder: str, proc: Path, command: Sequence[str] = LOOKS) -> None:
        self._node, self._folder, self._proc, self._command = node, folder, proc, command
        self._lock = threading.Lock()
        self._last: JobLook | None = None

    def answer(self, verb: str, name: str) -> Answer:
        job = unquote(name)
        try:
            if not JOB_ID.fullmatch(job):
                raise RefusedError(400, "this is no id of a job")
            return self._state(self._begin(job)) if verb == "POST" else self._show(job)
        except RefusedError as refusal:
            return refusal.status, "text/plain", f"{refusal}\n"

    def _begin(self, job: str) -> JobLook:
        with self._lock:
            going = self._last
            if going and not going.is_over:
                if going.job == job:
                    return going
                raise RefusedError(409, f"it looks at job {going.job} just now")
            place = find(job, self._folder, self._proc)
            try:
                child = start([*self._command, *place.words], place)
            except (OSError, subprocess.SubprocessError) as error:
                raise RefusedError(500, f"the look cannot be started: {error}") from None
            self._last = look = JobLook(job)
            threading.Thread(target=self._wait, args=(look, child), daemon=True).start()
        return look

    def _wait(self, look: JobLook, child: subprocess.Popen[bytes]) -> None:
        brought, why_not = collect(child)
        look.brought, look.why_not, look.is_over = brought, why_not, True
        time.sleep(KEPT_S)
        with self._lock:
            if self._last is look:
                self._last = None

    def _show(self, job: str) -> Answer:
        look = self._last
        if look is None or look.job != job:
            raise RefusedError(404, f"no look at job {job} was begun, or its answer was dropped")
        if not look.is_over:
            return self._state(look)
        if look.why_not:
            raise RefusedError(500, look.why_not)
        return 200, "application/gzip", look.brought

    def _state(self, look: JobLook) -> Answer:
        seconds = round(time.monotonic() - look.begun, 3)
        words = {"looks": FORM, "node": self._node, "job": look.job, "looking_s": seconds}
        return 202, "application/json", f"{json.dumps(words)}\n"


# --- where a job is ------------------------------------------------------------------------------


def find(job: str, folder: str, proc: Path) -> Found:
    """Find a job by the folder in which its ranks announce themselves, else by Slurm's groups."""
    place = Path(folder.replace(PLACE, job)) if folder else None
    if place and os.path.lexists(place):
        place_here = folder_owner(place, len(fixed_part(folder).parts))
    else:
        place_here = slurm_owner(job, proc)
    if os.geteuid() not in (0, place_here.user):
        raise RefusedError(
            403,
            f"job {job} is of user {place_here.user}, and this agent of user {os.geteuid()}: start"
            " it as root, or as that user",
        )
    return place_here


def fixed_part(folder: str) -> Path:
    """The part of the path above the job's own."""
    return Path(folder[: folder.index(PLACE)] + "x").parent


def folder_owner(place: Path, fixed: int) -> Found:
    """The owner of a folder, if only root or this agent's user could have put it there. Links above
    the job's own part are the operator's, and are followed."""
    real = Path(*place.parts[:fixed]).resolve().joinpath(*place.parts[fixed:])
    for above in real.parents:
        status = above.lstat()
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise RefusedError(
                403, f'others may write to "{above}": the job may not be what it says'
            )
    status = real.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise RefusedError(403, f'"{real}" is no folder')
    return Found(["--live", str(real)], status.st_uid, status.st_gid)


def slurm_owner(job: str, proc: Path) -> Found:
    own = {pid: user for pid, user in members(job, proc) if user[0]}  # without slurmstepd, of root
    users = set(own.values())
    if len(users) != 1:
        several = "processes of several users" if users else "no process and no folder"
        raise RefusedError(404, f"{several} of job {job} here")
    chosen = next((pid for pid in own if HOOKED in environment(pid, proc)), None)
    if chosen is None:  # what its tasks have in common, and if it has several steps, the largest
        above = (parent(pid, proc) for pid in own)
        (chosen, _), *_ = Counter(pid for pid in above if pid not in own).most_common(1) or [(0, 0)]
    return Found(["--pid", str(chosen)], *users.pop())


def members(job: str, proc: Path) -> Iterator[tuple[int, tuple[int, int]]]:
    """Processes that Slurm holds in the group of the job, each with its user and group. The kernel
    keeps others from entering it."""
    is_of_job = re.compile(SLURM.format(re.escape(job)), re.ASCII)
    for place in proc.iterdir():
        if place.name.isdecimal():
            with suppress(OSError):  # it ended meanwhile
                lines = (place / "cgroup").read_text(errors="replace").splitlines()
                if any(map(is_of_job.fullmatch, lines)):
                    status = place.stat()
                    yield int(place.name), (status.st_uid, status.st_gid)


def environment(pid: int, proc: Path) -> bytes:
    try:
        with (proc / str(pid) / "environ").open("rb") as file:
            return b"\0" + file.read(1 << 20)
    except OSError:
        return b""


def parent(pid: int, proc: Path) -> int:
    try:
        status = (proc / str(pid) / "stat").read_text(errors="replace")
        return int(status.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


# --- the process that looks ----------------------------------------------------------------------


def start(command: Sequence[str], place: Found) -> subprocess.Popen[bytes]:
    """Start it as the owner of the job, who could do all the same: no right of root's is used."""
    identity = {"user": place.user, "group": place.group, "extra_groups": []}
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        cwd="/",
        start_new_session=True,
        **(identity if os.geteuid() == 0 else {}),  # type: ignore[arg-type]
    )
    with suppress(OSError):  # it ended at once
        resource.prlimit(child.pid, resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    return child


def collect(child: subprocess.Popen[bytes]) -> tuple[bytes, str]:
    """Return what it wrote, or why there is nothing. It ends in time, whatever it does."""
    assert child.stdout
    assert child.stderr
    texts = {child.stdout: b"", child.stderr: b""}
    limits = {child.stdout: MOST_BYTES, child.stderr: MOST_WORDS}
    is_large = is_late = False
    deadline = time.monotonic() + LIMIT_S
    opened = set(texts)
    while opened and not (is_large or is_late):
        ready, _, _ = select.select(opened, [], [], max(0.0, deadline - time.monotonic()))
        is_late = not ready
        for pipe in ready:
            part = os.read(pipe.fileno(), CHUNK)
            texts[pipe] += part[: max(0, limits[pipe] + 1 - len(texts[pipe]))]
            if not part:
                opened.discard(pipe)
        is_large = len(texts[child.stdout]) > MOST_BYTES
    end(child)  # and what it may have started
    code = child.wait()
    for pipe in texts:
        pipe.close()
    brought, words = texts[child.stdout], texts[child.stderr].decode(errors="replace").splitlines()
    if is_large or is_late:
        limit = f"{MOST_BYTES >> 20} MiB" if is_large else f"{LIMIT_S:g} s"
        return b"", f"the look took more than {limit}"
    if brought.startswith(PACKED):
        return brought, ""
    return b"", words[-1] if words else f"the look ended with code {code}"


def end(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
