"""Which node of a group is to blame, found without a topology from who did well with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from anubis.core.network.bisection import Group


def blame(groups: Mapping[Group, bool]) -> set[str]:
    """The nodes whose every group is bad while their partners did well elsewhere.

    `groups` says of each group whether it is bad. A node in any good group is cleared. A bad group
    of cleared nodes has a bad link, and in a bad group with several suspects they cannot be told
    apart: neither blames a node.
    """
    cleared = {node for group, bad in groups.items() if not bad for node in group}
    suspects = [set(group) - cleared for group, bad in groups.items() if bad]
    return set().union(*(nodes for nodes in suspects if len(nodes) == 1))


def slow_together(groups: Mapping[Group, bool]) -> tuple[str, str] | None:
    """The only two nodes that are in every bad group together, and in no good one.

    Each is good elsewhere, so the fault lies between them. A pair that was measured by itself
    needs no such reasoning.
    """
    bad = [set(group) for group, is_bad in groups.items() if is_bad]
    good = [set(group) for group, is_bad in groups.items() if not is_bad]
    large = min(map(len, bad), default=0) > 2
    everywhere = sorted(set.intersection(*bad)) if large else []
    pairs = [
        pair
        for pair in combinations(everywhere, 2)
        if not any(set(pair) <= group for group in good)
    ]
    cleared = set().union(*good)
    return pairs[0] if len(pairs) == 1 and set(pairs[0]) <= cleared else None


def cast_votes(groups: Sequence[Group], rates: Sequence[float]) -> list[int]:
    """For each node the position of one of its faster groups: what it can do with good partners.

    A slow node or link drags down all groups across it, so in a small fleet half of all pairs may
    be bad while most nodes are good. With one vote per node, most votes are still good. Of two or
    three groups the best is taken; of many the one at the upper quartile, which chance does not
    make faster than groups usually are.
    """
    groups_of: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        for node in group:
            groups_of.setdefault(node, []).append(place)
    for places in groups_of.values():
        places.sort(key=rates.__getitem__)
    return [places[-(-3 * (len(places) - 1) // 4)] for places in groups_of.values()]
