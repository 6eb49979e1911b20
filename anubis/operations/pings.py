"""What the agents' pings show now: all agents are asked, and their counts are judged together.

Nothing is kept, sent or suspected here: the keeper does that by its periodic task. A person asks
by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anubis.config import configs
from anubis.core.errors import ConfigError, TelemetryError, UsageError
from anubis.core.fabric import Fabric, place
from anubis.core.network.ping_results import (
    PingFindings,
    PingReport,
    PingSuspicion,
    judge_pings,
)
from anubis.core.records import Judgement
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.requests import LookRequest
from anubis.operations.topology import survey
from anubis.readers.telemetry.agent_pings import PINGS, AgentPings, read_pings
from anubis.readers.telemetry.agents import AgentDoors
from anubis.readers.telemetry.config import AgentSettings
from anubis.text.wording import moment, names, quantity

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


def look_at_pings(request: LookRequest, caller: Caller = NOBODY) -> JudgedPings:
    """Ask the agents of a cluster once, by hand."""
    if request.cluster is None:
        raise UsageError("--pings is about the agents of a cluster: name it by --cluster")
    cluster = configs.cluster(request.cluster)
    fabric = ping_fabric(cluster, request.nodes)
    policy = configs.watching(request.watching)
    settings = ping_agents(request.telemetry or policy.telemetry)
    return judge_agents(fabric, AgentDoors(settings), request.nodes or fabric.nodes)


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
    doors: AgentDoors,
    nodes: Sequence[str],
    forget: Callable[[float], Mapping[str, int]] = lambda window_s: {},
) -> JudgedPings:
    """Ask the agents of these nodes, and judge what they counted. `forget`: of the length of a
    window, the first one that counts, by node."""
    chosen = set(nodes)
    doors_of = [node for node in fabric.nodes if node in chosen]
    answers, silent = _ask(doors, doors_of)
    window_s = _usual_window_s(answers)
    return JudgedPings(
        agents=len(doors_of),
        answers=answers,
        silent=silent,
        window_s=window_s,
        findings=judge_pings(fabric, _reports(answers, window_s), forget(window_s)),
    )


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
        yield "nothing is known of any flow so far"
    elif not findings.suspicions:
        yield f"no part is suspected by {quantity(findings.known, 'flow')}"
    if findings.doubts:
        yield f"{quantity(len(findings.doubts), 'cause')} of losses cannot be told apart"
    if findings.usual_loss >= MUCH:
        lost = f"{findings.usual_loss:.1%} of its pings"
        yield f"a usual flow loses {lost}, which may hide the losses of a part"
    if gone := len(findings.came_and_went):
        yield f"losses came and went on {quantity(gone, 'flow')}"
    if unknown := len(findings.unknown):
        yield f"nothing is known of {quantity(unknown, 'flow')}"


def silences(reasons: Mapping[str, str], nodes: int) -> Iterator[str]:
    for reason, count in Counter(reasons.values()).most_common(2):
        some = [node for node, why in reasons.items() if why == reason]
        yield f"{count} of {quantity(nodes, 'agent')} did not answer ({names(some)}): {reason}"
