"""`anubis judge`: judge a past campaign again, by any criteria, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anubis.cli import options

HELP = "Judge a past campaign again, by other criteria, without running anything."


def judge(
    campaign: options.Campaign = None,
    criteria: Annotated[
        Path | None,
        typer.Option(
            "--criteria",
            metavar="PATH",
            help="A criteria file, or a folder of them. Default: those it was judged by before.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    import dataclasses
    import sys

    from anubis import criteria_files, places
    from anubis.cli import showing
    from anubis.operations.past import finished
    from anubis.report.view import CampaignView
    from anubis.store.history import History
    from anubis.validator import judge as judge_again

    with History.open(places.history_url()) as history:
        found = finished(history, campaign)
        executions = history.executions(found.id)
        before = history.assessment(found.id)
    if criteria:
        found = dataclasses.replace(found, criteria=criteria_files.load(criteria.expanduser()))
    elif found.kind.learns:  # it teaches itself, again
        found = dataclasses.replace(found, criteria=())
    lost = before.lost if before else {}
    assessment, used = judge_again(found, executions, lost, found.created_at)
    view = CampaignView(
        campaign=found, executions=tuple(executions), assessment=assessment, criteria=used
    )
    showing.campaign(view, as_json=json)
    if html:
        showing.write_html(view, html)
    sys.exit(showing.exit_code(view))
