"""A campaign requested on the command line: run, shown, and written as a page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import anubis
from anubis import places
from anubis.cli import amounts, answer, showing
from anubis.cli.pages import check_page, write_file
from anubis.cli.remarks import say
from anubis.cli.terminal import Terminal, turn_termination_into_interrupt
from anubis.core.errors import AnubisError, UsageError
from anubis.core.records import CampaignKind, Judgement
from anubis.operations.campaigns import PlannedCampaign
from anubis.operations.preparing import CampaignRequest
from anubis.report import html as html_report
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
    reader = Reader(html, as_json=as_json)
    try:
        if resume:
            anubis.resume_campaign(request.kind, campaign, reader)
        else:
            anubis.run_campaign(request, reader)
    except (Exception, KeyboardInterrupt) as error:
        if reader.answer is None:
            raise
        if not isinstance(error, KeyboardInterrupt):
            say(f"the answer stands; what followed it failed: {error}")
    assert reader.answer is not None
    answer.leave(reader.answer)


class Reader(Terminal):
    """Gets the answer and the page as soon as they are known, before the nodes are let go: what
    then hangs or fails changes neither."""

    answer: Judgement | None = None

    def __init__(self, html: Path | None, *, as_json: bool) -> None:
        super().__init__(as_json=as_json)
        self._html = html

    def concluded(self, view: CampaignView) -> None:
        try:
            super().concluded(view)
        finally:  # whoever stopped reading must not cost the page
            _write_page(view, self._html)
        sys.stdout.flush()
        self.answer = view.assessment.judgement

    def cut_short(self, so_far: Callable[[], CampaignView]) -> None:
        """A page only where one was asked for: judging takes a while, and nobody waits for it."""
        if self._html is None:
            return
        try:
            write_file(html_report.render(so_far()), self._html, "report")
            self.remark(f"what is known so far: {self._html}")
        except AnubisError as error:
            self.remark(f"no page of what is known so far: {error}")


def _show_plan(planned: PlannedCampaign, *, as_json: bool) -> None:
    showing.plan(planned, as_json=as_json)
    if planned.coverage:
        showing.crossed(planned, planned.coverage, as_json=as_json)


def _write_page(view: CampaignView, asked_for: Path | None) -> None:
    """A report in the default place must not cost the verdict its exit code."""
    if asked_for:
        showing.write_html(view, asked_for)
        return
    try:
        showing.write_html(view, places.home() / "reports" / f"{view.campaign.id}.html")
    except UsageError as error:
        say(f"{error}; anubis report --html FILE writes it elsewhere")
