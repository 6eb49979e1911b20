"""`anubis criteria`: what was learned: how far each metric can be trusted, and what changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import anubis
from anubis.cli import answer, options
from anubis.cli.remarks import say

app = typer.Typer(
    name="criteria",
    help="What was learned: how far each metric can be trusted, and what changed.",
    no_args_is_help=True,
)

Before = Annotated[Path, typer.Argument(metavar="A", help="A criteria file, or a folder of them.")]
After = Annotated[Path, typer.Argument(metavar="B", help="Another.")]


@app.command(
    help="How repeatable each metric is, which limit it judges by, and what was set aside."
)
def show(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH",
            help="A criteria file, or a folder of them. Default: all that accept has learned here.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    from anubis import criteria_files
    from anubis.report import criteria as tables

    sets = criteria_files.load(path.expanduser()) if path else anubis.learned_here()
    screen = answer.screen()
    for number, criteria in enumerate(sets):
        if json:
            answer.write_lines(tables.show_lines(criteria))
        else:
            screen.print(end="\n" if number else "")
            tables.show(criteria, screen)


@app.command(
    help="What changed from A to B, and which verdicts of a campaign change with it. "
    "Exit codes: 0 nothing changed, 1 something did, 2 could not compare."
)
def diff(
    before: Before, after: After, campaign: options.Campaign = None, json: options.Json = False
) -> None:
    from anubis.report import criteria as tables

    moved = anubis.compare_criteria(before, after, campaign=campaign)
    judged = moved.campaign.id if moved.campaign else None
    if judged is None:
        say("no campaign has finished yet: there is no verdict to compare")
    if json:
        changes = tables.change_lines(moved.criteria, moved.nodes, moved.verdicts, judged)
        answer.write_lines(changes)
    else:
        tables.show_changes(moved.criteria, answer.screen())
        if judged and moved.criteria:
            tables.show_verdict_changes(judged, moved.nodes, moved.verdicts, answer.screen())
    sys.exit(1 if moved.criteria else 0)
