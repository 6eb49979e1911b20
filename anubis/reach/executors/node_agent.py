"""The agent on a Ray node: it runs orders through the guardian, and answers at any time.

It travels to the node by value and runs as an actor: the standard library, and what it takes from
machine.py and guardian.py, which need no more. It decides nothing; the driver writes the orders and
reads the outcomes.

Its folders only we and root may change, also on machines where others have accounts. A folder of
mode 0700 is not enough: a user who may write to a folder above it can put another one in its place,
unless that one has the sticky bit or belongs to this pod alone. So every folder on the way to it is
checked, from the root on, by descriptors that follow no link.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from anubis.reach.executors.forked_python import ForkedPython
from anubis.reach.executors.guardian import (
    READ_BYTES,
    Watched,
    end_with_front,
    foreign_writers,
    remove_secrets,
)
from anubis.reach.executors.machine import Machine, describe, free_port


def make_own_folder(kind: str, parents: Iterable[str]) -> Path:
    """Make a new folder whose name begins with `kind`, in the first of `parents` where nobody else
    can put another in its place; a RuntimeError says why there is none."""
    troubles = []
    for parent in map(os.path.realpath, parents):
        trouble = foreign_writers(parent)
        if not trouble:
            return Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=parent))
        troubles.append(f'no folder in "{parent}" is safe from other users: {trouble}')
    raise RuntimeError(
        f"{troubles[-1]}; give it the sticky bit (chmod +t), or set TMPDIR to a folder that only"
        " this user may change"
    )


def make_held_folder(kind: str, parents: Iterable[str]) -> tuple[Path, int]:
    """Make such a folder, and return a descriptor of it too, which marks it as in use for as long
    as this process lives."""
    while True:
        folder = make_own_folder(kind, parents)
        with suppress(FileNotFoundError):  # another has taken it for left behind, until it is held
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return folder, descriptor
            os.close(descriptor)


def remove_unheld(kind: str, parent: Path) -> None:
    """Remove folders of ours that a killed process left; those of others are left alone."""
    for folder in parent.glob(f"{kind}-*"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(descriptor)
                if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)


KILL_PATIENCE_S = 15.0  # the guardian's own is shorter
LOOK_EVERY_S = 1.0  # for orders to stop
FOLDERS = "anubis-agent"  # their names begin so


class Agent:
    def __init__(
        self,
        guardian: str,
        address: str,
        package: bytes,
        digest: str,
        ray_folder: Callable[[], str],
    ) -> None:
        """Keep what a run needs. The programs in `package` came through Ray's store, which others
        may write to; their `digest` came with this code."""
        # Ray sets OMP_NUM_THREADS, hides the GPUs and more in a worker: programs get the
        # environment this process was born with, before Ray's hand was on it.
        self._environment = read_birth_environment()
        self._guardian = guardian
        self._address = address
        self._package = package
        self._digest = digest
        self._ray_folder = ray_folder
        self._programs: ProgramFolder | None = None
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._unwanted: set[str] = set()  # killed before they were started
        self._forked = ForkedPython()
        with suppress(PermissionError):
            # Ray's workers yield to others; programs must not
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()

    def describe(self) -> tuple[Machine, str]:
        """Return this machine and the folder of programs, which are ready to run once this was
        called."""
        if self._programs is None:
            self._programs = ProgramFolder(self._package, self._digest)
            self._programs.settle((self._ray_folder(), tempfile.gettempdir(), "/tmp"))
        return describe(self._address, self._environment), str(self._programs.folder)

    def ping(self) -> None:
        pass

    def clear_away(self) -> None:
        """Remove the programs: nothing runs here any more."""
        self._forked.end()
        if self._programs is not None:
            shutil.rmtree(self._programs.folder, ignore_errors=True)

    def free_port(self, ports: str) -> int:
        return free_port(self._address, ports)

    def run(self, key: str, order: dict[str, Any]) -> bytes:
        """Run an order; this blocks its thread until the guardian reports, and returns nothing if
        it ends without a report."""
        with self._lock:
            if key in self._unwanted:
                return b'{"killed": true}'
            assert self._programs is not None
            self._programs.restore()
            order = self._forked.lend(order, remove_secrets(self._environment))
            guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", self._guardian],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                bufsize=0,
            )
            self._running[key] = guardian
            assert guardian.stdin is not None
            assert guardian.stdout is not None
            with suppress(BrokenPipeError):
                guardian.stdin.write(json.dumps(order).encode() + b"\n")
        with guardian.stdout:
            report = hear(guardian.stdout.fileno(), Watched(guardian.pid, order))
        self._bury(guardian)
        with self._lock:
            del self._running[key]
        guardian.stdin.close()
        return report

    def _bury(self, guardian: subprocess.Popen[bytes]) -> None:
        """Wait for a guardian that has reported; a front that was stopped would never end."""
        try:
            guardian.wait(timeout=KILL_PATIENCE_S)
        except subprocess.TimeoutExpired:
            end_with_front(guardian.pid)
            guardian.wait()

    def kill(self, key: str) -> None:
        """End a run: the end of its stdin tells the guardian to end everything. Returns when it
        has."""
        with self._lock:
            self._unwanted.add(key)
            guardian = self._running.get(key)
            if guardian is None or guardian.stdin is None:
                return
            guardian.stdin.close()
        try:
            guardian.wait(timeout=KILL_PATIENCE_S)
        except subprocess.TimeoutExpired:
            end_with_front(guardian.pid)


def hear(stream: int, watched: Watched) -> bytes:
    """Return all that a guardian reports until its end, or until nothing is due any more."""
    report = bytearray()
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    while watched.is_due():
        if poll.poll(LOOK_EVERY_S * 1000):
            data = os.read(stream, READ_BYTES)
            report += data
            if not data:
                return bytes(report)
    return watched.end()


def end_with(parent: int) -> None:
    """End this process when its parent ends: a worker that serves a call outlives its raylet, and
    what it runs would go on with it."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def read_birth_environment() -> dict[str, str]:
    pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    split = (pair.partition(b"=") for pair in pairs if b"=" in pair)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in split}


class ProgramFolder:
    """The programs as they were sent, in a folder here that no other user may change."""

    def __init__(self, package: bytes, digest: str) -> None:
        if hashlib.sha256(package).hexdigest() != digest:
            raise RuntimeError("the programs that came are not those that were sent")
        with zipfile.ZipFile(io.BytesIO(package)) as archive:
            self._files = {member.filename: archive.read(member) for member in archive.infolist()}
        self.folder = Path()

    def settle(self, places: Iterable[str]) -> None:
        """Make the folder in the first of the places that is safe, and remove the folders of agents
        that were killed."""
        self.folder, self._held = make_held_folder(FOLDERS, [*places])
        remove_unheld(FOLDERS, self.folder.parent)
        self.restore()

    def restore(self) -> None:
        """Write each file again that is not as it was sent, at once: the others may be in use."""
        for name, data in self._files.items():
            file = self.folder / name
            if not is_file_of(file, data):
                put(data, file)


def is_file_of(file: Path, data: bytes) -> bool:
    """Return true if the file has just this content and is a file of ours."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        return is_ours and status.st_size == len(data) and opened.read() == data


def put(data: bytes, file: Path) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f".{os.getpid()}-{file.name}")
    try:
        fresh.write_bytes(data)
        fresh.chmod(0o700)  # what is not Python is run by itself
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)
