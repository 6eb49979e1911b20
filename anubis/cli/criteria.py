"""`anubis criteria`: learn what is normal, judge by it, show and compare it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import anubis
from anubis.cli import answer, options
from anubis.cli.streams import say, show_status
from anubis.cli.terminal import Terminal
from anubis.cli.verb import verb
from anubis.core.errors import named_by_request
from anubis.operations.requests import JudgeRequest, LearnRequest

if TYPE_CHECKING:
    from anubis.core.records import CriteriaSet

app = typer.Typer(
    name="criteria",
    help="Learn what is normal, judge by it, show it, compare it.",
    no_args_is_help=True,
)

METRICS_NAMED = 3  # metrics that are named beside a reason
SHIPPED = "synthetic"  # the watch model that comes with Anubis

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

    with named_by_request(path is not None):
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


@app.command()
@verb
def learn(request: LearnRequest, out: options.Out = Path("criteria")) -> None:
    """Learn criteria from past measurements, of one campaign or of several."""
    from anubis.config import criteria_files
    from anubis.text.wording import names

    learned = anubis.learn(request, Terminal())
    for criteria, path in zip(learned, criteria_files.write_learned(learned, out), strict=True):
        refused = sum(bool(criterion.refusal) for criterion in criteria.criteria)
        say(f"{path}: {len(criteria.criteria)} criteria, {refused} of them refused")
        for sentence, metrics in _refusals(criteria).items():
            say(f"  {names(metrics, METRICS_NAMED)}: {sentence}")


def _refusals(criteria: CriteriaSet) -> dict[str, list[str]]:
    """Metrics by their refusal: if a fleet is too small, all have one reason."""
    refusals: dict[str, list[str]] = {}
    for criterion in criteria.criteria:
        if criterion.refusal:
            metric = f"{criterion.key.workload} {criterion.key.metric}"
            refusals.setdefault(criterion.refusal, []).append(metric)
    return refusals


@app.command()
@verb
def judge(request: JudgeRequest, json: options.Json = False, html: options.HtmlToo = None) -> None:
    """Judge past campaigns again, alone or as one, by other criteria, without running anything."""
    from anubis.cli import campaign_answer

    forms = options.AnswerForms(json=json, html=html)
    forms.check()
    campaign_answer.answer_with(anubis.judge(request, Terminal()), forms)


@app.command()
def learn_watching(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="Recorded telemetry, a file for each job: CSV, Parquet or OpenMetrics.",
        ),
    ] = None,
    synthetic: Annotated[
        bool,
        typer.Option(
            "--synthetic", help="Learn from simulated jobs instead, as for the shipped model."
        ),
    ] = False,
    name: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="NAME",
            help="The name under criteria/watching/ in $ANUBIS_HOME, or a file, *.json.",
        ),
    ] = "ours",
    telemetry: Annotated[
        Path | None,
        typer.Option(
            "--telemetry",
            metavar="FILE",
            help="The metrics to watch. Default: configs/telemetry/default.yaml.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="NAMES",
            help="Only these metrics, with commas between them, in this order.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the training's random draws.")] = 0,
) -> None:
    """Learn a watch model from recorded telemetry of healthy jobs."""
    from anubis.report import watch_model

    kept = anubis.train_watch_model(
        recordings or (),
        synthetic=synthetic,
        name=name,
        telemetry=telemetry,
        metrics=tuple(filter(None, (metrics or "").split(","))),
        seed=seed,
        caller=Terminal(),
    )
    show_status("")
    watch_model.show(kept.model, answer.screen())
    say(watch_model.origin_of(kept.model))
    print(kept.file)


@app.command()
def show_watching(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Its name under criteria/watching/, or a file.")
    ] = SHIPPED,
    json: options.Json = False,
) -> None:
    """Show what a watch model was learned from, how well, and its thresholds."""
    from anubis.report import watch_model

    kept = anubis.watch_model(model)
    if json:
        answer.write_lines(watch_model.lines(kept.model, kept.file))
        return
    watch_model.show(kept.model, answer.screen())
    say(f"{kept.file}: {watch_model.origin_of(kept.model)}")
