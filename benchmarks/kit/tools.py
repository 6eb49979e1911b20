"""Other people's programs: where they are, what they printed, why they failed.

A child dies with the rank that started it, whatever kills the rank, and it has a deadline.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import contract

PACKAGES = {
    "ucx_perftest": "ucx-utils",
    **dict.fromkeys(("ib_write_bw", "ib_write_lat", "ib_send_lat"), "perftest"),
}
LISTEN = "0A"  # a socket's state in /proc/net/tcp
TAKEN = re.compile(r"in use|couldn't listen|bind\(\) failed", re.I)
KILL_PATIENCE_S = 2.0  # with a program that was killed
TRIES = 5  # ports, when others take them between our finding one free and the server's binding it


def find(tool: str, directory: str = "") -> str:
    """Return the path of a tool, in a directory or on PATH."""
    path = shutil.which(tool, path=directory or None)
    if path is None:
        where = f'in "{directory}"' if directory else "on PATH"
        how = f" (apt-get install {PACKAGES[tool]})" if tool in PACKAGES else ""
        raise contract.NotApplicable(f"{tool} is not {where}{how}")
    return path


class Silent(contract.Unmeasured):
    """A program that did not end by itself and was ended."""


@dataclass(frozen=True)
class Output:
    exit_code: int
    stdout: str
    stderr: str

    def last_words(self) -> str:
        lines = [line.strip() for line in (self.stdout + "\n" + self.stderr).splitlines()]
        spoken = [line for line in lines if re.search(r"\w", line)]
        return " / ".join(spoken[-3:])[-400:] or "nothing"


def run(
    argv: Sequence[str],
    limit_s: float,
    env: Mapping[str, str] | None = None,
    cpus: frozenset[int] = frozenset(),
) -> Output:
    """Run to the end or to the deadline; its exit code is the caller's to read."""
    with child(argv, env, cpus) as process:
        try:
            stdout, stderr = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Silent(f"{Path(argv[0]).name} gave no answer within {limit_s:.3g} s") from None
        return Output(process.returncode, stdout, stderr)


@contextmanager
def child(
    argv: Sequence[str], env: Mapping[str, str] | None = None, cpus: frozenset[int] = frozenset()
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        contract.bonded(argv, cpus),
        env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},  # words and numbers are read
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        yield process
    finally:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in a driver, it outlives that
            process.communicate(timeout=KILL_PATIENCE_S)


# --- a server on a port --------------------------------------------------------------------


@contextmanager
def serve(
    argv: Callable[[int], Sequence[str]],
    limit_s: float,
    env: Mapping[str, str] | None = None,
    cpus: frozenset[int] = frozenset(),
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Start a server that listens; yield its port and its process. It waits for one client and ends
    with it."""
    for attempt in range(1, TRIES + 1):
        port = free_port()
        with child(argv(port), env, cpus) as server:
            if listening(server, port, limit_s):
                yield port, server
                return
            server.kill()
            output = Output(server.wait(), *server.communicate())
        words = f"{output.stdout}\n{output.stderr}"
        if attempt == TRIES or not TAKEN.search(words):
            name = Path(argv(port)[0]).name
            raise contract.Unmeasured(f'{name} as server said "{output.last_words()}"')


def free_port() -> int:
    """Return any free port, or one of those that the cluster's file allows."""
    first, _, last = os.environ.get("ANUBIS_PORTS", "").partition("-")
    choices = list(range(int(first), int(last) + 1)) if last else [0]
    random.shuffle(choices)
    for choice in choices:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", choice))
            port: int = probe.getsockname()[1]
            return port
    raise contract.Unmeasured(f"no port of {first}-{last} is free")


def listening(server: subprocess.Popen[str], port: int, limit_s: float) -> bool:
    """Wait until a process, and no other, listens on a port. To connect would use its one call."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and server.poll() is None:
        if listeners(port) & sockets(server.pid):
            return True
        time.sleep(0.02)
    return False


def listeners(port: int) -> set[str]:
    """Return inodes of the sockets that listen on a port."""
    lines = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines += Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue  # no IPv6 here
    rows = [line.split() for line in lines]
    return {
        row[9] for row in rows if row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port
    }


def sockets(pid: int) -> set[str]:
    inodes = set()
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if match := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink())):
                inodes.add(match[1])
    except OSError:
        pass  # it has just ended
    return inodes


def own_address(towards: str) -> str:
    """Return the address by which this host reaches another: nothing is sent to find out."""
    family, kind, protocol, _, target = socket.getaddrinfo(
        towards, 9, family=socket.AF_INET, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        address: str = probe.getsockname()[0]
        return address


def require_success(output: Output, tool: str) -> str:
    """Return what a tool printed, if it ended well."""
    if output.exit_code != 0:
        raise contract.Unmeasured(f'{tool} ended with {output.exit_code}: "{output.last_words()}"')
    return output.stdout
