"""Guard stdout and stderr: write out control characters, and survive a closed or full stream.

stdout belongs to the answer, so remarks for the person at the terminal go to stderr. typer and rich
make exit code 1 of a closed pipe, and 1 means "defective" here.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from typing import TextIO, cast

from anubis.core.errors import OutputError
from anubis.core.text import escape, escape_line

# substitutes for signs that a terminal lacks; `?` alone is taken: it means unknown
IN_ASCII = {
    "✓": "+",
    "✗": "x",
    "·": "|",
    "→": ">",
    "↔": "-",
    "─": "-",
    "│": "|",
    "├": "|",
    "└": "`",
    "…": "~",
    "≤": "<=",
    "≥": ">=",
    "±": "+-",
}
HELP = {"--help", "-h"}


class Outlet(io.TextIOWrapper):
    """A stream to the terminal that writes out control characters, as `\\u001b`."""

    def write(self, text: str) -> int:
        return self.write_styled(escape(text))

    def write_styled(self, text: str) -> int:
        """Write text that steers the terminal on purpose and was made harmless before."""
        return super().write(text)


class StandardOutput(Outlet):
    trouble: OutputError | None = None  # set if the answer is incomplete

    def write_styled(self, text: str) -> int:
        try:
            return super().write_styled(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Discard all further output, so that the work goes on."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        if error.errno != errno.EPIPE:  # `anubis ... | head`: the reader has seen enough
            self.trouble = OutputError(f"cannot write the answer to stdout: {error.strerror}")


def check_answer() -> None:
    """Raise an error at the end if the answer is incomplete, for then there is no verdict."""
    sys.stdout.flush()
    if isinstance(sys.stdout, StandardOutput) and sys.stdout.trouble:
        raise sys.stdout.trouble


class Styled:
    """An outlet for writers whose text was made harmless before."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self.write = outlet.write_styled

    def __getattr__(self, name: str) -> object:
        return getattr(self._outlet, name)


def styled_stream(stream: TextIO) -> TextIO:
    return cast(TextIO, Styled(stream)) if isinstance(stream, Outlet) else stream


def open_outlets() -> None:
    """Replace stdout and stderr; a sign that a terminal lacks becomes the nearest letter."""
    codecs.register_error("nearest", _nearest)
    _open_closed()
    sys.stdout.flush()
    sys.stderr = Outlet(
        sys.stderr.buffer, encoding=sys.stderr.encoding, errors="nearest", line_buffering=True
    )
    sys.stdout = StandardOutput(
        sys.stdout.buffer,
        encoding=sys.stdout.encoding,
        errors="nearest",
        line_buffering=sys.stdout.isatty(),
    )
    if not HELP.isdisjoint(sys.argv[1:]) or not sys.argv[1:]:
        sys.stdout.write = sys.stdout.write_styled  # type: ignore[method-assign] # all is our own


def _open_closed() -> None:
    """Send to nowhere what was closed (`>&-`). Otherwise the next file to be opened, such as the
    history, gets its number and all that is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            stream = os.fdopen(number, "w" if number else "r", closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)  # keeps it open when the first is replaced


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(IN_ASCII.get(letter, "?") for letter in missing), error.end


def say(sentence: str) -> None:
    with suppress(OSError):  # a terminal that was closed
        print(escape_line(sentence), file=sys.stderr)


def show_status(sentence: str) -> None:
    """Write a message that on a terminal overwrites the one before."""
    if sys.stderr.isatty():
        print(f"\r\033[K{escape(sentence)}", end="", file=styled_stream(sys.stderr), flush=True)
