"""The standing mesh of pings: judge what the agents counted, suspect nodes, and plan it anew.

Nothing is kept here: agents keep their counts for a day and state what they ping. Nodes are
suspected by what happened after their last suspicion from here ended. Parts between nodes are named
in the sentence of the task, and to people.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from anubis.core.errors import ConfigError
from anubis.core.fabric import RailNics
from anubis.core.history.events import EventRecord, SuspicionRaised
from anubis.core.keep.keeping_policy import PingTask
from anubis.core.keep.messages import KeeperMessage, Topic
from anubis.core.keep.periodic_tasks import PeriodicTaskRecord
from anubis.core.network.ping_mesh import PingMesh, add_flows, ping_mesh
from anubis.core.network.ping_results import PingSuspicion
from anubis.operations.clusters import cluster_file
from anubis.operations.periodic_task_run import PeriodicTaskRun
from anubis.operations.pings import (
    JudgedPings,
    describe_suspicion,
    judge_agents,
    ping_agents,
    ping_fabric,
)
from anubis.operations.tell import note
from anubis.readers.telemetry.agent_pings import PINGS, plans
from anubis.readers.telemetry.agents import AgentDoors
from anubis.text.wording import quantity

SOURCE = "pings"  # of its suspicions


def judge_mesh(task: PeriodicTaskRun) -> PeriodicTaskRecord:
    schedule = task.policy.pings
    if schedule is None:
        raise ConfigError("the policy of keeping states no times for pings any more")
    there = [life.node for life in task.part.keeping.lives() if life.is_there]
    fabric = ping_fabric(cluster_file(task.part, task.keeping.cluster), there)
    doors = AgentDoors(ping_agents(schedule.telemetry))
    judged = judge_agents(fabric, doors, there, lambda window_s: _forget(task, window_s))
    _tell(task, schedule, judged)
    answers = judged.answers
    usual = ping_mesh(fabric, [node for node in fabric.nodes if node in set(there)])
    mesh = add_flows(fabric, usual, _more_flows(judged, usual))
    to_send, lacking = plans(fabric, mesh, answers)
    _, refusals = doors.ask_all(to_send, PINGS, bytes, to_send)
    judged = replace(judged, silent={**judged.silent, **refusals})
    sentence = "; ".join([*judged.sentences(), *_plan(mesh, lacking)])
    return task.end_done(sentence) if answers else task.end_failed(sentence)


def _more_flows(judged: JudgedPings, usual: PingMesh) -> Iterator[RailNics]:
    """Yield flows that would settle what is in doubt; and those that were added before, as long as
    anything was lost in a day."""
    seen = judged.findings
    if seen.suspicions or seen.doubts or seen.came_and_went:
        every = (flow.ends for pings in judged.answers.values() for flow in pings.report.flows)
        yield from sorted(set(every).difference(usual.flows))
    yield from seen.further_flows


def _forget(task: PeriodicTaskRun, window_s: float) -> dict[str, int]:
    """The first window after the last suspicion from here ended, by node."""
    ended: dict[str, float] = {}
    for entry in task.part.keeping.suspicions():
        if entry.source == SOURCE and entry.ended_at is not None:
            ended[entry.node] = max(ended.get(entry.node, 0.0), entry.ended_at)
    return {node: math.floor(at / window_s) + 1 for node, at in ended.items() if window_s}


def _tell(task: PeriodicTaskRun, schedule: PingTask, judged: JudgedPings) -> None:
    """Suspect nodes, once each, and name the other parts to people."""
    at = task.record.began
    kept = [entry for entry in task.part.keeping.suspicions() if entry.source == SOURCE]
    raised, messages = [], []
    for suspicion in judged.findings.suspicions:
        why = describe_suspicion(suspicion, judged.window_s)
        if node := _node_of(suspicion):
            of_node = [entry for entry in kept if entry.node == node]
            if all(entry.ended_at is not None for entry in of_node):
                event = SuspicionRaised(
                    nodes=(node,), category=schedule.category, source=SOURCE, reason=why
                )
                id = f"{SOURCE} {node} {len(of_node) + 1}"
                raised.append(EventRecord(id=id, at=at, event=event))
        else:
            messages.append(_message(suspicion, why, at))
    note(raised, task.part)
    if task.keeping.notifier:
        task.part.messages.post(messages)


def _node_of(suspicion: PingSuspicion) -> str:
    """The node that is to be tested for a part; empty if the part is between nodes."""
    owners = {p.name if p.kind in ("node", "nic") else "" for p in suspicion.verdict.parts}
    return owners.pop() if len(owners) == 1 else ""


def _message(suspicion: PingSuspicion, why: str, at: float) -> KeeperMessage:
    subject = suspicion.verdict.subject
    return KeeperMessage(
        key=f"{SOURCE} {subject} {suspicion.since}"[:400],
        at=at,
        topic=Topic.SUSPECT,
        subject=subject,
        sentence=why,
    )


def _plan(mesh: PingMesh, lacking: int) -> Iterator[str]:
    pinged = quantity(len(mesh.flows) - lacking, "flow")
    yield f"{pinged} pinged every {mesh.every_s:.3g} s, {mesh.share:.1e} of a link at most"
    if lacking:
        yield f"{quantity(lacking, 'flow')} not: no agent reports an address for a NIC there"
