"""Write the answer: to stdout, which has nothing else, with the exit code; and the page, or another
file, that a verb makes in addition to its answer."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from anubis.cli.streams import say
from anubis.core.errors import OutputError, UsageError
from anubis.text.files import write_whole

if TYPE_CHECKING:
    from rich.console import Console

    from anubis.core.records import Judgement
    from anubis.report.junit import JUnitSuite


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


STREAMS = ("/dev", "/dev/fd", "/proc/self/fd")  # /dev/stdout may lead to somebody else's file


def check_page(path: Path | None, option: str = "--html") -> None:
    """Refuse a file that could not be written afterwards, before minutes of work."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f'{option} "{path}" is a folder: name a file in it')
    folder = path.absolute().parent
    if not folder.exists():
        raise UsageError(f'{option} "{path}": there is no folder "{folder}"; make it first')
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UsageError(
            f'{option} "{path}": "{folder}" is not a folder that this user can write to'
        )
    if path.exists() and not os.access(path, os.W_OK):
        raise UsageError(f'{option} "{path}" exists, and this user may not change it')


def write_page(page: str, path: Path) -> None:
    write_file(page, path, "report")
    say(f"report: {path}")


def write_junit(name: str, suites: Iterable[JUnitSuite], path: Path) -> None:
    from anubis.report import junit

    write_file(junit.render(name, suites), path, "JUnit file")
    say(f"JUnit: {path}")


def write_file(text: str, path: Path, kind: str) -> None:
    """Write the whole file or nothing, and keep an earlier one until then. A pipe, a device or a
    stream of this process gets the text as it is."""
    is_stream = str(path.parent) in STREAMS or (path.exists() and not path.is_file())
    if not is_stream:
        return write_whole(path.resolve(), text.encode(), OutputError, f"the {kind}")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f'cannot write the {kind} "{path}": {error.strerror}') from None
