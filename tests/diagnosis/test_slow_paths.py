"""Which part of a fabric slow pairs share: six nodes under three leaves below one spine, and a
training ring through all of them."""

from __future__ import annotations

import pytest

from anubis.core.diagnose import host_connections, slow_paths, transfers
from anubis.core.diagnose.analyst import JobTrouble, analyse
from anubis.core.diagnose.evidence import Collector, Connection, JobEvidence, RankMap, Transfer
from anubis.core.diagnose.facts import FactKind, reason
from tests.core.made_fabrics import FatTree

FABRIC = FatTree(nodes=6, nodes_per_leaf=2, spines=1).fabric()
NODES = tuple(FABRIC.nodes)
RING = [(rank, (rank + 1) % 6) for rank in range(6)]
ALL = [(a, b) for b in range(6) for a in range(b)]
RULES = (*host_connections.RULES, *transfers.RULES, *slow_paths.RULES)


def evidence(**records) -> JobEvidence:
    return JobEvidence(
        job="",
        at=0.0,
        ranks=RankMap(nodes=dict(enumerate(NODES))),
        fabric=FABRIC,
        **records,
    )


def sent(slow, *, pairs=RING) -> JobEvidence:
    """Bytes over TCP for ten seconds, at a third of the rate between `slow` pairs."""
    return evidence(
        collectors=frozenset({Collector.CONNECTIONS}),
        connections=tuple(
            Connection(
                rank=rank,
                own=f"10.0.0.{rank}",
                peer=f"10.0.0.{peer}",
                peer_rank=peer,
                samples=40,
                sending=20,
                seen_s=10.0,
                moved_bytes=80_000_000,
                busy_s=7.2 if (rank, peer) in slow else 2.4,
            )
            for rank, peer in pairs
        ),
    )


def exchanged(slow, *, pairs=RING) -> JobEvidence:
    """Messages whose duration the recorders have."""
    return evidence(
        collectors=frozenset({Collector.TRANSFERS}),
        transfers=tuple(
            Transfer(
                ranks=frozenset(pair),
                what="a message",
                took_s=0.3 if pair in slow else 0.1,
                at=float(step),
            )
            for pair in pairs
            for step in range(5)
        ),
    )


def across(leaf: int, pairs) -> list[tuple[int, int]]:
    return [pair for pair in pairs if (pair[0] // 2 == leaf) != (pair[1] // 2 == leaf)]


@pytest.mark.parametrize("made", [sent, exchanged])
@pytest.mark.parametrize("leaf", [0, 1, 2])
def test_the_link_that_all_slow_pairs_cross_and_no_other_is_named(made, leaf):
    records = made(across(leaf, RING))
    analysis = analyse(reason(records, RULES), records)
    assert analysis.trouble is JobTrouble.SLOW
    (culprit,) = analysis.culprits
    assert culprit.part.startswith(f"link leaf-0-{leaf}")


def test_a_part_that_is_not_sure_makes_the_job_slow_and_is_tested_first():
    """Four nodes under two leaves: the links of both leaves are crossed by the same pairs."""
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)]
    records = sent([(1, 2), (3, 0)], pairs=pairs)
    reasoning = reason(records, RULES)
    analysis = analyse(reasoning, records)
    likely = [fact.whom.part for fact in reasoning.facts if fact.kind is FactKind.LIKELY_PART]
    assert (analysis.trouble, analysis.culprits) == (JobTrouble.SLOW, ())
    assert any("leaf-0-0" in part for part in likely)
    assert any("leaf-0-1" in part for part in likely)


def test_a_slow_host_is_no_matter_of_the_fabric():
    slow = [pair for pair in ALL if 3 in pair]
    facts = reason(exchanged(slow, pairs=ALL), RULES).facts
    assert [fact.whom.rank for fact in facts] == [3]
    records = exchanged(slow, pairs=ALL)
    assert analyse(reason(records, RULES), records).nodes == (NODES[3],)


@pytest.mark.parametrize("made", [sent, exchanged])
def test_without_slow_pairs_or_with_one_no_part_is_named(made):
    for slow in ([], [RING[1]]):
        facts = reason(made(slow), RULES).facts
        assert not [fact for fact in facts if fact.code == "slow-path"]
