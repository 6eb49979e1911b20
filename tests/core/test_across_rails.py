"""Fabrics whose upper tiers only pairs across rails cross: planned, measured, judged, located."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from anubis.core.campaign.planning import estimate, extra_parameters, plan, planned_rounds, steps
from anubis.core.campaign.state_machine import CampaignMachine, Launch
from anubis.core.errors import ConfigError
from anubis.core.fabric import Cable, Link, Part, Switch, rail_nics_on
from anubis.core.network.coverage import ASSURED, Reach, coverage, coverage_of, covering_rounds
from anubis.core.network.crossing import link_part
from anubis.core.network.pairing import (
    PairTest,
    joined_nics,
    mirror,
    pair_test_at,
    pair_test_of,
    quick_rounds,
)
from anubis.core.network.rails import Rails, device_across
from anubis.core.records import Judgement, Node, ParameterSpec, Suite, SuiteEntry
from anubis.lab.simulation.simulated_network import Fault
from tests.core.made_fabrics import FatTree, statically_routed
from tests.core.test_scan import PAIR, scanned, verdicts

OF_PAIR_TEST = tuple(
    ParameterSpec(name=name, type=kind, default=default, of_pair_test=True)
    for name, kind, default in (("shift", "int", 0), ("rails", "str", ""))
)
ABLE = replace(PAIR, parameters=OF_PAIR_TEST)
RAILS = FatTree(
    nodes=12, nodes_per_leaf=4, leaves_per_pod=4, spines=2, cores=2, rails=4, rail_spines=True
).fabric()
UPPER = [link for link in RAILS.links if link.b.startswith("core")]


def plan_of(fabric, spec, groups="covering"):
    suite = Suite(name="s", summary="", benchmarks=(SuiteEntry(benchmark="pair", groups=groups),))
    nodes = [Node(name=name, sku="x") for name in fabric.nodes]
    return plan(suite, nodes, {"pair": spec}, fabric)


def crossed_upper(fabric, rounds, all_nodes=()):
    found = coverage(fabric, rounds, all_nodes)
    return found.counts_by_tier()[2, 3]


# --- what is crossed -------------------------------------------------------------------------


def test_like_rails_alone_leave_the_upper_tier_untested_and_pairs_across_rails_cross_it():
    """As on the fabric that was reported: every pair of nodes crosses about half of the uplinks."""
    all_nodes = coverage(RAILS, [], RAILS.nodes)
    assert all_nodes.counts_by_tier() == {(1, 2): (24, 24), (2, 3): (0, 16)}
    rounds = quick_rounds(RAILS, RAILS.nodes)
    alike = list(covering_rounds(RAILS, RAILS.nodes, rounds, across=False))
    assert crossed_upper(RAILS, [*rounds, *alike]) == (0, 16)
    more = list(covering_rounds(RAILS, RAILS.nodes, rounds))
    assert crossed_upper(RAILS, [*rounds, *more]) == (16, 16)
    assert {hop_round.shift for hop_round in more} - {0}


def test_pairs_on_the_same_rail_come_first_and_suffice_if_they_cross_all_links():
    tree = FatTree(nodes=64, nodes_per_leaf=8, leaves_per_pod=4, spines=4, cores=4, rails=2)
    fabric = tree.fabric()
    rounds = quick_rounds(fabric, fabric.nodes)
    more = list(covering_rounds(fabric, fabric.nodes, rounds))
    assert {hop_round.shift for hop_round in more} <= {0}
    assert not coverage(fabric, [*rounds, *more]).unsure_links


def test_a_switch_without_nodes_below_is_out_of_reach_and_costs_no_round():
    idle = Switch(id="idle", name="idle", tier=0)
    links = (*RAILS.links, Link(a="idle", b="spine-0-0-0", cables=(Cable(),)))
    fabric = replace(RAILS, switches=(*RAILS.switches, idle), links=links)
    rounds = quick_rounds(fabric, fabric.nodes)
    more = list(covering_rounds(fabric, fabric.nodes, rounds))
    without = list(covering_rounds(RAILS, RAILS.nodes, quick_rounds(RAILS, RAILS.nodes)))
    assert [(each.shift, each.pairs) for each in more] == [
        (each.shift, each.pairs) for each in without
    ]
    assert coverage(fabric, [*rounds, *more]).untested_links == links[-1:]
    assert not Reach(fabric, fabric.nodes, across=True).has(links[-1])


def test_reach_has_each_link_that_some_pair_may_cross():
    all_nodes = coverage(RAILS, [], RAILS.nodes)
    alike, any_rails = (Reach(RAILS, RAILS.nodes, across=across) for across in (False, True))
    for link, chance in zip(RAILS.links, all_nodes.link_chance, strict=True):
        assert alike.has(link) == (chance > 0)
        assert any_rails.has(link)


@pytest.mark.parametrize(
    "tree",
    [
        FatTree(nodes=64, nodes_per_leaf=16, spines=8, cores=8, rails=8, rail_spines=True),
        FatTree(nodes=256, nodes_per_leaf=8, leaves_per_pod=8, spines=8, cores=8),
    ],
    ids=["rails", "pods"],
)
def test_with_known_routes_covering_pairs_cross_each_link_on_any_route(tree):
    fabric = statically_routed(tree.fabric())
    rounds = quick_rounds(fabric, fabric.nodes)
    crossed = coverage(fabric, [*rounds, *covering_rounds(fabric, fabric.nodes, rounds)])
    routed = {
        link
        for source in (fabric.nics_on[leaf][0] for leaf in fabric.leaves)
        for target in fabric.nics
        for link, _ in fabric.cables_between(source, target)
    }
    assert set(crossed.links(ASSURED)) == routed


def test_with_known_routes_a_link_counts_as_crossed_if_a_route_of_a_pair_leads_over_it():
    fabric = statically_routed(RAILS)
    rounds = quick_rounds(fabric, fabric.nodes)
    more = [*rounds, *covering_rounds(fabric, fabric.nodes, rounds)]
    found = coverage(fabric, more)
    over = {
        (link.a, link.b)
        for each in more
        for pair_test in each.pair_tests
        for a, b in joined_nics(fabric, pair_test)
        for ends in ((a, b), (b, a))
        for link, _ in fabric.cables_between(*ends)
    }
    assert {(link.a, link.b) for link in found.links(1)} == over
    assert set(found.link_chance) <= {0.0, 1.0}


# --- who meets -------------------------------------------------------------------------------


def test_a_shift_counts_rails_round_and_is_mirrored_from_the_other_node():
    a, b = RAILS.nodes[0], RAILS.nodes[9]
    pair_test = PairTest(a, b, 3)
    rails = [(x.rail, y.rail) for x, y in joined_nics(RAILS, pair_test)]
    assert rails == [("0", "3"), ("1", "0"), ("2", "1"), ("3", "2")]
    assert {(y.rail_nic, x.rail_nic) for x, y in joined_nics(RAILS, pair_test)} == {
        (x.rail_nic, y.rail_nic) for x, y in joined_nics(RAILS, mirror(RAILS, pair_test))
    }
    for x, y in joined_nics(RAILS, pair_test):
        assert pair_test_at(RAILS, (x.rail_nic, y.rail_nic)) == pair_test


def test_a_program_that_cannot_cross_rails_is_asked_for_like_rails_only():
    able, unable = plan_of(RAILS, ABLE), plan_of(RAILS, PAIR)
    all_nodes = set(RAILS.nodes)
    assert {step.shift for step in steps(unable, 0, all_nodes)} == {0}
    every = list(steps(able, 0, all_nodes))
    assert {step.shift for step in every} > {0}
    assert len({step.id for step in every}) == len(every) == estimate(able, 0, None).steps
    assert crossed_upper(RAILS, planned_rounds(able, RAILS)) == (16, 16)
    assert crossed_upper(RAILS, planned_rounds(unable, RAILS)) == (0, 16)


def test_a_step_across_rails_gives_its_program_the_shift_and_keeps_its_workload():
    able = plan_of(RAILS, ABLE)
    machine = CampaignMachine(able, retries=0)
    launches = [command for command in machine.start(0.0) if isinstance(command, Launch)]
    assert all(launch.parameters == {} for launch in launches if not launch.step.shift)
    (crossing, *_) = (step for step in steps(able, 0, set(RAILS.nodes)) if step.shift)
    assert crossing.workload == launches[0].step.workload
    assert pair_test_of(crossing) == PairTest(*crossing.participants, crossing.shift)
    assert extra_parameters(able, crossing) == {"shift": crossing.shift, "rails": "0,1,2,3"}


def test_a_parameter_of_the_pair_test_is_no_suites_to_choose():
    entry = SuiteEntry(benchmark="pair", groups="covering", parameters={"shift": 1})
    suite = Suite(name="s", summary="", benchmarks=(entry,))
    nodes = [Node(name=name, sku="x") for name in RAILS.nodes]
    with pytest.raises(ConfigError, match='unknown parameter "shift"'):
        plan(suite, nodes, {"pair": ABLE}, RAILS)


@pytest.mark.parametrize(
    ("device", "rails"),
    [
        ("mlx5_0-mlx5_3", ("0", "3")),
        ("mlx5_2-mlx5_2", ("2", "2")),
        ("cuda:1-cuda:0", ("1", "0")),
        ("HCA-1-HCA-3", ("0", "2")),
    ],
)
def test_names_of_devices_say_between_which_rails_was_measured(device, rails):
    a, b = RAILS.nodes[:2]
    found = Rails.from_devices(RAILS, ["cuda:3-cuda:3"]).rail_nics_between((a, b), device)
    assert found == ((a, rails[0]), (b, rails[1]))


# --- what is found ---------------------------------------------------------------------------


def test_pairs_across_rails_are_judged_with_those_of_like_rails_as_far_apart():
    view = scanned(RAILS, groups="covering", spec=ABLE)
    assert view.assessment.judgement is Judgement.HEALTHY
    assert not view.assessment.parts
    devices = Counter(
        device
        for batch_verdict in view.assessment.batch_verdicts
        for device in set(batch_verdict.devices)
    )
    assert {"mlx5_0-mlx5_0", "mlx5_0-mlx5_1"} <= set(devices)
    workloads = {batch_verdict.parameters for batch_verdict in view.assessment.batch_verdicts}
    assert len(workloads) == 1


def test_a_bad_cable_above_the_spines_is_found_by_pairs_across_rails():
    """The cable that a flow took is unknown: the cause is the link, or one of few beside it."""
    fault = Fault(kind="", part=link_part(UPPER[13]), loss=0.5)
    full = scanned(RAILS, (fault,), groups="pairs")
    assert full.assessment.judgement is Judgement.HEALTHY
    view = scanned(RAILS, (fault,), groups="covering", spec=ABLE)
    assert view.assessment.judgement is Judgement.DEFECTIVE
    (found,) = [parts for parts in verdicts(view) if fault.part in parts]
    assert len(found) <= 4
    assert view.assessment.named(Judgement.DEFECTIVE) == ()


def test_devices_on_different_rails_give_a_pair_test_across_rails():
    devices = [device_across(1), "mlx5_0-mlx5_0"]
    a, b = RAILS.nodes[:2]
    assert Rails.from_devices(RAILS, devices).pair_test((a, b), device_across(1)) == PairTest(
        a, b, 1
    )
    assert Rails.from_devices(RAILS, devices).pair_test((a, b), "mlx5_0-mlx5_2") == PairTest(
        a, b, 2
    )
    assert device_across(0) == ""


def test_coverage_of_a_measured_flow_has_its_nics_but_no_link_above_the_leaf():
    a, b = (RAILS.nic(*rail_nic) for rail_nic in rail_nics_on(*RAILS.nodes[:2], "0"))
    found = coverage_of(RAILS, [(a, b)])
    assert found.nics == {a.id, b.id}
    assert found.links(1) == ()
    assert Part("switch", a.switch).name not in found.untested_switches
