"""The fleet at a glance: of every node that the history knows, whether it is fit, who has it, what
was concluded about it last and which of its passes still count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from anubis.core.campaign import planning
from anubis.core.fabric import by_number
from anubis.core.past.happened import Happened
from anubis.core.past.standing import Standing, standing
from anubis.core.past.status import Validation
from anubis.core.past.traits import NodeTraits
from anubis.core.records import Ended
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import look_up
from anubis.operations.keeping import KeptFleet, look
from anubis.operations.past import MOST_CAMPAIGNS
from anubis.report import history as told
from anubis.report.glance import CampaignGlance, NodeGlance
from anubis.report.history import Happening
from anubis.selector import LOOKED_BACK_S
from anubis.store.campaigns import CampaignRow
from anubis.store.history import ClusterHistory


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterGlance:
    """All nodes of a cluster, and what happened to them, read at one instant."""

    cluster: str
    nodes: tuple[NodeGlance, ...]
    happened: Happened
    findings: Mapping[str, Sequence[Validation]]  # by node
    kept: KeptFleet  # as the keeper's last turn left it

    def life(self, node: str, last: int) -> list[Happening]:
        """What happened to a node, the latest at the end."""
        happened = chain(
            map(told.of_incident, self.happened.incidents.about({node})),
            (told.of_repair(repair) for repair in self.happened.repairs if repair.node == node),
            map(told.of_validation, self.findings.get(node, ())),
            (told.of_notice(n) for n in self.happened.notices if node in n.event.nodes),
        )
        own = (replace(happening, cluster=self.cluster) for happening in happened)
        return told.timeline(own, None, last)


def standings(
    names: Collection[str] | None = None, *, cluster: str | None = None, caller: Caller = NOBODY
) -> list[NodeGlance]:
    """These, or all; of one cluster, or of all."""
    with caller.history() as history:
        parts = history.every() if cluster is None else [look_up(history, cluster)]
        glances = [glance for part in parts for glance in glance_at(part, caller.clock()).nodes]
    return [glance for glance in glances if names is None or glance.node in names]


def glance_at(history: ClusterHistory, now: float) -> ClusterGlance:
    happened = history.experience.happened(now - LOOKED_BACK_S)
    findings = defaultdict[str, list[Validation]](list)
    for validation in happened.validations:
        findings[validation.node].append(validation)
    stand = _standing(history, happened, now)
    holds = {hold.node: hold for hold in history.holds.current(now)}
    traits = {traits.node: traits for traits in happened.traits}
    glances = tuple(
        NodeGlance(
            node=node,
            cluster=history.cluster,
            judgement=stand.judgement(node),
            why=stand.unfit.get(node, ""),
            hold=holds.get(node),
            last=findings[node][-1] if node in findings else None,
            passed=stand.passed.get(node, {}),
            traits=traits.get(node) or NodeTraits(node=node),
        )
        for node in sorted(_every_node(happened) | holds.keys(), key=by_number)
    )
    return ClusterGlance(
        cluster=history.cluster,
        nodes=glances,
        happened=happened,
        findings=findings,
        kept=look(history, now, now),
    )


def _standing(history: ClusterHistory, happened: Happened, now: float) -> Standing:
    """As a gate sees it that asks for no benchmark in particular."""
    recent = [result for result in happened.validations if result.at >= now - LOOKED_BACK_S]
    findings = history.experience.failed_tests()
    return standing(recent, findings, happened.incidents, happened.repairs, happened.notices, now)


def _every_node(happened: Happened) -> set[str]:
    """Whatever told of it."""
    by_record = (happened.watches, happened.repairs, happened.validations, happened.traits)
    named = {record.node for records in by_record for record in records}
    by_event = {node for notice in happened.notices for node in notice.event.nodes}
    return named | by_event | {*happened.incidents.node}


def campaigns_at_a_glance(
    last: int = 50, *, cluster: str | None = None, caller: Caller = NOBODY
) -> list[CampaignGlance]:
    """The latest, the newest first; of one cluster, or of all."""
    with caller.history() as history:
        rows = history.campaigns.newest(limit=MOST_CAMPAIGNS if cluster else last)
        if cluster is not None:
            name = look_up(history, cluster).cluster
            rows = [row for row in rows if row.cluster == name][:last]
        ended = history.executions.ended([row.id for row in rows])
    return [_glance(row, ended[row.id]) for row in rows]


def campaign_at_a_glance(campaign: str, caller: Caller = NOBODY) -> CampaignGlance:
    with caller.history() as history:
        row = history.campaigns.at_a_glance(campaign)
        return _glance(row, history.executions.ended([campaign])[campaign])


def steps_planned(campaign: str, caller: Caller = NOBODY) -> int:
    """About how many executions its plan has: what follows from results is not in it."""
    with caller.history() as history:
        plan = history.campaigns.get(campaign).plan
    phases = range(len(plan.phases))
    schedule = planning.schedule(plan)
    return sum(planning.estimate(plan, phase, None, schedule).steps for phase in phases)


def _glance(row: CampaignRow, ended: Mapping[Ended, int]) -> CampaignGlance:
    return CampaignGlance(
        campaign=row.id,
        cluster=row.cluster,
        kind=row.kind,
        suite=row.suite,
        nodes=row.nodes,
        created_at=row.created_at,
        finished_at=row.finished_at,
        judgement=row.judgement,
        executions={how.value: number for how, number in ended.items()},
    )
