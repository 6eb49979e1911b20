"""Evidence around a job: settings that its nodes reported last, compared with what the site's
policy expects, or else with the nodes of their sku; nodes that answer no other; and what was
measured across the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from anubis.core.diagnose.crash import KNOWN_BAD
from anubis.core.diagnose.evidence import (
    Collector,
    JobEvidence,
    OddSetting,
    WorkingPair,
    join_evidence,
)
from anubis.core.fabric import Part
from anubis.core.history.attributes import NodeAttributes
from anubis.core.judge.equality import NodeSettings, judge_settings
from anubis.core.keep.life import unreachable
from anubis.core.network.hints import SUSPECTED, join_hints
from anubis.core.network.posterior import FaultPrior
from anubis.core.records import Expectation, Judgement
from anubis.operations.caller import Caller
from anubis.operations.clusters import time_in
from anubis.operations.links import measured_across, returning_parts
from anubis.report.view import NetworkView
from anubis.store.history import ClusterHistory, History
from anubis.text.wording import moment

NO_SETTINGS = "no settings of its nodes (node_config)"


def settings_evidence(
    evidence: JobEvidence,
    votes: Collection[NodeSettings],
    expectations: Sequence[Expectation] = (),
) -> JobEvidence:
    """Return the evidence with odd settings; `votes`: what all nodes of the cluster reported last,
    those of the job among them. `expectations`: of the policy by which the cluster is tested."""
    nodes = set(evidence.ranks.nodes.values())
    own = [vote for vote in votes if vote.node in nodes]
    piece = JobEvidence(job=evidence.job, at=evidence.at, collectors=frozenset())
    if not own:
        return replace(piece, gaps={Collector.SETTINGS: NO_SETTINGS})
    _, verdicts = judge_settings(own, expectations, votes)
    at = {vote.node: vote.at for vote in own}
    odd = tuple(
        OddSetting(
            node=(node := verdict.participants[0]),
            setting=verdict.metric,
            device=verdict.device,
            sentence=verdict.reason,
            at=at[node],
        )
        for verdict in verdicts
        if verdict.judgement is Judgement.DEFECTIVE
    )
    return replace(piece, collectors=frozenset({Collector.SETTINGS}), settings=odd)


SHORT = FaultPrior().limit
MOST_OF_JOB = 0.5  # of its nodes in one rack: if more, all errors touch it by chance
SCANNED_BYTES = 1 << 20  # the smallest message with which pairs are measured


def surroundings(
    history: History, part: ClusterHistory, nodes: Sequence[str], at: float, caller: Caller
) -> JobEvidence:
    """Evidence around a job. `nodes`: those of the job, if reported. `at`: the time of its failure.
    Earlier measurements do not prove any pair healthy."""
    between = _network_evidence(history, part, nodes, at, caller)
    turn = part.keeping.last_turn()
    seen_at = turn.seen_at if turn else None
    away = unreachable(part.keeping.lives(), seen_at, nodes, at, time_in(part, caller).now)
    if away is None:
        return between
    collectors = frozenset({Collector.REACH})
    reach = JobEvidence(at=at, collectors=collectors, unreachable=away)
    return join_evidence(between, [reach])


def _network_evidence(
    history: History, part: ClusterHistory, nodes: Sequence[str], at: float, caller: Caller
) -> JobEvidence:
    campaigns = list(measured_across(history, part, nodes))
    if not campaigns:
        groups = groups_of(part.experience.happenings(at).attributes, nodes)
        return JobEvidence(at=at, collectors=frozenset(), groups=groups)
    campaign, network = campaigns[0]
    measured_at = campaign.finished_at or campaign.created_at
    caller.remark(f"the fabric is that of campaign {campaign.id}, {moment(measured_at)}")
    working = tuple(working_pairs(network)) if campaign.created_at >= at else ()
    return JobEvidence(
        at=at,
        collectors=frozenset(),
        fabric=campaign.plan.fabric,
        working=working,
        hints=join_hints(
            dict.fromkeys(defective_parts(network), KNOWN_BAD),
            dict.fromkeys(returning_parts(campaigns), SUSPECTED),
        ),
    )


def groups_of(
    attributes: Sequence[NodeAttributes], nodes: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Racks and cages of a job's nodes, if they distinguish the nodes."""
    of_job = [about for about in attributes if about.node in set(nodes)]
    by_kind = {
        "rack": {about.node: about.rack for about in of_job if about.rack},
        "cage": {about.node: about.cage for about in of_job if about.cage},
    }
    return {kind: of_node for kind, of_node in by_kind.items() if _tells_apart(of_node, nodes)}


def _tells_apart(of_node: Mapping[str, str], nodes: Sequence[str]) -> bool:
    largest = max(Counter(of_node.values()).values(), default=0)
    return 0 < largest <= MOST_OF_JOB * len(nodes)


def defective_parts(network: NetworkView) -> Iterator[Part]:
    for verdict in network.parts:
        if verdict.judgement is Judgement.DEFECTIVE:
            yield from verdict.parts


def working_pairs(network: NetworkView) -> Iterator[WorkingPair]:
    """Pairs that were measured and are not short of what is normal for them."""
    for source, target in network.measured:
        if network.shortfall.get((source, target), 0.0) <= SHORT and source.rail == target.rail:
            yield WorkingPair(
                a=source.node, b=target.node, size_bytes=SCANNED_BYTES, device=source.rail
            )
