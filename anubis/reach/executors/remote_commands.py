"""Commands on nodes where nothing of ours runs yet: by ssh, by srun, or beside the driver.

Each runs under a guardian of its own. The way there is its stdin: when we let go of it or die, the
way ends, and the guardian ends everything that the command started. The guardian and its order go
through stdin, too; the command line, which everybody on a machine may read, only starts a Python
that reads them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from anubis.core.text import escape_line
from anubis.reach.executors import guardian
from anubis.reach.executors.programs import ProgramOutcome, outcome_in
from anubis.reach.executors.start_settings import SLURM_JOB, RayStart

SSH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-a", "-x", "-T")
# Slurm gives the whole node to this job, so no other job is there
SRUN = (
    *("--exclusive", "--nodes=1", "--ntasks=1", "--mem=0", "--cpu-bind=none"),
    *(f"--job-name={SLURM_JOB}", "--immediate=60"),
)
RESOLVE_PATIENCE_S = 10.0  # ssh's configuration may look up names, and DNS may be slow
LAST_WORDS = 200  # characters of what a command printed, in a sentence about it
TAKE_IN = """import sys
if sys.version_info < (3, 11):
    sys.exit(f"{sys.executable} is Python {sys.version.split()[0]}, expected 3.11 or newer")
exec(open(0, "rb", 0, closefd=False).readline())"""
# what Ray and Slurm put before and after what they have to say
DECORATION = re.compile(r"^\S+ \S+\s+[A-Z]+ \w+\.py:\d+ -- |\x1b\[[0-9;]*m")
# Slurm calls a drained node busy in the end, and says at the start that it is drained
TELLING_WORDS = re.compile(r"^srun: Required node not available .*", re.M)
IDLE_WORDS = re.compile(r"^\W*$|^Remaining processes will be killed|^srun: .*(Terminating|aborted)")


def argv_to(start: RayStart, node: str) -> list[str]:
    """Return the command that runs the guardian there, and reads it from stdin."""
    command = [*start.prefix, start.python, "-I", "-S", "-c", TAKE_IN]
    if start.by == "ssh":  # which hands its words to a shell, whatever they are
        return ["ssh", *SSH, *start.options, "--", node, shlex.join(command)]
    return ["srun", *SRUN, *start.options, f"--nodelist={node}", *command]


def argv_here(python: str) -> list[str]:
    return [python, "-I", "-S", "-c", TAKE_IN]


def ssh_host(start: RayStart, node: str) -> str:
    """Return the host name of a node by ssh's configuration."""
    answer = subprocess.run(
        ["ssh", "-G", *start.options, "--", node],
        capture_output=True,
        text=True,
        timeout=RESOLVE_PATIENCE_S,
        check=True,
    )
    hostnames = re.findall(r"^hostname (\S+)$", answer.stdout, re.M)
    return hostnames[0] if hostnames else node


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


class PipedCommand:
    """A remote command by a local command whose stdin is the way."""

    def __init__(self, argv: Sequence[str], order: Mapping[str, Any], files: Path) -> None:
        """Start the command. `files`: the place of its output; two files begin with this name."""
        self._stdout, self._stderr = (files.with_suffix(kind) for kind in (".out", ".err"))
        self.sent_at = time.monotonic()
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                argv,
                env=outside_of_slurm(guardian.remove_secrets(os.environ)),
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
        return last_words(self.outcome(), self._stderr.read_text(errors="replace"))

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


def last_words(outcome: ProgramOutcome | None, of_the_way: str) -> str:
    texts = [(outcome or {}).get(key, "") for key in ("could_not_start", "stderr", "stdout")]
    for text in map(str, [*texts, of_the_way]):
        for line in [*text.splitlines(), *TELLING_WORDS.findall(text)][::-1]:
            words = DECORATION.sub("", line).strip()
            if words and not IDLE_WORDS.match(words):
                return escape_line(words[-LAST_WORDS:])
    return "it said nothing"


def outside_of_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Slurm's job: a driver that runs as a job itself asks for nodes
    of its own, not for a step of that job."""
    return {
        name: text
        for name, text in environment.items()
        if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }
