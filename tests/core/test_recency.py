"""The last measurement of links and pairs, and suspicions that no later campaign has answered."""

from __future__ import annotations

from itertools import permutations

from anubis.core.fabric import Part, rail_nics_on
from anubis.core.network.recency import (
    NICS,
    Crossing,
    links_by_tier,
    open_suspicions,
    pairs_by_hops,
    returning_faults,
)
from anubis.core.records import Judgement, PartVerdict
from tests.core.made_fabrics import FatTree

TREE = FatTree(nodes=8, nodes_per_leaf=4, spines=1).fabric()
NEAR, FAR = TREE.nodes[:4], TREE.nodes[4:]
(RAIL,) = TREE.rails


def crossing(at, nodes, *, short=(), parts=(), vanished=()):
    """Each of these nodes met each other."""
    flows = [rail_nics_on(a, b, RAIL) for a, b in permutations(nodes, 2)]
    return Crossing(
        campaign=f"scan-{at:g}",
        at=at,
        fabric=TREE,
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


def test_a_part_that_returns_is_suspected_only_if_the_others_of_its_kind_do_not():
    sick, *rest = (Part("node", node) for node in TREE.nodes)

    def suspected(*campaigns):
        crossings = [crossing(-at, TREE.nodes, vanished=seen) for at, seen in enumerate(campaigns)]
        return [(fault.parts, len(fault.campaigns)) for fault in returning_faults(crossings)]

    assert suspected({sick}, {sick}, {sick}) == [((sick,), 3)]
    assert suspected({sick}, (), (), ()) == []
    assert suspected({sick, *rest[:3]}, {sick, *rest[2:5]}, {sick, *rest[4:]}) == []
