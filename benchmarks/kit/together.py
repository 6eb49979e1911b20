"""One moment at which the processes of a node's GPUs begin a series, as jobs load a node.

The process that started them holds the meeting. Each of them says when it is ready; when all are,
the meeting names a moment on the machine's steady clock. A GPU that stays silent for as long again
as the first took leaves, and goes on alone. Standard library only.
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import contract

MEETING = "ANUBIS_MEETING"  # the name of the socket; unset in a process that measures alone
LEAST_PATIENCE_S = 10.0  # with a slow sibling
LEAD_S = 0.01  # from the word to the moment: long enough for it to reach all
TICK_S = 0.05  # between looks whether it is over


@dataclass
class Meeting:
    """The processes that take part, those that are ready, and those that left. Times are given."""

    members: set[str]
    began: float  # the last start
    least_patience_s: float = LEAST_PATIENCE_S
    ready: set[str] = field(default_factory=set)
    first_ready: float = 0.0
    left: dict[str, str] = field(default_factory=dict)  # and why

    def note_ready(self, name: str, now: float) -> None:
        if not self.ready:
            self.first_ready = now
        self.ready.add(name)

    def leave(self, name: str) -> None:
        self.members.discard(name)
        self.ready.discard(name)

    def to_start(self, now: float) -> set[str]:
        """Return those that begin now: all that are ready, if no other is waited for."""
        waited_for = self.members - self.ready
        took_s = self.first_ready - self.began
        patience_s = max(self.least_patience_s, took_s)
        if not self.ready or (
            waited_for and self.ready & self.members and now - self.first_ready < patience_s
        ):
            return set()
        for name in waited_for if self.ready & self.members else ():
            self.leave(name)
            self.left[name] = f"silent {patience_s:.0f} s after the first was ready"
        self.began = now if self.ready & self.members else self.began
        started, self.ready = self.ready, set()
        return started


@contextmanager
def hold_meeting(
    names: Iterable[str], least_patience_s: float = LEAST_PATIENCE_S
) -> Iterator[tuple[str, Meeting]]:
    """Hold a meeting of processes by these names; yield the name of its socket."""
    address = secrets.token_hex(16)
    meeting = Meeting({*names}, time.monotonic(), least_patience_s)
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"\0{address}")
        door.listen()
        host = threading.Thread(target=_host, args=(door, meeting, over), daemon=True)
        host.start()
        try:
            yield address, meeting
        finally:
            over.set()
            host.join()


def _host(door: socket.socket, meeting: Meeting, over: threading.Event) -> None:
    """Serve the processes until it is over. One that ends leaves."""
    lines: dict[str, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(door, selectors.EVENT_READ)
        while not over.is_set():
            for key, _ in selector.select(TICK_S):
                if key.fileobj is door:
                    line, _ = door.accept()
                    if _is_ours(line):
                        selector.register(line, selectors.EVENT_READ, data="")
                    else:
                        line.close()
                elif isinstance(line := key.fileobj, socket.socket):
                    _hear(selector, line, key.data, meeting, lines)
            moment = struct.pack("d", time.monotonic() + LEAD_S)
            for name in meeting.to_start(time.monotonic()):
                with suppress(OSError):
                    lines[name].sendall(moment)
        for line in lines.values():
            line.close()


def _is_ours(line: socket.socket) -> bool:
    """Return true for a process of the same user: everybody can see the socket's name."""
    _, user, _ = struct.unpack(
        "3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return user == os.geteuid()


def _hear(
    selector: selectors.BaseSelector,
    line: socket.socket,
    known_as: str,
    meeting: Meeting,
    lines: dict[str, socket.socket],
) -> None:
    try:
        name = line.recv(256).decode()
    except OSError:
        name = ""
    if name:
        lines[name] = line
        selector.modify(line, selectors.EVENT_READ, data=name)
        meeting.note_ready(name, time.monotonic())
        return
    meeting.leave(known_as)
    selector.unregister(line)
    line.close()


# --- in the process of a GPU -----------------------------------------------------------------


@dataclass
class Starts:
    """The series that this process began, and how late after the moment."""

    late_s: list[float] = field(default_factory=list)
    _line: socket.socket | None = None

    def wait(self, name: str, address: str) -> float:
        """Return the moment at which all begin, when it has come; without a meeting the present
        one."""
        moment = self._ask(name, address) if address else None
        if moment is None:
            return time.monotonic()
        time.sleep(max(0.0, moment - time.monotonic()))
        self.late_s.append(time.monotonic() - moment)
        return moment

    def leave(self) -> None:
        if self._line:
            self._line.close()
            self._line = None

    def _ask(self, name: str, address: str) -> float | None:
        try:
            if self._line is None:
                self._line = socket.socket(socket.AF_UNIX)
                self._line.connect(f"\0{address}")
            self._line.sendall(name.encode())
            answer = self._line.recv(struct.calcsize("d"))
            return float(struct.unpack("d", answer)[0])
        except (OSError, struct.error):  # the meeting is over: each goes on alone
            self.leave()
            return None


STARTS = Starts()


def start_together() -> float:
    """Wait for the GPUs that are measured at once, and return the moment at which they all begin.

    A process that measures alone does not wait.
    """
    return STARTS.wait(os.environ.get(contract.ONE_GPU, ""), os.environ.get(MEETING, ""))
