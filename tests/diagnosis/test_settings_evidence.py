"""From the last reported settings of nodes to evidence about a job on them."""

from __future__ import annotations

from anubis.core.diagnose.evidence import Collector, JobEvidence, RankMap
from anubis.core.judge.equality import NodeSettings
from anubis.core.records import Expectation, Workload
from anubis.operations.job_surroundings import UNTOLD, settings_evidence

WORKLOAD = Workload.make("node_config", "1", {})


def vote(node, driver):
    return NodeSettings(
        node=node, sku="h100", workload=WORKLOAD, texts={"driver": {"node": driver}}, at=50.0
    )


VOTES = [vote(f"n{i}", "535" if i == 2 else "570") for i in range(6)]


def of_job(*nodes, expectations=()):
    ranks = RankMap(nodes=dict(enumerate(nodes)))
    evidence = JobEvidence(job="7", at=99.0, collectors=frozenset(), ranks=ranks)
    return settings_evidence(evidence, VOTES, expectations)


def test_nodes_outside_the_job_vote_and_are_not_named():
    piece = of_job("n1", "n2")
    (odd,) = piece.settings
    assert (odd.node, odd.setting, odd.at) == ("n2", "driver", 50.0)
    assert odd.sentence == 'driver of n2 is "535", and "570" on 5 of 6 nodes of its sku'
    assert of_job("n0", "n1").settings == ()
    assert Collector.SETTINGS in of_job("n0", "n1").collectors


def test_expectations_of_the_site_override_the_majority_in_a_job():
    old = Expectation(setting="driver", equals=("535",), source="pinned")
    assert [odd.node for odd in of_job("n1", "n2", expectations=[old]).settings] == ["n1"]


def test_nodes_without_reported_settings_are_a_gap_of_the_collector():
    piece = of_job("m1", "m2")
    assert piece.collectors == frozenset()
    assert piece.gaps == {Collector.SETTINGS: UNTOLD}
