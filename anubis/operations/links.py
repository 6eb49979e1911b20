"""What is between the nodes of each cluster: the last measurements of links and pairs, and the
parts and paths that are suspected to this day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, starmap

from anubis.core.errors import StoreError
from anubis.core.fabric import Part
from anubis.core.history.events import PartSuspected
from anubis.core.history.standing import bad_links
from anubis.core.history.status import Validation
from anubis.core.network.crossing import Parts
from anubis.core.network.posterior import FaultPrior
from anubis.core.network.recency import (
    Crossing,
    ReturningFault,
    links_by_tier,
    open_defects,
    open_suspicions,
    pairs_by_hops,
    returning_faults,
)
from anubis.core.records import Campaign, Judgement, PartVerdict, Plan
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import time_in
from anubis.operations.history import MOST_CAMPAIGNS
from anubis.operations.selector import LOOKED_BACK_S
from anubis.report.links import BetweenNodes, SuspectedPart, TogetherMeasured
from anubis.report.view import CampaignView, NetworkView
from anubis.store.campaigns import CampaignRow
from anubis.store.history import ClusterHistory, History

LOOKED_AT = 20  # the newest campaigns of a cluster
MERGED = 3  # the newest of those that crossed a fabric
SHORT = FaultPrior().limit


def links_at_a_glance(caller: Caller = NO_CALLER) -> list[BetweenNodes]:
    """Links, pairs and suspected parts of each cluster."""
    with caller.history() as history:
        rows = [row for row in history.campaigns.newest(MOST_CAMPAIGNS) if row.finished_at]
        return [
            _cluster_links(history, part, rows, time_in(part, caller).now)
            for part in history.every()
        ]


def _cluster_links(
    history: History, part: ClusterHistory, rows: Sequence[CampaignRow], now: float
) -> BetweenNodes:
    own = [row for row in rows if row.cluster == part.cluster and row.kind.validates]
    campaigns = list(_readable_campaigns(history, own[:LOOKED_AT]))
    across = list(_across(part, rows))
    every = _networks(history, _readable_campaigns(history, across[:LOOKED_AT]))
    networks = list(islice(every, MERGED))
    crossings = [_crossing(campaign, network) for campaign, network in networks]
    validations = part.experience.validations(now - LOOKED_BACK_S)
    every_crossing = starmap(_crossing, _networks(history, _readable_campaigns(history, across)))
    defects = open_defects(part.experience.part_verdicts(), every_crossing)
    suspected = {(v.subject, c.campaign): (v, c) for v, c in open_suspicions(crossings)}
    suspected |= {(v.subject, c.campaign): (v, c) for v, c in defects}
    suspects = list(starmap(_suspect, suspected.values()))
    if any(crossing.vanished for crossing in crossings):
        older = [_crossing(campaign, network) for campaign, network in every]
        suspects += [_return(fault, crossings) for fault in returning_faults(crossings + older)]
    return BetweenNodes(
        cluster=part.cluster,
        nodes=len({validation.node for validation in validations}),
        campaign=crossings[0].campaign if crossings else "",
        at=crossings[0].at if crossings else None,
        view=networks[0][1] if networks else None,
        tiers=links_by_tier(crossings) if crossings else {},
        pairs=pairs_by_hops(crossings) if crossings else {},
        suspects=(*suspects, *_reported_parts(part, crossings)),
        paths=bad_links(part.experience.part_verdicts(), validations),
        together=tuple(_joint_programs(campaigns, validations)),
    )


def measured_across(
    history: History, part: ClusterHistory, nodes: Sequence[str]
) -> Iterator[tuple[Campaign, NetworkView]]:
    """Campaigns of this cluster that measured a fabric with any of these nodes, the newest first;
    without nodes, all such campaigns."""
    rows = list(_across(part, history.campaigns.newest(MOST_CAMPAIGNS)))
    across = (
        campaign
        for campaign in _readable_campaigns(history, rows[:LOOKED_AT])
        if not nodes or ((fabric := campaign.plan.fabric) and {*nodes} & {*fabric.nodes})
    )
    return _networks(history, across)


def defective_between(
    history: History, part: ClusterHistory, nodes: Sequence[str]
) -> dict[str, str]:
    """Parts between these nodes that a campaign proved to be defective, and that none has cleared
    since → the reason. A campaign that cannot be read is an error: it may have the proof."""
    rows = history.campaigns.newest(MOST_CAMPAIGNS)
    campaigns = (history.campaigns.get(row.id) for row in _across(part, rows))
    networks = ((c, _network(history, c)) for c in campaigns)
    crossings = (_crossing(campaign, network) for campaign, network in networks if network)
    defects = open_defects(part.experience.part_verdicts(), crossings, nodes)
    reasons: dict[str, str] = {}
    for verdict, crossing in defects:
        why = f"{verdict.code} in campaign {crossing.campaign}, and not cleared since"
        reasons.setdefault(verdict.subject, why)
    return reasons


def _across(part: ClusterHistory, rows: Iterable[CampaignRow]) -> Iterator[CampaignRow]:
    """The campaigns of a cluster that may have measured a fabric."""
    return (
        row
        for row in rows
        if row.cluster == part.cluster and row.finished_at and row.kind.judges_fabric
    )


def _readable_campaigns(history: History, rows: Iterable[CampaignRow]) -> Iterator[Campaign]:
    """Campaigns that can be read; the page of a damaged or newer one says why it cannot."""
    for row in rows:
        with suppress(StoreError):
            yield history.campaigns.get(row.id)


def _networks(
    history: History, campaigns: Iterable[Campaign]
) -> Iterator[tuple[Campaign, NetworkView]]:
    """Campaigns that measured anything across their fabric, with its network."""
    for campaign in campaigns:
        with suppress(StoreError):
            if network := _network(history, campaign):
                yield campaign, network


def _network(history: History, campaign: Campaign) -> NetworkView | None:
    """The network that a campaign measured; None if it measured nothing across a fabric."""
    assessment = history.assessments.find(campaign.id)
    assert assessment is not None, "a finished campaign has one"
    view = CampaignView(campaign=campaign, executions=(), assessment=assessment, criteria=())
    return view.network if view.network and view.network.measured_rail_nics else None


def _crossing(campaign: Campaign, network: NetworkView) -> Crossing:
    return Crossing(
        campaign=campaign.id,
        at=campaign.finished_at or campaign.created_at,
        fabric=network.fabric,
        measured=network.measured,
        short=frozenset(
            rail_nics for rail_nics, share in network.shortfall.items() if share > SHORT
        ),
        parts=network.parts,
        vanished=network.vanished,
    )


def _suspect(verdict: PartVerdict, crossing: Crossing) -> SuspectedPart:
    return SuspectedPart(
        subject=verdict.subject,
        judgement=verdict.judgement,
        code=verdict.code,
        reason=verdict.reason,
        campaign=crossing.campaign,
        at=crossing.at,
    )


def returning_parts(across: Sequence[tuple[Campaign, NetworkView]]) -> set[Part]:
    """The parts that came and went more often than chance explains in these campaigns, the newest
    first."""
    crossings = [_crossing(campaign, network) for campaign, network in across]
    return {part for fault in returning_faults(crossings) for part in fault.parts}


def suspect_returning_parts(plan: Plan, history: History, part: ClusterHistory) -> Plan:
    """Add the parts of the fabric of a plan that came and went in earlier campaigns."""
    if plan.fabric is None:
        return plan
    returning = returning_parts(list(measured_across(history, part, plan.fabric.nodes)))
    has = Parts(plan.fabric).has
    return replace(plan, suspected=tuple(sorted(filter(has, returning))))


def find_returning_faults(
    campaign: str, network: NetworkView | None, history: History, part: ClusterHistory
) -> list[ReturningFault]:
    """Find what came and went in this campaign, the newest, and in earlier ones, more often than
    chance explains."""
    if not network or not network.vanished:
        return []
    crossings = [_crossing(*across) for across in measured_across(history, part, ())]
    faults = returning_faults(crossings) if crossings else iter(())
    return [fault for fault in faults if campaign in fault.campaigns]


def _return(fault: ReturningFault, crossings: Sequence[Crossing]) -> SuspectedPart:
    times = {crossing.campaign: crossing.at for crossing in crossings}
    return SuspectedPart(
        subject=fault.subject,
        judgement=Judgement.UNKNOWN,
        code="COMES-AND-GOES",
        reason=fault.reason,
        campaign=fault.campaigns[0],
        at=times.get(fault.campaigns[0], crossings[-1].at),
    )


def _reported_parts(part: ClusterHistory, crossings: Sequence[Crossing]) -> Iterator[SuspectedPart]:
    """The parts that are suspected between scans, each once, until a later campaign crosses
    them."""
    latest: dict[str, SuspectedPart] = {}
    for record in part.event_records.read_kind(PartSuspected):
        event = record.event
        if not isinstance(event, PartSuspected):
            continue
        latest.pop(event.part, None)
        if not any(crossing.at > record.at and _answers(event, crossing) for crossing in crossings):
            latest[event.part] = SuspectedPart(
                subject=event.part,
                judgement=Judgement.UNKNOWN,
                code="SUSPECTED",
                reason=event.reason or f"suspected by {event.source}",
                campaign="",
                at=record.at,
            )
    yield from reversed(latest.values())


def _answers(event: PartSuspected, crossing: Crossing) -> bool:
    """True if the campaign crossed the suspected part. If only words say which one it is, it has
    measured between all nodes that see it."""
    if event.parts:
        return all(map(crossing.has_crossed, event.parts))
    return crossing.nodes.issuperset(event.nodes)


def _joint_programs(
    campaigns: Iterable[Campaign], validations: Sequence[Validation]
) -> Iterator[TogetherMeasured]:
    """Programs that need several nodes, with the number of nodes they ran on and the last time."""
    specs = {spec.name: spec for campaign in campaigns for spec in campaign.plan.specs}
    for name in sorted(name for name, spec in specs.items() if spec.scope != "node"):
        runs = [run for run in validations if name in run.benchmarks]
        yield TogetherMeasured(
            benchmark=name,
            nodes=len({run.node for run in runs}),
            newest=max((run.at for run in runs), default=None),
        )
