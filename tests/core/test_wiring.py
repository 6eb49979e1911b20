"""Cables that were planted at the wrong leaf, taken out or slowed down; and fabrics without any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.fabric import Fabric, Nic, Part
from anubis.core.network.inspection import Inspection
from anubis.core.network.wiring import audit, verdicts_about
from anubis.core.records import Judgement
from tests.core.made_fabrics import FatTree

RailNic = tuple[str, str]  # node, rail

FOUR = FatTree(nodes=24, nodes_per_leaf=8, leaves_per_pod=3, spines=2, rails=4).fabric()
TWO = FatTree(nodes=24, nodes_per_leaf=8, leaves_per_pod=3, spines=2, rails=2).fabric()
DEFECTIVE, UNKNOWN = Judgement.DEFECTIVE, Judgement.UNKNOWN


def cabled(fabric: Fabric, leaves: Mapping[RailNic, str]) -> Fabric:
    """A fabric with these NICs at other leaves; those at none are gone."""
    moved = (
        replace(nic, switch=leaves.get((nic.node, nic.rail), nic.switch)) for nic in fabric.nics
    )
    return replace(fabric, nics=tuple(nic for nic in moved if nic.switch))


def slowed(fabric: Fabric, speeds: Mapping[RailNic, float]) -> Fabric:
    nics = (
        replace(nic, gbit_s=speeds.get((nic.node, nic.rail), nic.gbit_s)) for nic in fabric.nics
    )
    return replace(fabric, nics=tuple(nics))


def exchanged(fabric: Fabric, node: str, a: str, b: str) -> dict[RailNic, str]:
    nics = {rail: fabric.nic(node, rail) for rail in (a, b)}
    return {(node, a): nics[b].switch, (node, b): nics[a].switch}


def parts_by_code(fabric: Fabric) -> dict[tuple[str, Judgement], set[tuple[Part, ...]]]:
    blamed: dict[tuple[str, Judgement], set[tuple[Part, ...]]] = {}
    for verdict in audit(fabric):
        blamed.setdefault((verdict.code, verdict.judgement), set()).add(verdict.parts)
    return blamed


@settings(max_examples=25)
@given(st.data())
def test_planted_miscabling_on_a_few_nodes_is_named_and_nothing_else(data):
    """At most two nodes of the eight on a leaf, each in one way."""
    leaves, expected = {}, {}
    for group in range(3):
        members = FOUR.nodes[8 * group : 8 * group + 8]
        for node in data.draw(st.sets(st.sampled_from(members), max_size=2)):
            a, b = data.draw(st.permutations(FOUR.rails))[:2]
            what = data.draw(st.sampled_from(["exchanged", "elsewhere", "missing"]))
            if what == "exchanged":
                leaves |= exchanged(FOUR, node, a, b)
                parts = tuple(Part("nic", node, rail) for rail in sorted((a, b)))
                expected.setdefault(("WIRING.EXCHANGED", DEFECTIVE), set()).add(parts)
            elif what == "elsewhere":
                leaves[node, a] = f"leaf-{a}-{(group + 1) % 3}"
                part = Part("nic", node, a)
                expected.setdefault(("WIRING.WRONG-LEAF", DEFECTIVE), set()).add((part,))
            elif what == "missing":
                leaves[node, a] = ""
                part = Part("nic", node, a)
                expected.setdefault(("WIRING.MISSING", DEFECTIVE), set()).add((part,))
    assert parts_by_code(cabled(FOUR, leaves)) == expected


def test_fabrics_as_they_should_be_have_nothing_odd():
    fabrics = [
        FOUR,
        TWO,
        FatTree(nodes=48, nodes_per_leaf=4, leaves_per_pod=6, spines=4).fabric(),
        FatTree(nodes=21, nodes_per_leaf=8, rails=8, planes=True).fabric(),  # the last leaves: 5
        FatTree(nodes=1, rails=4).fabric(),
        Fabric(switches=(), links=(), nics=()),
    ]
    assert [audit(fabric) for fabric in fabrics] == [()] * 6


def test_exchanged_cables_are_named_with_both_ends_and_those_of_a_node_beside():
    (verdict,) = audit(cabled(TWO, exchanged(TWO, "node00003", "0", "1")))
    assert verdict.reason == (
        "node00003: mlx5_0 on leaf-1-0[3], mlx5_1 on leaf-0-0[3]: "
        "exchanged, 7 nodes beside it have them the other way round"
    )
    assert verdict.subject == "NICs mlx5_0 and mlx5_1 of node00003"
    assert verdict.evidence == ("node00001: mlx5_0 on leaf-0-0[1], mlx5_1 on leaf-1-0[1]",)


def test_one_of_two_rails_at_another_leaf_leaves_both_as_candidates():
    (verdict,) = audit(cabled(TWO, {("node00003", "1"): "leaf-1-2"}))
    assert verdict.parts == (Part("nic", "node00003", "0"), Part("nic", "node00003", "1"))
    assert (verdict.code, verdict.judgement) == ("WIRING.WRONG-LEAF", DEFECTIVE)


def test_a_node_with_one_nic_of_two_may_be_another_kind_of_node():
    (verdict,) = audit(cabled(TWO, {("node00003", "1"): ""}))
    assert (verdict.code, verdict.judgement) == ("WIRING.MISSING", UNKNOWN)
    several = {(f"node{number:05}", "1"): "" for number in (2, 3, 4)}
    assert audit(cabled(TWO, several)) == ()


def test_a_node_with_half_of_its_ports_on_another_rail_is_another_kind_of_node():
    assert audit(cabled(TWO, {("node00003", "1"): "leaf-0-1"})) == ()


def test_a_nic_that_no_node_is_known_for_may_be_the_missing_one():
    lost = FOUR.nic("node00003", "2")
    nics = (replace(nic, node="") if nic == lost else nic for nic in FOUR.nics)
    (verdict,) = audit(replace(FOUR, nics=tuple(nics)))
    assert verdict.judgement is UNKNOWN
    assert verdict.reason == (
        "node00003 has no NIC on rail 2: expected one on leaf-2-0, as on 7 nodes beside it, "
        "unless it is among the NICs of unknown nodes there (1)"
    )


def test_service_nodes_are_another_kind_of_node():
    """Two NICs each, on leaves of the last two rails, but they are rails 0 and 1 themselves."""
    guests = tuple(
        Nic(
            id=f"{node}/{rail}",
            node=node,
            device=f"mlx5_{rail}",
            rail=rail,
            switch=leaf,
            gbit_s=200,
        )
        for node in ("login", "manager")
        for rail, leaf in (("0", "leaf-2-1"), ("1", "leaf-3-1"))
    )
    assert audit(replace(FOUR, nics=(*FOUR.nics, *guests))) == ()


def test_a_leaf_that_is_gone_is_one_verdict_on_its_rail():
    gone = {(node, "2"): "" for node in FOUR.nodes[:8]}
    (verdict,) = audit(cabled(FOUR, gone))
    assert (verdict.subject, verdict.judgement) == ("rail 2 of 8 nodes", UNKNOWN)
    assert verdict.parts == tuple(Part("nic", node, "2") for node in FOUR.nodes[:8])
    half = {(node, rail): "" for node in FOUR.nodes[:8] for rail in ("2", "3")}
    assert audit(cabled(FOUR, half)) == ()  # half the NICs: another kind of node


def test_a_link_slower_than_its_sisters_is_named_with_both_ends():
    (verdict,) = audit(slowed(FOUR, {("node00003", "1"): 100}))
    assert (verdict.parts, verdict.judgement) == ((Part("nic", "node00003", "1"),), DEFECTIVE)
    assert verdict.reason == (
        "link node00003 mlx5_1 - leaf-1-0[3] runs at 100 Gbit/s, those like it at 400"
    )
    (verdict,) = audit(slowed(FOUR, {("node00003", rail): 200 for rail in FOUR.rails}))
    assert (verdict.parts, verdict.judgement) == ((Part("node", "node00003"),), UNKNOWN)


def test_a_rail_and_a_third_of_the_nodes_may_be_slower_than_others():
    storage = {(node, "3"): 200.0 for node in FOUR.nodes}
    older = {(node, rail): 200.0 for node in FOUR.nodes[:3] for rail in FOUR.rails}
    assert audit(slowed(FOUR, storage | older)) == ()


def test_an_inspection_lists_wiring_and_a_campaign_only_that_of_its_nodes():
    fabric = cabled(FOUR, exchanged(FOUR, "node00003", "0", "1"))
    inspection = Inspection(fabric=fabric)
    assert [remark.kind for remark in inspection.findings] == ["WIRING.EXCHANGED"]
    assert inspection.has_defects
    assert verdicts_about(audit(fabric), {"node00003", "node00004"}) == audit(fabric)
    assert verdicts_about(audit(fabric), {"node00004"}) == ()
