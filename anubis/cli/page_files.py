"""Write the page, or another file, that a verb makes in addition to its answer."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from anubis.cli.remarks import say
from anubis.core.errors import OutputError, UsageError

if TYPE_CHECKING:
    from anubis.report.junit import JUnitSuite


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


def write_page(page: str, path: Path) -> None:
    write_file(page, path, "report")
    say(f"report: {path}")


def write_junit(name: str, suites: Iterable[JUnitSuite], path: Path) -> None:
    from anubis.report import junit

    write_file(junit.render(name, suites), path, "JUnit file")
    say(f"JUnit: {path}")


def write_file(text: str, path: Path, kind: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        if path.is_file():  # half a report helps nobody, and fills the disk of the history
            path.unlink(missing_ok=True)
        raise OutputError(f'cannot write the {kind} "{path}": {error.strerror}') from None
