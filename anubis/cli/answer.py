"""stdout, which belongs to the answer. Trouble with it costs neither a campaign nor its page.

typer and rich make exit code 1 of a closed pipe, and 1 means "defective" here.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

from anubis.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from anubis.core.records import Judgement

# what stands for a sign that a terminal lacks; `?` alone is taken: it means unknown
IN_ASCII = {
    "✓": "+",
    "✗": "x",
    "·": "|",
    "→": ">",
    "↔": "-",
    "─": "-",
    "│": "|",
    "…": "~",
    "≤": "<=",
    "≥": ">=",
    "±": "+-",
}
EXIT_CODES = {"healthy": 0, "defective": 1, "unknown": 2, "not-applicable": 2}


class StandardOutput(io.TextIOWrapper):
    trouble: UsageError | None = None  # the answer is not whole

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Whatever else is written goes nowhere, and the work goes on."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        if error.errno != errno.EPIPE:  # `anubis ... | head`: the reader has seen enough
            self.trouble = UsageError(f"cannot write the answer to stdout: {error.strerror}")


def check_answer() -> None:
    """At the end: an answer that is not whole is no verdict."""
    sys.stdout.flush()
    if isinstance(sys.stdout, StandardOutput) and sys.stdout.trouble:
        raise sys.stdout.trouble


def leave(judgement: Judgement) -> NoReturn:
    """0 only when every node is healthy, and what lies between them: never without data."""
    sys.exit(EXIT_CODES[judgement])


def open_answer() -> None:
    """A terminal shows what it can; what it cannot has the nearest letter."""
    codecs.register_error("nearest", _nearest)
    sys.stdout.flush()
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="nearest")
    sys.stdout = StandardOutput(
        sys.stdout.buffer,
        encoding=sys.stdout.encoding,
        errors="nearest",
        line_buffering=sys.stdout.isatty(),
    )


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(IN_ASCII.get(letter, "?") for letter in missing), error.end


def write_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def write_paragraph(text: str) -> None:
    """Whole for a program to read; on a terminal, broken between words."""
    width = shutil.get_terminal_size().columns
    print(textwrap.fill(text, width, break_on_hyphens=False) if sys.stdout.isatty() else text)


def write_json(document: Mapping[str, object]) -> None:
    """A line of JSON Lines."""
    print(json.dumps(document, ensure_ascii=False))


def screen() -> Console:
    """For tables: numbers and names keep the colour that they are given."""
    from rich.console import Console

    return Console(highlight=False)
