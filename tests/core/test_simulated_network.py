"""The simulated network: what it measures follows from the paths and the faults alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.fabric import Cable, Fabric, Link, Nic, Part, Switch, rail_nics_on
from anubis.core.network.crossing import Flow
from anubis.core.routes import Routes
from anubis.lab.simulation.simulated_network import (
    FAULT_KINDS,
    Fault,
    SimulatedNetwork,
    plant,
)
from tests.core.made_fabrics import FatTree, statically_routed

THREE_TIERS = FatTree(nodes=32, nodes_per_leaf=4, leaves_per_pod=4, spines=4, cores=3).fabric()
TWO_TIERS = FatTree(nodes=16, nodes_per_leaf=4, leaves_per_pod=4, spines=4, cables=2).fabric()
TWO_RAILS = FatTree(nodes=8, nodes_per_leaf=4, spines=2, rails=2).fabric()


def rates(network, *pairs):
    return {(flow.source.node, flow.target.node): rate for flow, rate in network.measure(pairs)}


def slowed(fault, *pairs, fabric=TWO_TIERS, **settings):
    """Flows that measure less with the fault than without, and by what share."""
    with_, without = (
        SimulatedNetwork(fabric=fabric, faults=faults, noise=0, **settings)
        for faults in ((fault,), ())
    )
    before, after = rates(without, *pairs), rates(with_, *pairs)
    return {flow: 1 - after[flow] / before[flow] for flow in before if after[flow] < before[flow]}


def all_nodes(fabric, rail="0"):
    nodes = fabric.nodes
    return [rail_nics_on(a, b, rail) for place, a in enumerate(nodes) for b in nodes[place + 1 :]]


def test_a_rate_without_noise_shows_the_number_of_switches_passed():
    network = SimulatedNetwork(fabric=THREE_TIERS, noise=0, gbytes_s=50)
    near, middle, far = (
        rail_nics_on("node00001", to, "0") for to in ("node00002", "node00005", "node00032")
    )
    found = rates(network, near, middle, far)
    assert [found[a.node, b.node] for a, b in (near, middle, far)] == pytest.approx([50, 49, 48])


def test_noise_scatters_rates_as_much_as_it_says():
    network = SimulatedNetwork(fabric=TWO_TIERS, noise=0.02, gbytes_s=1, seed=3)
    found = [
        rate for turn in range(40) for _, rate in network.measure(all_nodes(TWO_TIERS)[:3], turn)
    ]
    assert np.std(found) == pytest.approx(0.02, rel=0.2)  # 240 of them


def test_the_same_seed_measures_the_same_and_another_turn_does_not():
    network = SimulatedNetwork(fabric=TWO_TIERS, seed=5)
    again = SimulatedNetwork(fabric=TWO_TIERS, seed=5)
    pairs = all_nodes(TWO_TIERS)[:5]
    assert network.measure(pairs) == again.measure(pairs)
    assert network.measure(pairs) != network.measure(pairs, turn=1)


@pytest.mark.parametrize("fabric", [TWO_TIERS, THREE_TIERS], ids=["two tiers", "three tiers"])
def test_every_route_is_a_shortest_path_and_routes_use_all_uplinks_of_leaves(fabric):
    graph = networkx.Graph((link.a, link.b) for link in fabric.links)
    fabric = statically_routed(fabric)
    used = set()
    for ends in all_nodes(fabric):
        a, b = (fabric.nic(*rail_nic) for rail_nic in ends)
        for source, target in ((a, b), (b, a)):
            via = fabric.route(source, target)
            assert (via[0], via[-1]) == (source.switch, target.switch)
            assert all(graph.has_edge(*step) for step in pairwise(via))
            shortest = networkx.shortest_path_length(graph, source.switch, target.switch)
            assert len(via) == shortest + 1
            used |= {frozenset(step) for step in pairwise(via)}
    uplinks = [link for leaf in fabric.leaves for link in fabric.uplinks(leaf)]
    assert used >= {frozenset((link.a, link.b)) for link in uplinks}


def test_flows_that_are_hashed_share_the_links_as_the_fabric_says():
    """One link fails at a time: as many flows of one pair slow down as its share is."""
    fabric = THREE_TIERS
    (spread,) = fabric.spread([("leaf-0-0", "leaf-0-7")])
    hits: Counter[int] = Counter()
    turns = 600
    for number in spread.link.tolist():
        link = fabric.links[number]
        fault = Fault(kind="lossy uplink", part=Part("link", link.a, link.b), loss=0.9)
        network = SimulatedNetwork(fabric=fabric, faults=(fault,), noise=0, seed=11, gbytes_s=1)
        pairs = [rail_nics_on("node00001", "node00032", "0")] * turns
        hits[number] = sum(rate < 0.5 for _, rate in network.measure(pairs)[::2])
    for number, share in zip(spread.link.tolist(), spread.link_share.tolist(), strict=True):
        assert hits[number] / turns == pytest.approx(share, abs=5 * np.sqrt(share / turns))


def test_a_slow_node_slows_all_it_sends_and_receives_on_every_rail():
    fault = Fault(kind="slow node", part=Part("node", "node00003"), loss=0.4)
    for rail in ("0", "1"):
        found = slowed(fault, *all_nodes(TWO_RAILS, rail), fabric=TWO_RAILS)
        assert set(found) == {
            flow
            for a, b in combinations(TWO_RAILS.nodes, 2)
            for flow in ((a, b), (b, a))
            if "node00003" in flow
        }
        assert list(found.values()) == pytest.approx([0.4] * len(found))


def test_a_bad_cable_slows_one_way_on_one_rail():
    fault = Fault(kind="bad cable", part=Part("nic", "node00003", "1"), way="in", loss=0.4)
    assert not slowed(fault, *all_nodes(TWO_RAILS, "0"), fabric=TWO_RAILS)
    found = slowed(fault, *all_nodes(TWO_RAILS, "1"), fabric=TWO_RAILS)
    assert set(found) == {(a, "node00003") for a in TWO_RAILS.nodes if a != "node00003"}


def test_a_dead_leaf_leaves_nothing_and_a_leafs_uplinks_spare_its_own_nodes():
    dead = slowed(
        Fault(kind="dead leaf", part=Part("switch", "leaf-0-1"), loss=1), *all_nodes(TWO_TIERS)
    )
    on_leaf = set(TWO_TIERS.nodes[4:8])
    assert set(dead) == {
        flow
        for a, b in combinations(TWO_TIERS.nodes, 2)
        for flow in ((a, b), (b, a))
        if on_leaf & set(flow)
    }
    assert set(dead.values()) == {1.0}
    uplinks = slowed(
        Fault(kind="", part=Part("uplinks", "leaf-0-1"), way="out"), *all_nodes(TWO_TIERS)
    )
    assert set(uplinks) == {(a, b) for a in on_leaf for b in TWO_TIERS.nodes if b not in on_leaf}


def test_a_lossy_cable_of_two_slows_half_of_the_flows_over_the_link():
    """Two leaves, one spine, two cables each: each way one flow in two takes the bad cable."""
    fabric = FatTree(nodes=2, nodes_per_leaf=1, spines=1, cables=2).fabric()
    fault = Fault(kind="", part=Part("link", "leaf-0-0", "spine-0-0"), way="out", loss=0.5)
    network = SimulatedNetwork(fabric=fabric, faults=(fault,), noise=0, gbytes_s=1)
    found = network.measure([rail_nics_on("node00001", "node00002", "0")] * 400)
    out = [rate < 0.9 for flow, rate in found if flow.source.node == "node00001"]
    back = [rate < 0.9 for flow, rate in found if flow.source.node == "node00002"]
    assert np.mean(out) == pytest.approx(0.5, abs=0.1)
    assert not any(back)


def test_a_simulated_measurement_has_its_path_only_if_routes_are_known():
    pair = rail_nics_on("node00001", "node00016", "0")
    ((there, _), _) = SimulatedNetwork(fabric=TWO_TIERS).measure([pair])
    assert there == Flow(*pair)
    fabric = statically_routed(TWO_TIERS)
    ((there, _), _) = SimulatedNetwork(fabric=fabric).measure([pair])
    a, b = (fabric.nic(*rail_nic) for rail_nic in pair)
    assert len(there.via) == 3
    assert there.via == fabric.route(a, b)


@given(st.sampled_from(FAULT_KINDS), st.integers(0, 1000))
def test_a_planted_fault_is_a_part_of_the_fabric_and_slows_some_pairs(kind, seed):
    fabric = TWO_TIERS
    fault = plant(fabric, kind, np.random.default_rng(seed))
    assert fault.kind == kind
    assert 0.12 <= fault.loss <= 1
    pairs = all_nodes(fabric) * (4 if kind == "lossy uplink" else 1)
    found = slowed(fault, *pairs, seed=seed)
    assert found
    assert len(found) < 2 * len(all_nodes(fabric))


def test_any_graph_of_switches_will_do():
    """Three leaves in a circle: between neighbours only the direct cable carries."""
    ring = [("a", "b"), ("b", "c"), ("c", "a")]
    fabric = Fabric(
        switches=tuple(Switch(id=name, name=name) for name in "abc"),
        links=tuple(Link(a=a, b=b, cables=(Cable(),)) for a, b in ring),
        nics=tuple(Nic(id=name, node=name, device="", rail="", switch=name) for name in "abc"),
    )
    fault = Fault(kind="", part=Part("link", "c", "a"), way="out")
    found = slowed(fault, *(rail_nics_on(a, b, "") for a, b in ring), fabric=fabric)
    assert set(found) == {("c", "a")}


def test_a_node_without_a_nic_on_the_rail_is_named():
    with pytest.raises(ValueError, match='"node00001" has no NIC on rail "7"'):
        SimulatedNetwork(fabric=TWO_TIERS).measure([rail_nics_on("node00001", "node00002", "7")])


def test_tables_that_lead_in_a_circle_or_nowhere_give_no_route():
    fabric = statically_routed(TWO_TIERS)
    a, b = fabric.nic("node00001", "0"), fabric.nic("node00016", "0")
    way = fabric.route(a, b)
    tables = {
        switch: {nic.id: fabric.routes.port(switch, nic.id) for nic in fabric.nics}
        for switch in fabric.routes.switches
    }

    def after(switch, port):
        changed = {**tables, switch: {**tables[switch], b.id: port}}
        return replace(fabric, routes=Routes.from_ports(changed)).route(a, b)

    down_again = fabric.routes.port(way[1], a.id)
    wrong_nic = fabric.routes.port(way[2], fabric.nic("node00015", "0").id)
    assert after(way[0], tables[way[0]][b.id]) == way
    assert [after(way[1], down_again), after(way[2], wrong_nic), after(way[1], 200)] == [()] * 3
