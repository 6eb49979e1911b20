"""Other people's commands: run with a deadline, never through a shell."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from anubis.core.errors import OrchestratorError
from anubis.core.text import escape_line

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
MOST_BYTES = 64 * 1024 * 1024  # squeue of 100,000 jobs says a tenth of it
KILLED_WITHIN_S = 5.0  # after SIGKILL; then it is left behind
MOST_NAMED = 60  # characters of a command, in a sentence
MOST_CHARACTERS = 200  # of what it said


def run_command(
    words: Sequence[str],
    deadline_s: float,
    env: Mapping[str, str] = NO_VARIABLES,
    stdin: str = "",
) -> str:
    """Run a command with this on its stdin and return what it printed. It ends at the deadline,
    with all that it started."""
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
    try:
        out, err = process.communicate(stdin.encode(), timeout=deadline_s)
    except subprocess.TimeoutExpired:
        raise OrchestratorError(
            f"{_show_command(words)}: no answer within {deadline_s:g} s"
        ) from None
    finally:
        _end(process)
    if process.returncode:
        reason = _last_line(err) or _last_line(out) or f"exit code {process.returncode}"
        raise OrchestratorError(f"{_show_command(words)}: {reason}")
    if len(out) > MOST_BYTES:
        raise OrchestratorError(
            f"{_show_command(words)}: printed {len(out):,} bytes, too many to read"
        )
    return out.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and also what it left behind, which may have its output still open."""
    with suppress(ProcessLookupError):
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


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return escape_line(lines[-1].strip()[:MOST_CHARACTERS]) if lines else ""
