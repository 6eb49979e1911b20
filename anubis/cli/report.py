"""`anubis report`: a past campaign as it was judged, on the terminal or in a file of some kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import anubis
from anubis.cli import answer, options
from anubis.cli.remarks import say
from anubis.core.errors import UsageError

if TYPE_CHECKING:
    from anubis.report.view import CampaignView


def report(
    campaign: options.Campaign = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
    superbench: Annotated[
        Path | None,
        typer.Option(
            "--superbench",
            metavar="FILE",
            help="Also write the medians to this file, as SuperBench's results-summary.jsonl.",
        ),
    ] = None,
) -> None:
    """Show a past campaign: a table, JSON Lines, or a self-contained HTML file."""
    from anubis.cli import showing

    view = anubis.recall(campaign)
    if superbench:
        _write_summary(view, superbench)
    showing.campaign(view, as_json=json)
    if html:
        showing.write_html(view, html)
    answer.leave(view.assessment.judgement)


def _write_summary(view: CampaignView, path: Path) -> None:
    from anubis.superbench.summary import summarize

    summary = summarize(view.campaign.plan, view.executions)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(summary.text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f'cannot write the summary "{path}": {error.strerror}') from None
    say(f"summary for SuperBench: {path}")
    if summary.left_out:
        say(f"left out of it: results, {summary.left_out}")
