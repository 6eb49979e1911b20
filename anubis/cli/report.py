"""`anubis report`: a past campaign with its judgement, on the terminal or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import anubis
from anubis.cli import options
from anubis.cli.answer import write_file
from anubis.cli.streams import say
from anubis.cli.terminal import Terminal

if TYPE_CHECKING:
    from anubis.report.view import CampaignView


def report(
    campaign: options.Campaign = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
    junit: options.JUnit = None,
    nagios: options.Nagios = False,
    without_damaged: options.WithoutDamaged = False,
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
    from anubis.cli import campaign_answer

    forms = options.AnswerForms(json=json, nagios=nagios, html=html, junit=junit)
    forms.check()
    view = anubis.recall(campaign, without_damaged=without_damaged, caller=Terminal(as_json=json))
    if superbench:
        _write_summary(view, superbench)
    campaign_answer.answer_with(view, forms)


def _write_summary(view: CampaignView, path: Path) -> None:
    from anubis.readers.superbench.summary import summarize

    summary = summarize(view.campaign.plan, view.executions)
    write_file(summary.text, path, "summary")
    say(f"summary for SuperBench: {path}")
    if summary.left_out:
        say(f"left out of it: results, {summary.left_out}")
