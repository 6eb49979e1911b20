"""A switch all of whose nodes fail together, against nodes of it that fail by themselves."""

from __future__ import annotations

from itertools import combinations

import pytest

from anubis.core.judge.bad_leaves import fails_together

LEAF = tuple("abcdefgh")
PARTNERS = tuple("stuvwxyz")
WELL = (frozenset(PARTNERS), frozenset("ijklmnop"))


def tried(sick, *, hangs):
    """The leaf, its halves and its quarters, each filled up with good nodes. `sick`: sets of nodes
    that fail where they meet. Slow groups of a size are compared with each other."""
    bad, good = {}, set(WELL)
    groups = [frozenset(LEAF)]
    for size in (4, 2):
        for start in range(0, len(LEAF), size):
            groups.append(frozenset((*LEAF[start : start + size], *PARTNERS[:size])))
    for length in {len(group) for group in groups}:
        of_size = [group for group in groups if len(group) == length]
        fails = {group: any(set(nodes) <= group for nodes in sick) for group in of_size}
        nobody_differs = all(fails.values()) and not any(len(group) == length for group in WELL)
        for group, failed in fails.items():
            if failed and (hangs or not nobody_differs):
                bad[group] = hangs
            else:
                good.add(group)
    return frozenset(LEAF), bad, good


@pytest.mark.parametrize("hangs", [True, False])
def test_a_leaf_is_named_if_each_of_its_nodes_fails_with_any_partner(hangs):
    assert fails_together(*tried([{node} for node in LEAF], hangs=hangs))


@pytest.mark.parametrize("hangs", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_up_to_three_sick_nodes_and_pairs_that_fail_together_are_never_taken_for_their_leaf(
    count, hangs
):
    for sick in combinations(LEAF, count):
        assert not fails_together(*tried([{node} for node in sick], hangs=hangs))
    for pair in combinations(LEAF, 2):
        assert not fails_together(*tried([set(pair)], hangs=hangs))


def test_partners_of_whom_nothing_good_is_known_prove_nothing():
    leaf, bad, _ = tried([{node} for node in LEAF], hangs=True)
    assert not fails_together(leaf, bad, {WELL[1]})
