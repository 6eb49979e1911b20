"""Other people's commands: run with a deadline, never through a shell."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO

from anubis.core.errors import OrchestratorError
from anubis.core.text import escape_line

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
MARK = "ANUBIS_ACTION"  # a variable by which a command is known after its caller died
MOST_BYTES = 64 * 1024 * 1024  # squeue of 100,000 jobs says a tenth of it
READ_BYTES = 1 << 16  # what a pipe of Linux holds
LOOKED_S = 0.2  # a command can end though what it started has its output still open
ENDED_S = 0.05  # a process is gone so soon after SIGKILL
KILLED_WITHIN_S = 5.0  # after SIGKILL; then it is left behind
MOST_NAMED = 60  # characters of a command, in a sentence
MOST_CHARACTERS = 200  # of what it said


def run_command(
    words: Sequence[str],
    deadline_s: float,
    env: Mapping[str, str] = NO_VARIABLES,
    stdin: str = "",
    meanwhile: Callable[[], None] = lambda: None,
) -> str:
    """Run a command with this on its stdin and return what it printed. It ends at the deadline,
    with all that it started. `meanwhile` is called several times in a second."""
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C.UTF-8", **env},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise OrchestratorError(f'"{words[0]}" could not be started: {reason}') from None
    assert process.stdout
    assert process.stderr
    out, err = _Stream(process.stdout), _Stream(process.stderr)
    try:
        _give(process, stdin.encode())
        if not _follow(process, (out, err), time.monotonic() + deadline_s, meanwhile):
            raise OrchestratorError(f"{_show_command(words)}: no answer within {deadline_s:g} s")
    finally:
        _end(process)
    if process.returncode:
        reason = err.last_line() or out.last_line() or f"exit code {process.returncode}"
        raise OrchestratorError(f"{_show_command(words)}: {reason}")
    if out.size > MOST_BYTES:
        raise OrchestratorError(
            f"{_show_command(words)}: printed {out.size:,} bytes, too many to read"
        )
    return out.kept.decode(errors="replace")


def end_marked(mark: str) -> bool:
    """End a command with this mark whose caller died, with the rest of its session; return True if
    anything was left of it. A process has the mark only if the command started it, so none is ended
    that only got its number."""
    left = _marked_processes(mark)
    if not left:
        return False
    _, _, session = min(left)  # of the command: what it started began later
    until = time.monotonic() + KILLED_WITHIN_S
    while any(of_session == session for *_, of_session in left) and time.monotonic() < until:
        for _, pid, of_session in left:
            if of_session == session:
                _kill_marked(pid, mark)
        time.sleep(ENDED_S)
        left = _marked_processes(mark)
    return True


def _kill_marked(pid: int, mark: str) -> None:
    with suppress(OSError):
        process = os.pidfd_open(pid)  # stays with the process that is looked at next
        try:
            if _has_mark(pid, mark):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def _marked_processes(mark: str) -> list[tuple[int, int, int]]:
    """Return when each process of this user with this mark began, its id and its session. Another
    user may write what it likes into an environment."""
    marked = []
    for folder in Path("/proc").glob("[1-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == os.geteuid() and _has_mark(int(folder.name), mark):
                # the name comes before, in brackets, and may contain anything
                cells = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                marked.append((int(cells[19]), int(folder.name), int(cells[3])))
    return marked


def _has_mark(pid: int, mark: str) -> bool:
    return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


class _Stream:
    """What a command prints; of a flood the beginning and the last words."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.pipe = pipe
        self.kept = bytearray()
        self.last = b""
        self.size = 0
        os.set_blocking(pipe.fileno(), False)

    def read(self) -> bool:
        """Read what there is; False at the end."""
        data = os.read(self.pipe.fileno(), READ_BYTES)
        self.kept += data[: MOST_BYTES - len(self.kept)]
        self.last = (self.last + data)[-READ_BYTES:]
        self.size += len(data)
        return bool(data)

    def last_line(self) -> str:
        lines = self.last.decode(errors="replace").strip().splitlines()
        return escape_line(lines[-1].strip()[:MOST_CHARACTERS]) if lines else ""


def _give(process: subprocess.Popen[bytes], text: bytes) -> None:
    """Give a command its input; it need not read it."""
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.write(text)
        process.stdin.close()


def _follow(
    process: subprocess.Popen[bytes],
    streams: Sequence[_Stream],
    deadline: float,
    meanwhile: Callable[[], None],
) -> bool:
    """Read what a command prints until it has ended; False if it has not at the deadline."""
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream.pipe, selectors.EVENT_READ, stream)
        while True:
            has_ended = process.poll() is not None
            left_s = max(0.0, min(LOOKED_S, deadline - time.monotonic()))
            if selector.get_map():
                ready = selector.select(0 if has_ended else left_s)
            else:
                ready = []
                with suppress(subprocess.TimeoutExpired):
                    process.wait(left_s)
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fileobj)
            if has_ended and not ready:
                return True
            if time.monotonic() >= deadline:
                return process.poll() is not None
            meanwhile()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and also what it left behind, which may have its output still open."""
    with suppress(ProcessLookupError, PermissionError):  # nor may we end what became root's
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with suppress(BrokenPipeError):
                stream.close()
    with suppress(subprocess.TimeoutExpired):  # what is stuck in the kernel outlives SIGKILL
        process.wait(KILLED_WITHIN_S)


def _show_command(words: Sequence[str]) -> str:
    text = " ".join(words)
    return escape_line(text if len(text) <= MOST_NAMED else f"{text[:MOST_NAMED]}...")
