"""Anomalies of fabrics with planted flaws."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.fabric import Cable, Fabric, Link, Nic, Part, Switch
from anubis.core.network.counters import count_rises, exceeded_limit, place_counts
from anubis.core.network.coverage import coverage
from anubis.core.network.inspection import Inspection
from anubis.core.network.pairing import quick_rounds
from anubis.core.network.redundancy import MissingCables, shortages
from anubis.core.records import Count, Counters, Limit
from tests.core.made_fabrics import FatTree

PODS = FatTree(nodes=48, nodes_per_leaf=4, leaves_per_pod=6, spines=4, cores=2, cables=2)
RAILS = FatTree(nodes=12, nodes_per_leaf=4, leaves_per_pod=3, spines=2, rails=3, cables=2)


def numbered(fabric: Fabric) -> Fabric:
    """A fabric with a port at either end of every cable, and GUIDs as InfiniBand has them."""
    last = Counter(nic.switch for nic in fabric.nics)

    def port(switch: str) -> str:
        last[switch] += 1
        return str(last[switch])

    links = tuple(
        replace(
            link,
            cables=tuple(
                replace(cable, port_a=port(link.a), port_b=port(link.b)) for cable in link.cables
            ),
        )
        for link in fabric.links
    )
    switches = tuple(
        replace(switch, guid=f"5{number:x}") for number, switch in enumerate(fabric.switches)
    )
    nics = tuple(replace(nic, guid=f"c{number:x}") for number, nic in enumerate(fabric.nics))
    return replace(fabric, links=links, switches=switches, nics=nics)


def findings_of(fabric: Fabric, counters: Counters | None = None):
    return Inspection(fabric=fabric, counters=counters or Counters(counts=())).findings


def without(fabric: Fabric, lost: dict[tuple[str, str], int]) -> Fabric:
    """A fabric with so many cables less between these."""
    left = ((link, link.cables[lost.get((link.a, link.b), 0) :]) for link in fabric.links)
    return replace(fabric, links=tuple(replace(link, cables=c) for link, c in left if c))


# --- uplinks -----------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.data())
def test_missing_links_are_found_as_planted_and_a_leaf_below_half_is_degraded(data):
    """Up to four of twelve leaves in two pods lose some of their eight uplinks each."""
    fabric = PODS.fabric()
    lost = {}
    for leaf in data.draw(st.sets(st.sampled_from(fabric.leaves), max_size=4)):
        for link in fabric.uplinks(leaf):
            lost[link.a, link.b] = data.draw(st.integers(0, 2))
    gone = {leaf: sum(n for (a, _), n in lost.items() if a == leaf) for leaf in fabric.leaves}
    found = {each.switch: each for each in shortages(without(fabric, lost))}
    assert {leaf: each.lacks for leaf, each in found.items()} == {
        leaf: n for leaf, n in gone.items() if n
    }
    for leaf, each in found.items():
        assert (each.has, each.usual, each.sisters) == (8 - gone[leaf], 8, 12)
        assert each.alike == sum(n == 0 for n in gone.values())
        assert each.is_degraded == (gone[leaf] > 2)  # 4 of 8 are redundant: as many as NICs
        mine = {
            MissingCables(lower=a, upper=b, cables=n)
            for (a, b), n in lost.items()
            if a == leaf and n
        }
        of_no_pod = {MissingCables(lower=leaf, upper="", cables=8)}
        assert set(each.gaps) == (mine if gone[leaf] < 8 else of_no_pod)


def test_each_rail_has_its_own_usual_number_of_uplinks():
    """The leaves of one rail have half the uplinks of the others, and one of them has lost two."""
    fabric = RAILS.fabric()
    slim = {(link.a, link.b): 1 for link in fabric.links if link.a.startswith("leaf-2")}
    assert shortages(without(fabric, slim)) == ()
    (short,) = shortages(without(fabric, {**slim, ("leaf-2-1", "spine-0-1"): 2}))
    assert (short.switch, short.has, short.usual, short.alike) == ("leaf-2-1", 1, 2, 2)
    assert short.kind == "switches of tier 1 on rail 2"
    assert short.gaps == (MissingCables(lower="leaf-2-1", upper="spine-0-1", cables=1),)


def test_without_a_majority_of_equal_leaves_no_shortage_is_claimed():
    fabric = FatTree(nodes=8, nodes_per_leaf=2, leaves_per_pod=4, spines=4).fabric()
    half = {(f"leaf-0-{leaf}", f"spine-0-{spine}"): 1 for leaf in (2, 3) for spine in (0, 1, 2)}
    assert shortages(without(fabric, half)) == ()


def test_the_sentence_of_a_shortage_has_the_expected_count_and_the_leaves_that_have_it():
    fabric = PODS.fabric()
    lost = {("leaf-0-5", f"spine-0-{spine}"): 2 for spine in range(4)} | {
        ("leaf-0-5", "spine-0-3"): 1
    }
    (found,) = findings_of(without(fabric, lost))
    assert (found.kind, found.switches) == ("degraded", ("leaf-0-5",))
    assert str(found) == (
        "leaf-0-5 has 1 of the 8 uplinks that 11 of 12 switches of tier 1 have, missing: "
        "2 to spine-0-0, 2 to spine-0-1, 2 to spine-0-2 and 1 more (degraded: 2,800 of 3,200 "
        "Gbit/s are gone, more than half of the 1,600 that were redundant)"
    )


def leaves(nics: list[float | None], uplinks: list[float | None]) -> Fabric:
    """Three leaves alike: NICs and uplinks of these speeds, each uplink to a spine of its own."""
    names = [f"leaf-{number}" for number in range(3)]
    spines = [f"spine-{number:02}" for number in range(len(uplinks))]
    return Fabric(
        switches=tuple(Switch(id=name, name=name) for name in (*names, *spines)),
        links=tuple(
            Link(a=leaf, b=spine, cables=(Cable(gbit_s=gbit_s),))
            for leaf in names
            for spine, gbit_s in zip(spines, uplinks, strict=True)
        ),
        nics=tuple(
            Nic(
                id=f"{leaf}-{number}",
                node=f"{leaf}-{number}",
                device="mlx5_0",
                rail="0",
                switch=leaf,
                gbit_s=gbit_s,
            )
            for leaf in names
            for number, gbit_s in enumerate(nics)
        ),
    )


@pytest.mark.parametrize(
    ("nics", "uplinks", "tolerated"),
    [
        ([400] * 16, [400] * 20, 2),  # 4 redundant: the third is more than half of them
        ([200] * 16, [400] * 10, 1),  # 8 would do, 2 are redundant
        ([200] * 15, [400] * 10, 1),  # 7.5 would do: 2 are more than half of 2.5
        ([400] * 16, [400] * 16, 0),  # nothing is redundant
        ([400] * 16, [400] * 8, 0),  # two to one by design: nothing either
        ([400] * 8 + [200] * 8, [400] * 20, 4),  # 12 would do
        ([400] * 16, [800] * 4 + [400] * 12, 1),  # the first of 800 is half of what is redundant
        ([None] * 16, [400] * 20, 10),  # a speed is unknown: half of all
        ([400] * 16, [None] * 20, 10),
    ],
)
def test_a_leaf_is_degraded_if_more_than_half_of_its_redundant_bandwidth_is_gone(
    nics, uplinks, tolerated
):
    whole = leaves(nics, uplinks)
    for lost in range(len(uplinks)):
        gone = {("leaf-1", f"spine-{number:02}"): 1 for number in range(lost)}
        degraded = [short.switch for short in shortages(without(whole, gone)) if short.is_degraded]
        assert degraded == (["leaf-1"] if lost > tolerated else [])


def test_the_load_from_below_a_spine_is_that_of_its_leaves():
    """Two leaves below each spine and three cores above: one of its uplinks is redundant."""
    tree = FatTree(nodes=8, nodes_per_leaf=1, leaves_per_pod=2, spines=1, cores=3).fabric()
    (short,) = shortages(without(tree, {("spine-1-0", "core-0"): 1}))
    assert (short.switch, short.is_degraded) == ("spine-1-0", True)
    assert (short.capacity.below, short.capacity.redundant) == (800, 400)


def test_an_uplink_at_reduced_speed_uses_up_redundancy():
    whole = leaves([400] * 4, [400] * 5)
    links = [replace(link, cables=(Cable(gbit_s=100),)) for link in whole.links[:1]]
    slow = replace(whole, links=(*links, *whole.links[1:]))
    (short,) = shortages(slow)  # 300 of the 400 that are redundant
    assert (short.switch, short.lacks, short.is_degraded) == ("leaf-0", 0, True)
    links = [replace(link, cables=(Cable(gbit_s=200),)) for link in whole.links[:1]]
    assert shortages(replace(whole, links=(*links, *whole.links[1:]))) == ()


def test_an_uplink_that_was_unlinked_is_named_as_one_that_no_schedule_can_cross():
    whole = FatTree(nodes=12, nodes_per_leaf=4, leaves_per_pod=3, spines=2, cables=2).fabric()
    fabric = without(whole, {("leaf-0-1", "spine-0-0"): 2, ("leaf-0-1", "spine-0-1"): 1})
    found = coverage(fabric, quick_rounds(fabric, fabric.nodes))
    assert found.missing_uplinks == (
        MissingCables(lower="leaf-0-1", upper="spine-0-0", cables=2),
        MissingCables(lower="leaf-0-1", upper="spine-0-1", cables=1),
    )
    assert coverage(whole, quick_rounds(whole, whole.nodes)).missing_uplinks == ()


def test_a_cable_that_runs_slower_than_its_like_is_named_with_its_ports():
    good = FatTree(nodes=8, nodes_per_leaf=2, leaves_per_pod=4, spines=4).fabric()
    slow = Cable(port_a="7", port_b="3", gbit_s=100)
    first, *rest = good.links
    found = replace(good, links=(replace(first, cables=(slow,)), *rest))
    (finding,) = findings_of(found)
    assert "leaf-0-0[7] - spine-0-0[3] runs at 100 Gbit/s" in finding.sentence
    assert finding.switches == ("leaf-0-0", "spine-0-0")
    assert not findings_of(good)


# --- counters ----------------------------------------------------------------------------------

LIMITS = (
    Limit(benchmark="b", metric="port_errors_per_s:link_downed", at_most=0, source="us"),
    Limit(benchmark="b", metric="port_errors_per_s:symbol_error", at_most=10, source="us"),
    Limit(benchmark="b", metric="port_errors_per_h:symbol_error", at_most=120, source="us"),
)
FABRIC = numbered(FatTree(nodes=12, nodes_per_leaf=4, leaves_per_pod=3, spines=4).fabric())


def count(name: str, port: object, value: int, counter: str = "symbol_error", guid: str = ""):
    return Count(guid=guid, name=name, port=str(port), counter=counter, value=value)


@pytest.mark.parametrize(
    ("counter", "rise", "over_s", "is_fatal"),
    [
        ("link_downed", 1, 86400, True),
        ("symbol_error", 110, 10, True),
        ("symbol_error", 100, 10, False),  # 10 a second, and fewer than 120 in this hour
        ("symbol_error", 121, 3600, True),
        ("symbol_error", 120, 3600, False),
        ("symbol_error", 121, 7200, False),
        ("symbol_error", 11, 0.5, True),
        ("symbol_error", 10, 0.5, False),  # half a second says nothing of a whole one
        ("port_xmit_discards", 9999, 10, False),  # a fact without a limit
    ],
)
def test_a_rise_is_fatal_by_its_limits(counter, rise, over_s, is_fatal):
    risen_by = count("leaf-0-0", 1, rise, counter)
    judged = Counters(counts=(risen_by,), over_s=over_s, limits=LIMITS)
    assert (exceeded_limit(judged, risen_by) is not None) == is_fatal
    assert Inspection(fabric=FABRIC, counters=judged).has_defects == is_fatal
    (finding,) = findings_of(FABRIC, judged)
    assert ("fatal" in finding.sentence) == is_fatal


def test_a_count_of_unknown_age_is_reported_and_not_judged():
    told = Counters(counts=(count("leaf-0-0", 1, 65535),), limits=LIMITS)
    assert not Inspection(fabric=FABRIC, counters=told).has_defects
    (finding,) = findings_of(FABRIC, told)
    assert finding.sentence == (
        "symbol_error 65535 (the most it can show) at leaf-0-0 port 1 to node00001 mlx5_0"
    )


def test_only_counts_that_rose_between_two_readings_are_reported():
    before = [count("l", 1, 7), count("l", 2, 7), count("l", 3, 9), count("l", 5, 65535)]
    after = [count("l", 1, 7), count("l", 2, 9), count("l", 3, 4), count("l", 4, 5)]
    found = count_rises(before, [*after, count("l", 5, 65535)], over_s=60)
    assert {each.port: each.value for each in found.counts} == {"2": 2, "3": 4, "4": 5}
    assert [each.port for each in found.stuck] == ["5"]  # it cannot rise: unknown, not well


def test_a_counter_that_cannot_rise_is_named():
    stuck = (count("leaf-0-0", 1, 65535),)
    (finding,) = findings_of(FABRIC, Counters(counts=(), over_s=60, stuck=stuck))
    assert finding.kind == "stuck"
    assert "unknown" in finding.sentence


def test_a_count_is_placed_by_its_guid_under_any_name():
    nic = FABRIC.nics[6]
    placed, unknown = place_counts(
        [
            count("?", 5, 1, guid="50"),
            count("localhost HCA-1", 1, 1, guid=nic.guid),
            count("leaf-9-9", 1, 1, guid="77"),
        ],
        FABRIC,
    )
    assert [each.place for each in placed] == [
        "leaf-0-0 port 5 to spine-0-0",
        f"NIC {nic.device} of {nic.node}",
    ]
    assert [each.name for each in unknown] == ["leaf-9-9"]
    (elsewhere,) = findings_of(FABRIC, Counters(counts=tuple(unknown)))
    assert '"leaf-9-9"' in elsewhere.sentence


def test_a_count_is_placed_by_its_name_if_the_fabric_has_no_guids():
    plain = FatTree(nodes=8, nodes_per_leaf=4, leaves_per_pod=2, spines=1).fabric()
    placed, _ = place_counts(
        [count("leaf-0-1", 3, 1, guid="50"), count("node00002 HCA-1", 1, 1, guid="c1")], plain
    )
    assert [each.place for each in placed] == [
        "leaf-0-1 port 3 to node00007 mlx5_0",
        "NIC mlx5_0 of node00002",
    ]


@pytest.mark.parametrize(("failing", "is_degraded"), [(1, False), (2, True)])
def test_an_uplink_that_counts_fatal_errors_is_as_good_as_none(failing, is_degraded):
    """At whichever end of its cable it counts: the second one does at the spine."""
    fabric = numbered(FatTree(nodes=6, nodes_per_leaf=2, leaves_per_pod=3, spines=4).fabric())
    link = fabric.uplinks("leaf-0-1")[1]
    ends = [("leaf-0-1", 3), (link.b, int(link.cables[0].port_b))]
    counts = tuple(count(name, port, 1, "link_downed") for name, port in ends[:failing])
    found = findings_of(fabric, Counters(counts=counts, over_s=60, limits=LIMITS))
    assert Counter(each.kind for each in found)["degraded"] == is_degraded
    if is_degraded:
        assert "2 of its uplinks count fatal errors" in found[0].sentence
    unjudged = Counters(counts=counts, limits=LIMITS)
    assert {each.kind for each in findings_of(fabric, unjudged)} == {"counter link_downed"}


def about(part: Part, counters: Counters, fabric: Fabric) -> tuple[str, ...]:
    return Inspection(fabric=fabric, counters=counters).sentences_about(part)


def test_the_evidence_about_a_part_comes_from_its_own_ports():
    spine = FABRIC.uplinks("leaf-0-1")[0]
    counts = (
        count("leaf-0-1", 2, 1523),  # to its second node
        count("node00006 mlx5_0", 1, 4),  # the far end of the same cable
        count("leaf-0-1", 5, 9),  # to the first spine
        count("leaf-0-1", 6, 8),  # to the second
        count("spine-0-0", spine.cables[0].port_b, 77, "link_downed"),
        count("leaf-0-2", 1, 5),
    )
    counters = Counters(counts=counts)
    nic = (
        "symbol_error 1523 at leaf-0-1 port 2 to node00006 mlx5_0",
        "symbol_error 4 at NIC mlx5_0 of node00006",
    )
    uplink = (
        f"link_downed 77 at spine-0-0 port {spine.cables[0].port_b} to leaf-0-1",
        "symbol_error 9 at leaf-0-1 port 5 to spine-0-0",
    )
    assert about(Part("node", "node00006"), counters, FABRIC) == nic
    assert about(Part("nic", "node00006", "0"), counters, FABRIC) == nic
    assert about(Part("nic", "node00006", "1"), counters, FABRIC) == ()
    assert about(Part("link", "leaf-0-1", "spine-0-0"), counters, FABRIC) == uplink
    uplinks = (*uplink, "symbol_error 8 at leaf-0-1 port 6 to spine-0-1")
    assert about(Part("uplinks", "leaf-0-1"), counters, FABRIC) == uplinks
    assert set(about(Part("switch", "leaf-0-1"), counters, FABRIC)) == {*nic, *uplinks}
    assert about(Part("node", "node00001"), counters, FABRIC) == ()


def test_the_evidence_for_uplinks_begins_with_those_that_are_missing():
    fabric = without(FABRIC, {("leaf-0-1", "spine-0-2"): 1})
    counters = Counters(counts=(count("leaf-0-1", 5, 9),))
    short, counted = about(Part("uplinks", "leaf-0-1"), counters, fabric)
    assert short.startswith("leaf-0-1 has 3 of the 4 uplinks")
    assert counted.startswith("symbol_error 9")
    assert about(Part("link", "leaf-0-1", "spine-0-0"), counters, fabric) == (counted,)
    assert about(Part("uplinks", "leaf-0-0"), counters, fabric) == ()
