"""`anubis judge`: judge a past campaign again, by any criteria, without running anything."""

from __future__ import annotations

from anubis.cli import options

HELP = "Judge a past campaign again, by other criteria, without running anything."


def judge(
    campaign: options.Campaign = None,
    criteria: options.Criteria = None,
    json: options.Json = False,
    html: options.Html = None,
) -> None:
    import dataclasses
    import sys

    from anubis import criteria_files, places
    from anubis.cli import showing
    from anubis.cli.past import chosen
    from anubis.report.view import CampaignView
    from anubis.store.history import History
    from anubis.validator import judge as judge_again

    with History.open(places.history_url()) as history:
        found = history.campaign(chosen(history, campaign))
        executions = history.executions(found.id)
        before = history.assessment(found.id)
    if criteria:
        found = dataclasses.replace(found, criteria=criteria_files.load(criteria.expanduser()))
    lost = {
        verdict.participants[0]: verdict.reason
        for verdict in (before.verdicts if before else ())
        if verdict.code == "NODE-LOST"
    }
    assessment, used = judge_again(found, executions, lost, found.created_at)
    view = CampaignView(
        campaign=found, executions=tuple(executions), assessment=assessment, criteria=used
    )
    showing.campaign(view, as_json=json, html=html)
    sys.exit(showing.exit_code(assessment))
