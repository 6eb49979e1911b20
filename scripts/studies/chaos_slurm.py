"""A Slurm of simulated nodes: `sinfo`, `squeue` and `scontrol` answer as Slurm's own do, jobs come
and go, people drain nodes, racks lose power, and for a while it lies. It asserts nothing: it
reports each order and each test to its listener.
"""

from __future__ import annotations

import json
import random
import socket
import socketserver
import sys
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anubis.text import hostlist

CLIENT = """#!{python} -IS
import json, shutil, socket, sys
with socket.socket(socket.AF_UNIX) as there:
    there.connect({address!r})
    there.sendall(json.dumps(["{name}", *sys.argv[1:]]).encode() + b"\\n")
    answer = there.makefile("rb")
    error = json.loads(answer.readline())
    shutil.copyfileobj(answer, sys.stdout.buffer)
sys.exit(error or 0)
"""
DEADLINE_S = 60.0  # for a command: beside other work 10,000 nodes may take tens of seconds
PROGRAMS = ("sinfo", "squeue", "scontrol")
WIDTHS = (256, 128, 512, 24, 64)  # of sinfo's columns, as they are asked for; the reason is last
HANGS_S = DEADLINE_S + 5  # longer than a command of Slurm may take
LIES = ("deaf", "disobeys", "blank", "half down", "cut", "stale")


@dataclass
class Node:
    """A node as Slurm has it."""

    is_up: bool = True
    reason: str = ""  # why it is drained; empty: it is not
    by: str = ""
    at: float = 0.0
    job: str = ""
    test: int = 0  # the allocation of Anubis; 0: none

    @property
    def state(self) -> str:
        if not self.is_up:
            return "down+not_responding" + ("+drain" if self.reason else "")
        return ("allocated" if self.job or self.test else "idle") + (
            "+drain" if self.reason else ""
        )


@dataclass
class Job:
    nodes: tuple[str, ...]
    start: float
    end: float


@dataclass(frozen=True)
class Listener:
    """Callbacks for what happens, called under the lock, in the order in which it happens."""

    drained: Callable[[str, str, Node], None]
    undrained: Callable[[str, Node], None]
    allocated: Callable[[Collection[str]], None]
    measured: Callable[[list[list[Any]]], None]


@dataclass
class Slurm:
    """The controller. Its clients are processes, over a socket in its folder."""

    folder: Path
    names: Sequence[str]
    listener: Listener
    truth: dict[str, Any] = field(default_factory=lambda: {"slow": {}, "dark": []})
    lie: str = ""

    def __post_init__(self) -> None:
        self.nodes = {name: Node() for name in self.names}
        self.jobs: dict[str, Job] = {}
        self.lock = threading.RLock()
        self.asked = 0
        self._tests = self._jobs_begun = 0
        self._stale = ""
        self.folder.mkdir(parents=True)
        self.address = str(self.folder / "socket")
        for name in PROGRAMS:
            program = self.folder / name
            text = CLIENT.format(python=sys.executable, address=self.address, name=name)
            program.write_text(text)
            program.chmod(0o755)
        slurm = self

        class Answer(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(ConnectionError, ValueError):
                    slurm._serve(self)

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            request_queue_size = 200

        self._server = Server(self.address, Answer)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    # --- who asks ----------------------------------------------------------------------------

    def _serve(self, connection: socketserver.StreamRequestHandler) -> None:
        words = json.loads(connection.rfile.readline())
        if words[0] == "allocate":
            self._hold(words[1], connection)
            return
        with self.lock:
            self.asked += 1
            lie = self.lie
        if lie == "deaf":
            time.sleep(HANGS_S)
        error, text = "", ""
        try:
            text = getattr(self, f"_{words[0]}")(words[1:], lie)
        except LookupError as missing:
            error = f"{words[0]}: {missing}"
        connection.wfile.write(json.dumps(error).encode() + b"\n" + text.encode())

    def _sinfo(self, words: list[str], lie: str) -> str:
        lists = [word.partition("=")[2] for word in words if word.startswith("--nodes=")]
        named = lists[0].split(",") if lists else []
        if lie == "blank" and not named:
            return ""
        if lie == "stale" and not named:
            return self._stale
        with self.lock:
            names = named or self.nodes
            lines = [self._line(name, lie) for name in names if name in self.nodes]
        text = "".join(lines)
        if not named:
            self._stale = text
        return text[: len(text) // 2 + 7] if lie == "cut" and not named else text

    def _line(self, name: str, lie: str) -> str:
        node = self.nodes[name]
        is_hidden = lie == "half down" and zlib.crc32(name.encode()) % 2
        state = "down+not_responding" if is_hidden else node.state
        at = f"{node.at:.0f}" if node.reason else "Unknown"
        cells = (name, state, "(null)", at, node.by or "Unknown")
        row = "".join(f"{text:<{width}}" for text, width in zip(cells, WIDTHS, strict=True))
        return f"{row}{node.reason or 'none':<512}\n"

    def _squeue(self, words: list[str], lie: str) -> str:
        if lie == "blank":
            return ""
        with self.lock:
            lines = [
                f"{id}|RUNNING|{job.start:.0f}|{job.end:.0f}|{hostlist.compress(job.nodes)}|ann|run"
                for id, job in self.jobs.items()
            ]
            tested: dict[int, list[str]] = {}
            for name, node in self.nodes.items():
                if node.test:
                    tested.setdefault(node.test, []).append(name)
        lines += [
            f"t{number}|RUNNING|1|Unknown|{hostlist.compress(names)}|root|anubis-test"
            for number, names in tested.items()
        ]
        return "".join(f"{line}\n" for line in lines)

    def _scontrol(self, words: list[str], lie: str) -> str:
        if "update" not in words:
            return ""
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        with self.lock:
            named = {name: self.nodes[name] for name in settings["nodename"].split(",")}
            for name, node in named.items() if lie != "disobeys" else ():
                if settings["state"] == "drain":
                    self.listener.drained(name, settings["reason"], node)
                    node.reason, node.by, node.at = settings["reason"], "root", time.time()
                else:
                    self.listener.undrained(name, node)
                    node.reason = node.by = ""
        return ""

    def _hold(self, names: list[str], connection: socketserver.StreamRequestHandler) -> None:
        """Give nodes to a test until its process lets them go, in whatever way it ends."""
        with self.lock:
            self.listener.allocated(names)
            self._tests += 1
            number = self._tests
            allocated = [n for n in names if self._is_free(n)]
            for name in allocated:
                self.nodes[name].test = number
        try:
            connection.wfile.write(json.dumps(allocated).encode() + b"\n")
            for line in connection.rfile:  # what was measured, as it goes
                with self.lock:
                    self.listener.measured(json.loads(line))
                connection.wfile.write(json.dumps(self.truth).encode() + b"\n")
        finally:
            with self.lock:
                for name in allocated:
                    self.nodes[name].test = 0

    def _is_free(self, name: str) -> bool:
        node = self.nodes[name]
        return node.is_up and not node.job and not node.test

    # --- what goes on ------------------------------------------------------------------------

    def begin_jobs(self, chance: random.Random, busy: float, lasts_s: float) -> None:
        """Fill so much of the fleet with jobs."""
        with self.lock:
            free = [n for n, node in self.nodes.items() if self._is_free(n) and not node.reason]
            chance.shuffle(free)
            missing = int(busy * len(self.names)) - sum(len(j.nodes) for j in self.jobs.values())
            while missing > 0 and free:
                size = min(chance.choice((1, 2, 4, 8, 8, 16, 32, 64)), len(free))
                taken, free = free[:size], free[size:]
                self._jobs_begun += 1
                id, now = str(self._jobs_begun), time.time()
                end = now + lasts_s * chance.expovariate(1.0)
                self.jobs[id] = Job(nodes=tuple(taken), start=now, end=end)
                for name in taken:
                    self.nodes[name].job = id
                missing -= size

    def end_jobs(self, *, all_of_them: bool = False) -> dict[str, Job]:
        with self.lock:
            now = time.time()
            over = {id: job for id, job in self.jobs.items() if all_of_them or job.end <= now}
            for id in over:
                self._end(id)
        return over

    def _end(self, id: str) -> None:
        for name in self.jobs.pop(id).nodes:
            self.nodes[name].job = ""

    def cut_power(self, names: Iterable[str]) -> dict[str, Job]:
        """Nodes go down with their jobs."""
        with self.lock:
            failed = {self.nodes[name].job for name in names} - {""}
            over = {id: self.jobs[id] for id in failed}
            for id in failed:
                self._end(id)
            for name in names:
                self.nodes[name].is_up = False
            self.truth["dark"] = [n for n, node in self.nodes.items() if not node.is_up]
        return over

    def restore_power(self, names: Iterable[str]) -> None:
        with self.lock:
            for name in names:
                self.nodes[name].is_up = True
            self.truth["dark"] = [n for n, node in self.nodes.items() if not node.is_up]

    def drain_by_hand(self, name: str, reason: str) -> bool:
        """Drain as a person would, who leaves drained nodes alone."""
        with self.lock:
            node = self.nodes[name]
            if node.reason:
                return False
            node.reason, node.by, node.at = reason, "jo", time.time()
            return True

    def undrain_by_hand(self, name: str, reason: str) -> None:
        with self.lock:
            if self.nodes[name].reason == reason:
                self.nodes[name].reason = self.nodes[name].by = ""

    def spoil(self, slow: dict[str, str]) -> None:
        with self.lock:
            self.truth["slow"] = {**self.truth["slow"], **slow}

    def mend(self, names: Collection[str]) -> None:
        with self.lock:
            kept = {n: b for n, b in self.truth["slow"].items() if n not in names}
            self.truth["slow"] = kept

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Allocation:
    """What a test has of the controller: its nodes, and the truth about them."""

    def __init__(self, address: str, names: Sequence[str]) -> None:
        self._there = socket.socket(socket.AF_UNIX)
        self._there.connect(address)
        self._lines = self._there.makefile("r")
        self._there.sendall(json.dumps(["allocate", list(names)]).encode() + b"\n")
        self.given: list[str] = json.loads(self._lines.readline())

    def report(self, measured: list[list[Any]]) -> dict[str, Any]:
        """Hand in what was measured; returns which nodes are slow, and which are dark."""
        self._there.sendall(json.dumps(measured).encode() + b"\n")
        truth: dict[str, Any] = json.loads(self._lines.readline())
        return truth

    def end(self) -> None:
        self._there.close()
