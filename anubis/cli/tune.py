"""`anubis bench tune`: how few warm-up and measured steps of a benchmark still repeat."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import anubis
from anubis.cli import answer, options
from anubis.cli.remarks import say
from anubis.cli.verb import verb
from anubis.operations.requests import TuneRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anubis.operations.tune import TuningRow
    from anubis.report.documents import TuningLine


@verb
def tune(
    request: TuneRequest,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            "-s",
            help="The suite that --write starts from. Default: FILE, or the campaign's own.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help="Write the suite with the tuned parameters to this file.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Find the fewest warm-up and measured steps of a benchmark that still repeat."""
    tuned = anubis.tune(request)
    if json:
        for row in tuned.rows:
            answer.write_json("tuning", row.tuned, _fields(row))
    else:
        _print_table(tuned.rows)
    for row in tuned.rows:
        if row.unsettable and not row.tuned.refusal:
            say(f"{row.key.workload}: {row.unsettable}")
    if write:
        anubis.write_suite(tuned, write, suite)
        say(f"suite: {write}")
    sys.exit(2 if any(row.tuned.refusal for row in tuned.rows) else 0)


def _fields(row: TuningRow) -> TuningLine:
    from anubis.report.documents import TuningLine

    key = row.key
    return TuningLine(
        benchmark=key.workload.benchmark,
        version=key.workload.version,
        measured_with=key.workload.arguments,
        metric=key.metric,
        sku=key.sku,
        device=key.device_kind,
        series=row.series,
        parameters={} if row.tuned.refusal else row.settings,
        unsettable=row.unsettable,
    )


def _print_table(rows: Iterable[TuningRow]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("benchmark", overflow="fold")
    for heading in ("steps", "period", "warm-up + steps", "repeatability", "saved"):
        table.add_column(heading, justify="right", no_wrap=True)
    console = answer.screen()
    notes = []
    for row in rows:
        key, tuned = row.key, row.tuned
        name = f"{key.workload} {key.metric}"
        if tuned.refusal:
            now = _format(tuned.fixed_repeatability)
            table.add_row(name, str(tuned.fixed_steps), "-", "-", now, "-")
            notes.append(f"{name} on {key.sku}: {tuned.refusal}")
        else:
            table.add_row(
                name,
                str(tuned.fixed_steps),
                str(tuned.period) if tuned.period > 1 else "-",
                f"{tuned.warmup} + {tuned.steps}",
                f"{_format(tuned.fixed_repeatability)} → {_format(tuned.repeatability)}",
                f"{tuned.time_saved:.0%}",
            )
    console.print(table)
    for note in notes:
        console.print(f"\n{note}", markup=False)


def _format(repeatability: float | None) -> str:
    return "-" if repeatability is None else f"{repeatability:.3f}"
