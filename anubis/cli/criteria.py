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
    help="Learn what is normal, judge by it, show it, compare it.",
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
    from anubis.config import criteria_files
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


@app.command(
    help="Take the alphas that criteria propose into a policy. Prints the change of its text, and "
    "which verdicts of a campaign change with it. Writes nothing without --write."
)
def adopt(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A criteria file, or a folder of them.")
    ],
    policy: options.Policy = "default",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="GLOB",
            help='Only these, by benchmark and metric: "gemm tflops:*". May be repeated.',
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help="Write the changed policy to a new file, or to the one that --policy names.",
        ),
    ] = None,
    campaign: options.Campaign = None,
    json: options.Json = False,
) -> None:
    from anubis.report import criteria as tables

    adoption = anubis.adopt_alphas(path, policy, metrics=metric or (), campaign=campaign)
    changes = adoption.changes
    judged = changes.campaign.id if changes.campaign else None
    if json:
        answer.write_lines(tables.adoption_lines(adoption.rules))
        answer.write_lines(
            tables.change_lines(changes.criteria, changes.nodes, changes.verdicts, judged)
        )
    elif adoption.rules:
        print(adoption.diff)
        if judged:
            tables.show_verdict_changes(judged, changes.nodes, changes.verdicts, answer.screen())
    else:
        print("nothing to adopt: the policy already has what is proposed")
    if write and adoption.rules:
        anubis.write_policy(adoption, write)
        say(f"policy: {write}; criteria have these alphas once they are learned with it")
