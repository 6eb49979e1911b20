"""Anubis' hand on a Ray node: runs orders through the guardian, and answers at any time.

It travels to the node by value and runs as an actor: the standard library, and what it takes from
machine.py and guardian.py, which need no more.
It decides nothing; the driver writes the orders and reads the outcomes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from anubis.executors.guardian import end_with_front
from anubis.executors.machine import Machine, describe, free_port

KILL_PATIENCE_S = 15.0  # the guardian's own is shorter


class Agent:
    def __init__(
        self, guardian: str, address: str, package: bytes, ray_folder: Callable[[], str]
    ) -> None:
        """The programs in `package` stay in Ray's folder here, for the next campaign as well."""
        # Ray sets OMP_NUM_THREADS, hides the GPUs and more in a worker: programs get the
        # environment this process was born with, before Ray's hand was on it.
        self._environment = read_birth_environment()
        self._guardian = guardian
        self._address = address
        self._package = package
        self._folder = Path(ray_folder(), "anubis", hashlib.sha256(package).hexdigest()[:16])
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._unwanted: set[str] = set()  # killed before they were started
        with suppress(PermissionError):
            # Ray's workers yield to others; programs must not
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()

    def describe(self) -> tuple[Machine, str]:
        """Whoever has heard it may have programs run."""
        unpack(self._package, self._folder)
        return describe(self._address, self._environment), str(self._folder)

    def ping(self) -> None:
        pass

    def free_port(self, ports: str) -> int:
        return free_port(self._address, ports)

    def run(self, key: str, order: dict[str, Any]) -> bytes:
        """Blocks its thread until the guardian reports; nothing when it ends without."""
        with self._lock:
            if key in self._unwanted:
                return b'{"killed": true}'
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
            report: bytes = guardian.stdout.read()
        self._bury(guardian)
        with self._lock:
            del self._running[key]
        guardian.stdin.close()
        return report

    def _bury(self, guardian: subprocess.Popen[bytes]) -> None:
        """Its report is in; a front that was stopped would never end."""
        try:
            guardian.wait(timeout=KILL_PATIENCE_S)
        except subprocess.TimeoutExpired:
            end_with_front(guardian.pid)
            guardian.wait()

    def kill(self, key: str) -> None:
        """The end of its stdin tells the guardian to end everything; returns when it has."""
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


def end_with(parent: int) -> None:
    """A worker that serves a call outlives its raylet, and what it runs would go on with it."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def read_birth_environment() -> dict[str, str]:
    pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    split = (pair.partition(b"=") for pair in pairs if b"=" in pair)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in split}


def unpack(package: bytes, folder: Path) -> None:
    """What is not there yet, each file at once: others may be running what is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        for member in archive.infolist():
            file = folder / member.filename
            if not file.exists() or file.stat().st_size != member.file_size:
                put(archive.read(member), file)


def put(data: bytes, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{os.getpid()}-{file.name}")
    try:
        fresh.write_bytes(data)
        fresh.chmod(0o755)  # what is not Python is run by itself
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)
