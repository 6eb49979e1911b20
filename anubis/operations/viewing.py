"""A campaign as reports show it; of a simulated fleet, with what was planted in it."""

from __future__ import annotations

from collections.abc import Sequence

from anubis import config
from anubis.core.errors import AnubisError
from anubis.core.records import Assessment, Campaign, CriteriaSet, Execution
from anubis.operations.preparing import read_setting
from anubis.report.view import CampaignView
from anubis.simulation.reckoning import Reckoning, reckon


def view_of(
    campaign: Campaign,
    executions: Sequence[Execution],
    assessment: Assessment,
    criteria: tuple[CriteriaSet, ...],
) -> CampaignView:
    return CampaignView(
        campaign=campaign,
        executions=tuple(executions),
        assessment=assessment,
        criteria=criteria,
        reckoning=_reckoning(campaign, assessment),
    )


def _reckoning(campaign: Campaign, assessment: Assessment) -> Reckoning | None:
    if campaign.executor != "simulated":
        return None
    try:
        cluster = read_setting(campaign.setting).cluster
    except AnubisError:  # an older version wrote it: the verdicts are shown all the same
        return None
    if not isinstance(cluster, config.SimulatedCluster):
        return None
    return reckon(cluster.fleet, campaign.plan, assessment)
