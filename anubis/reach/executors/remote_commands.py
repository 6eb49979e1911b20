"""Commands on nodes where nothing of ours runs yet, by a command of some way, in whichever way
their cluster's file says, or beside the driver.

Each runs under a guardian of its own. The way there is its stdin: when we let go of it or die, the
way ends, and the guardian ends everything that the command started. The guardian and its order go
through stdin, too; the command line, which everybody on a machine may read, only starts a Python
that reads them.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from anubis.core.errors import UsageError
from anubis.core.text import escape_line
from anubis.reach.executors import guardian
from anubis.reach.executors.programs import ProgramOutcome, outcome_in
from anubis.reach.executors.start_settings import RayStart, StartWay, leave_own_job, start_ways
from anubis.text.hostlist import shorten

LAST_WORDS = 200  # characters of what a command printed, in a sentence about it
TAKE_IN = """import sys
if sys.version_info < (3, 11):
    sys.exit(f"{sys.executable} is Python {sys.version.split()[0]}, expected 3.11 or newer")
exec(open(0, "rb", 0, closefd=False).readline())"""
# what Ray puts before and after what it has to say
DECORATION = re.compile(r"^\S+ \S+\s+[A-Z]+ \w+\.py:\d+ -- |\x1b\[[0-9;]*m")
IDLE_WORDS = re.compile(r"^\W*$|^Remaining processes will be killed")


def argv_to(start: RayStart, node: str) -> list[str]:
    """Return the command that runs the guardian there, and reads it from stdin."""
    way = start_ways()[start.by]
    assert way.argv is not None, f"{start.by} has a courier of its own"
    return way.argv(start, node, [*start.prefix, start.python, "-I", "-S", "-c", TAKE_IN])


def argv_here(python: str) -> list[str]:
    return [python, "-I", "-S", "-c", TAKE_IN]


class RemoteCommand(Protocol):
    """A command on a node, or on its way there. Nothing here waits except `close`."""

    sent_at: float

    @property
    def has_ended(self) -> bool: ...

    def outcome(self) -> ProgramOutcome | None:
        """Return the guardian's report, once it has ended; None if there was no guardian."""
        ...

    def last_words(self) -> str:
        """Return the last output of the node, or else of the way to it."""
        ...

    def let_go(self) -> None:
        """Let go of the way, so that its guardian ends it now."""
        ...

    def close(self, until: float) -> None: ...


class Courier(Protocol):
    """A sender of remote commands to nodes that are not reached by a command here."""

    def send(self, node: str, order: Mapping[str, Any], files: Path) -> RemoteCommand: ...

    def close(self) -> None: ...


class PipedCommand:
    """A remote command by a local command whose stdin is the way."""

    def __init__(
        self,
        argv: Sequence[str],
        order: Mapping[str, Any],
        files: Path,
        way: StartWay | None = None,
    ) -> None:
        """Start the command. `files`: the place of its output; two files begin with this name.
        `way`: to a node; None: beside the driver."""
        self._way = way
        self._stdout, self._stderr = (files.with_suffix(kind) for kind in (".out", ".err"))
        self.sent_at = time.monotonic()
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                argv,
                env=leave_own_job(guardian.remove_secrets(os.environ)),
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,  # what a terminal sends is meant for the driver
                bufsize=0,
            )
        threading.Thread(target=self._hand_over, args=(order,), daemon=True).start()

    def _hand_over(self, order: Mapping[str, Any]) -> None:
        """Write the order, in a thread, because a way that hangs reads nothing."""
        assert self._process.stdin is not None
        lines = memoryview(lines_for(order))
        with suppress(OSError, ValueError):  # the way has ended, or was let go
            while lines:
                lines = lines[self._process.stdin.write(lines) or 0 :]

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def outcome(self) -> ProgramOutcome | None:
        return report_in(self._stdout.read_bytes())

    def last_words(self) -> str:
        return last_words(self.outcome(), self._stderr.read_text(errors="replace"), self._way)

    def let_go(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def close(self, until: float) -> None:
        self.let_go()
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def lines_for(order: Mapping[str, Any]) -> bytes:
    """Return the lines that make a waiting Python a guardian with an order."""
    source = Path(guardian.__file__).read_text()
    return f"exec({source!r})\n{json.dumps(order)}\n".encode()


def report_in(output: bytes) -> ProgramOutcome | None:
    *_, report = output.splitlines() or [b""]  # a shell greets before it
    return outcome_in(report) if report.startswith(b"{") else None


def last_words(outcome: ProgramOutcome | None, of_the_way: str, way: StartWay | None = None) -> str:
    idle = [IDLE_WORDS, *([way.idle] if way else [])]
    texts = [(outcome or {}).get(key, "") for key in ("could_not_start", "stderr", "stdout")]
    for text in map(str, [*texts, of_the_way]):
        telling = way.telling.findall(text) if way else []
        for line in [*text.splitlines(), *telling][::-1]:
            words = DECORATION.sub("", line).strip()
            if words and not any(pattern.match(words) for pattern in idle):
                return escape_line(words[-LAST_WORDS:])
    return "it said nothing"


class Sender:
    def __init__(self, start: RayStart, own_address: str) -> None:
        way = start_ways()[start.by]
        self._courier: Courier | None = way.open(start, own_address) if way.open else None

    def send(
        self, way: RayStart, node: str, order: Mapping[str, Any], files: Path
    ) -> RemoteCommand:
        """Send an order to a node. `way`: to this node, if it is reached otherwise than most.
        `files`: the begin of the names of files for its output."""
        if self._courier is not None:
            return self._courier.send(node, order, files)
        return PipedCommand(argv_to(way, node), order, files, start_ways()[way.by])

    def close(self) -> None:
        """Close after the last remote command was closed."""
        if self._courier is not None:
            self._courier.close()


def _refuse_foreign_address(address: str) -> None:
    """Refuse an address at which nothing on this machine can listen."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            raise UsageError(
                f"`driver_address: {address}` in the cluster's file is no address of this machine"
                " (ip -4 address lists them): name the one at which the nodes reach it"
            ) from None


def address_for(start: RayStart, nodes: Sequence[str]) -> str:
    """Return the address of this machine by which packets leave for the first of these nodes whose
    name resolves."""
    if start.driver_address:
        _refuse_foreign_address(start.driver_address)
        return start.driver_address
    for node in nodes:
        with (
            suppress(OSError, subprocess.SubprocessError),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
        ):
            probe.connect((start_ways()[start.by].host(start, node), 9))
            address: str = probe.getsockname()[0]
            return address
    raise UsageError(
        f'the address at which the nodes reach this machine is unknown: "{shorten(nodes)}" is not'
        " known by name; write `driver_address:` into the cluster's file"
    )
