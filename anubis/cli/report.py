"""`anubis report`: a past campaign as it was judged, on the terminal, as JSON Lines or HTML."""

from __future__ import annotations

from anubis.cli import options

HELP = "Show a past campaign: a table, JSON Lines, or a self-contained HTML file."


def report(
    campaign: options.Campaign = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    import sys

    from anubis import places
    from anubis.cli import showing
    from anubis.cli.past import finished
    from anubis.report.view import CampaignView
    from anubis.store.history import History

    with History.open(places.history_url()) as history:
        found = finished(history, campaign)
        assessment = history.assessment(found.id)
        assert assessment is not None, "a finished campaign has one"
        view = CampaignView(
            campaign=found,
            executions=tuple(history.executions(found.id)),
            assessment=assessment,
            criteria=found.criteria,
        )
    showing.campaign(view, as_json=json)
    if html:
        showing.write_html(view, html)
    sys.exit(showing.exit_code(assessment))
