"""Pairs that run at once do not measure each other: they share no cable, or seldom."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.fabric import Cable, rail_nics_on
from anubis.core.network.crossing import Flow, Parts
from anubis.core.network.localization import locate
from anubis.core.network.pairing import PairTest, joined_nics, quick_rounds, round_robin
from anubis.core.network.posterior import FaultPrior, Observation
from anubis.core.network.sharing import (
    SHARED,
    SHARED_AT_LEAF,
    CableUse,
    Room,
    fair_order,
    fewest_turns,
    narrowest_bottleneck,
    rails_share_no_cable,
    waves,
)
from anubis.lab.simulation.simulated_network import SimulatedNetwork
from tests.core.made_fabrics import FatTree, statically_routed

TREE = FatTree(nodes=128, nodes_per_leaf=16, spines=16).fabric()
PODS = FatTree(nodes=512, nodes_per_leaf=16, leaves_per_pod=8, spines=16, cores=8).fabric()
SMALL = [
    CableUse(FatTree(nodes=12, nodes_per_leaf=4, leaves_per_pod=3, spines=1).fabric()),
    CableUse(
        FatTree(nodes=12, nodes_per_leaf=4, leaves_per_pod=3, spines=3, cables=2, rails=2).fabric()
    ),
    CableUse(FatTree(nodes=24, nodes_per_leaf=4, leaves_per_pod=2, spines=2, cores=3).fabric()),
]


MANY_PATHS = [
    CableUse(FatTree(nodes=24, nodes_per_leaf=6, leaves_per_pod=4, spines=40).fabric()),
    CableUse(FatTree(nodes=32, nodes_per_leaf=4, leaves_per_pod=2, spines=6, cores=6).fabric()),
    CableUse(
        FatTree(nodes=24, nodes_per_leaf=4, leaves_per_pod=3, spines=7, cores=4, rails=2).fabric()
    ),
]


def faster_uplinks(fabric, times):
    return replace(
        fabric,
        links=tuple(
            replace(link, cables=tuple(Cable(gbit_s=c.gbit_s * times) for c in link.cables))
            for link in fabric.links
        ),
    )


def in_turns(fabric, pairs):
    return list(waves(CableUse(fabric), pair_tests(pairs)))


def pair_tests(pairs):
    return [PairTest(*pair) for pair in pairs]


def far_pairs(fabric, hops=4):
    (far,) = (each for each in quick_rounds(fabric, fabric.nodes) if each.hops == hops)
    return far.pairs


def leaf(fabric, node):
    return fabric.nic(node, "0").switch


@pytest.mark.long
@given(st.sampled_from(SMALL), st.randoms(use_true_random=False))
def test_every_pair_has_its_turn_and_each_node_keeps_its_order(use, random):
    fabric = use.fabric
    pairs = [met for matches in round_robin(fabric.nodes) for met in pair_tests(matches)]
    random.shuffle(pairs)
    turns = list(waves(use, pairs))
    assert Counter(pair for wave in turns for pair in wave) == Counter(pairs)
    for wave in turns:
        assert len({name for met in wave for name in met.pair}) == 2 * len(wave)
    for node in fabric.nodes:
        own = [met for met in pairs if node in met.pair]
        assert [met for wave in turns for met in wave if node in met.pair] == own


def naive_turns(use, pairs, at_leaf=SHARED_AT_LEAF, at_all=SHARED):
    """Each pair against every other one of its turn, cable by cable; for cables that bear one."""
    ways = {
        pair: [
            dict(zip(w.cable.tolist(), w.chance.tolist(), strict=True)) for w in use.find_ways(pair)
        ]
        for pair in pairs
    }
    cables = [link for link in use.fabric.links for _ in link.cables]
    near = {n for n, link in enumerate(cables) if {link.a, link.b} & set(use.fabric.leaves)}
    turns, waiting = [], list(pairs)
    while waiting:
        turn, busy, later = [], set(), []
        for pair in waiting:
            fits = busy.isdisjoint(pair.pair)
            for way in ways[pair]:
                met = {
                    cable: chance
                    * sum(max(w.get(cable, 0) for w in ways[other] or [{}]) for other in turn)
                    for cable, chance in way.items()
                }
                leaf_met = sum(chance for cable, chance in met.items() if cable in near)
                fits = fits and leaf_met <= at_leaf and sum(met.values()) <= at_all
            (turn if fits else later).append(pair)
            busy.update(pair.pair)
        turns.append(tuple(turn))
        waiting = later
    return turns


@settings(max_examples=20)
@given(st.sampled_from(MANY_PATHS), st.randoms(use_true_random=False))
def test_turns_are_those_of_comparing_every_pair_with_every_other(use, random):
    nodes = list(use.fabric.nodes)
    random.shuffle(nodes)
    pairs = pair_tests(zip(nodes[::2], nodes[1::2], strict=True))
    assert list(waves(use, pairs)) == naive_turns(use, pairs)


def test_pairs_across_a_leaf_take_turns_if_their_cables_are_unknown():
    """Of 16 uplinks two pairs share one with a chance of 1 in 16, in either leaf."""
    turns = in_turns(TREE, far_pairs(TREE))
    assert len(turns) == 16
    for wave in turns:
        assert max(Counter(leaf(TREE, name) for met in wave for name in met.pair).values()) == 1


def ports_passed(fabric, here, goal):
    """Out of which ports what is for a NIC goes, by the tables."""
    beyond = {
        end: other
        for link in fabric.links
        for cable in link.cables
        for end, other in (
            ((link.a, cable.port_a), link.b),
            ((link.b, cable.port_b), link.a),
        )
    }
    passed = []
    while here != goal.switch:
        passed.append((here, str(fabric.routes.port(here, goal.id))))
        here = beyond[passed[-1]]
    return passed


def ports_of(fabric, met):
    """All ports out of which a pair test sends, there and back, on all rails."""
    both = [(a, b) for ends in joined_nics(fabric, met) for a, b in (ends, ends[::-1])]
    return {port for a, b in both for port in ports_passed(fabric, a.switch, b)}


RAILS = FatTree(nodes=64, nodes_per_leaf=8, leaves_per_pod=4, spines=8, rails=4).fabric()


@pytest.mark.parametrize(("fabric", "hops"), [(TREE, 4), (RAILS, 6)])
def test_with_known_routes_pairs_at_once_share_no_cable_and_take_fewer_turns(fabric, hops):
    """No port sends for two pairs, so none is slower for another, whichever direction each
    measures; every pair runs once; the bound is that of the busiest port or node."""
    routed = statically_routed(fabric)
    pairs = far_pairs(routed, hops)
    turns = in_turns(routed, pairs)
    assert len(turns) < len(in_turns(fabric, far_pairs(fabric, hops)))
    assert sorted(met.pair for wave in turns for met in wave) == sorted(pairs)
    ports = {met: ports_of(routed, met) for wave in turns for met in wave}
    for wave in turns:
        assert max(Counter(port for met in wave for port in ports[met]).values()) == 1
    use = CableUse(routed)
    assert not use.is_shared_by_chance(PairTest(*pairs[0]))
    busiest = Counter(port for passed in ports.values() for port in passed)
    nodes = Counter(node for met in ports for node in met.pair)
    bound = fewest_turns(use, use.find_all_ways(ports))
    assert bound == max(*busiest.values(), *nodes.values())
    assert len(turns) >= bound


def shares_by_walking(fabric):
    """True if two rails of a pair can take one cable: every shortest path is walked."""
    for a, b in combinations(fabric.nodes, 2):
        used = Counter(
            link
            for near, far in joined_nics(fabric, PairTest(a, b))
            for link in set(fabric.parts_between(near.switch, far.switch)[0])
        )
        if max(used.values(), default=0) > 1:
            return True
    return False


@pytest.mark.parametrize(
    "tree",
    [
        FatTree(nodes=8, nodes_per_leaf=4, spines=2, rails=2),
        FatTree(nodes=8, nodes_per_leaf=2, leaves_per_pod=2, spines=2, cores=2, rails=2),
        FatTree(
            nodes=8, nodes_per_leaf=2, leaves_per_pod=2, spines=2, cores=2, rails=2, planes=True
        ),
        FatTree(
            nodes=8,
            nodes_per_leaf=2,
            leaves_per_pod=2,
            spines=2,
            cores=2,
            rails=2,
            rail_spines=True,
        ),
        FatTree(nodes=4, nodes_per_leaf=4, rails=2),
    ],
)
def test_rails_share_no_cable_if_no_path_of_one_has_a_link_of_another(tree):
    fabric = tree.fabric()
    assert rails_share_no_cable(fabric) is not shares_by_walking(fabric)


def test_rails_on_common_leaves_share_cables():
    fabric = FatTree(nodes=8, nodes_per_leaf=4, spines=2, rails=2).fabric()
    nics = tuple(replace(nic, switch=nic.switch.replace("leaf-1", "leaf-0")) for nic in fabric.nics)
    assert not rails_share_no_cable(replace(fabric, nics=nics))


def test_pairs_on_one_leaf_all_run_at_once():
    (wave,) = in_turns(TREE, far_pairs(TREE, hops=2))
    assert len(wave) == 64


@pytest.mark.parametrize(("times", "at_once"), [(1, 1), (2, 2), (3.9, 3), (4, 4)])
def test_a_single_uplink_bears_as_many_pairs_as_its_speed_allows(times, at_once):
    fabric = faster_uplinks(FatTree(nodes=8, nodes_per_leaf=4, spines=1).fabric(), times)
    pairs = far_pairs(fabric)
    assert len(in_turns(fabric, pairs)[0]) == at_once


def test_a_cable_of_unknown_speed_bears_one_pair():
    fabric = faster_uplinks(FatTree(nodes=8, nodes_per_leaf=4, spines=1).fabric(), 4)
    nics = tuple(replace(nic, gbit_s=None) for nic in fabric.nics)
    assert len(in_turns(replace(fabric, nics=nics), far_pairs(fabric))) == 4


def cables_of(network, pair, turn):
    """The cables that each direction takes, in their directions: drawn as hashes would."""
    trips = network._trips([rail_nics_on(*pair, "0")], turn)
    return [
        {(*step, c) for step, c in zip(pairwise(trip.flow.via), trip.cables, strict=True)}
        for trip in trips
    ]


def test_pairs_of_different_pods_seldom_share_a_cable_though_many_run_at_once():
    """Counted on drawn paths, one direction of all pairs at a time."""
    network, met, flows, most = SimulatedNetwork(fabric=PODS), 0, 0, 0
    for turn, wave in enumerate(in_turns(PODS, far_pairs(PODS, hops=6))):
        drawn = [cables_of(network, met.pair, 1000 * turn + n) for n, met in enumerate(wave)]
        for way in (0, 1):
            taken = Counter(cable for both in drawn for cable in both[way])
            met += sum(any(taken[cable] > 1 for cable in both[way]) for both in drawn)
            flows += len(drawn)
        most = max(most, len(wave))
    assert most > 8  # of 4 pods: more than one pair of each
    assert met / flows < SHARED


def test_pairs_between_pods_take_hardly_more_turns_than_their_leaves_ask_for():
    pairs = pair_tests(far_pairs(PODS, hops=6))
    ordered = fair_order(PODS, pairs)
    assert sorted(ordered) == sorted(pairs)
    use = CableUse(PODS)
    assert len(list(waves(use, pairs))) == 32  # of some leaves first, then of the others
    assert len(list(waves(use, ordered))) < 20  # 16 nodes below each leaf


@given(st.lists(st.tuples(st.integers(0, 23), st.integers(0, 23))))
def test_pairs_between_the_leaves_with_most_waiting_pairs_start_first(ends):
    fabric, left = SMALL[2].fabric, Counter()
    pairs = [PairTest(fabric.nodes[a], fabric.nodes[b]) for a, b in ends if a != b]
    for pair_test in reversed(fair_order(fabric, pairs)):  # from the last: more and more wait
        leaves = frozenset(leaf(fabric, name) for name in pair_test.pair)
        left[leaves] += 1
        assert left[leaves] == max(left.values())
    assert left.total() == len(pairs)


def crossed_leaves(fabric, some):
    """Number of these pair tests that cross each leaf, on any rail."""
    return Counter(
        near
        for pair_test in some
        for near in {nic.switch for nics in joined_nics(fabric, pair_test) for nic in nics}
    )


@pytest.mark.parametrize("use", [*SMALL, *MANY_PATHS])
def test_no_order_takes_fewer_turns_than_the_narrowest_leaf_asks_for(use):
    fabric = use.fabric
    for far in (r for r in quick_rounds(fabric, fabric.nodes) if r.hops > 2):
        bottleneck = narrowest_bottleneck(use, use.find_all_ways(far.pair_tests).values())
        crossing = crossed_leaves(fabric, far.pair_tests)
        assert bottleneck.pairs == crossing[bottleneck.leaf]
        turns = list(waves(use, fair_order(fabric, far.pair_tests)))
        assert len(turns) >= bottleneck.fewest_turns
        for turn in turns:
            assert crossed_leaves(fabric, turn)[bottleneck.leaf] <= bottleneck.at_once


def test_two_pairs_at_once_need_more_than_thirty_cables_of_a_leaf():
    def at_once(cables, faster=1):
        fabric = FatTree(nodes=8, nodes_per_leaf=4, spines=1, cables=cables).fabric()
        use = CableUse(faster_uplinks(fabric, faster))
        return use.bottleneck(fabric.leaves[0], pairs=4).at_once

    assert [at_once(cables) for cables in (1, 2, 33, 34)] == [1, 1, 1, 2]
    assert [at_once(cables, 2) for cables in (1, 5, 9)] == [2, 2, 3]


def test_a_pair_that_leaves_makes_room_and_names_the_cables_that_it_frees():
    use = CableUse(TREE)
    room, (first, second) = Room(use), pair_tests(far_pairs(TREE)[:2])
    near = leaf(TREE, first.first)
    assert near == leaf(TREE, second.first)
    assert room.crowded_cable(use.find_ways(first)) is None
    room.enter(use.find_ways(first))
    cable = room.crowded_cable(
        use.find_ways(second)
    )  # one of each link, so it has the number of its link
    assert near in (TREE.links[cable].a, TREE.links[cable].b)
    assert cable in room.leave(use.find_ways(first))
    assert room.crowded_cable(use.find_ways(second)) is None


@given(st.sampled_from(SMALL), st.lists(st.integers(0, 65), max_size=30))
def test_an_empty_network_has_room_for_any_pair_again(use, order):
    every = [use.find_ways(PairTest(*pair)) for pair in combinations(use.fabric.nodes, 2)]
    room, inside = Room(use), []
    for number in order:
        ways = every[number % len(every)]
        if room.crowded_cable(ways) is None:
            room.enter(ways)
            inside.append(ways)
        elif inside:
            room.leave(inside.pop(0))
    for ways in inside:
        room.leave(ways)
    assert all(room.crowded_cable(ways) is None for ways in every)


@pytest.mark.parametrize("use", [*SMALL, *MANY_PATHS])
def test_pairs_that_run_undisturbed_could_not_take_the_same_cable(use):
    every = [PairTest(*pair) for pair in combinations(use.fabric.nodes[::3], 2)]
    for wave in waves(use, every, undisturbed=True):
        for first, second in combinations(wave, 2):
            assert not cables_on_ways(use, first) & cables_on_ways(use, second)


def cables_on_ways(use, pair_test):
    return {cable for way in use.find_ways(pair_test) for cable in way.cable.tolist()}


def test_a_slow_pair_is_excused_only_if_cables_are_shared_by_chance():
    def excused(fabric, a, b):
        return CableUse(fabric).is_shared_by_chance(PairTest(a, b))

    assert not excused(TREE, "node00001", "node00002")
    assert not excused(TREE, "node00001", "node00128")  # no other pair was let on its leaves
    assert not excused(PODS, "node00001", "node00017")
    assert excused(PODS, "node00001", "node00512")


def test_rails_of_a_node_are_measured_one_after_the_other_and_load_a_link_once():
    fabric = FatTree(nodes=8, nodes_per_leaf=4, spines=1, rails=2).fabric()
    one_leaf = replace(
        fabric,
        nics=tuple(replace(nic, switch=nic.switch.replace("-1-", "-0-")) for nic in fabric.nics),
    )
    twice = faster_uplinks(one_leaf, 2)
    assert len(in_turns(twice, far_pairs(twice))[0]) == 2


def test_the_chances_of_a_way_are_those_of_the_walks_along_it():
    network = SimulatedNetwork(fabric=SMALL[2].fabric)
    fabric, pair = network.fabric, ("node00001", "node00024")
    (way,) = CableUse(fabric).find_ways(PairTest(*pair))
    walked = Counter(
        frozenset(cable) for turn in range(2000) for cable in cables_of(network, pair, turn)[0]
    )
    cables = [
        frozenset((link.a, link.b, n)) for link in fabric.links for n in range(len(link.cables))
    ]
    chance = {
        cables[number]: share
        for number, share in zip(way.cable.tolist(), way.chance.tolist(), strict=True)
    }
    assert set(walked) == set(chance)
    for ends, times in walked.items():
        assert times / 2000 == pytest.approx(chance[ends], abs=5 * np.sqrt(0.25 / 2000))


# --- how often pairs shared a cable, by what fell short elsewhere ------------------------------


SMALL_PODS = FatTree(nodes=64, nodes_per_leaf=4, leaves_per_pod=4, spines=4, cores=4).fabric()


def short_flows(fabric, chance_of, hops=6, rounds=4):
    """Flows of several rounds between pods; one falls short to 46 % with the chance of its pair."""
    rng = np.random.default_rng(7)
    pairs = [
        pair
        for seed in range(rounds)
        for far in quick_rounds(fabric, fabric.nodes, seed=seed, distances=[hops])
        for pair in far.pairs
    ]
    return [
        Observation(
            Flow(*rail_nics_on(*ends, "0")), 0.54 if rng.random() < chance_of(a, b) else 0.0
        )
        for a, b in dict.fromkeys(pairs)
        for ends in ((a, b), (b, a))
    ]


def test_pairs_that_fall_short_at_one_leaf_only_did_not_share_cables_by_chance():
    bad = leaf(SMALL_PODS, "node00001")
    at_bad = short_flows(
        SMALL_PODS, lambda a, b: 0.25 * (bad in (leaf(SMALL_PODS, a), leaf(SMALL_PODS, b)))
    )
    (cause,) = locate(SMALL_PODS, at_bad, FaultPrior(noise=0.01)).causes
    assert {part.name for part in cause.parts} == {bad}
    assert cause.confidence > 0.9


def test_pairs_that_fall_short_at_all_leaves_alike_blame_nothing():
    everywhere = short_flows(SMALL_PODS, lambda a, b: 0.05)
    assert sum(row.shortfall > 0.5 for row in everywhere) > 10
    assert locate(SMALL_PODS, everywhere, FaultPrior(noise=0.01)).causes == ()


def test_a_flow_that_fell_short_undisturbed_has_no_excuse():
    ends = rail_nics_on("node00001", "node00064", "0")
    for undisturbed in (False, True):
        flow = Flow(*ends, undisturbed=undisturbed)
        (chance,) = Parts(SMALL_PODS).chances_of_sharing([flow], np.ones(1, dtype=bool))
        assert bool(chance) is not undisturbed


def naive_chance(fabric, flows, short, row):
    """The chance by comparing with each other pair."""
    use, pairs = CableUse(fabric), {}
    for flow, is_short in zip(flows, short, strict=True):
        pairs.setdefault(frozenset((flow.source.node, flow.target.node)), []).append(is_short)
    own = frozenset((flows[row].source.node, flows[row].target.node))
    leaves = {leaf(fabric, name) for name in own}

    def is_apart(pair):
        return fabric.hops(*(fabric.nic(name, "0") for name in pair))

    elsewhere = [
        any(of_pair)
        for pair, of_pair in pairs.items()
        if is_apart(pair) == is_apart(own) and leaves.isdisjoint(leaf(fabric, n) for n in pair)
    ]
    seen = (sum(elsewhere) + 1) / (len(elsewhere) + 2)
    let_on = (
        max(way.shared_chance for way in use.find_ways(PairTest(*own))) if len(leaves) > 1 else 0.0
    )
    return min(let_on, seen) ** (1 / sum(pairs[own]))


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 63), st.integers(0, 63)), min_size=1), st.data())
def test_the_chance_of_having_shared_is_that_of_a_loop_over_all_other_pairs(ends, data):
    names = SMALL_PODS.nodes
    flows = [Flow(*rail_nics_on(names[a], names[b], "0")) for a, b in dict.fromkeys(ends) if a != b]
    short = np.array(data.draw(st.lists(st.booleans(), min_size=len(flows), max_size=len(flows))))
    chances = Parts(SMALL_PODS).chances_of_sharing(flows, short.astype(bool))
    for row, chance in enumerate(chances.tolist()):
        expected = naive_chance(SMALL_PODS, flows, short.tolist(), row) if short[row] else 0.0
        assert chance == pytest.approx(expected)
