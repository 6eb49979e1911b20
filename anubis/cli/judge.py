"""`anubis judge`: judge a past campaign again, by any criteria, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import anubis
from anubis.cli import options


def judge(
    campaign: options.Campaign = None,
    criteria: Annotated[
        Path | None,
        typer.Option(
            "--criteria",
            metavar="PATH",
            help="A criteria file, or a folder of them. Default: those it was last judged by.",
        ),
    ] = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    """Judge a past campaign again, by other criteria, without running anything."""
    from anubis.cli import showing

    showing.answer_with(anubis.judge(campaign, criteria=criteria), html, as_json=json)
