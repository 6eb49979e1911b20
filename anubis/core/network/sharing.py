"""Decide which pairs may run at once without disturbing each other.

A cable carries as much in one direction while it is in use in the other, and a pair measures forth
and then back. If routes are known, running pairs have no cable in common in the same direction.
Else it is unknown which of several cables a connection takes: two pairs whose paths have links in
common share a cable with a chance, and a pair starts only if that chance is small. A shortfall that
this chance explains is no sign of a fault. Pairs that follow from results run without any such
chance, so that nothing excuses them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import factorial

import numpy as np

from anubis.core.fabric import Fabric, Nic, Numbers, Shares
from anubis.core.network.pairing import PairTest, joined_nics

# The chance that a pair shares a cable that has no room for it: at a leaf, and anywhere.
# Leaves are measured by pairs at two distances; parts above them at one, by many pairs at once.
SHARED_AT_LEAF, SHARED = 0.03, 0.1
NEVER = 1e-9  # a chance below this is none
LEAST_LOST = 0.25  # least shortfall of a pair that shared a cable: fair halves would be 0.5
SURELY = 1 - NEVER  # rounding leaves certain paths a little below 1
MOST_BORNE = 8  # pairs at full speed on one cable; a larger number makes no difference
_FACTORIALS = np.array([factorial(count) for count in range(MOST_BORNE + 1)], dtype=np.float64)

LeafPair = tuple[str, str]


@dataclass(frozen=True)
class CableChances:
    """The cables between two leaves, and the chance of each to be taken."""

    cable: Numbers
    chance: Shares

    bound: Shares  # on the chance that others use it
    leaves: tuple[str, ...] = ()  # its ends, if the cable is unknown

    @property
    def shared_chance(self) -> float:
        """The chance that others used its cables, at most: 0 if no others were allowed."""
        return float(self.bound[self.chance < self.bound].max(initial=0.0))


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """A leaf through which only a few pairs pass at a time, since the cable of each is unknown."""

    leaf: str
    pairs: int
    cables: int  # upwards
    at_once: int

    @property
    def fewest_turns(self) -> int:
        return -(-self.pairs // self.at_once)


Ways = Sequence[CableChances]  # of a pair: one for each two leaves that join it, on any rail


class CableUse:
    """The paths between leaves, computed when they are first asked for. Cables are numbered: if
    routes are known, once for each direction."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.borne = cable_capacities(fabric)
        self._back = len(self.borne) if fabric.routes else 0  # from a cable's number to that of b-a
        self.borne = np.concatenate([self.borne, self.borne[: self._back]])
        self._count = np.array([len(link.cables) for link in fabric.links], dtype=np.int64)
        self._first = np.cumsum(self._count) - self._count
        bearing = set(fabric.leaves)
        at_leaf = [link.a in bearing or link.b in bearing for link in fabric.links]
        self._bound = np.where(at_leaf, SHARED_AT_LEAF, SHARED)
        ends = [(link.a, cable.port_a) for link in fabric.links for cable in link.cables]
        self._number = {end: number for number, end in enumerate(ends)}
        self._known: dict[LeafPair, CableChances] = {}

    def find_ways(self, pair_test: PairTest) -> Ways:
        return self.find_all_ways([pair_test])[pair_test]

    def find_all_ways(self, pair_tests: Iterable[PairTest]) -> dict[PairTest, Ways]:
        """The cables of several pair tests; faster than one by one."""
        routed, leaves = {}, {}
        for pair_test in pair_tests:
            joined = joined_nics(self.fabric, pair_test)
            met = [(a, b) for a, b in joined if a.switch != b.switch]
            routed[pair_test] = [way for a, b in met if (way := self._route(a, b))]
            if len(routed[pair_test]) < len(met):
                unrouted = [(a, b) for a, b in met if not self._route(a, b)]
                leaves[pair_test] = list(dict.fromkeys((a.switch, b.switch) for a, b in unrouted))
        self._work_out(list(chain.from_iterable(leaves.values())))
        return {
            pair_test: [*ways, *(self._known[ends] for ends in leaves.get(pair_test, ()))]
            for pair_test, ways in routed.items()
        }

    def is_shared_by_chance(self, pair_test: PairTest) -> bool:
        return any(way.shared_chance > 0 for way in self.find_ways(pair_test))

    def chances_of_sharing(self, ends: Sequence[LeafPair]) -> Shares:
        """The chance that traffic between two leaves shared a cable with other pairs, at most."""
        self._work_out(ends)
        return np.array([self._known[pair].shared_chance for pair in ends], dtype=np.float64)

    def _route(self, a: Nic, b: Nic) -> CableChances | None:
        """The cables there and back, if both routes are known."""
        if not (self.fabric.routes and self.fabric.route(a, b) and self.fabric.route(b, a)):
            return None
        cables = np.unique([*self._numbers_on_route(a, b), *self._numbers_on_route(b, a)])
        return CableChances(cables, np.ones(len(cables)), np.zeros(len(cables)))

    def _numbers_on_route(self, a: Nic, b: Nic) -> Iterator[int]:
        for switch, (link, cable) in zip(
            self.fabric.route(a, b), self.fabric.cables_between(a, b), strict=False
        ):
            yield self._number[link.a, cable.port_a] + self._back * (link.b == switch)

    def _work_out(self, leaves: Sequence[LeafPair]) -> None:
        new = [ends for ends in dict.fromkeys(leaves) if ends not in self._known]
        if not new:
            return
        for part in self.fabric.spread(new):
            order = np.argsort(part.link_pair, kind="stable")
            pair, link, share = part.link_pair[order], part.link[order], part.link_share[order]
            numbers, starts = np.unique(pair, return_index=True)
            for number, here in zip(numbers.tolist(), _pieces(starts, len(pair)), strict=True):
                ends = new[number]
                self._known[ends] = self._cables(ends, link[here], share[here])
        for ends in new:  # leaves without a path between them
            self._known.setdefault(ends, self._cables(ends, np.empty(0, np.int64), np.empty(0)))

    def _cables(self, ends: LeafPair, link: Numbers, share: Shares) -> CableChances:
        """The cables between two leaves; those of one link are equally likely."""
        count = self._count[link]
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        cable = np.repeat(self._first[link], count) + place
        directions = 2 if self._back else 1
        return CableChances(
            cable=np.concatenate([cable, cable + self._back][:directions]),
            chance=np.tile(np.repeat(share / count, count), directions),
            bound=np.tile(np.repeat(self._bound[link], count), directions),
            leaves=ends if ends[0] != ends[1] else (),
        )

    def bottleneck(self, leaf: str, pairs: int) -> Bottleneck:
        """The bottleneck of a leaf, with the number of pairs at once that nearly always find a
        cable with room."""
        cables = [
            self._number[link.a, cable.port_a]
            for link in self.fabric.uplinks(leaf)
            for cable in link.cables
        ]
        borne = int(self.borne[cables].min(initial=MOST_BORNE))
        beside = len(cables) * (SHARED_AT_LEAF * _FACTORIALS[borne]) ** (1 / borne)
        at_once = borne if len(cables) == 1 else 1 + int(beside)
        return Bottleneck(leaf=leaf, pairs=pairs, cables=len(cables), at_once=at_once)


def _pieces(starts: Numbers, end: int) -> Iterator[slice]:
    return map(slice, starts.tolist(), [*starts[1:].tolist(), end])


class Room:
    """The running pairs, and the test if one more may join them, by the cables of each.

    A pair loads each cable once: it measures its rails one after the other, or at once if no two of
    them may share a cable. `shared`: the largest chance of a pair to share a cable.
    """

    def __init__(self, use: CableUse, shared: float = SHARED) -> None:
        self._borne = use.borne
        self._at_leaf, self._anywhere = min(SHARED_AT_LEAF, shared), shared
        self._surely = np.zeros(len(use.borne), dtype=np.int64)  # pairs on each cable
        self._maybe = np.zeros(len(use.borne))  # pairs that may also have taken another cable

    def crowded_cable(self, ways: Ways) -> int | None:
        """The cable on which a pair would most likely meet more others than there is room for; None
        if there is room."""
        for way in ways:
            left = np.maximum(self._borne[way.cable] - self._surely[way.cable], 0)
            met = way.chance * self._maybe[way.cable] ** left / _FACTORIALS[left]
            at_leaf = way.bound == SHARED_AT_LEAF
            if met[at_leaf].sum() > self._at_leaf:
                return int(way.cable[at_leaf][met[at_leaf].argmax()])
            if met.sum() > self._anywhere:
                return int(way.cable[met.argmax()])
        return None

    def enter(self, ways: Ways) -> None:
        self._load(ways, 1)

    def leave(self, ways: Ways) -> list[int]:
        """Remove a pair, and return the cables that it frees."""
        return self._load(ways, -1)

    def _load(self, ways: Ways, sign: int) -> list[int]:
        cable, chance = _highest_chances(ways)
        sure = chance > SURELY
        self._surely[cable[sure]] += sign
        seldom = cable[~sure]
        self._maybe[seldom] = np.maximum(self._maybe[seldom] + sign * chance[~sure], 0.0)
        numbers: list[int] = cable.tolist()
        return numbers


def _highest_chances(ways: Ways) -> tuple[Numbers, Shares]:
    """The cables, each once, with their highest chance."""
    if len(ways) == 1:
        return ways[0].cable, ways[0].chance
    cables = np.concatenate([way.cable for way in ways] or [np.empty(0, np.int64)])
    chances = np.concatenate([way.chance for way in ways] or [np.empty(0)])
    cable, place = np.unique(cables, return_inverse=True)
    chance = np.zeros(len(cable))
    np.maximum.at(chance, place, chances)
    return cable, chance


def cable_capacities(fabric: Fabric) -> Numbers:
    """The number of pairs for which each cable has room at the full speed of their NICs; at least
    one, and one if a speed is unknown."""
    speeds = [nic.gbit_s or 0.0 for nic in fabric.nics if nic.node]
    fastest = max(speeds) if speeds and min(speeds) > 0 else np.inf
    cables = [cable.gbit_s or 0.0 for link in fabric.links for cable in link.cables]
    counts = np.floor(np.array(cables, dtype=np.float64) / fastest)
    return np.clip(counts, 1, MOST_BORNE).astype(np.int64)


def rails_share_no_cable(fabric: Fabric) -> bool:
    """True if no cable can carry two rails, so that a pair can measure all of them at once: each
    switch that has a switch above it has one rail only below. False if switches of one tier are
    joined."""
    rails: dict[str, set[str]] = {switch.id: set() for switch in fabric.switches}
    for nic in fabric.nics:
        if nic.node:
            rails[nic.switch].add(nic.rail)
    upwards = sorted(fabric.links, key=lambda link: min(fabric.tier[link.a], fabric.tier[link.b]))
    if not all(fabric.is_uplink(link) for link in upwards):
        return False
    for link in upwards:
        upper = fabric.upper(link)
        lower = link.a if link.b == upper else link.b
        if len(rails[lower]) > 1:
            return False
        rails[upper] |= rails[lower]
    return True


def shares_between_pods(fabric: Fabric) -> bool:
    """True if pairs of different pods share cables by chance. Between two tiers pairs of a leaf are
    too few at once for that."""
    return not fabric.routes and max(fabric.tier.values(), default=0) > 2


def fair_order(fabric: Fabric, pair_tests: Iterable[PairTest]) -> list[PairTest]:
    """The pair tests in the order in which they start: leaf pairs take turns, those with more
    waiting pairs sooner. Otherwise the pairs of some leaves would wait until those of others are
    over, and then have the network to themselves."""
    waiting: dict[frozenset[str], list[PairTest]] = {}
    for pair_test in pair_tests:
        leaves = frozenset(nic.switch for nic in next(joined_nics(fabric, pair_test), ()))
        waiting.setdefault(leaves, []).append(pair_test)
    rows = [(row - len(some), met) for some in waiting.values() for row, met in enumerate(some)]
    return [met for _, met in sorted(rows, key=lambda placed: placed[0])]


def waves(
    use: CableUse,
    pair_tests: Iterable[PairTest],
    ways: Mapping[PairTest, Ways] | None = None,
    *,
    undisturbed: bool = False,
) -> Iterator[tuple[PairTest, ...]]:
    """Yield the pair tests in the turns in which a campaign runs them, if all take equally long.

    Each node keeps the order of its own pair tests. `ways` may be known already.
    """
    every = tuple(pair_tests)
    ways = ways or use.find_all_ways(every)
    waiting = [(met, met.pair, ways[met], {id(way) for way in ways[met]}) for met in every]
    while waiting:
        room, busy, full = Room(use, NEVER if undisturbed else SHARED), set[str](), set[int]()
        wave, later = list[PairTest](), []
        for place in waiting:
            pair_test, pair, through, ids = place
            if busy.isdisjoint(pair) and full.isdisjoint(ids) and _finds_room(room, through, full):
                room.enter(through)
                wave.append(pair_test)
            else:
                later.append(place)
            busy.update(pair)
        yield tuple(wave)
        waiting = later


def fewest_turns(use: CableUse, ways_of_all: Mapping[PairTest, Ways]) -> int:
    """The least number of turns, in whatever order pairs run: as many as the busiest node has pair
    tests, and as many as the cable needs over which most routes lead."""
    of_node = Counter(node for pair_test in ways_of_all for node in pair_test.pair)
    carried = np.zeros(len(use.borne), dtype=np.int64)
    for ways in ways_of_all.values():
        if routes := [way for way in ways if not way.leaves]:
            cable, _ = _highest_chances(routes)
            carried[cable] += 1
    of_cable = -(-carried // use.borne)
    return max(max(of_node.values(), default=0), int(of_cable.max(initial=0)))


def narrowest_bottleneck(use: CableUse, ways_of_all: Iterable[Ways]) -> Bottleneck | None:
    """The leaf that needs most turns, in whatever order the other pairs run."""
    crossing: Counter[str] = Counter()
    for ways in ways_of_all:
        crossing.update({leaf for way in ways for leaf in way.leaves})
    bottlenecks = [
        use.bottleneck(leaf, pairs) for leaf, pairs in crossing.items() if use.fabric.uplinks(leaf)
    ]
    return pick_narrowest(bottlenecks)


def pick_narrowest(bottlenecks: Iterable[Bottleneck | None]) -> Bottleneck | None:
    return max(
        filter(None, bottlenecks), key=lambda bottleneck: bottleneck.fewest_turns, default=None
    )


def _finds_room(room: Room, ways: Ways, full: set[int]) -> bool:
    """True if there is room on all these paths; full ones are added to `full` until the turn is
    over."""
    for way in ways:
        if room.crowded_cable([way]) is not None:
            full.add(id(way))
            return False
    return True
