"""Make the view of a campaign that reports show; for a simulated fleet, with its planted
defects."""

from __future__ import annotations

from collections.abc import Sequence

from anubis.config import configs
from anubis.core.errors import AnubisError
from anubis.core.records import Assessment, Campaign, CriteriaSet, Execution
from anubis.lab.simulation.reckoning import Reckoning, reckon
from anubis.operations.campaign_files import Setting, read_setting
from anubis.report.view import CampaignView


def view_of(
    campaign: Campaign,
    executions: Sequence[Execution],
    assessment: Assessment,
    criteria: tuple[CriteriaSet, ...],
) -> CampaignView:
    """The view of a campaign of the history, as it was begun."""
    return view_in(_setting(campaign), campaign, executions, assessment, criteria)


def view_in(
    setting: Setting | None,
    campaign: Campaign,
    executions: Sequence[Execution],
    assessment: Assessment,
    criteria: tuple[CriteriaSet, ...],
) -> CampaignView:
    """The view of a campaign that runs in this setting."""
    return CampaignView(
        campaign=campaign,
        executions=tuple(executions),
        assessment=assessment,
        criteria=criteria,
        reckoning=_reckoning(campaign, setting, assessment),
        site=setting.cluster.site if setting else "",
        by=setting.by if setting else "",
    )


def _setting(campaign: Campaign) -> Setting | None:
    """Setting of a campaign; None for an import, or if an older version wrote it in another
    form."""
    if not (campaign.setting and campaign.kind.can_resume):
        return None
    try:
        return read_setting(campaign.setting)
    except AnubisError:
        return None


def _reckoning(
    campaign: Campaign, setting: Setting | None, assessment: Assessment
) -> Reckoning | None:
    if setting is None or not isinstance(setting.cluster, configs.SimulatedCluster):
        return None
    return reckon(setting.cluster.fleet, campaign.plan, assessment)
