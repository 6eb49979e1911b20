"""What changed from one set of criteria to another, and which verdicts change with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anubis import criteria_files, places
from anubis.core.judging.comparison import (
    CriterionChange,
    NodeChange,
    VerdictChange,
    criterion_changes,
    node_changes,
    verdict_changes,
)
from anubis.core.judging.judgement import assess
from anubis.core.judging.units import latest, units
from anubis.core.records import Assessment, Campaign, CriteriaSet
from anubis.operations.past import finished
from anubis.store.history import History


@dataclass(frozen=True, kw_only=True)
class CriteriaComparison:
    criteria: tuple[CriterionChange, ...]
    campaign: Campaign | None = None  # that was judged by both; none where none was carried out
    nodes: tuple[NodeChange, ...] = ()
    verdicts: tuple[VerdictChange, ...] = ()


def compare_criteria(
    before: Path, after: Path, *, campaign: str | None = None, history_url: str | None = None
) -> CriteriaComparison:
    """Files or folders of criteria; the verdicts are those of the campaign, or of the latest."""
    old, new = (criteria_files.load(path.expanduser()) for path in (before, after))
    changes = criterion_changes(old, new)
    with History.open(history_url or places.history_url()) as history:
        if not campaign and not history.campaigns.latest(finished=True):
            return CriteriaComparison(criteria=changes)
        judged = finished(history, campaign)
        if not changes:
            return CriteriaComparison(criteria=(), campaign=judged)
        assessments = _judge_by_both(history, judged, old, new)
    return CriteriaComparison(
        criteria=changes,
        campaign=judged,
        nodes=node_changes(*assessments),
        verdicts=verdict_changes(*assessments),
    )


def _judge_by_both(
    history: History,
    campaign: Campaign,
    old: tuple[CriteriaSet, ...],
    new: tuple[CriteriaSet, ...],
) -> tuple[Assessment, Assessment]:
    settled = latest(history.executions.of(campaign.id))
    assessed = history.assessments.of(campaign.id)
    lost = assessed.lost if assessed else {}
    measured = units(settled, campaign.plan)
    limits = campaign.policy.limits
    before, after = (
        assess(measured, settled, campaign.plan, criteria, lost, limits=limits)
        for criteria in (old, new)
    )
    return before, after
