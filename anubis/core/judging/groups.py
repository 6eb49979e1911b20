"""Which node of a group is to blame, without a topology: by who did well with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from anubis.core.network.bisection import Group


def blame(groups: Mapping[Group, bool]) -> dict[str, tuple[Group, ...]]:
    """The nodes whose every group is bad while their partners did well elsewhere.

    `groups` says of each group whether it is bad; the answer gives each blamed node its bad
    groups as evidence. A node in any good group is cleared. In a bad group of cleared nodes it is
    their link that is bad, and in a bad group with several suspects nobody can tell which: neither
    blames a node here.
    """
    cleared = {node for group, bad in groups.items() if not bad for node in group}
    blamed: dict[str, list[Group]] = {}
    for group, bad in groups.items():
        suspects = [node for node in group if node not in cleared]
        if bad and len(suspects) == 1:
            blamed.setdefault(suspects[0], []).append(group)
    return {node: tuple(evidence) for node, evidence in blamed.items()}


def slow_together(groups: Mapping[Group, bool]) -> tuple[str, str] | None:
    """The only two nodes that are in every bad group together, and in no good one.

    Each is good elsewhere, so it is not they but what lies between them. A pair that was measured
    by itself needs no such reasoning.
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


def voices(groups: Sequence[Group], rates: Sequence[float]) -> list[int]:
    """For each node the position of one of its faster groups: what it can do with good partners.

    A slow node or link drags down all groups across it, so in a small fleet half of all pairs may
    be bad while most nodes are well. Learning from these keeps the vote with the nodes. Of two or
    three groups it is the best; of many the one at the upper quartile, which chance does not make
    faster than groups usually are.
    """
    mine: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        for node in group:
            mine.setdefault(node, []).append(place)
    for places in mine.values():
        places.sort(key=rates.__getitem__)
    return [places[-(-3 * (len(places) - 1) // 4)] for places in mine.values()]
