"""`anubis criteria`: what was learned: how far each metric can be trusted, and what moved since."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.core.records import Assessment, Campaign, CriteriaSet
    from anubis.store.history import History

app = typer.Typer(
    help="What was learned: how far each metric can be trusted, and what moved.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Before = Annotated[Path, typer.Argument(metavar="A", help="A criteria file, or a folder of them.")]
After = Annotated[Path, typer.Argument(metavar="B", help="Another.")]


@app.command(
    help="How repeatable each metric is, by which limit it judges, and what was set aside."
)
def show(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH",
            help="A criteria file, or a folder of them. Default: all that accept has learned here.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    from anubis import criteria_files
    from anubis.report import criteria as tables

    sets = criteria_files.load(path.expanduser()) if path else _learned_here()
    if json:
        for each in sets:
            for line in tables.show_lines(each):
                print(line)
        return
    from rich.console import Console

    console = Console(highlight=False)
    for number, each in enumerate(sets):
        if number:
            console.print()
        tables.show(each, console)


@app.command(
    help="What moved from A to B, and whose verdict in a campaign changes with it. "
    "Exit codes: 0 nothing moved, 1 something did, 2 that cannot be told."
)
def diff(
    before: Before,
    after: After,
    campaign: options.Campaign = None,
    json: options.Json = False,
) -> None:
    import sys

    from anubis import criteria_files, places
    from anubis.cli import showing
    from anubis.core.judging.comparison import criterion_changes, node_changes, verdict_changes
    from anubis.operations.past import finished
    from anubis.report import criteria as tables
    from anubis.store.history import History

    old = criteria_files.load(before.expanduser())
    new = criteria_files.load(after.expanduser())
    changes = criterion_changes(old, new)
    judged = None
    with History.open(places.history_url()) as history:
        if campaign or history.latest(finished=True):
            judged = finished(history, campaign)
        else:
            showing.say("no campaign was carried out yet: there is no verdict to compare")
        assessments = _judge_by_both(history, judged, old, new) if judged and changes else None
    nodes = node_changes(*assessments) if assessments else ()
    verdicts = verdict_changes(*assessments) if assessments else ()
    if json:
        for line in tables.change_lines(changes, nodes, verdicts, judged.id if judged else None):
            print(line)
    else:
        from rich.console import Console

        console = Console(highlight=False)
        tables.show_changes(changes, console)
        if judged and changes:
            tables.show_verdict_changes(judged.id, nodes, verdicts, console)
    sys.exit(1 if changes else 0)


def _learned_here() -> tuple[CriteriaSet, ...]:
    """Of every suite that was accepted: one folder each."""
    from anubis import criteria_files, places
    from anubis.core.errors import CriteriaError

    home = places.home() / "criteria"
    folders = sorted(folder for folder in home.glob("*") if folder.is_dir())
    found = tuple(each for folder in folders for each in criteria_files.load(folder))
    if not found:
        raise CriteriaError(
            f'no criteria in "{home}" yet: learn them with anubis accept, or name a file'
        )
    return found


def _judge_by_both(
    history: History,
    campaign: Campaign,
    old: tuple[CriteriaSet, ...],
    new: tuple[CriteriaSet, ...],
) -> tuple[Assessment, Assessment]:
    from anubis.core.judging.judgement import assess
    from anubis.core.judging.units import latest, units

    settled = latest(history.executions(campaign.id))
    known = history.assessment(campaign.id)
    lost = known.lost if known else {}
    measured = units(settled, campaign.plan)
    limits = campaign.policy.limits
    before, after = (
        assess(measured, settled, campaign.plan, c, lost, limits=limits) for c in (old, new)
    )
    return before, after
