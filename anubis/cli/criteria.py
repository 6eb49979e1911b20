"""`anubis criteria`: what was learned: how far each metric can be trusted, and what moved since."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anubis.cli import answer, options

app = typer.Typer(
    help="What was learned: how far each metric can be trusted, and what moved.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    from anubis.operations.learning import learned_here
    from anubis.report import criteria as tables

    sets = criteria_files.load(path.expanduser()) if path else learned_here()
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
    import sys

    from anubis.cli import showing
    from anubis.operations.judging import compare_criteria
    from anubis.report import criteria as tables

    moved = compare_criteria(before, after, campaign=campaign)
    judged = moved.campaign.id if moved.campaign else None
    if judged is None:
        showing.say("no campaign has finished yet: there is no verdict to compare")
    if json:
        changes = tables.change_lines(moved.criteria, moved.nodes, moved.verdicts, judged)
        answer.write_lines(changes)
    else:
        tables.show_changes(moved.criteria, answer.screen())
        if judged and moved.criteria:
            tables.show_verdict_changes(judged, moved.nodes, moved.verdicts, answer.screen())
    sys.exit(1 if moved.criteria else 0)
