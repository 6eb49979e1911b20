"""Racks, cages and paths between the nodes of a job, and their last reported settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from anubis.core.diagnose.crash import SKEW_S, scene_of
from anubis.core.diagnose.evidence import Call, CallState, Collector, JobEvidence, RankMap
from anubis.core.diagnose.facts import FactKind, JobFact, Whom
from anubis.core.fabric import RailNic
from anubis.core.history.attributes import NodeAttributes
from anubis.core.judge.equality import NodeSettings
from anubis.core.keep.life import Life, unreachable
from anubis.core.records import Expectation, Workload
from anubis.operations.job_surroundings import (
    NO_SETTINGS,
    groups_of,
    settings_evidence,
    working_pairs,
)
from anubis.report.view import NetworkView

NODES = ("n1", "n2", "n3", "n4")


@pytest.mark.parametrize(
    ("racks", "kinds"),
    [
        ("aabb", {"rack"}),
        ("aaab", set()),  # that errors touch it says nothing
        ("aaaa", set()),
        ("ab  ", {"rack"}),
        ("    ", set()),
    ],
)
def test_racks_are_groups_if_none_holds_most_of_the_job(racks: str, kinds: set[str]):
    attributes = [
        NodeAttributes(node=n, rack=rack.strip()) for n, rack in zip(NODES, racks, strict=True)
    ]
    elsewhere = [NodeAttributes(node="n9", rack="z", cage="c")]
    groups: Mapping[str, Mapping[str, str]] = groups_of([*attributes, *elsewhere], NODES)
    assert groups.keys() == kinds
    assert all("n9" not in of_node for of_node in groups.values())


def test_unreachable_nodes_are_those_the_orchestrator_missed_after_the_failure():
    lives = [
        Life(node="n1", present_at=90.0),
        Life(node="n2", present=False, present_at=80.0),
        Life(node="n3", present=False, present_at=390.0),  # shown late
        Life(node="n4", present=False, present_at=4000.0),  # long after
        Life(node="n5", present=False, present_at=80.0, retired=True),
        Life(node="n9", present=False, present_at=80.0),  # of another job
    ]
    nodes = [*NODES, "n5"]
    away = unreachable(lives, 4500.0, nodes, at=100.0, now=5000.0)
    assert away == {"n2": 80.0, "n3": 390.0}
    soon = unreachable(lives, 4500.0, nodes, at=100.0, now=139.0)
    assert soon == {}, "it may only be slow to answer"
    assert unreachable(lives, 99.0, nodes, at=100.0, now=500.0) is None
    assert unreachable(lives, None, nodes, at=100.0, now=500.0) is None
    assert unreachable(lives, 4500.0, ["m1"], at=100.0, now=500.0) is None


def test_a_pair_that_met_and_was_not_short_works_on_its_rail():
    def rail_nics(a: str, b: str, rail: str = "mlx5_0") -> tuple[RailNic, RailNic]:
        return RailNic(a, rail), RailNic(b, rail)

    network = SimpleNamespace(
        measured=[
            rail_nics("n1", "n2"),
            rail_nics("n1", "n3"),
            (RailNic("n1", "mlx5_0"), RailNic("n4", "mlx5_1")),
        ],
        shortfall={rail_nics("n1", "n2"): 0.01, rail_nics("n1", "n3"): 0.9},
    )
    (pair,) = working_pairs(cast(NetworkView, network))
    assert (pair.a, pair.b, pair.device) == ("n1", "n2", "mlx5_0")


def test_a_pair_works_if_something_arrived_after_the_first_error_and_not_before_it():
    error = JobFact(
        kind=FactKind.DISTRIBUTED_ERROR,
        whom=Whom(node="n1"),
        peer=Whom(node="n2"),
        evidence="",
        at=1000.0,
    )

    def call(peer: int, finished: float | None) -> Call:
        return Call(
            rank=0,
            communicator="pp",
            sequence=1,
            operation="recv",
            state=CallState.FINISHED if finished else CallState.LAUNCHED,
            point_to_point=True,
            peer=peer,
            finished=finished,
        )

    evidence = JobEvidence(
        job="7",
        at=1000.0,
        collectors=frozenset({Collector.CALLS}),
        ranks=RankMap(nodes=dict(enumerate(NODES))),
        calls=(call(1, 1000.0), call(2, 1001.0 + SKEW_S), call(3, None), call(9, 2000.0)),
    )
    assert [(pair.a, pair.b) for pair in scene_of(evidence, [error]).working] == [("n1", "n3")]
    assert scene_of(evidence, []).working == ()


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


def test_a_value_that_the_policy_expects_is_right_though_most_nodes_differ():
    pin = Expectation(setting="driver", equals=("535*",), source="release 7")
    (odd,) = of_job("n1", "n2", expectations=[pin]).settings
    assert odd.node == "n1"
    assert 'driver of n1 is "570", expected "535*" (release 7)' in odd.sentence
    may_differ = Expectation(setting="driver", source="two releases are tried")
    assert of_job("n1", "n2", expectations=[may_differ]).settings == ()


def test_nodes_without_reported_settings_are_a_gap_of_the_collector():
    piece = of_job("m1", "m2")
    assert piece.collectors == frozenset()
    assert piece.gaps == {Collector.SETTINGS: NO_SETTINGS}
