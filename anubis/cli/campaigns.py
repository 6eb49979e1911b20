"""A campaign requested on the command line: run, shown, and written as a page."""

from __future__ import annotations

from pathlib import Path

import anubis
from anubis import places
from anubis.cli import amounts, answer, showing
from anubis.cli.pages import check_page
from anubis.cli.remarks import say
from anubis.cli.terminal import Terminal, turn_termination_into_interrupt
from anubis.core.errors import UsageError
from anubis.core.records import CampaignKind
from anubis.operations.campaigns import CampaignResult, PlannedCampaign
from anubis.operations.preparing import CampaignRequest
from anubis.report.view import CampaignView


def request(
    kind: str,
    nodes: str | None,
    *,
    cluster: str,
    suite: str | None,
    policy: str,
    benchmarks: list[Path] | None,
) -> CampaignRequest:
    """What the options that all campaigns have ask for."""
    return CampaignRequest(
        kind=CampaignKind(kind),
        nodes=amounts.nodes(nodes),
        cluster=cluster,
        suite=suite,
        policy=policy,
        benchmarks=benchmarks or (),
    )


def carry_out(
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
        _show_plan(anubis.plan_campaign(request, Terminal()), as_json=as_json)
        return
    turn_termination_into_interrupt()
    if campaign and not resume:
        raise UsageError("--campaign names the campaign to resume: give --resume as well")
    check_page(html)
    if resume:
        result = anubis.resume_campaign(request.kind, campaign, Terminal())
    else:
        result = anubis.run_campaign(request, Terminal())
    _show(result, html, as_json=as_json)
    answer.leave(result.judgement)


def _show_plan(planned: PlannedCampaign, *, as_json: bool) -> None:
    showing.plan(planned, as_json=as_json)
    if planned.coverage:
        showing.crossed(planned, planned.coverage, as_json=as_json)


def _show(result: CampaignResult, html: Path | None, *, as_json: bool) -> None:
    view = result.view
    try:
        showing.campaign(view, as_json=as_json)
    finally:  # whoever stopped reading must not cost the page
        for learned, path in zip(view.criteria, result.criteria_files, strict=False):
            say(f"criteria of {learned.sku} for suite {view.campaign.plan.suite}: {path}")
        _write_page(view, html)


def _write_page(view: CampaignView, asked_for: Path | None) -> None:
    """A report in the default place must not cost the verdict its exit code."""
    if asked_for:
        showing.write_html(view, asked_for)
        return
    try:
        showing.write_html(view, places.home() / "reports" / f"{view.campaign.id}.html")
    except UsageError as error:
        say(f"{error}; anubis report --html FILE writes it elsewhere")
