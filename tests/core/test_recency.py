"""The last measurement of links and pairs, and suspicions that no later campaign has answered."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.fabric import Part, rail_nics_on, single_switch
from anubis.core.network.recency import (
    NICS,
    Crossing,
    is_taken_out,
    links_by_tier,
    open_defects,
    open_suspicions,
    pairs_by_hops,
    returning_faults,
)
from anubis.core.records import Judgement, PartVerdict
from tests.core.made_fabrics import FatTree

TREE = FatTree(nodes=8, nodes_per_leaf=4, spines=1).fabric()
NEAR, FAR = TREE.nodes[:4], TREE.nodes[4:]
(RAIL,) = TREE.rails


def crossing(at, nodes, *, short=(), parts=(), vanished=(), fabric=TREE):
    """Each of these nodes met each other."""
    flows = [rail_nics_on(a, b, fabric.rails[0]) for a, b in permutations(nodes, 2)]
    return Crossing(
        campaign=f"scan-{at:g}",
        at=at,
        fabric=fabric,
        measured=flows,
        short=frozenset(rail_nics_on(a, b, RAIL) for a, b in short),
        parts=parts,
        vanished=frozenset(vanished),
    )


def verdict(*parts, judgement=Judgement.DEFECTIVE):
    return PartVerdict(
        parts=parts, subject=str(parts), judgement=judgement, code="X.Y", reason="slow"
    )


def test_pairs_within_one_leaf_leave_the_links_above_it_unmeasured():
    tiers = links_by_tier([crossing(1.0, NEAR)])
    assert (tiers[NICS].measured, tiers[NICS].every) == (4, 8)
    (above,) = [recency for tiers, recency in tiers.items() if tiers != NICS]
    assert (above.measured, above.every, above.newest) == (0, 2, None)


def test_each_link_and_pair_counts_when_it_was_measured_last():
    newest_first = [crossing(2.0, NEAR), crossing(1.0, TREE.nodes, short=[(NEAR[0], FAR[0])])]
    tiers = links_by_tier(newest_first)
    assert (tiers[NICS].measured, tiers[NICS].oldest, tiers[NICS].newest) == (8, 1.0, 2.0)
    pairs = pairs_by_hops(newest_first)
    assert {hops: (p.every, p.measured, p.short, p.newest) for hops, p in pairs.items()} == {
        2: (24, 24, 0, 2.0),
        4: (32, 32, 1, 1.0),
    }


def test_a_pair_that_was_slow_and_is_well_again_is_not_below_normal():
    slow = [(NEAR[0], NEAR[1])]
    pairs = pairs_by_hops([crossing(2.0, NEAR), crossing(1.0, NEAR, short=slow)])
    assert pairs[2].short == 0
    pairs = pairs_by_hops([crossing(2.0, NEAR, short=slow), crossing(1.0, NEAR)])
    assert pairs[2].short == 1


def test_a_suspicion_remains_until_a_later_campaign_has_crossed_all_of_its_parts():
    leaf = TREE.leaves[1]
    (link,) = TREE.links_of[leaf]
    for part in (
        Part("switch", leaf),
        Part("link", link.a, link.b),
        Part("node", FAR[0]),
        Part("nic", FAR[0], RAIL),
        Part("uplinks", leaf),
    ):
        blamed = crossing(1.0, TREE.nodes, parts=(verdict(part),))
        missed = [crossing(2.0, NEAR), blamed]
        assert [(v, c.campaign) for v, c in open_suspicions(missed)] == [
            (blamed.parts[0], "scan-1")
        ]
        assert not list(open_suspicions([crossing(2.0, TREE.nodes), blamed])), part


def test_a_part_blamed_again_is_listed_once_and_a_healthy_part_never():
    part = Part("switch", TREE.leaves[0])
    again = crossing(2.0, TREE.nodes, parts=(verdict(part, judgement=Judgement.UNKNOWN),))
    before = crossing(1.0, TREE.nodes, parts=(verdict(part),))
    assert [c.campaign for _, c in open_suspicions([again, before])] == ["scan-2"]
    well = crossing(1.0, TREE.nodes, parts=(verdict(part, judgement=Judgement.HEALTHY),))
    assert not list(open_suspicions([well]))


# --- defects between the nodes of a job -------------------------------------------------------

SPINE = next(switch.id for switch in TREE.switches if switch.id not in TREE.leaves)
BETWEEN = [
    Part("link", TREE.links[0].a, TREE.links[0].b),
    Part("switch", SPINE),
    Part("switch", TREE.leaves[0]),
    Part("uplinks", TREE.leaves[1]),
]
JOBS = [NEAR, FAR, TREE.nodes, (NEAR[0], FAR[0]), (NEAR[0],), (NEAR[0], "stranger")]


def lies_between(part, nodes):
    """The same for this tree by its drawing: two leaves below one spine."""
    at = [{*nodes} & {*NEAR}, {*nodes} & {*FAR}]
    if part.kind == "switch" and part.name in TREE.leaves:
        own, other = at if part.name == TREE.nic(NEAR[0], RAIL).switch else at[::-1]
        return len(own) > 1 or bool(own and other)
    return all(at)  # the spine, and both links


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([NEAR, TREE.nodes]),
            st.lists(
                st.tuples(
                    st.sampled_from(BETWEEN),
                    st.sampled_from([Judgement.DEFECTIVE, Judgement.UNKNOWN]),
                ),
                max_size=2,
            ),
        ),
        max_size=4,
    ),
    st.sampled_from(JOBS),
)
def test_a_defect_between_the_nodes_of_a_job_is_open_until_a_campaign_crosses_it_without_doubt(
    campaigns, job
):
    newest_first = [
        crossing(
            -place,
            nodes,
            parts=tuple(verdict(part, judgement=judged) for part, judged in blamed),
        )
        for place, (nodes, blamed) in enumerate(campaigns, start=1)
    ]
    expected = [
        (place, part)
        for place, (_, blamed) in enumerate(campaigns)
        for part, judged in blamed
        if judged is Judgement.DEFECTIVE
        and lies_between(part, job)
        and all(
            part in [other for other, _ in later]
            or (nodes is NEAR and part != Part("switch", TREE.nic(NEAR[0], RAIL).switch))
            for nodes, later in campaigns[:place]
        )
    ]
    verdicts = {c.campaign: c.parts for c in newest_first}
    found = [(v.parts[0], c.at) for v, c in open_defects(verdicts, newest_first, job)]
    assert found == [(part, -place - 1) for place, part in expected]


def test_slow_nics_clear_no_link_that_only_fast_ones_showed_to_be_slow():
    """Two nodes of each leaf have NICs of half the speed. The links between the leaves have lost
    half of theirs."""
    slow = {*NEAR[2:], *FAR[2:]}
    nics = tuple(replace(nic, gbit_s=200.0 if nic.node in slow else 400.0) for nic in TREE.nics)
    mixed = replace(TREE, nics=nics)
    link = Part("link", TREE.links[0].a, TREE.links[0].b)
    fast_pair, slow_pair = (NEAR[0], FAR[0]), (NEAR[2], FAR[2])
    blaming = {"parts": (verdict(link),), "fabric": mixed}
    before = crossing(1.0, TREE.nodes, short=[fast_pair], **blaming)
    verdicts = {before.campaign: before.parts}
    for nodes, is_open in ((slow_pair, True), ((NEAR[0], FAR[2]), True), (fast_pair, False)):
        newest_first = [crossing(2.0, nodes, fabric=mixed), before]
        assert bool(list(open_defects(verdicts, newest_first))) is is_open
        assert bool(list(open_suspicions(newest_first))) is is_open
    shown_by_slow_ones = crossing(1.0, TREE.nodes, short=[fast_pair, slow_pair], **blaming)
    assert not list(open_suspicions([crossing(2.0, slow_pair, fabric=mixed), shown_by_slow_ones]))


def test_nics_of_known_speed_clear_a_link_that_nics_of_unknown_speed_showed_to_be_slow():
    """The speeds of some NICs could not be read in the campaign that blamed the link."""
    known = replace(TREE, nics=tuple(replace(nic, gbit_s=400.0) for nic in TREE.nics))
    link = Part("link", TREE.links[0].a, TREE.links[0].b)
    pair = (NEAR[0], FAR[0])
    for unread in (set(TREE.nodes), {NEAR[0], FAR[0]}):
        speeds = [None if nic.node in unread else nic.gbit_s for nic in known.nics]
        nics = (replace(nic, gbit_s=speed) for nic, speed in zip(known.nics, speeds, strict=True))
        partly = replace(known, nics=tuple(nics))
        for short in ([pair], [pair, (NEAR[1], NEAR[2])]):
            before = crossing(1.0, TREE.nodes, short=short, parts=(verdict(link),), fabric=partly)
            newest_first = [crossing(2.0, TREE.nodes, fabric=known), before]
            assert not list(open_suspicions(newest_first))
            assert not list(open_defects({before.campaign: before.parts}, newest_first))


def test_no_campaign_is_read_after_the_last_open_defect():
    part = Part("switch", SPINE)
    before = crossing(1.0, TREE.nodes, parts=(verdict(part),))

    def newest_first():
        yield crossing(2.0, TREE.nodes)
        pytest.fail("one more was read")

    assert not list(open_defects({before.campaign: before.parts}, newest_first()))
    assert not list(open_defects({}, newest_first()))


def test_the_switch_of_a_fabric_without_links_is_cleared_by_traffic_over_it():
    alone = single_switch(("a", "b", "c"))
    part = Part("switch", alone.switches[0].id)
    before = crossing(1.0, alone.nodes, parts=(verdict(part),), fabric=alone)
    verdicts = {before.campaign: before.parts}
    assert len(list(open_defects(verdicts, [before], ("a", "b")))) == 1
    after = crossing(2.0, alone.nodes, fabric=alone)
    assert not list(open_defects(verdicts, [after, before], ("a", "b")))


def without(fabric, *, switch=None, link=None):
    links = [
        entry
        for entry in fabric.links
        if switch not in (entry.a, entry.b) and link != {entry.a, entry.b}
    ]
    switches = [entry for entry in fabric.switches if entry.id != switch]
    return replace(fabric, switches=tuple(switches), links=tuple(links))


TWO_SPINES = FatTree(nodes=8, nodes_per_leaf=4, spines=2).fabric()
CABLE = TWO_SPINES.links[0]
SECOND = next(switch.id for switch in TWO_SPINES.switches if switch.id not in TWO_SPINES.leaves)
TAKEN_OUT = [
    (Part("link", CABLE.a, CABLE.b), without(TWO_SPINES, link={CABLE.a, CABLE.b}), True),
    (Part("link", CABLE.a, CABLE.b), without(TWO_SPINES, switch=SECOND), False),
    (Part("switch", SECOND), without(TWO_SPINES, switch=SECOND), True),
    (Part("switch", SECOND), single_switch(TWO_SPINES.nodes), False),
    (Part("link", CABLE.a, CABLE.b), single_switch(TWO_SPINES.nodes), False),
    (Part("link", CABLE.a, CABLE.b), TWO_SPINES, False),
    (Part("uplinks", TWO_SPINES.leaves[0]), without(TWO_SPINES, link={CABLE.a, CABLE.b}), False),
]


@pytest.mark.parametrize(("part", "now", "is_gone"), TAKEN_OUT)
def test_a_part_that_a_later_fabric_lacks_beside_its_neighbours_was_taken_out(part, now, is_gone):
    assert is_taken_out(part, TWO_SPINES, now) is is_gone


def test_a_part_that_was_taken_out_bars_no_job_and_is_no_suspect():
    part = Part("link", CABLE.a, CABLE.b)
    before = crossing(1.0, TWO_SPINES.nodes, parts=(verdict(part),), fabric=TWO_SPINES)
    verdicts, near = {before.campaign: before.parts}, TWO_SPINES.nodes[:2]
    smaller = without(TWO_SPINES, link={CABLE.a, CABLE.b})
    after = crossing(2.0, near, fabric=smaller)  # of two nodes of one leaf
    assert list(open_defects(verdicts, [before]))
    assert list(open_suspicions([before]))
    assert not list(open_defects(verdicts, [after, before]))
    assert not list(open_suspicions([after, before]))
    again = crossing(3.0, near, fabric=TWO_SPINES)  # it is back, and nothing has crossed it
    assert list(open_defects(verdicts, [again, after, before]))
    assert list(open_suspicions([again, after, before]))


# --- what comes and goes ----------------------------------------------------------------------


def test_a_part_that_returns_is_suspected_only_if_the_others_of_its_kind_do_not():
    sick, *rest = (Part("node", node) for node in TREE.nodes)

    def suspected(*campaigns):
        crossings = [crossing(-at, TREE.nodes, vanished=seen) for at, seen in enumerate(campaigns)]
        return [(fault.parts, len(fault.campaigns)) for fault in returning_faults(crossings)]

    assert suspected({sick}, {sick}, {sick}) == [((sick,), 3)]
    assert suspected({sick}, (), (), ()) == []
    assert suspected({sick, *rest[:3]}, {sick, *rest[2:5]}, {sick, *rest[4:]}) == []
