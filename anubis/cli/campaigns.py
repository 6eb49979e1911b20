"""Run a campaign that the command line requests, show it, and write its page."""

from __future__ import annotations

from collections.abc import Callable

import anubis
from anubis.cli import showing
from anubis.cli.options import AnswerForms, Beginning
from anubis.cli.outlets import say
from anubis.cli.page_files import write_file
from anubis.cli.terminal import Answerer, Terminal, turn_termination_into_interrupt
from anubis.core.errors import AnubisError, OutputError
from anubis.operations.campaigns import PlannedCampaign
from anubis.operations.requests import CampaignRequest
from anubis.report import html as html_report
from anubis.report.view import CampaignView
from anubis.text import places


def carry_out(request: CampaignRequest, forms: AnswerForms, beginning: Beginning) -> None:
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
        try:
            if not self._forms.nagios:
                showing.campaign(view, as_json=self._forms.json)
        finally:  # the files are written even if nobody reads stdout any more
            showing.write_files(view, self._forms)
            if not self._forms.html:
                _write_page(view)
        self.set_exit_code(showing.exit_code(view, self._forms))

    def cut_short(self, so_far: Callable[[], CampaignView]) -> None:
        """Write a page if one was asked for; judging for it takes a while."""
        if self._forms.html is None:
            return
        try:
            write_file(html_report.render(so_far()), self._forms.html, "report")
            self.remark(f"what is known so far: {self._forms.html}")
        except AnubisError as error:
            self.remark(f"no page of what is known so far: {error}")


def _show_plan(planned: PlannedCampaign, *, as_json: bool) -> None:
    showing.plan(planned, as_json=as_json)
    if planned.coverage:
        showing.show_coverage(planned, planned.coverage, as_json=as_json)


def _write_page(view: CampaignView) -> None:
    """Write the report in its default place; a failure must not change the exit code."""
    try:
        showing.write_html(view, places.home() / "reports" / f"{view.campaign.id}.html")
    except OutputError as error:
        say(f"{error}; anubis report --html FILE writes it elsewhere")
