"""`anubis schema`: what a program that reads the JSON of other verbs can rely on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import answer
from anubis.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from anubis.report.schemas import DocumentType


def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="TYPE",
            help="The type of a line, or lines for any line, or describe or result for what "
            "benchmark programs print. Default: list them all.",
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of what another verb prints with --json.

    Within a version, fields are only added, never changed.
    """
    from anubis.report import schemas

    if name is None:
        _show((*schemas.LINES, *schemas.PROGRAMS))
        return
    by_name = {"lines": schemas.any_line_schema(), **schemas.schemas()}
    if name not in by_name:
        raise UsageError(f'no type "{name}"; {did_you_mean(name, by_name)}')
    print(json.dumps(by_name[name], indent=2, ensure_ascii=False))


def _show(documents: Iterable[DocumentType]) -> None:
    from anubis.report.screen_tables import add_row, table

    rows = table("type", "what it is", "printed by", gap=2)
    for document in documents:
        add_row(rows, document.name, document.summary, document.printed_by)
    answer.screen().print(rows)
