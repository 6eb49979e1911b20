"""The standing mesh of pings: all agents are asked, and their counts are judged together.

If a person asks by hand, that is all. The keeper's periodic task also suspects nodes and plans the
mesh anew. No count is kept here: agents keep theirs for a day and state what they ping. Nodes are
suspected by what happened after their last suspicion from here ended. A suspicion of a part between
nodes is kept as an event, and reported to people. The page on the fabric shows it until a scan
crosses the part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from anubis.config import configs
from anubis.core.amounts import DAY_S
from anubis.core.errors import ConfigError, TelemetryError, UsageError
from anubis.core.fabric import Fabric, RailNics, place
from anubis.core.history.events import EventRecord, PartSuspected, SuspicionRaised
from anubis.core.keep.keeping_policy import PingTask
from anubis.core.keep.messages import KeeperMessage, Topic
from anubis.core.keep.periodic_tasks import PeriodicTaskRecord
from anubis.core.network.ping_mesh import PingMesh, add_flows, ping_mesh
from anubis.core.network.ping_results import PingFindings, PingReport, PingSuspicion, judge_pings
from anubis.core.records import Judgement
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import cluster_file
from anubis.operations.periodic_task_run import PeriodicTaskRun
from anubis.operations.requests import LookRequest
from anubis.operations.tell import note
from anubis.operations.topology import survey
from anubis.readers.telemetry.agent_pings import PINGS, AgentPings, plans, read_pings
from anubis.readers.telemetry.agents import AgentClient
from anubis.readers.telemetry.config import AgentSettings
from anubis.text.wording import moment, names, quantity

SOURCE = "pings"  # of its suspicions
SHOWN = 4  # parts in a sentence
MUCH = 1e-3  # usual loss that is worth a word: a network for RDMA drops nothing


@dataclass(frozen=True, kw_only=True)
class JudgedPings:
    """What the agents of some nodes counted, and what it shows."""

    agents: int  # that were asked
    answers: Mapping[str, AgentPings]
    silent: Mapping[str, str]  # by node, why its agent did not answer
    window_s: float
    findings: PingFindings

    @property
    def judgement(self) -> Judgement:
        """Healthy only if something is known of every flow, nothing is in doubt, and usual flows
        lose nothing: what all of them lose may hide the losses of a part."""
        seen = self.findings
        if seen.suspicions:
            return Judgement.DEFECTIVE
        in_doubt = seen.doubts or seen.unknown or self.silent or seen.usual_loss >= MUCH
        return Judgement.UNKNOWN if in_doubt or not seen.known else Judgement.HEALTHY

    def sentences(self) -> Iterator[str]:
        yield from _findings(self.findings, self.window_s)
        yield from silences(self.silent, self.agents)


def look_at_pings(request: LookRequest, caller: Caller = NO_CALLER) -> JudgedPings:
    """Ask the agents of a cluster once, by hand."""
    if request.cluster is None:
        raise UsageError("--pings is about the agents of a cluster: name it by --cluster")
    cluster = configs.cluster(request.cluster)
    fabric = ping_fabric(cluster, request.nodes)
    policy = configs.watching(request.watching)
    settings = ping_agents(request.telemetry or policy.telemetry)
    return judge_agents(fabric, AgentClient(settings), request.nodes or fabric.nodes)


def ping_fabric(cluster: configs.Cluster | None, nodes: Sequence[str]) -> Fabric:
    if cluster is None or not cluster.topology:
        raise ConfigError("pings need a topology: name one in the cluster's file (topology: FILE)")
    fabric = survey(cluster.topology, None).fabric
    return place(fabric, list(nodes)).fabric if nodes else fabric


def ping_agents(telemetry: str) -> AgentSettings:
    agents = configs.telemetry(telemetry).agents
    if agents is None:
        raise ConfigError(
            f'pings need agents: write "agents: {{token_file: FILE}}" into the file'
            f' "{telemetry}" of configs/telemetry/, or name another one'
        )
    return agents


def judge_agents(
    fabric: Fabric,
    client: AgentClient,
    nodes: Sequence[str],
    forget: Callable[[float], Mapping[str, int]] = lambda window_s: {},
) -> JudgedPings:
    """Ask the agents of these nodes, and judge what they counted. `forget`: of the length of a
    window, the first one that counts, by node."""
    chosen = set(nodes)
    pinged = [node for node in fabric.nodes if node in chosen]
    answers, silent = _ask(client, pinged)
    window_s = _usual_window_s(answers)
    return JudgedPings(
        agents=len(pinged),
        answers=answers,
        silent=silent,
        window_s=window_s,
        findings=judge_pings(fabric, _reports(answers, window_s), forget(window_s)),
    )


def _ask(client: AgentClient, nodes: Sequence[str]) -> tuple[dict[str, AgentPings], dict[str, str]]:
    """Ask all agents. Each reports only its own node."""
    bodies, silent = client.ask_all(nodes, PINGS, bytes)
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


def describe_suspicion(suspicion: PingSuspicion, window_s: float) -> str:
    subject = suspicion.verdict.subject
    across = f"{suspicion.bad} of {quantity(suspicion.crossing, 'flow')} across it"
    if suspicion.is_late:
        return f"{subject}: answers to pings take far longer than usual on {across}"
    still = ", and still does" if suspicion.lasts else ""
    return (
        f"{subject}: loses pings in {quantity(suspicion.episodes, 'episode')} since"
        f" {moment(suspicion.since * window_s)}{still}, on {across}, up to"
        f" {suspicion.worst_loss:.0%} of them"
    )


def _findings(findings: PingFindings, window_s: float) -> Iterator[str]:
    for suspicion in findings.suspicions[:SHOWN]:
        yield describe_suspicion(suspicion, window_s)
    if (more := len(findings.suspicions) - SHOWN) > 0:
        yield f"and {quantity(more, 'part')} more"
    if not findings.known:
        yield "no flow was measured so far"
    elif not findings.suspicions:
        yield f"no part is suspected by {quantity(findings.known, 'flow')}"
    if findings.doubts:
        yield f"{quantity(len(findings.doubts), 'cause')} of losses cannot be told apart"
    if findings.usual_loss >= MUCH:
        lost = f"{findings.usual_loss:.1%} of its pings"
        yield f"a usual flow loses {lost}, which may hide the losses of a part"
    if gone := len(findings.came_and_went):
        yield f"{quantity(gone, 'flow')} had losses that ended"
    if unknown := len(findings.unknown):
        yield f"{quantity(unknown, 'flow')} not measured"


def silences(reasons: Mapping[str, str], nodes: int) -> Iterator[str]:
    for reason, count in Counter(reasons.values()).most_common(2):
        some = [node for node, why in reasons.items() if why == reason]
        yield f"{count} of {quantity(nodes, 'agent')} did not answer ({names(some)}): {reason}"


def judge_mesh(task: PeriodicTaskRun) -> PeriodicTaskRecord:
    schedule = task.policy.pings
    if schedule is None:
        raise ConfigError("the policy of keeping states no times for pings any more")
    there = [life.node for life in task.part.keeping.lives() if life.is_there]
    fabric = ping_fabric(cluster_file(task.part, task.keeping.cluster), there)
    client = AgentClient(ping_agents(schedule.telemetry))
    judged = judge_agents(fabric, client, there, lambda window_s: _forget(task, window_s))
    _tell(task, schedule, judged)
    answers = judged.answers
    usual = ping_mesh(fabric, [node for node in fabric.nodes if node in set(there)])
    mesh = add_flows(fabric, usual, _more_flows(judged, usual))
    to_send, lacking = plans(fabric, mesh, answers)
    _, refusals = client.ask_all(to_send, PINGS, bytes, to_send)
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
    """Suspect nodes, once each, and parts between nodes, once in a day."""
    at = task.record.began
    kept = [entry for entry in task.part.keeping.suspicions() if entry.source == SOURCE]
    raised, messages = [], []
    recent = _recently_suspected(task)
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
        elif suspicion.verdict.subject not in recent:
            raised.append(_part_suspected(suspicion, why, at))
            messages.append(_message(suspicion, why, at))
    note(raised, task.part)
    if task.keeping.notifier:
        task.part.messages.post(messages)


def _recently_suspected(task: PeriodicTaskRun) -> set[str]:
    """The parts between nodes that were suspected within a day, as long as agents keep their
    counts."""
    kept = task.part.event_records.read_kind(PartSuspected)
    return {
        record.event.part
        for record in kept
        if isinstance(record.event, PartSuspected)
        and record.event.source == SOURCE
        and task.record.began - record.at < DAY_S
    }


def _part_suspected(suspicion: PingSuspicion, why: str, at: float) -> EventRecord:
    verdict = suspicion.verdict
    event = PartSuspected(
        nodes=(), part=verdict.subject, source=SOURCE, reason=why, parts=verdict.parts
    )
    return EventRecord(id=f"{SOURCE} {verdict.subject} {at:.0f}", at=at, event=event)


def _node_of(suspicion: PingSuspicion) -> str:
    """The node that is to be tested for a part; empty if the part is between nodes."""
    owners = {p.name if p.kind in ("node", "nic") else "" for p in suspicion.verdict.parts}
    return owners.pop() if len(owners) == 1 else ""


def _message(suspicion: PingSuspicion, why: str, at: float) -> KeeperMessage:
    subject = suspicion.verdict.subject
    return KeeperMessage(
        key=f"{SOURCE} {subject} {at:.0f}"[:400],
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
