from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import combinations, islice, pairwise, product

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.fabric import Cable, Fabric, Link, Nic, Switch
from anubis.core.network.coverage import coverage, covering_rounds
from anubis.core.network.matching import augment, general_matching, maximum_pairs, pairs_across
from anubis.core.network.pairing import (
    HopRound,
    batches,
    joined_nics,
    needed_rounds,
    quick_rounds,
    round_robin,
)
from tests.core.made_fabrics import FatTree


def flat(pairs):
    return [name for pair in pairs for name in pair]


# --- all pairs -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [*range(12), 33, 64])
def test_every_pair_meets_exactly_once_in_rounds_of_disjoint_pairs(n):
    nodes = [f"n{i}" for i in range(n)]
    rounds = list(round_robin(nodes))
    assert len(rounds) == (0 if n < 2 else n - 1 if n % 2 == 0 else n)
    for matches in rounds:
        busy = flat(matches)
        assert len(busy) == len(set(busy)) == n - n % 2
    met = [frozenset(pair) for matches in rounds for pair in matches]
    assert len(met) == len(set(met))
    assert set(met) == {frozenset(pair) for pair in combinations(nodes, 2)}


@given(st.integers(2, 60))
def test_roles_alternate_from_round_to_round(n):
    """n - 2 exceptions for even n are the least there can be (de Werra, 1980); odd n has none."""
    roles: dict[int, list[str]] = {node: [] for node in range(n)}
    for matches in round_robin(list(range(n))):
        for first, second in matches:
            roles[first].append("first")
            roles[second].append("second")
    exceptions = sum(here == after for row in roles.values() for here, after in pairwise(row))
    assert exceptions == (n - 2 if n % 2 == 0 else 0)
    for row in roles.values():
        assert abs(row.count("first") - row.count("second")) <= 1


def test_a_round_of_a_large_fleet_needs_no_memory_for_the_others():
    rounds = round_robin([f"n{i}" for i in range(10_000)])
    tracemalloc.start()
    for matches in islice(rounds, 3):
        assert len(matches) == 5_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6  # all 9,999 rounds are 5 GB


# --- the patterns of another tool ------------------------------------------------------------

PAIR_WISE = """\
node0,node7;node1,node6;node2,node5;node3,node4
node0,node1;node2,node7;node3,node6;node4,node5
node0,node2;node3,node1;node4,node7;node5,node6
node0,node3;node4,node2;node5,node1;node6,node7
node0,node4;node5,node3;node6,node2;node7,node1
node0,node5;node6,node4;node7,node3;node1,node2
node0,node6;node7,node5;node1,node4;node2,node3
"""


def rounds_of(text):
    return [
        [tuple(group.split(",")) for group in line.split(";")] for line in text.split("\n") if line
    ]


@pytest.mark.twin("test_the_pairs_of_each_round_are_those_that_were_recorded")
def test_the_excerpt_of_superbench_is_the_recorded_one(real):
    blocks = real("superbench/logs/mpi_pattern.txt").read_text().split("\n\n")
    (recorded,) = [block for block in blocks if "pattern_type: pair-wise" in block]
    assert rounds_of(recorded.partition("\n")[2]) == rounds_of(PAIR_WISE)


def test_the_pairs_of_each_round_are_those_that_were_recorded():
    """Bettered in the roles: there node0 comes first seven times of seven."""
    nodes = [f"node{i}" for i in range(8)]
    recorded = [[frozenset(pair) for pair in matches] for matches in rounds_of(PAIR_WISE)]
    assert [[frozenset(pair) for pair in matches] for matches in round_robin(nodes)] == recorded
    assert sum(a == "node0" for matches in rounds_of(PAIR_WISE) for a, _ in matches) == 7
    assert sum(a == "node0" for matches in round_robin(nodes) for a, _ in matches) in (3, 4)


# --- the quick scan --------------------------------------------------------------------------


@st.composite
def fabrics(draw):
    """Any graph of switches, with any number of nodes on each; cables in any number."""
    count = draw(st.integers(1, 7))
    nodes = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    ends = [pair for pair in combinations(range(count), 2) if draw(st.booleans())]
    cables = [draw(st.integers(1, 3)) for _ in ends]
    return Fabric(
        switches=tuple(Switch(id=f"s{i}", name=f"s{i}") for i in range(count)),
        links=tuple(
            Link(a=f"s{a}", b=f"s{b}", cables=(Cable(),) * times)
            for (a, b), times in zip(ends, cables, strict=True)
        ),
        nics=tuple(
            Nic(id=f"n{i}.{j}", node=f"n{i}.{j}", device="", rail="", switch=f"s{i}")
            for i, some in enumerate(nodes)
            for j in range(some)
        ),
    )


def between(fabric, a, b):
    """The switches that may be passed between two of them, as a graph of another library."""
    graph = networkx.Graph()
    for switch, passes_on in zip(fabric.switches, fabric.passes_on, strict=True):
        if passes_on or switch.id in (a, b):
            graph.add_node(switch.id)
    for number, link in enumerate(fabric.links):
        if graph.has_node(link.a) and graph.has_node(link.b):
            graph.add_edge(link.a, link.b, number=number, cables=len(link.cables))
    return graph


def pair_tests_at(fabric):
    """Pairs by their distance, by another library."""
    found: dict[int, networkx.Graph] = {}
    for one, other in combinations(fabric.nics, 2):
        graph = between(fabric, one.switch, other.switch)
        if networkx.has_path(graph, one.switch, other.switch):
            steps = networkx.shortest_path_length(graph, one.switch, other.switch)
            found.setdefault(steps + 2, networkx.Graph()).add_edge(one.node, other.node)
    return found


@given(fabrics(), st.one_of(st.none(), st.integers(0, 3)))
def test_each_distance_has_one_round_with_as_many_pairs_as_there_can_be(fabric, seed):
    truth = pair_tests_at(fabric)
    rounds = {each.hops: each for each in quick_rounds(fabric, fabric.nodes, seed)}
    assert set(rounds) == set(truth)
    for hops, graph in truth.items():
        pairs = rounds[hops].pairs
        assert all(graph.has_edge(*pair) for pair in pairs)
        best = networkx.max_weight_matching(graph, maxcardinality=True)
        assert len(pairs) == len(best)
        alone = set(fabric.nodes) - set(graph)
        assert set(rounds[hops].alone) == alone
        all_nodes = [*flat(pairs), *rounds[hops].alone, *rounds[hops].spare]
        assert sorted(all_nodes) == sorted(fabric.nodes)


def best_matching(sizes, adjacent):
    """The most pairs that there can be, by another library on every single member."""
    graph = networkx.Graph()
    for i, j in zip(*np.nonzero(adjacent), strict=True):
        graph.add_edges_from(
            ((int(i), a), (int(j), b)) for a, b in product(range(sizes[i]), range(sizes[j]))
        )
    return len(networkx.max_weight_matching(graph, maxcardinality=True))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_groups_in_any_graph_form_as_many_pairs_as_another_library_finds(sizes, random):
    count = len(sizes)
    adjacent = np.zeros((count, count), dtype=bool)
    for i, j in combinations(range(count), 2):
        adjacent[i, j] = adjacent[j, i] = random.random() < 0.35
    best = best_matching(sizes, adjacent)
    counts = general_matching(sizes, adjacent)
    assert all(adjacent[pair] and count > 0 for pair, count in counts.items())
    used = [sum(c for pair, c in counts.items() if i in pair) for i in range(count)]
    assert all(u <= size for u, size in zip(used, sizes, strict=True))
    assert sum(counts.values()) == best
    groups = [[f"{i}.{k}" for k in range(size)] for i, size in enumerate(sizes)]
    assert len(maximum_pairs(groups, adjacent)) == best


@pytest.mark.parametrize(
    ("groups", "links", "most", "seed"),
    [
        pytest.param(6, 2.2, 2, 25, id="a-path-to-augment"),
        pytest.param(6, 2.2, 3, 57, id="a-path-to-augment-groups"),
        pytest.param(20, 2.2, 2, 359, id="a-blossom"),
        pytest.param(30, 2.2, 4, 296, id="a-blossom-of-groups"),
        pytest.param(6, 2.0, 3, 1125, id="a-path-through-one-kind-twice"),
        pytest.param(10, 2.0, 5, 710, id="a-path-through-one-kind-of-many-twice"),
    ],
)
def test_graphs_in_which_filling_up_falls_short(groups, links, most, seed):
    """Found by a search for those on which a part of the algorithm is indispensable."""
    rng = np.random.default_rng(seed)
    adjacent = np.triu(rng.random((groups, groups)) < links / groups, 1)
    adjacent |= adjacent.T
    sizes = rng.integers(1, most, groups).tolist()
    assert sum(general_matching(sizes, adjacent).values()) == best_matching(sizes, adjacent)


def test_a_path_may_pass_one_kind_of_pair_in_both_directions():
    """Two of group 0 may meet only group 1, whose two have met group 2: on the way to free both
    of group 1, and back, the path turns in the triangle 2 - 3 - 4."""
    adjacent = np.zeros((5, 5), dtype=bool)
    for i, j in ((0, 1), (1, 2), (2, 3), (2, 4), (3, 4)):
        adjacent[i, j] = adjacent[j, i] = True
    found = augment([2, 2, 2, 1, 1], adjacent, Counter({(1, 2): 2, (3, 4): 1}))
    assert found == {(0, 1): 2, (2, 3): 1, (2, 4): 1}


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_any_matching_grows_into_a_maximum_one(sizes, random):
    count = len(sizes)
    adjacent = np.zeros((count, count), dtype=bool)
    begun: Counter[tuple[int, int]] = Counter()
    left = list(sizes)
    edges = [pair for pair in combinations(range(count), 2) if random.random() < 0.4]
    random.shuffle(edges)
    for i, j in edges:
        adjacent[i, j] = adjacent[j, i] = True
        begun[i, j] = random.randint(0, min(left[i], left[j]))
        left[i] -= begun[i, j]
        left[j] -= begun[i, j]
    found = augment(sizes, adjacent, begun)
    assert sum(found.values()) == best_matching(sizes, adjacent)
    used = [sum(c for pair, c in found.items() if i in pair) for i in range(count)]
    assert all(u <= size for u, size in zip(used, sizes, strict=True))


@given(st.lists(st.integers(0, 9), max_size=8))
def test_across_parts_only_an_overwhelming_part_or_an_odd_one_is_left_over(sizes):
    parts = [[f"{i}.{k}" for k in range(size)] for i, size in enumerate(sizes)]
    pairs = pairs_across(parts)
    assert all(a.partition(".")[0] != b.partition(".")[0] for a, b in pairs)
    assert len(set(flat(pairs))) == len(flat(pairs))
    total = sum(sizes)
    assert len(pairs) == min(total // 2, total - max(sizes, default=0))


def test_a_tree_of_three_tiers_takes_three_rounds_of_all_nodes_on_all_rails():
    fabric = FatTree(nodes=256, nodes_per_leaf=8, leaves_per_pod=4, spines=4, rails=4).fabric()
    rounds = quick_rounds(fabric, fabric.nodes)
    assert [(each.hops, each.rails) for each in rounds] == [
        (2, ("0", "1", "2", "3")),
        (4, ("0", "1", "2", "3")),
        (6, ("0", "1", "2", "3")),
    ]
    for each in rounds:
        assert sorted(flat(each.pairs)) == sorted(fabric.nodes)
        for (one, other), rail in product(each.pairs, each.rails):
            assert fabric.hops(fabric.nic(one, rail), fabric.nic(other, rail)) == each.hops


def test_nodes_without_a_partner_are_listed_with_the_reason():
    """Leaves of 3, 1 and 1 nodes: the single ones are alone on theirs; across, one of the three
    is left over."""
    fabric = FatTree(nodes=5, nodes_per_leaf=3, leaves_per_pod=3, spines=2).fabric()
    nics = list(fabric.nics)
    extra = Switch(id="leaf-0-2", name="leaf-0-2")
    nics[4] = Nic(id=nics[4].id, node="node00005", device="mlx5_0", rail="0", switch=extra.id)
    links = (*fabric.links, Link(a=extra.id, b="spine-0-0", cables=(Cable(),)))
    fabric = Fabric(switches=(*fabric.switches, extra), links=links, nics=tuple(nics))
    near, far = quick_rounds(fabric, fabric.nodes)
    assert (near.hops, near.alone, near.spare) == (
        2,
        ("node00004", "node00005"),
        ("node00003",),
    )
    assert (far.hops, far.alone, len(far.spare)) == (4, (), 1)


def test_pairs_that_measure_nothing_new_are_left_out():
    """Four rails, of which one node has two exchanged: each would get pairs of its own."""
    fabric = FatTree(nodes=48, nodes_per_leaf=8, spines=4, rails=4).fabric()
    leaf = {rail: fabric.nic("node00003", rail).switch for rail in ("2", "3")}
    leaf["2"], leaf["3"] = leaf["3"], leaf["2"]
    nics = tuple(
        replace(nic, switch=leaf[nic.rail]) if nic.node == "node00003" and nic.rail in leaf else nic
        for nic in fabric.nics
    )
    fabric = replace(fabric, nics=nics)

    def measured(rounds, rails_of):
        return {
            (nic.node, nic.rail, fabric.hops(a, b))
            for each in rounds
            for pair_test in each.pair_tests
            for a, b in joined_nics(fabric, pair_test)
            for nic in (a, b)
            if nic.rail in rails_of(each)
        }

    every = quick_rounds(fabric, fabric.nodes)
    few = tuple(needed_rounds(fabric, every))
    asked_for = measured(every, lambda each: each.rails)
    assert asked_for <= measured(few, lambda each: fabric.rails)
    assert sum(len(each.pairs) for each in few) <= 24 + 24 + 2 * 4  # rounds of two distances


@pytest.mark.parametrize("tiers", [1, 2, 3])
def test_a_quick_scan_takes_one_round_for_each_tier(tiers):
    fabric = FatTree(
        nodes=8 * 4 ** (tiers - 1), nodes_per_leaf=8, leaves_per_pod=4, spines=4, rails=3
    ).fabric()
    rounds = list(needed_rounds(fabric, quick_rounds(fabric, fabric.nodes)))
    assert [each.purpose for each in rounds] == ["distance"] * tiers


def test_rounds_beyond_one_for_each_tier_are_for_rails_that_are_cabled_differently():
    fabric = FatTree(nodes=48, nodes_per_leaf=8, spines=4, rails=4).fabric()
    nics = list(fabric.nics)
    here, there = (i for i, n in enumerate(nics) if n.rail == "3" and n.node in fabric.nodes[7:9])
    nics[here], nics[there] = (
        replace(nics[here], switch=nics[there].switch),
        replace(nics[there], switch=nics[here].switch),
    )
    fabric = replace(fabric, nics=tuple(nics))
    rounds = list(needed_rounds(fabric, quick_rounds(fabric, fabric.nodes)))
    counts = coverage(fabric, rounds).rounds
    assert counts["distance"] == 2
    extra = [each for each in rounds if each.purpose == "rails"]
    assert sum(len(each.pairs) for each in extra) == coverage(fabric, rounds).pairs["rails"] <= 8
    assert all("3" in each.rails for each in extra)


def test_nodes_whose_partners_lack_a_rail_are_paired_with_each_other_on_it():
    fabric = FatTree(nodes=64, nodes_per_leaf=16, rails=2).fabric()
    lacking = fabric.nodes[:8]  # half a leaf
    nics = [nic for nic in fabric.nics if nic.rail == "0" or nic.node not in lacking]
    fabric = replace(fabric, nics=tuple(nics))
    near, far, more = needed_rounds(fabric, quick_rounds(fabric, fabric.nodes))
    assert (near.hops, len(near.pairs), far.hops, len(far.pairs)) == (2, 32, 4, 32)
    assert (more.purpose, more.rails, len(more.pairs)) == ("rails", ("1",), 4)
    partners = {name for pair in far.pairs if set(pair) & set(lacking) for name in pair}
    assert set(flat(more.pairs)) == partners - set(lacking)


def test_only_the_requested_nodes_are_paired():
    fabric = FatTree(nodes=64, nodes_per_leaf=8, leaves_per_pod=4, spines=2).fabric()
    some = fabric.nodes[::3]
    for each in quick_rounds(fabric, some):
        assert {*flat(each.pairs), *each.alone, *each.spare} == set(some)


# --- coverage --------------------------------------------------------------------------------


def test_the_only_way_is_crossed_surely_and_one_of_many_by_its_share():
    """Two leaves under two spines, two cables each, one pair: four cables, each way one of them."""
    fabric = FatTree(nodes=2, nodes_per_leaf=1, leaves_per_pod=2, spines=2, cables=2).fabric()
    found = coverage(fabric, quick_rounds(fabric, fabric.nodes))
    assert found.link_chance == pytest.approx([1 - (3 / 4) ** 2] * 4)
    chance = dict(zip((s.id for s in fabric.switches), found.switch_chance, strict=True))
    assert chance["leaf-0-0"] == chance["leaf-0-1"] == 1
    assert chance["spine-0-0"] == pytest.approx(1 - (1 / 2) ** 2)
    assert found.nics == {"node00001/mlx5_0", "node00002/mlx5_0"}
    assert len(found.unsure_links) == 4


def test_coverage_of_all_pairs_at_once_equals_that_of_pairs_one_by_one():
    fabric = FatTree(nodes=9, nodes_per_leaf=4, leaves_per_pod=3, spines=3, rails=2).fabric()
    rounds = [
        HopRound(hops=0, rails=fabric.rails, pairs=pairs, alone=(), spare=())
        for pairs in round_robin(fabric.nodes)
    ]
    counted, added = coverage(fabric, rounds), coverage(fabric, (), fabric.nodes)
    assert added.link_chance == pytest.approx(counted.link_chance)
    assert added.switch_chance == pytest.approx(counted.switch_chance)
    assert (added.nics, added.pairs) == (counted.nics, counted.pairs)


def test_an_uplink_that_no_pair_can_use_is_named():
    fabric = FatTree(nodes=12, nodes_per_leaf=4, leaves_per_pod=3, spines=2).fabric()
    rounds = quick_rounds(fabric, fabric.nodes[:8])  # no node of the third leaf takes part
    found = coverage(fabric, rounds)
    assert {link.a for link in found.untested_links} == {"leaf-0-2"}
    assert found.untested_switches == ("leaf-0-2",)


@given(fabrics())
def test_the_shares_of_the_paths_are_those_of_a_walk_along_them(fabric):
    """Each pair's shares against all its shortest paths, listed one by one."""
    for a, b in product(fabric.leaves, fabric.leaves):
        graph = between(fabric, a, b)
        (found,) = fabric.spread([(a, b)])
        shares = dict(zip(found.link.tolist(), found.link_share.tolist(), strict=True))
        expected: Counter[int] = Counter()
        if networkx.has_path(graph, a, b):
            paths = list(networkx.all_shortest_paths(graph, a, b))
            for path in paths:
                share = 1.0
                for place, (here, there) in enumerate(pairwise(path)):
                    nexts = {other[place + 1] for other in paths if other[place] == here}
                    cables = {other: graph[here][other]["cables"] for other in nexts}
                    share *= cables[there] / sum(cables.values())
                for here, there in pairwise(path):
                    expected[graph[here][there]["number"]] += share
        assert shares == pytest.approx(dict(expected))


def test_more_rounds_cross_every_uplink_almost_surely():
    fabric = FatTree(nodes=64, nodes_per_leaf=8, leaves_per_pod=4, spines=8, cables=2).fabric()
    rounds = quick_rounds(fabric, fabric.nodes)
    assert coverage(fabric, rounds).unsure_links
    more = list(covering_rounds(fabric, fabric.nodes, rounds))
    after = coverage(fabric, [*rounds, *more])
    assert not after.unsure_links
    assert not after.untested_links
    met = {frozenset(pair) for hop_round in rounds for pair in hop_round.pairs}
    for each in more:  # new ones: who meets again measures nothing
        assert len(set(flat(each.pairs))) == 2 * len(each.pairs) > 0.75 * len(fabric.nodes)
        assert met.isdisjoint(map(frozenset, each.pairs))
        met |= set(map(frozenset, each.pairs))


def test_a_pair_that_is_planned_twice_is_measured_once_and_crosses_no_more():
    fabric = FatTree(nodes=16, nodes_per_leaf=4, spines=4).fabric()
    rounds = quick_rounds(fabric, fabric.nodes)
    once, twice = coverage(fabric, rounds), coverage(fabric, [*rounds, *rounds])
    assert once.unsure_links
    assert np.array_equal(once.link_chance, twice.link_chance)


def test_without_a_way_to_gain_more_rounds_end():
    fabric = FatTree(nodes=8, nodes_per_leaf=4, leaves_per_pod=2, spines=2).fabric()
    some = fabric.nodes[:4]  # all on one leaf
    assert list(covering_rounds(fabric, some, quick_rounds(fabric, some))) == []


# --- groups side by side -----------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(2, 9))
def test_groups_side_by_side_have_the_requested_size_and_include_all_nodes(n, size):
    nodes = [f"n{i}" for i in range(n)]
    rounds = list(batches(nodes, size))
    assert len(rounds) == (0 if n == 0 else 1 if n % min(size, n) == 0 else 2)
    assert {name for groups in rounds for name in flat(groups)} == set(nodes)
    for groups in rounds:
        assert len(flat(groups)) == len(set(flat(groups)))
        assert {len(group) for group in groups} == {min(size, n)}
