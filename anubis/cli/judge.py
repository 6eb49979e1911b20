"""`anubis judge`: judge past campaigns again, by any criteria, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import anubis
from anubis.cli import amounts, options
from anubis.cli.terminal import Terminal


def judge(
    campaign: options.Campaign = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="DATE",
            help="Judge the campaign as one with all finished ones of its suite that began before "
            "it, on DATE (2026-11-01 or 2026-11-01T08:00, UTC) or later. What a device, or a group "
            "of nodes, measured in all of them is one unit.",
        ),
    ] = None,
    criteria: Annotated[
        Path | None,
        typer.Option(
            "--criteria",
            metavar="PATH",
            help="A criteria file, or a folder of them. Default: those it was last judged by.",
        ),
    ] = None,
    without_damaged: options.WithoutDamaged = False,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    """Judge past campaigns again, alone or as one, by other criteria, without running anything."""
    from anubis.cli import showing

    forms = options.AnswerForms(json=json, html=html)
    forms.check()
    view = anubis.judge(
        campaign,
        since=None if since is None else amounts.instant(since, "--since"),
        criteria=criteria,
        without_damaged=without_damaged,
        caller=Terminal(),
    )
    showing.answer_with(view, forms)
