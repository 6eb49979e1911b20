"""Write the answer to stdout, which has nothing else, and set the exit code."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console

    from anubis.core.records import Judgement

GLANCE = 6  # lines
EXIT_CODES = {"healthy": 0, "defective": 1, "unknown": 2, "not-applicable": 2}


def leave(judgement: Judgement) -> NoReturn:
    """Exit with 0 only if every node and link is healthy; a missing judgement is never 0."""
    sys.exit(EXIT_CODES[judgement])


def write_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def write_paragraph(text: str) -> None:
    """Write one line for a program to read; on a terminal, break it between words."""
    width = shutil.get_terminal_size().columns
    print(textwrap.fill(text, width, break_on_hyphens=False) if sys.stdout.isatty() else text)


def write_brief(paragraphs: Iterable[str]) -> None:
    """Write at most a glance's lines on a terminal; `--why` has the rest."""
    if not sys.stdout.isatty():
        write_lines(paragraphs)
        return
    width = shutil.get_terminal_size().columns
    lines = [
        line
        for paragraph in paragraphs
        for line in textwrap.wrap(paragraph, width, subsequent_indent="  ", break_on_hyphens=False)
    ]
    write_lines(lines if len(lines) <= GLANCE else [*lines[: GLANCE - 1], "more with --why"])


def write_json(kind: str, *parts: object) -> None:
    from anubis.report.json import json_line

    print(json_line(kind, *parts))


def screen() -> Console:
    """Console for tables, in which numbers and names keep the colour that they are given."""
    from anubis.cli.screen import Screen

    return Screen()
