"""`anubis accept`, `validate`, `scan` and `locate`: measure nodes, or the network between them,
show the campaign, and write its page. `scan --draw` shows the fabric that Anubis reads, before
anything is scheduled on it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import anubis
from anubis.cli import answer
from anubis.cli.answer import write_file, write_page
from anubis.cli.options import AnswerForms, Beginning
from anubis.cli.streams import say
from anubis.cli.terminal import Answerer, Terminal, turn_termination_into_interrupt
from anubis.cli.verb import verb
from anubis.core.errors import AnubisError, OutputError, UsageError
from anubis.operations.requests import (
    AcceptRequest,
    CampaignRequest,
    FabricRequest,
    LocateRequest,
    ScanRequest,
    ValidateRequest,
)
from anubis.text import places

if TYPE_CHECKING:
    from anubis.operations.campaigns import PlannedCampaign
    from anubis.operations.topology import InspectedFabric
    from anubis.report.view import CampaignView


@verb
def accept(request: AcceptRequest, forms: AnswerForms, beginning: Beginning) -> None:
    """Accept a new cluster: run, learn criteria from this run, judge, report."""
    _carry_out(request, forms, beginning)


@verb
def validate(request: ValidateRequest, forms: AnswerForms, beginning: Beginning) -> None:
    """Validate nodes: run, and judge by criteria learned earlier."""
    _carry_out(request, forms, beginning)


@verb
def scan(
    request: ScanRequest,
    forms: AnswerForms,
    beginning: Beginning,
    draw: Annotated[
        bool,
        typer.Option(
            "--draw",
            help="Measure nothing: draw the fabric, list its anomalies, and which of the named "
            "nodes are missing in it.",
        ),
    ] = False,
) -> None:
    """Scan the network: pairs of nodes at every distance, and the part at fault by name."""
    if draw:
        _draw(request, forms)
        return
    _carry_out(request, forms, beginning)


@verb
def locate(request: LocateRequest, forms: AnswerForms, beginning: Beginning) -> None:
    """Locate why a job fails or is slow: test pods, leaves and halves until one part is left."""
    _carry_out(request, forms, beginning)


def _carry_out(request: CampaignRequest, forms: AnswerForms, beginning: Beginning) -> None:
    """Carry out the request and exit with the verdict's code, unless nothing was to run."""
    beginning.check()
    if beginning.dry_run:
        _show_plan(anubis.plan_campaign(request, Terminal()), as_json=forms.json)
        return
    turn_termination_into_interrupt()
    forms.check()
    answerer = CampaignAnswerer(forms)
    with answerer.leaving():
        if beginning.resume:
            anubis.resume_campaign(request.kind, beginning.campaign, answerer)
        else:
            anubis.run_campaign(request, answerer)


class CampaignAnswerer(Answerer):
    def __init__(self, forms: AnswerForms) -> None:
        super().__init__(as_json=forms.json)
        self._forms = forms

    def concluded(self, view: CampaignView) -> None:
        from anubis.cli import campaign_answer

        try:
            if not self._forms.nagios:
                campaign_answer.campaign(view, as_json=self._forms.json)
        finally:  # the files are written even if nobody reads stdout any more
            campaign_answer.write_files(view, self._forms)
            if not self._forms.html:
                _write_report(view)
        self.set_exit_code(campaign_answer.exit_code(view, self._forms))

    def cut_short(self, so_far: Callable[[], CampaignView]) -> None:
        """Write a page if one was asked for; judging for it takes a while."""
        if self._forms.html is None:
            return
        from anubis.report import campaign_page as html_report

        try:
            write_file(html_report.render(so_far()), self._forms.html, "report")
            self.remark(f"what is known so far: {self._forms.html}")
        except AnubisError as error:
            self.remark(f"no page of what is known so far: {error}")


def _show_plan(planned: PlannedCampaign, *, as_json: bool) -> None:
    from anubis.cli import campaign_answer

    campaign_answer.plan(planned, as_json=as_json)
    if planned.coverage:
        campaign_answer.show_coverage(planned, planned.coverage, as_json=as_json)


def _write_report(view: CampaignView) -> None:
    """Write the report in its default place; a failure must not change the exit code."""
    from anubis.cli import campaign_answer

    try:
        campaign_answer.write_html(view, places.home() / "reports" / f"{view.campaign.id}.html")
    except OutputError as error:
        say(f"{error}; anubis report --html FILE writes it elsewhere")


# --- scan --draw --------------------------------------------------------------------------------


def _draw(request: ScanRequest, forms: AnswerForms) -> None:
    """Draw the fabric, and exit with the code of what its anomalies come to."""
    from anubis.report.topology import json_lines, text

    forms.check()
    if forms.junit:
        raise UsageError("--draw measures nothing: leave --junit out")
    wish = FabricRequest(
        topology=request.topology,
        hcas=request.hcas,
        nodes=request.nodes or (),
        counters=request.counters,
        over_s=request.over_s,
    )
    inspected = anubis.inspect_fabric(wish, Terminal())
    shown = json_lines if forms.json else text
    if not forms.nagios:
        answer.write_lines(
            shown(
                inspected.inspection,
                inspected.remarks,
                inspected.placement,
                routes=inspected.routes,
            )
        )
    if forms.html:
        _write_drawing(inspected, forms.html)
    if forms.nagios:
        sys.exit(_tell_monitoring(inspected))
    answer.leave(inspected.judgement)


def _tell_monitoring(inspected: InspectedFabric) -> int:
    from anubis.cli import nagios
    from anubis.report.topology import answer as verdict

    inspection, placement = inspected.inspection, inspected.placement
    missing = sum(shortage.lacks for shortage in inspection.shortages)
    degraded = sum(shortage.is_degraded for shortage in inspection.shortages)
    figures = {
        "switches": f"{len(inspection.fabric.switches)};;;0;",
        "degraded": f"{degraded};;0;0;",
        "missing_uplinks": f"{missing};;;0;",
    }
    return nagios.tell("topology", inspected.judgement, verdict(inspection, placement), figures)


def _write_drawing(inspected: InspectedFabric, path: Path) -> None:
    from anubis.report.network_page import network_page
    from anubis.report.topology import answer as verdict
    from anubis.report.view import NetworkView

    view = NetworkView(
        fabric=inspected.inspection.fabric,
        counters=inspected.inspection.counters,
        shortfall={},
        nodes=inspected.placement.nodes if inspected.placement else (),
        unplaced=inspected.placement.unplaced if inspected.placement else (),
    )
    title = verdict(inspected.inspection, inspected.placement)
    write_page(network_page(view, title=title, findings=inspected.remarks), path)
