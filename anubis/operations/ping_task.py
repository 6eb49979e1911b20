"""The standing mesh of pings: judge what the agents counted, suspect nodes, and plan it anew.

Nothing is kept here: agents keep their counts for a day and state what they ping. Nodes are
suspected by what happened after their last suspicion from here ended. Parts between nodes are named
in the sentence of the task, and to people.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from anubis.config import configs
from anubis.core.errors import ConfigError, TelemetryError
from anubis.core.fabric import Fabric, place
from anubis.core.history.events import EventRecord, SuspicionRaised
from anubis.core.keep.keeping_policy import PingTask
from anubis.core.keep.messages import KeeperMessage, Topic
from anubis.core.keep.periodic_tasks import PeriodicTaskRecord
from anubis.core.network.ping_mesh import PingMesh, ping_mesh
from anubis.core.network.ping_results import (
    PingFindings,
    PingReport,
    PingSuspicion,
    judge_pings,
)
from anubis.operations.clusters import cluster_file
from anubis.operations.periodic_task_run import PeriodicTaskRun
from anubis.operations.tell import note
from anubis.operations.topology import survey
from anubis.readers.telemetry.agent_doors import AgentDoors
from anubis.readers.telemetry.agent_pings import PINGS, AgentPings, plans, read_pings
from anubis.readers.telemetry.config import AgentSettings
from anubis.text.wording import moment, names, quantity

SOURCE = "pings"  # of its suspicions
SHOWN = 4  # parts in a sentence
MUCH = 1e-3  # usual loss that is worth a word: a network for RDMA drops nothing


def judge_mesh(task: PeriodicTaskRun) -> PeriodicTaskRecord:
    schedule = task.policy.pings
    if schedule is None:
        raise ConfigError("the policy of keeping states no times for pings any more")
    there = [life.node for life in task.part.keeping.lives() if life.is_there]
    fabric, doors = _fabric(task, there), AgentDoors(_agents(schedule))
    nodes = [node for node in fabric.nodes if node in set(there)]
    answers, silent = _ask(doors, nodes)
    window_s = _usual_window_s(answers)
    findings = judge_pings(fabric, _reports(answers, window_s), _forget(task, window_s))
    _tell(task, schedule, findings, window_s)
    mesh = ping_mesh(fabric, nodes)
    to_send, lacking = plans(fabric, mesh, answers)
    _, refusals = doors.ask_all(to_send, PINGS, bytes, to_send)
    sentence = "; ".join(
        [
            *_findings(findings, window_s),
            *_silences(silent | refusals, len(nodes)),
            *_plan(mesh, lacking),
        ]
    )
    return task.end_done(sentence) if answers else task.end_failed(sentence)


def _fabric(task: PeriodicTaskRun, nodes: list[str]) -> Fabric:
    cluster = cluster_file(task.part, task.keeping.cluster)
    if cluster is None or not cluster.topology:
        raise ConfigError("pings need a topology: name one in the cluster's file (topology: FILE)")
    return place(survey(cluster.topology, None).fabric, nodes).fabric


def _agents(schedule: PingTask) -> AgentSettings:
    agents = configs.telemetry(schedule.telemetry).agents
    if agents is None:
        raise ConfigError(
            f'pings need agents: write "agents: {{token_file: FILE}}" into the file'
            f' "{schedule.telemetry}" of configs/telemetry/, or name another one'
        )
    return agents


def _ask(doors: AgentDoors, nodes: Sequence[str]) -> tuple[dict[str, AgentPings], dict[str, str]]:
    """Ask all agents. Each speaks of its own node only."""
    bodies, silent = doors.ask_all(nodes, PINGS, bytes)
    answers = {}
    for node, body in bodies.items():
        try:
            answers[node] = read_pings(node, body)
        except TelemetryError as error:
            silent[node] = str(error)
    return answers, silent


def _usual_window_s(answers: Mapping[str, AgentPings]) -> float:
    """The windows of most agents that ping; what others counted cannot be compared with it."""
    lengths = Counter(answer.window_s for answer in answers.values() if answer.window_s)
    return lengths.most_common(1)[0][0] if lengths else 0.0


def _reports(answers: Mapping[str, AgentPings], window_s: float) -> dict[str, PingReport]:
    return {
        node: answer.report
        for node, answer in answers.items()
        if window_s and answer.window_s == window_s
    }


def _forget(task: PeriodicTaskRun, window_s: float) -> dict[str, int]:
    """The first window after the last suspicion from here ended, by node."""
    ended: dict[str, float] = {}
    for entry in task.part.keeping.suspicions():
        if entry.source == SOURCE and entry.ended_at is not None:
            ended[entry.node] = max(ended.get(entry.node, 0.0), entry.ended_at)
    return {node: math.floor(at / window_s) + 1 for node, at in ended.items() if window_s}


def _tell(
    task: PeriodicTaskRun, schedule: PingTask, findings: PingFindings, window_s: float
) -> None:
    """Suspect nodes, once each, and name the other parts to people."""
    at = task.record.began
    kept = [entry for entry in task.part.keeping.suspicions() if entry.source == SOURCE]
    raised, messages = [], []
    for suspicion in findings.suspicions:
        why = _sentence(suspicion, window_s)
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


def _sentence(suspicion: PingSuspicion, window_s: float) -> str:
    subject = suspicion.verdict.subject
    across = f"{suspicion.bad} of {quantity(suspicion.crossing, 'flow')} across it"
    if suspicion.is_late:
        return (
            f"{suspicion.verdict.subject}: answers to pings take far longer than usual on {across}"
        )
    still = ", and still does" if suspicion.lasts else ""
    return (
        f"{subject}: loses pings in {quantity(suspicion.episodes, 'episode')} since"
        f" {moment(suspicion.since * window_s)}{still}, on {across}, up to"
        f" {suspicion.worst_loss:.0%} of them"
    )


def _findings(findings: PingFindings, window_s: float) -> Iterator[str]:
    for suspicion in findings.suspicions[:SHOWN]:
        yield _sentence(suspicion, window_s)
    if (more := len(findings.suspicions) - SHOWN) > 0:
        yield f"and {quantity(more, 'part')} more"
    if not findings.known:
        yield "nothing is known of any flow so far"
    elif not findings.suspicions:
        yield f"no part is suspected by {quantity(findings.known, 'flow')}"
    if findings.doubts:
        yield f"{quantity(len(findings.doubts), 'cause')} of losses cannot be told apart"
    if findings.usual_loss >= MUCH:
        yield f"a usual flow loses {findings.usual_loss:.1%} of its pings"
    if gone := len(findings.came_and_went):
        yield f"losses came and went on {quantity(gone, 'flow')}"
    if unknown := len(findings.unknown):
        yield f"nothing is known of {quantity(unknown, 'flow')}"


def _plan(mesh: PingMesh, lacking: int) -> Iterator[str]:
    pinged = quantity(len(mesh.flows) - lacking, "flow")
    yield f"{pinged} pinged every {mesh.every_s:.3g} s, {mesh.share:.1e} of a link at most"
    if lacking:
        yield f"{quantity(lacking, 'flow')} not: no agent reports an address for a NIC there"


def _silences(reasons: Mapping[str, str], nodes: int) -> Iterator[str]:
    for reason, count in Counter(reasons.values()).most_common(2):
        some = [node for node, why in reasons.items() if why == reason]
        yield f"{count} of {quantity(nodes, 'agent')} did not answer ({names(some)}): {reason}"
