"""Rates of flows that share cables: max-min fairness, by closed forms and a naive fill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.fabric import Cable, Part, rail_nics_on
from anubis.core.network.pairing import quick_rounds
from anubis.core.network.sharing import CableUse, waves
from anubis.lab.simulation.simulated_network import Fault, SimulatedNetwork, max_min_rates
from tests.core.made_fabrics import FatTree

TREE = FatTree(nodes=128, nodes_per_leaf=16, spines=16).fabric()
ONE_UPLINK = FatTree(nodes=8, nodes_per_leaf=4, spines=1).fabric()


def poured(ways, wanted, carried, drop=1e-3):
    """The naive fill: each flow gets more drop by drop, as long as all its cables have room."""
    rate, left = [0.0] * len(ways), dict(carried)
    rising = set(range(len(ways)))
    while rising:
        for row in sorted(rising):
            fits = all(left[thing] >= drop for thing in ways[row])
            if not fits or rate[row] + drop > wanted[row]:
                rising.discard(row)
                continue
            rate[row] += drop
            for thing in ways[row]:
                left[thing] -= drop
    return rate


networks = st.integers(1, 5).flatmap(
    lambda things: st.tuples(
        st.lists(
            st.tuples(
                st.lists(st.integers(0, things - 1), unique=True, max_size=3),
                st.floats(0.1, 1.5),
            ),
            min_size=1,
            max_size=6,
        ),
        st.lists(st.floats(0.1, 2.0), min_size=things, max_size=things),
    )
)


@given(networks)
def test_fair_shares_agree_with_a_naive_fill_in_small_drops(network):
    flows, carried = network
    ways, wanted = [way for way, _ in flows], [limit for _, limit in flows]
    carried = dict(enumerate(carried))
    expected = poured(ways, wanted, carried)
    assert max_min_rates(ways, wanted, carried) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_equals_on_one_cable_get_equal_shares(count):
    rates = max_min_rates([["cable"]] * count, [10.0] * count, {"cable": 1.0})
    assert rates == pytest.approx([1 / count] * count)


def test_bandwidth_that_a_slow_flow_leaves_goes_to_the_other_flows():
    """Two cables in a row, a long flow over both: a share of each, and the rest to the other
    flows."""
    ways = [["a", "b"], ["a"], ["b"], ["b"]]
    rates = max_min_rates(ways, [9.0] * 4, {"a": 1.0, "b": 1.0})
    assert rates == pytest.approx([1 / 3, 2 / 3, 1 / 3, 1 / 3])


# --- on a fabric -----------------------------------------------------------------------------


def rates(network, pairs, at_once=True):
    measure = network.measure_at_once if at_once else network.measure
    return [rate for _, rate in measure([rail_nics_on(a, b, "0") for a, b in pairs])]


def test_pairs_across_a_single_uplink_share_it_and_a_faster_one_bears_them():
    (far,) = (each for each in quick_rounds(ONE_UPLINK, ONE_UPLINK.nodes) if each.hops == 4)
    network = SimulatedNetwork(fabric=ONE_UPLINK, noise=0, gbytes_s=40)
    assert rates(network, far.pairs) == pytest.approx([10.0] * 8)
    links = tuple(replace(link, cables=(Cable(gbit_s=1600.0),)) for link in ONE_UPLINK.links)
    fast = replace(network, fabric=replace(ONE_UPLINK, links=links))
    assert rates(fast, far.pairs) == pytest.approx(rates(fast, far.pairs, at_once=False))


def test_many_senders_to_one_node_share_its_nic():
    network = SimulatedNetwork(fabric=TREE, noise=0, gbytes_s=60)
    first, *others = TREE.nodes[:4]
    forth = rates(network, [(other, first) for other in others])[::2]
    assert forth == pytest.approx([20.0] * 3)


def test_a_fault_slows_pairs_that_share_no_cable_as_much_together_as_alone():
    fault = Fault(kind="", part=Part("node", "node00001"), loss=0.25)
    network = SimulatedNetwork(fabric=TREE, noise=0, gbytes_s=1, faults=(fault,))
    pairs = [("node00001", "node00002"), ("node00003", "node00004")]
    assert rates(network, pairs) == rates(network, pairs, at_once=False)


def short(fabric, measured):
    best = max(rate for _, rate in measured)
    return sum(rate < 0.9 * best for _, rate in measured) / len(measured)


def test_many_of_128_nodes_at_once_fall_short_and_in_turns_none():
    """At once the 16 nodes of a leaf send to those of another one, each over one of 16 spines: 15
    others leave a flow alone with a chance of (15/16) ** 15."""
    (far,) = (each for each in quick_rounds(TREE, TREE.nodes) if each.hops == 4)
    network = SimulatedNetwork(fabric=TREE, noise=0.01)
    all_nodes = [rail_nics_on(a, b, "0") for a, b in far.pairs]
    share = np.mean([short(TREE, network.measure_at_once(all_nodes, turn)) for turn in range(20)])
    assert share == pytest.approx(1 - (15 / 16) ** 15, abs=0.08)
    for wave in waves(CableUse(TREE), far.pair_tests):
        assert (
            short(TREE, network.measure_at_once([rail_nics_on(*met.pair, "0") for met in wave]))
            == 0
        )
