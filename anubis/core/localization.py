"""From bad groups to the node to blame, without blaming its partners."""

from __future__ import annotations

from collections.abc import Mapping

Group = tuple[str, ...]


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


def best_group_of_each_node(groups: Mapping[Group, float]) -> list[Group]:
    """Each node's fastest group, once each: what the nodes can do when their partner is good.

    A slow node drags all its groups down, so in a small fleet half of all pairs may be bad while
    most nodes are well. Learning from these keeps the vote with the nodes.
    """
    best: dict[str, Group] = {}
    for group, rate in groups.items():
        for node in group:
            if node not in best or rate > groups[best[node]]:
                best[node] = group
    return list(best.values())
