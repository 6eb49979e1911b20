"""`anubis criteria learn-watching` and `show-watching`: what running jobs are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import anubis
from anubis.cli import answer, options
from anubis.cli.remarks import say, show_status
from anubis.cli.terminal import Terminal

SHIPPED = "synthetic"


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
