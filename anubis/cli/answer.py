"""What goes to stdout, which belongs to the answer, and the exit code beside it."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console

    from anubis.core.records import Judgement

GLANCE = 6  # lines
EXIT_CODES = {"healthy": 0, "defective": 1, "unknown": 2, "not-applicable": 2}


def leave(judgement: Judgement) -> NoReturn:
    """0 only when every node is healthy, and what lies between them: never without data."""
    sys.exit(EXIT_CODES[judgement])


def write_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def write_paragraph(text: str) -> None:
    """Whole for a program to read; on a terminal, broken between words."""
    width = shutil.get_terminal_size().columns
    print(textwrap.fill(text, width, break_on_hyphens=False) if sys.stdout.isatty() else text)


def write_brief(paragraphs: Iterable[str]) -> None:
    """On a terminal no more than a glance takes in; `--why` has the rest."""
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


def write_json(kind: str, fields: Mapping[str, object]) -> None:
    from anubis.text.wording import json_line

    print(json_line(kind, fields))


def screen() -> Console:
    """For tables: numbers and names keep the colour that they are given."""
    from anubis.cli.screen import Screen

    return Screen()
