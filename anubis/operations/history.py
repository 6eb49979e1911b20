"""Read the history: campaigns with their measurements and verdicts, as reports show them,
decisions, what happened to nodes, and how near metrics came to their limits in the tests of the
last weeks.

Only a campaign that ran to its end can be reported; one on a simulated fleet with its planted
defects. Measurements that are intact are read as they were written. Damaged ones are refused or, on
request, left out with a remark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice
from operator import attrgetter

from anubis.config import configs
from anubis.core.amounts import DAY_S
from anubis.core.campaign.planning import is_planned
from anubis.core.errors import AnubisError, StoreError, UsageError
from anubis.core.history.defects import Defect, TrackRecord
from anubis.core.history.defects import track_records as records_of
from anubis.core.history.drift import drifts
from anubis.core.judge.damaged_measurements import leave_out_damaged as leave_out
from anubis.core.judge.pooling import CampaignEvidence, join
from anubis.core.records import Assessment, Campaign, ClusterIdentity, CriteriaSet, Execution
from anubis.core.select.decision import Decision
from anubis.lab.simulation.reckoning import Reckoning, reckon
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.campaign_files import Setting, read_setting
from anubis.operations.clusters import look_up, time_in
from anubis.operations.keeping import acting_process
from anubis.operations.selector import read_past
from anubis.report import history as history_words
from anubis.report.drift import SHOWN_DAYS, ClusterDrift
from anubis.report.history import Happening
from anubis.report.view import CampaignView
from anubis.store.campaigns import CampaignRow
from anubis.store.clusters import ForgottenCluster
from anubis.store.executions import DamagedExecution
from anubis.store.history import ClusterHistory, History
from anubis.store.imports import Forgotten, Import
from anubis.store.integrity import Soundness
from anubis.text import places
from anubis.text.hostlist import shorten
from anubis.text.wording import damage_note, moment


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


MOST_CAMPAIGNS = 1_000_000  # more than a fleet runs in its life
MOST_ACTIONS = 10_000  # of the keeper, likewise
MOST_DECISIONS = 10_000  # the latest, for a time line
MOST_SEARCHED = 50  # campaigns, for a benchmark's latest criteria


def finished_campaign(history: History, campaign: str | None) -> Campaign:
    """The named campaign, or the latest one, if it is finished."""
    name = campaign or history.campaigns.latest(finished=True)
    if name is None:
        raise UsageError("no campaign has finished yet: begin with anubis accept")
    past_campaign = history.campaigns.get(name)
    if past_campaign.finished_at is None:
        raise UsageError(f'campaign "{name}" is not finished; {resume_hint(past_campaign)}')
    return past_campaign


def campaigns_since(history: History, last: Campaign, since: datetime | None) -> list[Campaign]:
    """Finished campaigns of the same cluster and suite from a time on until the last one, the
    oldest first; only the last one if no time is given."""
    if since is None:
        return [last]
    if last.created_at < since.timestamp():
        raise UsageError(
            f"no campaign to pool: {last.id} began {moment(last.created_at)}, "
            f"which is before --since {moment(since.timestamp())}"
        )
    newest_first = history.campaigns.newest(limit=MOST_CAMPAIGNS)
    begun_no_later = newest_first[[row.id for row in newest_first].index(last.id) :]
    return [
        history.campaigns.get(row.id)
        for row in reversed(begun_no_later)
        if (row.cluster, row.suite) == (last.cluster, last.plan.suite)
        and row.finished_at is not None
        and row.created_at >= since.timestamp()
    ]


def join_evidence(parts: Sequence[CampaignEvidence], caller: Caller) -> CampaignEvidence:
    evidence = join(parts)
    if evidence.changed:
        caller.remark(
            f"{shorten(evidence.changed)} had another sku before: measurements under that sku are "
            "left out"
        )
    return evidence


def resume_hint(campaign: Campaign) -> str:
    if not campaign.kind.can_resume:
        return "import the file again"
    return f"go on with: anubis {campaign.kind} --resume --campaign {campaign.id}"


def recall(
    campaign: str | None = None, *, without_damaged: bool = False, caller: Caller = NO_CALLER
) -> CampaignView:
    """A campaign with the verdict of its end; damaged records are refused, or are unknown."""
    with caller.history() as history:
        chosen = finished_campaign(history, campaign)
        assessment = history.assessments.find(chosen.id)
        assert assessment is not None, "a finished campaign has one"
        intact = read_intact(history, [chosen], caller, without_damaged=without_damaged)
    assessment = intact.mark_unknown(assessment)
    return intact.mark_damage(
        view_of(chosen, intact.executions_of(chosen), assessment, chosen.criteria)
    )


def campaigns(last: int = 50, caller: Caller = NO_CALLER) -> list[CampaignRow]:
    """The latest campaigns, the newest first."""
    with caller.history() as history:
        return history.campaigns.newest(limit=last)


def clusters(caller: Caller = NO_CALLER) -> list[str]:
    """Clusters that the history knows, in the order in which they were entered."""
    with caller.history() as history:
        return history.clusters.names()


def known_nodes(cluster: str | None = None, caller: Caller = NO_CALLER) -> list[str]:
    """Names of the nodes that the history knows of a cluster, or of the only one."""
    with caller.history() as history:
        return look_up(history, cluster).node_names.all()


def rename_cluster(old: str, new: str, caller: Caller = NO_CALLER) -> None:
    """Rename a cluster in the history, with all that is known of its nodes, and its risk model."""
    try:
        ClusterIdentity(name=new)
    except ValueError as error:
        raise UsageError(str(error)) from None
    with caller.history() as history:
        history.clusters.rename(old, new)
    if (model := places.risk_file(old)).is_file():
        model.replace(places.risk_file(new))


def forget_cluster(
    name: str, *, with_campaigns: bool = False, caller: Caller = NO_CALLER
) -> ForgottenCluster:
    """Remove a cluster made by mistake, with the reports on its nodes and its risk model."""
    with caller.history() as history:
        part = history.cluster(name)
        if name in history.clusters.names():
            if keeper := acting_process(history, part, part.keeping.kept_by(or_none=True)):
                raise UsageError(f'{keeper} keeps cluster "{name}": end it before')
            if held := part.holds.current(time_in(part, caller).now):
                raise UsageError(
                    f'node "{shorten([hold.node for hold in held])}" of cluster "{name}" is held'
                    f" by {held[0].holder}: wait until that ends"
                )
        forgotten = history.clusters.forget(name, with_campaigns=with_campaigns)
    for file in (places.risk_file(name), places.standing_file(name)):
        file.unlink(missing_ok=True)
    return forgotten


def decisions(
    last: int = 5, *, cluster: str | None = None, caller: Caller = NO_CALLER
) -> list[Decision]:
    """Decisions of gate, sweep and select, the newest first; of one cluster, or of all."""
    with caller.history() as history:
        made = [made for part in _parts(history, cluster) for made in part.decisions.newest(last)]
    return sorted(made, key=attrgetter("at"), reverse=True)[:last]


def timeline(
    nodes: Collection[str] | None = None,
    last: int = 50,
    *,
    cluster: str | None = None,
    caller: Caller = NO_CALLER,
) -> list[Happening]:
    """Incidents, repairs, validations, events, decisions, actions of the keeper and present holds
    of these nodes, or of all, in the order of time; of one cluster, or of all."""
    with caller.history() as history:
        happenings = [
            replace(happening, cluster=part.cluster)
            for part in _parts(history, cluster)
            for happening in _happenings(part, nodes, time_in(part, caller).now)
        ]
    return history_words.timeline(happenings, nodes, last)


def _parts(history: History, cluster: str | None) -> list[ClusterHistory]:
    return history.every() if cluster is None else [look_up(history, cluster)]


def _happenings(
    history: ClusterHistory, nodes: Collection[str] | None, at: float
) -> Iterator[Happening]:
    yield from map(history_words.incident_happening, history.incidents.all())
    yield from map(history_words.repair_happening, history.repairs.all())
    yield from map(history_words.validation_happening, history.experience.validations())
    yield from map(history_words.event_record_happening, history.event_records.all())
    yield from map(history_words.decision_happening, history.decisions.newest(MOST_DECISIONS))
    yield from history_words.hold_happenings(history.holds.current(at))
    yield from map(
        history_words.action_happening, history.keeping.actions_about(nodes, MOST_ACTIONS)
    )


def track_records(*, cluster: str | None = None, caller: Caller = NO_CALLER) -> list[TrackRecord]:
    """Records of benchmarks: the share that each found of all known defects, and how well it
    repeats; in one cluster, or in all."""
    with caller.history() as history:
        parts = _parts(history, cluster)
        defects, measured = list[Defect](), set[str]()
        for part in parts:
            past = read_past(part, time_in(part, caller).now)
            place = f"{part.cluster}/" if len(parts) > 1 else ""
            defects += (replace(defect, node=f"{place}{defect.node}") for defect in past.defects)
            measured |= {benchmark for benchmark, _ in past.measured_s}
        criteria = chain.from_iterable(part.experience.criteria() for part in parts)
        return records_of(defects, measured, islice(criteria, MOST_SEARCHED))


def check_history(caller: Caller = NO_CALLER) -> Soundness:
    """Check that the history is still what was written into it."""
    with caller.history() as history:
        return history.examine(caller.doing)


def imports(caller: Caller = NO_CALLER) -> list[Import]:
    """Files that were imported, the newest first."""
    with caller.history() as history:
        return history.imports.newest()


def forget_import(number: int, caller: Caller = NO_CALLER) -> Forgotten:
    """Remove what this import was the first to report, or the campaign that it became."""
    with caller.history() as history:
        return history.imports.forget(number)


def drift_at_a_glance(caller: Caller = NO_CALLER) -> list[ClusterDrift]:
    """Drift of all nodes together, by cluster."""
    with caller.history() as history:
        return [drift_of_cluster(part, caller) for part in history.every()]


def drift_of_node(cluster: str, node: str, caller: Caller = NO_CALLER) -> ClusterDrift:
    with caller.history() as history:
        return drift_of_cluster(look_up(history, cluster), caller, node)


def drift_of_cluster(part: ClusterHistory, caller: Caller, node: str = "") -> ClusterDrift:
    """Drift of one cluster: of one node, or of all together."""
    since = time_in(part, caller).now - SHOWN_DAYS * DAY_S
    of_metrics = drifts(part.experience.limit_shares(since, node))
    return ClusterDrift(cluster=part.cluster, node=node, since=since, drifts=of_metrics)


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
        is_by_itself=campaign.kind.learns or (setting is not None and setting.is_by_itself),
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
