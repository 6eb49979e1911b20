"""The fleet at a glance: for every node that the history knows, its fitness, its holder, its last
verdict, and its passes that still count; and what its keeper has left undone, for monitoring:
failed orders, late periodic tasks, jobs that wait for a diagnosis, missing spares."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TypeVar

from anubis.core.amounts import HOUR_S
from anubis.core.campaign import planning
from anubis.core.clock import Time
from anubis.core.diagnose.cures import PastDiagnosis
from anubis.core.fabric import natural_key
from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.events import EventRecord
from anubis.core.history.maintenance import open_windows, reported_windows
from anubis.core.history.past import (
    Happened,
    are_dated_anew,
    changed_nodes,
    index_from,
    new_event_records,
)
from anubis.core.history.status import Incident, Repair, Validation, Watch
from anubis.core.history.tracks import IncidentColumns
from anubis.core.keep.commands import LifeAction
from anubis.core.keep.objections import Objections
from anubis.core.keep.periodic_tasks import PeriodicTask, next_due
from anubis.core.records import Ended, Judgement
from anubis.core.watch.rounds import KeptLook
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import look_up, time_in
from anubis.operations.diagnose_due import undiagnosed_since
from anubis.operations.history import MOST_CAMPAIGNS
from anubis.operations.keep import KeptFleet, look
from anubis.operations.keeper_news import objections_in
from anubis.operations.selector import LOOKED_BACK_S, standing_of
from anubis.report import history as history_words
from anubis.report.fleet import CampaignGlance, NodeGlance
from anubis.report.history import Happening
from anubis.report.maintenance import sentence
from anubis.store.campaigns import CampaignRow
from anubis.store.diagnoses import DETAILS_KEPT_S
from anubis.store.history import ClusterHistory, Memory
from anubis.store.holds import Hold

R = TypeVar("R", Incident, Repair, Validation)


@dataclass(frozen=True, kw_only=True, eq=False)
class OfNodes:
    """Records of what happened, by node."""

    incidents: Mapping[str, Sequence[Incident]]
    repairs: Mapping[str, Sequence[Repair]]
    validations: Mapping[str, Sequence[Validation]]
    event_records: Mapping[str, Sequence[EventRecord]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterGlance:
    """All nodes of a cluster, and what happened to them, read at one instant."""

    cluster: str
    at: float
    by_name: Mapping[str, NodeGlance]  # in the order of their numbers
    happened: Happened
    holds: Mapping[str, Hold]
    of_node: OfNodes
    named_by_events: frozenset[str]  # except those of jobs
    kept: KeptFleet  # as the keeper's last turn left it
    objections: Objections  # of that turn
    periodic_tasks: Mapping[PeriodicTask, float]  # when periodic work last ended without failing
    looks: tuple[KeptLook, ...]  # the last one at each job that is watched
    diagnosed: tuple[PastDiagnosis, ...]  # of the last weeks, that suspect a node
    is_simulated: bool

    @cached_property
    def nodes(self) -> tuple[NodeGlance, ...]:
        return tuple(self.by_name.values())

    def verdicts_of(self, campaign: str) -> Counter[Judgement]:
        """Number of nodes by what a campaign found."""
        results = self.happened.validations
        return Counter(result.judgement for result in results if result.campaign == campaign)

    def life(self, node: str, last: int, actions: Iterable[LifeAction] = ()) -> list[Happening]:
        """Happenings of a node, the latest at the end. `actions`: those of the keeper on this
        node."""
        happened = chain(
            map(history_words.incident_happening, self.of_node.incidents.get(node, ())),
            map(history_words.repair_happening, self.of_node.repairs.get(node, ())),
            map(history_words.validation_happening, self.of_node.validations.get(node, ())),
            map(history_words.event_record_happening, self.of_node.event_records.get(node, ())),
            map(history_words.action_happening, actions),
        )
        own = (replace(happening, cluster=self.cluster) for happening in happened)
        return history_words.timeline(own, None, last)


def simulated_clusters(caller: Caller = NO_CALLER) -> dict[str, bool]:
    """Each cluster of the history, and whether its nodes are simulated."""
    with caller.history() as history:
        return {part.cluster: _is_simulated(part) for part in history.every()}


def _is_simulated(history: ClusterHistory) -> bool:
    return history.node_names.executor() == "simulated"


def standings(
    names: Collection[str] | None = None, *, cluster: str | None = None, caller: Caller = NO_CALLER
) -> list[NodeGlance]:
    """Glances at these nodes, or at all; in one cluster, or in all."""
    with caller.history() as history:
        parts = history.every() if cluster is None else [look_up(history, cluster)]
        glances = [
            glance for part in parts for glance in glance_at(part, time_in(part, caller)).nodes
        ]
    return [glance for glance in glances if names is None or glance.node in names]


def glance_at(
    history: ClusterHistory, time: Time, before: ClusterGlance | None = None
) -> ClusterGlance:
    """Glance at all nodes of a cluster. `before`: an earlier glance; only nodes that may have
    changed since are computed again. While the clock is in doubt, no pass counts."""
    now = time.now
    if before and (now < before.at or time.doubt != before.kept.doubt):
        before = None
    happened = history.experience.happenings(now - LOOKED_BACK_S)
    if before and are_dated_anew(before.happened.event_records, happened.event_records):
        before = None
    failed = history.experience.failed_tests()
    holds = {hold.node: hold for hold in history.holds.current(now)}
    of_node = _records_of_nodes(history.memory, happened, before)
    named_by_events = _named_by_events(happened.event_records, before)
    kept = look(history, now, time)
    names = _names(history.memory, happened, of_node) | named_by_events
    names |= holds.keys() | kept.lives.keys()
    objections = objections_in(history, time)
    stale = _stale(before, happened, holds, objections, now) if before else names
    stand = standing_of(happened, failed, now, nodes=stale if before else None)
    stand = stand.apply_doubt(time.doubt).apply_objections(objections.out, objections.unproven)
    attributes = history.memory.recall(_attributes_by_node, happened.attributes)
    windows = open_windows(history.memory.recall(reported_windows, happened.event_records), now)

    def look_at(node: str) -> NodeGlance:
        results, window = of_node.validations.get(node), windows.get(node)
        return NodeGlance(
            node=node,
            cluster=history.cluster,
            judgement=Judgement.UNKNOWN if window else stand.judgement(node),
            why=sentence(window, now) if window else stand.reason(node),
            hold=holds.get(node),
            last=results[-1] if results else None,
            passed=stand.passed.get(node, {}),
            attributes=attributes.get(node) or NodeAttributes(node=node),
        )

    earlier = before.by_name if before else {}
    same = {name: glance for name, glance in earlier.items() if name not in stale}
    order = earlier if earlier.keys() == names else sorted(names, key=natural_key)
    return ClusterGlance(
        cluster=history.cluster,
        at=now,
        by_name={name: same.get(name) or look_at(name) for name in order},
        happened=happened,
        holds=holds,
        of_node=of_node,
        named_by_events=named_by_events,
        kept=kept,
        objections=objections,
        periodic_tasks=history.periodic_tasks.successes(),
        looks=tuple(history.looks.all()),
        diagnosed=tuple(history.diagnoses.naming(now - DETAILS_KEPT_S)),
        is_simulated=_is_simulated(history),
    )


def _stale(
    before: ClusterGlance,
    happened: Happened,
    holds: Mapping[str, Hold],
    objections: Objections,
    now: float,
) -> set[str]:
    """Nodes whose glance may have changed."""
    then, results = before.at, happened.validations
    of_old = results[
        index_from(results, then - LOOKED_BACK_S) : index_from(results, now - LOOKED_BACK_S)
    ]
    held = before.holds.keys() | holds.keys()
    windows_then = open_windows(reported_windows(before.happened.event_records), then)
    windows_now = open_windows(reported_windows(happened.event_records), now)
    then_denied = before.objections
    denied = {*then_denied.out, *then_denied.unproven, *objections.out, *objections.unproven}
    maintained = windows_then.keys() | windows_now.keys()
    return {
        *changed_nodes(before.happened, then, happened, now),
        *(node for node in held if before.holds.get(node) != holds.get(node)),
        *(node for node in maintained if windows_then.get(node) != windows_now.get(node)),
        *(
            node
            for node in denied
            if then_denied.objection_to(node) != objections.objection_to(node)
        ),
        *(result.node for result in of_old),
    }


def _names(memory: Memory, happened: Happened, of_node: OfNodes) -> set[str]:
    """Names of all nodes in any record but those of events, jobs and the keeper."""
    named = memory.recall(_named_nodes, happened.watches, happened.attributes)
    by_node = (of_node.incidents, of_node.repairs, of_node.validations)
    return {*named}.union(*by_node)


def _named_by_events(
    event_records: Sequence[EventRecord], before: ClusterGlance | None
) -> frozenset[str]:
    """Nodes that events name, except those of jobs."""
    new = new_event_records(before.happened.event_records if before else (), event_records)
    nodes = (r.event.nodes for r in new if not r.event.is_of_job)
    return (before.named_by_events if before else frozenset()).union(*nodes)


def _named_nodes(watches: Sequence[Watch], attributes: Sequence[NodeAttributes]) -> set[str]:
    return {watch.node for watch in watches} | {record.node for record in attributes}


def _records_of_nodes(memory: Memory, happened: Happened, before: ClusterGlance | None) -> OfNodes:
    return OfNodes(
        incidents=memory.recall(_incidents_by_node, happened.incidents),
        repairs=memory.recall(_repairs_by_node, happened.repairs),
        validations=memory.recall(_validations_by_node, happened.validations),
        event_records=_event_records_by_node(happened.event_records, before),
    )


def _attributes_by_node(attributes: Sequence[NodeAttributes]) -> dict[str, NodeAttributes]:
    return {record.node: record for record in attributes}


def _incidents_by_node(incidents: IncidentColumns) -> dict[str, list[Incident]]:
    return _group_by_node(incidents)


def _repairs_by_node(repairs: Sequence[Repair]) -> dict[str, list[Repair]]:
    return _group_by_node(repairs)


def _validations_by_node(validations: Sequence[Validation]) -> dict[str, list[Validation]]:
    return _group_by_node(validations)


def _group_by_node(records: Iterable[R]) -> dict[str, list[R]]:
    by_node = defaultdict[str, list[R]](list)
    for record in records:
        by_node[record.node].append(record)
    return dict(by_node)


def _event_records_by_node(
    event_records: Sequence[EventRecord], before: ClusterGlance | None
) -> Mapping[str, Sequence[EventRecord]]:
    """Event records by node. Those of an earlier glance are not changed: readers may be using
    it."""
    earlier = before.of_node.event_records if before else {}
    more = defaultdict[str, list[EventRecord]](list)
    for event_record in new_event_records(
        before.happened.event_records if before else (), event_records
    ):
        for node in event_record.event.nodes:
            more[node].append(event_record)
    return {**earlier, **{node: (*earlier.get(node, ()), *new) for node, new in more.items()}}


def campaigns_at_a_glance(
    last: int = 50,
    *,
    cluster: str | None = None,
    before: Sequence[CampaignGlance] = (),
    caller: Caller = NO_CALLER,
) -> list[CampaignGlance]:
    """The latest campaigns, the newest first; of one cluster, or of all. `before`: earlier glances;
    those of finished campaigns are used again."""
    with caller.history() as history:
        rows = history.campaigns.newest(limit=MOST_CAMPAIGNS if cluster else last)
        if cluster is not None:
            name = look_up(history, cluster).cluster
            rows = [row for row in rows if row.cluster == name][:last]
        over = {(c.campaign, c.finished_at): c for c in before}
        same = {row.id: row.finished_at and over.get((row.id, row.finished_at)) for row in rows}
        ended = history.executions.count_ends([id for id, glance in same.items() if not glance])
    return [
        replace(glance, cluster=row.cluster)
        if (glance := same[row.id])
        else _glance(row, ended[row.id])
        for row in rows
    ]


def campaign_at_a_glance(campaign: str, caller: Caller = NO_CALLER) -> CampaignGlance:
    with caller.history() as history:
        row = history.campaigns.glance(campaign)
        return _glance(row, history.executions.count_ends([campaign])[campaign])


def parts_found(campaign: str, caller: Caller = NO_CALLER) -> dict[Judgement, list[str]]:
    """The parts between nodes that a campaign found, by its verdict on them."""
    parts: dict[Judgement, list[str]] = {}
    with caller.history() as history:
        for verdict in history.assessments.part_verdicts(campaign):
            if verdict.is_between_nodes:
                parts.setdefault(verdict.judgement, []).append(verdict.subject)
    return parts


def steps_planned(campaign: str, caller: Caller = NO_CALLER) -> int:
    """Approximate number of executions in the plan; those that follow from results are not
    counted."""
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


FAILED_LATELY_S = HOUR_S  # the keeper retries what it still wants much sooner


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    failed: tuple[LifeAction, ...] = ()  # lately
    overdue: Mapping[PeriodicTask, float] = field(default_factory=dict)  # since when
    undiagnosed: tuple[float, ...] = ()  # since when each of these jobs waits
    spares: Mapping[str, int] = field(default_factory=dict)  # that are wanted, by sku


def upkeep_of(part: ClusterHistory, now: float) -> Upkeep:
    """Upkeep of a cluster by the policy in the history, if there is one."""
    failed = tuple(part.keeping.failed_actions(now - FAILED_LATELY_S))
    kept = part.keeping.kept_by(or_none=True)
    if kept is None:
        return Upkeep(failed=failed)
    policy, succeeded = kept.policy, part.periodic_tasks.successes()
    due = {
        task: next_due(rhythm, max(kept.since, succeeded.get(task, kept.since)))
        for task, rhythm in policy.rhythms.items()
    }
    return Upkeep(
        failed=failed,
        overdue={task: at for task, at in due.items() if at <= now},
        undiagnosed=undiagnosed_since(part, now) if policy.diagnose else (),
        spares=policy.spares,
    )
