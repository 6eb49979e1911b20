"""Judging a past campaign again, by any criteria, without running anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from anubis import criteria_files, places
from anubis.operations.past import finished
from anubis.report.view import CampaignView
from anubis.store.history import History
from anubis.validator import judge as judge_executions


def judge(
    campaign: str | None = None, *, criteria: Path | None = None, history_url: str | None = None
) -> CampaignView:
    """By a file or a folder of criteria; else by those that it was judged by before."""
    with History.open(history_url or places.history_url()) as history:
        chosen = finished(history, campaign)
        executions = history.executions.of(chosen.id)
        before = history.assessments.of(chosen.id)
    if criteria:
        chosen = dataclasses.replace(chosen, criteria=criteria_files.load(criteria.expanduser()))
    elif chosen.kind.learns:  # it teaches itself, again
        chosen = dataclasses.replace(chosen, criteria=())
    lost = before.lost if before else {}
    assessment, used = judge_executions(chosen, executions, lost, chosen.created_at)
    return CampaignView(
        campaign=chosen, executions=tuple(executions), assessment=assessment, criteria=used
    )
