"""Remarks for the person at the terminal, on stderr: stdout belongs to the answer."""

from __future__ import annotations

import sys
from contextlib import suppress

from anubis.cli.outlets import styled_stream
from anubis.core.text import escape, escape_line


def say(sentence: str) -> None:
    with suppress(OSError):  # a terminal that was closed
        print(escape_line(sentence), file=sys.stderr)


def show_status(sentence: str) -> None:
    """Write a message that on a terminal overwrites the one before."""
    if sys.stderr.isatty():
        print(f"\r\033[K{escape(sentence)}", end="", file=styled_stream(sys.stderr), flush=True)
