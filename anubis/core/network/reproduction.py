"""Narrow a job that fails as a whole down to the part of it that still fails: pods, leaves, halves.

Groups that share a cable spoil each other's answer, so nodes are divided as the fabric divides
them: the groups of one round cross no common cable. If a group fails and each of its parts is well,
the fault is between the parts, and pairs across and inside them locate it. `ask` runs nothing and
keeps no state: its questions follow from the answers so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import ceil, log2

from anubis.core.fabric import Fabric
from anubis.core.network.bisection import Group
from anubis.core.network.pairing import PairTest

Answers = Mapping[Group, bool | None]  # did a group fail or fall short? None: unknown

SMALLEST = 2  # the least number of nodes that can meet
HALVES_AND_QUARTERS = 6  # 2 halves and 4 quarters of a group
TO_MAKE_SURE = 2  # two rounds: each suspect with other partners, and the rest together
MOST_ACROSS = 48  # pairs
MOST_INSIDE = 2  # of a part
THIRD, MOST_PARTS = 3, 8  # parts, at least and at most; every two of n meet in n - 1 rounds
MOST_FAILING = 2  # pairs of parts; more failing pairs have a common cause
PHI = 0.618034  # steps of this share of a circle cover it soon
LEVELS = ("leaf", "pod")  # from below; higher levels are pods of pods


@dataclass(frozen=True, kw_only=True)
class Division:
    """Nodes that reach each other without the switches that join them to others."""

    kind: str  # leaf, pod, or the whole
    nodes: Group
    parts: tuple[Division, ...] = ()

    def levels(self) -> dict[str, list[Group]]:
        """The groups of each kind, the largest ones first."""
        levels: dict[str, list[Group]] = {}
        below = list(self.parts)
        while below:
            for part in below:
                levels.setdefault(part.kind, []).append(part.nodes)
            below = [smaller for part in below for smaller in part.parts]
        return levels

    def leaves(self) -> Iterator[Division]:
        """Yield the smallest divisions."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The next questions, given the answers so far; if it is empty, the search is over."""

    groups: tuple[Group, ...] = ()
    halved: tuple[Group, ...] = ()  # groups to halve next: their nodes are on one switch
    partners: Group = ()  # good nodes, to fill up halves
    across: tuple[tuple[Group, ...], ...] = ()  # parts that are well, but not all together
    handed_back: frozenset[str] = frozenset()  # nodes that are no longer needed
    fails_everywhere: bool = False  # no group is well: the cause is not the nodes


# --- which nodes meet ------------------------------------------------------------------------


def divide(nodes: Sequence[str], fabric: Fabric | None = None) -> Division:
    """Divide nodes by the rest of the fabric without its uppermost switches, then without the next
    ones, and so on down to leaves. Nodes on several rails belong together if they share all their
    leaves."""
    everybody = Division(kind="whole", nodes=tuple(nodes))
    if fabric is None:
        return everybody
    highest = max(fabric.tier.values(), default=0)
    tiers = [tier for tier in range(1, highest) if tier > 0]
    return _split(everybody, fabric, tiers)


def _split(division: Division, fabric: Fabric, tiers: Sequence[int]) -> Division:
    if not tiers:
        return division
    *lower, tier = tiers
    below = _numbers_below(fabric, tier)
    by_place: dict[frozenset[int], list[str]] = {}
    for node in division.nodes:
        rail_nics = (fabric.nic(node, rail) for rail in fabric.rails)
        place = frozenset(below[nic.switch] for nic in rail_nics if nic and nic.switch in below)
        by_place.setdefault(place, []).append(node)
    if len(by_place) == 1:
        return _split(division, fabric, lower)
    kind = LEVELS[min(tier, len(LEVELS)) - 1]
    parts = tuple(
        _split(Division(kind=kind, nodes=group), fabric, lower)
        for group in _large_groups(list(by_place.values()))
    )
    return Division(kind=division.kind, nodes=division.nodes, parts=parts if len(parts) > 1 else ())


def _large_groups(groups: Sequence[Sequence[str]]) -> Iterator[Group]:
    """Yield groups of nodes. Nodes that are alone on a switch form a group together; a single such
    node joins the first group."""
    single = [group[0] for group in groups if len(group) < SMALLEST]
    large = [tuple(group) for group in groups if len(group) >= SMALLEST]
    if len(single) >= SMALLEST or not large:
        yield from (*large, tuple(single))
    else:
        yield from ((*large[0], *single), *large[1:])


def _numbers_below(fabric: Fabric, tier: int) -> dict[str, int]:
    """A number for each switch up to this tier, equal for switches that are joined there."""
    inside = {switch for switch, height in fabric.tier.items() if height <= tier}
    joined: dict[str, int] = {}
    for number, start in enumerate(sorted(inside)):
        waiting = [] if start in joined else [start]
        while waiting:
            switch = waiting.pop()
            if switch not in joined:
                joined[switch] = number
                ends = ({link.a, link.b} - {switch} for link in fabric.links_of[switch])
                waiting += [end for pair in ends for end in pair if end in inside]
    return joined


def first_groups(everybody: Division) -> tuple[Group, ...]:
    return tuple(part.nodes for part in everybody.parts) or (everybody.nodes,)


# --- what to ask next ------------------------------------------------------------------------


def ask(everybody: Division, answers: Answers) -> Asked:
    """The next groups to test: parts first, then those of the parts that fail. The whole is tested
    only if all its parts are well."""
    well = [group for group, failed in answers.items() if failed is False]
    suspects = [leaf.nodes for leaf in _suspect_leaves(everybody, answers)]
    if not well and len(suspects) > 2 and all(answers.get(group) for group in suspects):
        return Asked(fails_everywhere=True)
    partners = _partners(everybody, answers)
    further = list(_ask(everybody, answers, is_whole=True))
    return Asked(
        groups=tuple(group for piece in further for group in piece.groups),
        halved=tuple(group for piece in further for group in piece.halved),
        across=tuple(parts for piece in further for parts in piece.across),
        partners=partners,
        handed_back=frozenset(_nodes_handed_back(everybody, answers)) - set(partners),
    )


def _ask(division: Division, answers: Answers, *, is_whole: bool = False) -> Iterator[Asked]:
    """Yield the questions for a division that fails, or for the whole, which is said to fail."""
    if not division.parts:
        if division.nodes not in answers:
            yield Asked(groups=(division.nodes,))
        elif answers[division.nodes]:
            yield _ask_within_leaf(division.nodes, answers)
        return
    missing = tuple(part.nodes for part in division.parts if part.nodes not in answers)
    if missing:
        yield Asked(groups=missing)
        return
    failing = [part for part in division.parts if answers[part.nodes]]
    for part in failing:
        yield from _ask(part, answers)
    if not failing:
        if is_whole and division.nodes not in answers:
            yield Asked(groups=(division.nodes,))
        elif answers[division.nodes] is not False:  # the whole may be slow, but cannot be compared
            yield Asked(across=(tuple(part.nodes for part in division.parts),))


def _ask_within_leaf(group: Group, answers: Answers) -> Asked:
    """Ask for halves, and halves of these, down to single nodes. If every node fails beside good
    partners, the cause is something that all have in common."""
    own = set(group)
    alone = {met: own & set(met) for met in answers if len(own & set(met)) == 1}
    if own <= set().union(*alone.values()) and all(answers[met] for met in alone):
        return Asked()
    return Asked(halved=(group,))


def _suspect_leaves(division: Division, answers: Answers) -> Iterator[Division]:
    """Yield the leaves that are still suspect."""
    for part in division.parts:
        if answers.get(part.nodes) is not False:
            yield from part.leaves()


def _partners(everybody: Division, answers: Answers) -> Group:
    """The nodes of the first good leaf, or of the first leaf of the first good part."""
    for division in everybody.parts:
        if answers.get(division.nodes) is False:
            return next(division.leaves()).nodes
    for leaf in everybody.leaves():
        if answers.get(leaf.nodes) is False:
            return leaf.nodes
    return ()


def _nodes_handed_back(division: Division, answers: Answers) -> Iterator[str]:
    """Yield the nodes of parts that are well while a part beside them is not."""
    failing = [part for part in division.parts if answers.get(part.nodes)]
    if failing:
        for part in division.parts:
            if answers.get(part.nodes) is False:
                yield from part.nodes
    for part in failing:
        yield from _nodes_handed_back(part, answers)


def pairs_of_parts(parts: Sequence[Group]) -> tuple[Group, ...]:
    """Every two parts as one group. The groups have one size, so that a slow one stands out. The
    two parts that fail together are halved next, with good nodes of a third."""
    if not THIRD <= len(parts) <= MOST_PARTS:
        return ()
    return tuple((*a, *b) for a, b in combinations(parts, 2))


def pair_tests_across(parts: Sequence[Group]) -> Iterator[PairTest]:
    """Yield pairs of nodes of different parts, equally many between any two parts, spread over
    both. They are few, because pairs that share no cable with others mostly run one after another.
    """
    between = list(combinations(parts, 2))
    for turn in range(max(1, MOST_ACROSS // max(len(between), 1))):
        for a, b in between:
            if turn < min(len(a), len(b)):
                share = turn * PHI % 1
                yield PairTest(a[int(share * len(a))], b[int((share + PHI / 2) % 1 * len(b))])


def pair_tests_inside(parts: Sequence[Group], across: Iterable[PairTest]) -> Iterator[PairTest]:
    """Yield, for a few nodes that meet others across the parts, a pair with a neighbour. If the
    nodes are well there, the path out is bad, and not each of them. Neighbours are mostly on one
    leaf."""
    crossing = {node for pair_test in across for node in pair_test.pair}
    for part in parts:
        firsts = sorted({min(place, len(part) - 2) for place in range(0, len(part), 2)})
        neighbours = (PairTest(part[first], part[first + 1]) for first in firsts)
        met = (pair_test for pair_test in neighbours if not crossing.isdisjoint(pair_test.pair))
        yield from islice(met, MOST_INSIDE)


# --- the largest effort ----------------------------------------------------------------------


def most_rounds(everybody: Division) -> int:
    """The largest number of rounds of groups, if one node or one pair of parts is at fault."""
    deepest, division = 1, everybody
    while division.parts:
        division = max(division.parts, key=lambda part: len(part.nodes))
        deepest += bool(division.parts)
    return deepest + ceil(log2(max(len(division.nodes), SMALLEST))) + TO_MAKE_SURE


def most_rounds_together(everybody: Division) -> int:
    """The largest number of rounds of groups, if every two parts meet and two that fail together
    are halved."""
    parts = everybody.parts
    if not pairs_of_parts([part.nodes for part in parts]):
        return 0
    largest = max(len(part.nodes) for part in parts)
    at_once = len(parts) // 2  # each part is in one group at a time
    meet = ceil(len(parts) * (len(parts) - 1) / 2 / at_once)
    return meet + 1 + 2 * ceil(log2(largest)) + TO_MAKE_SURE
