"""Schedules of pairs: which nodes measure each other in which round.

Rounds are made one by one, on demand, and the pairs or groups of a round are disjoint: a slow pair
delays only its own two nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.fabric import NO_PATH, Fabric, Nic, Numbers, RailNics, Steps
from anubis.core.network.matching import maximum_pairs
from anubis.core.records import Step

NOWHERE = -1  # a node without this rail
MOST_KINDS = 512  # kinds of nodes, by their leaves on all rails

Pair = tuple[str, str]
Group = tuple[str, ...]
Round = tuple[Pair, ...]


class PairTest(NamedTuple):
    """Two nodes that measure each other, on each rail of the first with the rail of the second that
    is `shift` further on (cyclic). Without a shift, on the rails that both have."""

    first: str
    second: str
    shift: int = 0

    @property
    def pair(self) -> Pair:
        return self.first, self.second


# distance: a round for each; rails: cabled otherwise; normal: learn it; cover: cross every link
Purpose = Literal["distance", "rails", "normal", "cover"]


def round_robin(nodes: Sequence[str]) -> Iterator[Round]:
    """Yield every pair exactly once, in rounds of disjoint pairs (the circle method).

    There are n - 1 rounds for even n; for odd n, n rounds in each of which one node rests. A node
    that is first in a round is second in its next one. For even n there are n - 2 exceptions, the
    least possible number.
    """
    if len(nodes) < 2:
        return
    rail_nics: list[str | None] = [*nodes] if len(nodes) % 2 == 0 else [None, *nodes]
    n = len(rail_nics)
    for turn in range(n - 1):
        circle = [rail_nics[0], *(rail_nics[1 + (i + turn) % (n - 1)] for i in range(n - 1))]
        pairs = zip(circle[: n // 2], reversed(circle[n // 2 :]), strict=True)
        yield tuple(
            (b, a) if (place or turn) % 2 else (a, b)
            for place, (a, b) in enumerate(pairs)
            if a is not None and b is not None
        )


def batches(nodes: Sequence[str], size: int) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield rounds of disjoint groups of `size` nodes in which every node takes part: two rounds at
    most.

    The nodes left over in the first round are joined by its first nodes, because a smaller group
    would measure something else. Fewer nodes than `size` are one group.
    """
    size = min(size, len(nodes))
    in_full = len(nodes) // size * size if size else 0
    if in_full:
        yield tuple(tuple(nodes[i : i + size]) for i in range(0, in_full, size))
    if left := nodes[in_full:]:
        yield ((*left, *nodes[: size - len(left)]),)


# --- the quick scan --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HopRound:
    """Disjoint pairs of nodes at one distance, and the rails on which the pairs are the same."""

    hops: int
    rails: tuple[str, ...]
    pairs: Round
    alone: tuple[str, ...]  # nodes with no other node at this distance
    spare: tuple[str, ...]  # nodes whose possible partners all have others in this round
    purpose: Purpose = "distance"
    shift: int = 0  # the shift of rails of each pair

    @property
    def pair_tests(self) -> Iterator[PairTest]:
        return (PairTest(*pair, self.shift) for pair in self.pairs)


def quick_rounds(
    fabric: Fabric,
    nodes: Sequence[str],
    seed: int | None = None,
    distances: Collection[int] | None = None,
) -> tuple[HopRound, ...]:
    """Plan a round for each rail and hop distance, with as many pairs as possible.

    Every node takes part once if possible. A seed gives equally many pairs with other partners.
    Rails that are alike get the same pairs, so that they can run together; other rails share as
    many pairs as possible.
    """
    merged: dict[tuple[int, Round, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    alike = _pairs_alike_on_all_rails(fabric, nodes, seed)
    for rail in fabric.rails:
        for pairing in _rounds_of_rail(fabric, rail, nodes, alike, seed, distances):
            merged.setdefault(pairing, []).append(rail)
    rounds = [
        HopRound(hops=hops, rails=tuple(rails), pairs=pairs, alone=alone, spare=spare)
        for (hops, pairs, alone, spare), rails in merged.items()
    ]
    return tuple(sorted(rounds, key=lambda r: (r.hops, -len(r.rails), -len(r.pairs))))


def needed_rounds(fabric: Fabric, rounds: Iterable[HopRound]) -> Iterator[HopRound]:
    """Yield the rounds without pairs that measure nothing new: one for each distance, and the rest
    for rails that differ.

    A pair measures all its rails at once. So if rails differ by a node or two, the pairs of one
    rail often cover another.
    """
    rounds = tuple(rounds)
    if all(hop_round.rails == fabric.rails for hop_round in rounds):  # all are new
        yield from rounds
        return
    distances: set[int] = set()
    measured: set[tuple[str, str, int | None]] = set()  # node, rail, hops
    for hop_round in rounds:
        kept = []
        for pair in hop_round.pairs:
            asked_for = {(node, rail, hop_round.hops) for rail in hop_round.rails for node in pair}
            if not asked_for <= measured:
                kept.append(pair)
                measured |= {
                    (nic.node, nic.rail, fabric.hops(a, b))
                    for a, b in joined_nics(fabric, PairTest(*pair))
                    for nic in (a, b)
                }
        if kept:
            again = hop_round.hops in distances
            distances.add(hop_round.hops)
            yield replace(
                hop_round, pairs=tuple(kept), purpose="rails" if again else hop_round.purpose
            )


def joined_nics(fabric: Fabric, pair_test: PairTest) -> Iterator[tuple[Nic, Nic]]:
    """Yield the NICs between which two nodes measure, rail by rail of the first."""
    rails = fabric.rails
    for number, rail in enumerate(rails):
        a = fabric.nic(pair_test.first, rail)
        b = fabric.nic(pair_test.second, rails[(number + pair_test.shift) % len(rails)])
        if a and b:
            yield a, b


def pair_test_at(fabric: Fabric, ends: RailNics) -> PairTest:
    """The pair test that joins these two NICs."""
    near, far = ends
    shift = fabric.rail_number[far.rail] - fabric.rail_number[near.rail]
    return PairTest(near.node, far.node, shift % len(fabric.rails))


def _rounds_of_rail(
    fabric: Fabric,
    rail: str,
    nodes: Sequence[str],
    alike: Mapping[int, Sequence[Pair]],
    seed: int | None,
    distances: Collection[int] | None,
) -> Iterator[tuple[int, Round, tuple[str, ...], tuple[str, ...]]]:
    under: dict[int, list[str]] = {}
    for node in nodes:
        nic = fabric.nic(node, rail)
        if nic:
            under.setdefault(fabric.leaf_number[nic.switch], []).append(node)
    leaves = list(under)
    if seed is not None:
        shuffle = np.random.default_rng(seed)
        leaves = [leaves[i] for i in shuffle.permutation(len(leaves))]
        under = {
            leaf: [under[leaf][i] for i in shuffle.permutation(len(under[leaf]))] for leaf in leaves
        }
    groups = [under[leaf] for leaf in leaves]
    steps = fabric.leaf_steps[np.ix_(leaves, leaves)]
    is_wanted = distances is None or 2 in distances
    if is_wanted and any(len(group) > 1 for group in groups):
        pairs = _most_pairs(groups, steps, 0, alike)
        alone = {group[0] for group in groups if len(group) == 1}
        yield _complete(2, pairs, alone, groups, nodes)
    for distance in np.unique(steps):
        is_wanted = distances is None or int(distance) + 2 in distances
        if is_wanted and 0 < distance < NO_PATH:
            pairs = _most_pairs(groups, steps, int(distance), alike)
            far = (steps == distance).any(axis=1)
            alone = {
                node for group, some in zip(groups, far, strict=True) if not some for node in group
            }
            yield _complete(int(distance) + 2, pairs, alone, groups, nodes)


def _most_pairs(
    groups: Sequence[Sequence[str]],
    steps: Steps,
    distance: int,
    alike: Mapping[int, Sequence[Pair]],
) -> list[Pair]:
    """The most pairs at this distance; shared by all rails if that costs none."""
    largest = _pairs_at(groups, steps, distance)
    here = set(chain.from_iterable(groups))
    pairs = [pair for pair in alike.get(distance, ()) if here.issuperset(pair)]
    if not pairs:
        return largest
    left = here.difference(*pairs)
    pairs += _pairs_at([[n for n in group if n in left] for group in groups], steps, distance)
    return pairs if len(pairs) == len(largest) else largest


def _pairs_at(groups: Sequence[Sequence[str]], steps: Steps, distance: int) -> list[Pair]:
    if distance:
        return maximum_pairs(groups, steps == distance)
    return [(group[i], group[i + 1]) for group in groups for i in range(0, len(group) - 1, 2)]


def _pairs_alike_on_all_rails(
    fabric: Fabric, nodes: Sequence[str], seed: int | None
) -> dict[int, list[Pair]]:
    """Pairs of nodes that are equally far apart on all rails that both have, by steps between their
    leaves. None if rails are alike, because their pairs are the same anyway."""
    if seed is not None:
        nodes = np.random.default_rng(seed).permutation(np.array(nodes)).tolist()
    kinds: dict[tuple[int, ...], list[str]] = {}
    for node in nodes:
        nics = [fabric.nic(node, rail) for rail in fabric.rails]
        leaves = [fabric.leaf_number[nic.switch] if nic else NOWHERE for nic in nics]
        kinds.setdefault(tuple(leaves), []).append(node)
    at = np.array(list(kinds), dtype=np.int64).reshape(len(kinds), len(fabric.rails))
    if len(kinds) > MOST_KINDS or all(len(np.unique(column)) == len(kinds) for column in at.T):
        return {}
    groups, has = list(kinds.values()), at != NOWHERE
    steps = _steps_between(fabric, at, has)
    same_rails = (has[:, None] == has).all(axis=2)
    distances = np.unique(steps[steps < NO_PATH - 1]).tolist()
    return {d: _pairs_of_kinds(groups, steps, same_rails, d) for d in distances}


def _steps_between(fabric: Fabric, at: Numbers, has: Flags) -> Steps:
    """The steps between kinds of nodes on all rails that both have; NO_PATH if these differ."""
    open_ = NO_PATH - 1
    steps = np.full((len(at), len(at)), open_, dtype=np.uint16)
    for column, present in zip(at.T, has.T, strict=True):
        on_rail = np.where(present, column, 0)
        here = fabric.leaf_steps[np.ix_(on_rail, on_rail)]
        both = present[:, None] & present
        agreed = np.where((steps == open_) | (steps == here), here, NO_PATH)
        steps = np.where(both, agreed, steps).astype(np.uint16)
    return steps


def _pairs_of_kinds(
    groups: Sequence[Sequence[str]], steps: Steps, same_rails: Flags, distance: int
) -> list[Pair]:
    """Pairs of nodes with the same rails. The remaining nodes of rarer kinds get partners from all
    leaves, each time of the largest group: these partners lack a pair test on the other rails,
    which partners from one leaf could not make up for together."""
    sizes = np.array([len(group) for group in groups])
    common = same_rails[(same_rails * sizes).sum(axis=1).argmax()]
    alike = np.where(same_rails, steps, NO_PATH).astype(np.uint16)
    rare = [[] if usual else group for group, usual in zip(groups, common, strict=True)]
    pairs = _pairs_at(rare, alike, distance)
    met = set(chain.from_iterable(pairs))
    waiting = [[*group] if usual else [] for group, usual in zip(groups, common, strict=True)]
    for kind, group in enumerate(rare):
        far = np.flatnonzero(steps[kind] == distance).tolist()
        for node in group:
            largest = max(far, key=lambda place: len(waiting[place]), default=kind)
            if node not in met and waiting[largest]:
                pairs.append((node, waiting[largest].pop()))
    return [*pairs, *_pairs_at(waiting, alike, distance)]


def _complete(
    hops: int,
    pairs: Sequence[Pair],
    alone: set[str],
    groups: Sequence[Sequence[str]],
    nodes: Sequence[str],
) -> tuple[int, Round, tuple[str, ...], tuple[str, ...]]:
    """The pairs and the nodes that have none, in the order in which the nodes were given."""
    resting = set(chain.from_iterable(groups)) - set(chain.from_iterable(pairs)) - alone
    return (
        hops,
        tuple(pairs),
        tuple(node for node in nodes if node in alone),
        tuple(node for node in nodes if node in resting),
    )


def mirror(fabric: Fabric, pair_test: PairTest) -> PairTest:
    """The same pair test with the second node as the first."""
    return PairTest(pair_test.second, pair_test.first, -pair_test.shift % max(1, len(fabric.rails)))


def pair_test_of(step: Step) -> PairTest | None:
    """The pair test of the two nodes of a pair; None if the step is no pair."""
    match step.participants:
        case (first, second):
            return PairTest(first, second, step.shift)
    return None


def hops_between(fabric: Fabric, pair_test: PairTest) -> int | None:
    """The hops between two nodes, by the first two NICs between which they measure."""
    return next((fabric.hops(a, b) for a, b in joined_nics(fabric, pair_test)), None)


def replace_unfit(fabric: Fabric, hop_round: HopRound, fit: Collection[str]) -> Iterator[PairTest]:
    """Yield the pair tests of a round without its unfit nodes.

    A node that loses its partner gets another one at the same distance: a node in the same
    situation or else a node of the round, which then takes part twice.
    """
    left: list[str] = []
    for pair in hop_round.pairs:
        staying = [name for name in pair if name in fit]
        if len(staying) == 2:
            yield PairTest(*pair, hop_round.shift)
        else:
            left += staying
    rail = hop_round.rails[0]
    far_rail = fabric.rails[(fabric.rail_number[rail] + hop_round.shift) % len(fabric.rails)]

    def is_as_far(first: str, second: str) -> bool:
        a, b = fabric.nic(first, rail), fabric.nic(second, far_rail)
        return a is not None and b is not None and a != b and fabric.hops(a, b) == hop_round.hops

    all_nodes = [name for pair in hop_round.pairs for name in pair if name in fit]
    while left:
        lone = left.pop()
        candidates = (*left, *(name for name in all_nodes if name != lone))
        partner = next((name for name in candidates if is_as_far(lone, name)), None)
        if partner is not None:
            left = [name for name in left if name != partner]
            yield PairTest(lone, partner, hop_round.shift)
