"""A campaign requested on the command line: run, shown, and written as a page."""

from __future__ import annotations

from pathlib import Path

from anubis import places
from anubis.cli import showing
from anubis.cli.terminal import Terminal, turn_termination_into_interrupt
from anubis.core.errors import UsageError
from anubis.operations.campaigns import (
    CampaignResult,
    PlannedCampaign,
    plan_campaign,
    resume_campaign,
    run_campaign,
)
from anubis.operations.preparing import CampaignRequest
from anubis.report.view import CampaignView


def answer(
    request: CampaignRequest,
    *,
    dry_run: bool,
    resume: bool,
    campaign: str | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Exits with the verdict's code, unless nothing was to run."""
    if dry_run and resume:
        raise UsageError("--dry-run shows the plan of a new campaign: leave out --resume")
    if dry_run:
        _show_plan(plan_campaign(request, Terminal()), as_json=as_json)
        return
    turn_termination_into_interrupt()
    if campaign and not resume:
        raise UsageError("--campaign names the campaign to resume: give --resume as well")
    showing.check_page(html)
    if resume:
        result = resume_campaign(request.kind, campaign, Terminal())
    else:
        result = run_campaign(request, Terminal())
    _show(result, html, as_json=as_json)
    showing.leave(result.judgement)


def _show_plan(planned: PlannedCampaign, *, as_json: bool) -> None:
    showing.plan(planned.plan, planned.parallel_nodes, as_json=as_json)
    if planned.plan.fabric and planned.coverage:
        showing.crossed(planned.coverage, planned.plan.fabric, as_json=as_json)


def _show(result: CampaignResult, html: Path | None, *, as_json: bool) -> None:
    view = result.view
    try:
        showing.campaign(view, as_json=as_json)
    finally:  # whoever stopped reading must not cost the page
        for learned, path in zip(view.criteria, result.criteria_files, strict=False):
            showing.say(f"criteria of {learned.sku} for suite {view.campaign.plan.suite}: {path}")
        _write_page(view, html)


def _write_page(view: CampaignView, asked_for: Path | None) -> None:
    """A report in the default place must not cost the verdict its exit code."""
    if asked_for:
        showing.write_html(view, asked_for)
        return
    try:
        showing.write_html(view, places.home() / "reports" / f"{view.campaign.id}.html")
    except UsageError as error:
        showing.say(f"{error}; anubis report --html FILE writes it elsewhere")
