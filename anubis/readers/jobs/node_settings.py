"""Settings of a job's nodes: what they reported last, compared with the nodes of their sku."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from anubis.core.diagnose.evidence import Collector, JobEvidence, OddSetting
from anubis.core.judge.equality import NodeSettings, judge_settings
from anubis.core.records import Expectation, Judgement

UNTOLD = "no settings of its nodes (node_config)"


def settings_evidence(
    evidence: JobEvidence,
    votes: Collection[NodeSettings],
    expectations: Sequence[Expectation] = (),
) -> JobEvidence:
    """Return the evidence with odd settings; `votes`: what all nodes of the cluster reported last,
    those of the job among them."""
    nodes = set(evidence.ranks.nodes.values())
    own = [vote for vote in votes if vote.node in nodes]
    piece = JobEvidence(job=evidence.job, at=evidence.at, collectors=frozenset())
    if not own:
        return replace(piece, gaps={Collector.SETTINGS: UNTOLD})
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
