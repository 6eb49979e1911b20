"""Read measurements that are intact, as they were written. Damaged ones are refused or, on request,
left out with a remark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anubis.core.campaign.planning import is_planned
from anubis.core.errors import StoreError
from anubis.core.judge.damaged import leave_out_damaged as leave_out
from anubis.core.records import Assessment, Campaign, Execution
from anubis.operations.caller import Caller
from anubis.report.view import CampaignView
from anubis.store.executions import DamagedExecution
from anubis.store.history import History
from anubis.text.wording import damage_note


@dataclass(frozen=True, kw_only=True)
class IntactExecutions:
    """Intact executions by campaign, and all damaged ones."""

    executions: Mapping[str, Sequence[Execution]]
    damaged: Sequence[DamagedExecution]

    def executions_of(self, campaign: Campaign) -> Sequence[Execution]:
        return self.executions[campaign.id]

    def mark_unknown(self, assessment: Assessment) -> Assessment:
        """The assessment with unknown for what can no longer be read."""
        return leave_out(assessment, [run.step for run in self.damaged])

    def mark_damage(self, view: CampaignView) -> CampaignView:
        return replace(view, damaged=len(self.damaged))


def read_intact(
    history: History, campaigns: Sequence[Campaign], caller: Caller, *, without_damaged: bool
) -> IntactExecutions:
    """Read executions; refuse damaged ones unless `without_damaged`."""
    executions: dict[str, Sequence[Execution]] = {}
    damaged: list[DamagedExecution] = []
    for campaign in campaigns:
        executions[campaign.id], spoilt = history.executions.sound(campaign.id)
        if spoilt:
            _refuse(history, campaign, spoilt, without_damaged=without_damaged)
        damaged += spoilt
    if damaged:
        more = f", and {len(damaged) - 1:,} more" if damaged[1:] else ""
        caller.remark(
            f"{damage_note(len(damaged))}: {damaged[0].sentence}{more}. The rest is judged. anubis"
            " history check lists all damage"
        )
    return IntactExecutions(executions=executions, damaged=damaged)


def _refuse(
    history: History,
    campaign: Campaign,
    damaged: Sequence[DamagedExecution],
    *,
    without_damaged: bool,
) -> None:
    are_sure = all(run.is_sure or is_planned(campaign.plan, run.step) for run in damaged)
    if are_sure and without_damaged:
        return
    way_on = (
        "or leave it out with --without-damaged: what it measured is then unknown"
        if are_sure
        else "it cannot be left out, as the row may be of another node"
    )
    try:
        history.executions.read(campaign.id)
    except StoreError as error:
        raise StoreError(f"{error}; {way_on}") from error
