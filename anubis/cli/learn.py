"""`anubis learn`: criteria from what campaigns measured, into files to commit and review."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import anubis
from anubis.cli import amounts, options
from anubis.cli.remarks import say
from anubis.cli.terminal import Terminal

if TYPE_CHECKING:
    from anubis.core.records import CriteriaSet

METRICS_NAMED = 3  # metrics that are named beside a reason


def learn(
    campaign: options.Campaign = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="DATE",
            help="Pool the campaign with all finished ones of its suite that began before it, on "
            "DATE (2026-11-01 or 2026-11-01T08:00, UTC) or later. What a device, or a group of "
            "nodes, measured in all of them is one unit; the last try of each step counts, and "
            "workloads that the campaign itself does not run are left out.",
        ),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            "--exclude",
            metavar="NODES",
            help="Do not learn from these nodes, nor from groups that contain them: node[01-16], "
            "a comma "
            "list, or @file. Each must be in one of the campaigns.",
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Start from these earlier criteria: a file, or a folder of them.",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            help="A name under configs/policies/, or a file. Default: the campaign's own.",
        ),
    ] = None,
    without_damaged: options.WithoutDamaged = False,
    out: options.Out = Path("criteria"),
) -> None:
    """Learn criteria from past measurements, of one campaign or of several."""
    from anubis.config import criteria_files
    from anubis.text.wording import names

    learned = anubis.learn(
        campaign,
        since=None if since is None else amounts.instant(since, "--since"),
        exclude=amounts.nodes(exclude) or (),
        start=start or (),
        policy=policy,
        without_damaged=without_damaged,
        caller=Terminal(),
    )
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
