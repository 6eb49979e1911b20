from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.fabric import (
    Cable,
    Fabric,
    Link,
    Nic,
    Switch,
    natural_key,
    place,
    rail_of,
)
from tests.core.made_fabrics import FatTree


def fabric(nodes, links, tiers=None):
    """`nodes` has the number of nodes on each switch, `links` the number of cables between two
    switches."""
    return Fabric(
        switches=tuple(
            Switch(id=name, name=name, tier=(tiers or {}).get(name, 0)) for name in nodes
        ),
        links=tuple(
            Link(a=a, b=b, cables=(Cable(gbit_s=100),) * cables) for (a, b), cables in links.items()
        ),
        nics=tuple(
            Nic(
                id=f"{name}.{number}",
                node=f"{name}.{number}",
                device="",
                rail="",
                switch=name,
                gbit_s=100,
            )
            for name, count in nodes.items()
            for number in range(count)
        ),
    )


def clos(leaves, spines, cables=1):
    return {(leaf, spine): cables for leaf in leaves for spine in spines}


LEAVES = ("l1", "l2", "l3")
SPINES = ("s1", "s2")
TWO_TIERS = {"l1": 4, "l2": 4, "l3": 4, "s1": 0, "s2": 0}


@pytest.mark.parametrize(
    ("one", "other"),
    [("HCA-1", "mlx5_0"), ("HCA-6", "mlx5_5"), ("HCA-12", "mlx5_11"), ("mlx4_0", "mlx5_0")],
)
def test_devices_of_one_number_are_on_one_rail_under_any_names(one, other):
    assert rail_of(one) == rail_of(other)


@pytest.mark.parametrize("device", ["eth0", "ibp11s0f0", "", "mlx5_bond_0"])
def test_a_device_without_a_known_number_is_a_rail_of_its_own(device):
    assert rail_of(device) == device


def test_tiers_are_counted_from_the_leaves():
    assert fabric(TWO_TIERS, clos(LEAVES, SPINES)).tier == {
        "l1": 1, "l2": 1, "l3": 1, "s1": 2, "s2": 2,
    }  # fmt: skip


def test_a_service_node_on_a_spine_makes_no_leaf_of_it():
    found = fabric({**TWO_TIERS, "s1": 1}, clos(LEAVES, SPINES))
    assert found.tier["s1"] == 2
    assert set(found.leaves) == {*LEAVES, "s1"}
    by_hops = found.pairs_by_hops()
    assert by_hops[3] == 2 * 12  # to and from every other node: one link less than across


def test_a_leaf_without_nodes_is_one_all_the_same():
    found = fabric({**TWO_TIERS, "l3": 0}, clos(LEAVES, SPINES))
    assert found.tier["l3"] == 1


def test_a_leaf_without_nodes_is_one_though_a_cable_of_it_goes_elsewhere():
    links = {**clos(LEAVES, ("s1", "s2", "s3", "s4")), ("l3", "x"): 1}
    found = fabric({**TWO_TIERS, "l3": 0, "s3": 0, "s4": 0, "x": 0}, links)
    assert (found.tier["l3"], found.tier["x"]) == (1, 2)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 4), st.integers(1, 4), st.data())
def test_tiers_are_those_of_the_plan_even_if_leaves_are_empty(
    pods, leaves_per_pod, spines, cores, data
):
    """Leaves and whole pods may be empty; at least one leaf in three is not."""
    leaves = pods * leaves_per_pod
    tree = FatTree(
        nodes=4 * leaves, nodes_per_leaf=4, leaves_per_pod=leaves_per_pod, spines=spines,
        cores=cores,
    ).fabric()  # fmt: skip
    empty = data.draw(st.sets(st.sampled_from(tree.leaves), max_size=leaves - 1))
    found = replace(tree, nics=tuple(nic for nic in tree.nics if nic.switch not in empty))
    plan = {"leaf": 1, "spine": 2, "core": 3}
    assert found.tier == {switch.id: plan[switch.id.split("-")[0]] for switch in tree.switches}


def test_no_way_leads_down_to_a_leaf_and_up_again():
    """Two leaves without a spine in common: a third one could pass their traffic on, and no
    router lets it."""
    links = {("l1", "s1"): 1, ("l2", "s2"): 1, **clos(("l3",), SPINES)}
    found = fabric(TWO_TIERS, links)
    assert found.hops(found.nic("l1.0", ""), found.nic("l2.0", "")) is None
    assert found.hops(found.nic("l1.0", ""), found.nic("l3.0", "")) == 4
    (crossed,) = found.spread([("l1", "l2")])
    assert not len(crossed.link)


def test_among_equal_paths_only_those_through_cores_are_taken():
    links = {("l1", "s1"): 1, ("l2", "s2"): 1, **clos(("l3",), SPINES), **clos(SPINES, ("c",))}
    found = fabric(
        {**TWO_TIERS, "c": 0}, links, {"l1": 1, "l2": 1, "l3": 1, "s1": 2, "s2": 2, "c": 3}
    )
    assert set(found.parts_between("l1", "l2")[1]) == {"l1", "s1", "c", "s2", "l2"}


def test_a_leaf_that_hangs_on_another_leaf_reaches_the_rest_through_it():
    links = {("l1", "l2"): 1, **clos(("l2", "l3"), SPINES)}
    found = fabric(TWO_TIERS, links, {"l1": 1, "l2": 1, "l3": 1, "s1": 2, "s2": 2})
    assert found.hops(found.nic("l1.0", ""), found.nic("l3.0", "")) == 5


def test_a_core_above_several_pods_is_no_leaf_without_nodes():
    pods = {**clos(("l1", "l2"), ("s1",)), **clos(("l3",), ("s2",))}
    found = fabric({**TWO_TIERS, "c": 0}, {**pods, ("s1", "c"): 1, ("s2", "c"): 1})
    assert found.tier == {"l1": 1, "l2": 1, "l3": 1, "s1": 2, "s2": 2, "c": 3}


def test_switches_that_are_all_alike_are_all_leaves():
    ring = {("a", "b"): 1, ("b", "c"): 1, ("c", "d"): 1, ("a", "d"): 1}
    found = fabric(dict.fromkeys("abcd", 2), ring)
    assert set(found.tier.values()) == {1}
    assert found.uplinks("a") == ()


def test_a_source_that_knows_the_tiers_is_believed():
    tiers = {"l1": 1, "l2": 1, "l3": 1, "s1": 2, "s2": 3}
    assert fabric(TWO_TIERS, clos(LEAVES, SPINES), tiers).tier == tiers


def test_parts_without_a_cable_between_them_are_planes_and_have_no_way():
    links = {**clos(("l1", "l2"), ("s1",)), **clos(("l3",), ("s2",))}
    found = fabric(TWO_TIERS, links)
    assert [set(plane) for plane in found.planes] == [{"l1", "l2", "s1"}, {"l3", "s2"}]
    a, b = found.nic("l1.0", ""), found.nic("l3.0", "")
    assert found.hops(a, b) is None
    assert found.pairs_by_hops() == {2: 36, 4: 32, None: 64}


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_distances_are_those_another_library_finds(nodes, per_leaf, leaves, rails, planes):
    found = FatTree(
        nodes=nodes,
        nodes_per_leaf=per_leaf,
        leaves_per_pod=leaves,
        spines=2,
        cores=2,
        rails=rails,
        planes=planes,
    ).fabric()
    graph = networkx.Graph((link.a, link.b) for link in found.links)
    graph.add_edges_from((nic.id, nic.switch) for nic in found.nics)
    steps = dict(networkx.all_pairs_shortest_path_length(graph))
    truth = Counter(steps[a.id].get(b.id) for a, b in permutations(found.nics, 2))
    assert found.pairs_by_hops() == dict(truth)
    for a, b in list(permutations(found.nics, 2))[:50]:
        assert found.hops(a, b) == steps[a.id].get(b.id)


def test_the_parts_between_two_leaves_are_those_on_a_shortest_path():
    found = fabric(TWO_TIERS, {**clos(LEAVES, SPINES), ("s1", "s2"): 1})
    links, switches = found.parts_between("l1", "l3")
    assert {(link.a, link.b) for link in links} == {
        ("l1", "s1"), ("l1", "s2"), ("l3", "s1"), ("l3", "s2"),
    }  # fmt: skip
    assert set(switches) == {"l1", "l3", "s1", "s2"}
    assert found.parts_between("l1", "l1") == ((), ("l1",))


def test_oversubscription_of_a_leaf_is_bandwidth_in_over_bandwidth_out():
    found = fabric(TWO_TIERS, {**clos(LEAVES, SPINES), ("l1", "s1"): 3})
    assert found.oversubscription("l1") == 1.0
    assert found.oversubscription("l2") == 2.0
    assert found.oversubscription("s1") is None


# --- a fleet on a fabric ---------------------------------------------------------------------


def test_a_fleet_may_be_a_part_of_the_fabric_and_reach_beyond_it():
    found = place(fabric(TWO_TIERS, clos(LEAVES, SPINES)), ["l1.1", "new", "l3.0"])
    assert found.nodes == ("l1.1", "l3.0")
    assert found.unplaced == ("new",)
    assert len(found.unrequested) == 10


def test_names_are_found_without_their_domain_and_case_and_keep_the_fleets_spelling():
    known = fabric({"l1": 2, "l2": 0}, {("l1", "l2"): 1})
    renamed = Fabric(
        switches=known.switches,
        links=known.links,
        nics=(
            Nic(id="a", node="N1.site", device="", rail="", switch="l1"),
            Nic(id="b", node="n2", device="", rail="", switch="l1"),
        ),
    )
    found = place(renamed, ["n1", "n2.other.site"])
    assert found.nodes == ("n1", "n2.other.site")
    assert found.fabric.nodes == ("n1", "n2.other.site")


def test_a_short_name_that_two_hosts_share_is_not_guessed():
    twins = Fabric(
        switches=(Switch(id="l1", name="l1"),),
        links=(),
        nics=tuple(
            Nic(id=name, node=name, device="", rail="", switch="l1")
            for name in ("n1.east", "n1.west")
        ),
    )
    assert place(twins, ["n1"]).unplaced == ("n1",)
    assert place(twins, ["n1.west"]).nodes == ("n1.west",)


def test_people_sort_by_numbers():
    assert sorted(["leaf10", "leaf2", "a", "2"], key=natural_key) == ["2", "a", "leaf2", "leaf10"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"links": (Link(a="x", b="x", cables=(Cable(),)),)},
        {"links": (Link(a="x", b="y", cables=(Cable(),)),)},
        {"nics": (Nic(id="n", node="n", device="", rail="", switch="y"),)},
        {"nics": (Nic(id="n", node="n", device="", rail="", switch="x"),) * 2},
        {"switches": (Switch(id="x", name="x"),) * 2},
    ],
)
def test_a_fabric_that_cannot_be_is_refused(wrong):
    parts = {"switches": (Switch(id="x", name="x"),), "links": (), "nics": (), **wrong}
    with pytest.raises(ValueError, match=r"switch|rail|id"):
        Fabric(**parts)


def test_an_empty_fabric_has_no_pairs_and_no_tiers():
    nothing = Fabric(switches=(), links=(), nics=())
    assert nothing.pairs_by_hops() == {}
    assert nothing.planes == ()
    assert nothing.tier == {}
