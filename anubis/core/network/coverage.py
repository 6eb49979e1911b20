"""Coverage of a fabric by a schedule of pairs: links and switches crossed, and those left untested.

If the forwarding tables are known, a pair crosses the cables that they name. Else shortest paths
share its traffic evenly, and it is unknown which cable a connection takes. Then a link is crossed
with a chance, which is 1 if there is no other path. The goal is that each cable of each link is
crossed with a chance of ASSURED or more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice, product
from typing import Literal

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.fabric import NO_PATH, Fabric, Link, Nic, Numbers, Part, Shares
from anubis.core.network.pairing import (
    HopRound,
    Pair,
    PairTest,
    Purpose,
    Round,
    joined_nics,
    mirror,
    needed_rounds,
    pair_test_at,
    quick_rounds,
)
from anubis.core.network.redundancy import MissingCables, shortages

FEWEST_PAIRS, MOST_TURNS = 12, 32  # pairs at one distance; shuffles to find more
ASSURED = 0.95  # the chance from which a link counts as crossed
MOST_ROUNDS = 32  # for each shift of rails, to cross the links that are left
WORTH = 0.02  # share of the rest to cross: a round with less is the last of its kind
MOST_ASKED = 64  # links for which it is checked whether any pair can cross them
MOST_FOLLOWED = 4096  # routes to follow in search of one over a given cable


@dataclass(frozen=True, kw_only=True)
class Coverage:
    fabric: Fabric
    link_chance: Shares  # for each of `fabric.links`: that any given cable of it was crossed
    switch_chance: Shares
    nics: frozenset[str]  # ids of the participating NICs
    pairs: Mapping[Purpose, int]  # the number of pairs for each purpose
    rounds: Mapping[Purpose, int]

    def links(self, least: float, below: float = np.inf) -> tuple[Link, ...]:
        """The links between switches whose chance of being crossed is in this range."""
        return tuple(
            link
            for link, chance in zip(self.fabric.links, self.link_chance, strict=True)
            if least <= chance < below
        )

    def chance(self, part: Part) -> float:
        """The chance that a part was crossed. Of uplinks, that any was. Nodes took part or not."""
        match part.kind:
            case "node":
                own = [nic for nic in self.fabric.nics if nic.node == part.name]
                return float(any(nic.id in self.nics for nic in own))
            case "nic":
                nic = self.fabric.nic(part.name, part.other)
                return float(nic is not None and nic.id in self.nics)
            case "switch":
                number = self.fabric.switch_number.get(part.name)
                return 0.0 if number is None else float(self.switch_chance[number])
        ends = {part.name, part.other} - {""}
        chances = zip(self.fabric.links, self.link_chance.tolist(), strict=True)
        return max((chance for link, chance in chances if ends <= {link.a, link.b}), default=0.0)

    @property
    def untested_links(self) -> tuple[Link, ...]:
        """The links on no path of any pair."""
        return self.links(0, np.nextafter(0, 1))

    @property
    def unsure_links(self) -> tuple[Link, ...]:
        """The links on a path that is used so rarely that a cable may have carried nothing."""
        return self.links(np.nextafter(0, 1), ASSURED)

    @property
    def missing_uplinks(self) -> tuple[MissingCables, ...]:
        """The uplinks that this fabric lacks although sister switches have them; no schedule can
        cross them."""
        return tuple(gap for shortage in shortages(self.fabric) for gap in shortage.gaps)

    def counts_by_tier(self) -> dict[tuple[int, int], tuple[int, int]]:
        """The number of links that are crossed almost surely, and of all links, for each two tiers
        that links join."""
        tier, counts = self.fabric.tier, dict[tuple[int, int], tuple[int, int]]()
        for link, chance in zip(self.fabric.links, self.link_chance.tolist(), strict=True):
            low, high = sorted((tier[link.a], tier[link.b]))
            sure, every = counts.get((low, high), (0, 0))
            counts[low, high] = sure + (chance >= ASSURED), every + 1
        return dict(sorted(counts.items()))

    @property
    def untested_switches(self) -> tuple[str, ...]:
        return tuple(
            switch.id
            for switch, chance in zip(self.fabric.switches, self.switch_chance, strict=True)
            if chance == 0
        )


def coverage(fabric: Fabric, rounds: Iterable[HopRound], all_nodes: Sequence[str] = ()) -> Coverage:
    """The coverage of all rounds together, with one connection in each direction between any two
    NICs that meet. Every pair of `all_nodes`, which may be millions, is added leaf by leaf."""
    crossed = _Crossed(fabric)
    pairs: Counter[Purpose] = Counter()
    turns: Counter[Purpose] = Counter()
    for hop_round in rounds:
        pairs[hop_round.purpose] += len(hop_round.pairs)
        turns[hop_round.purpose] += 1
        crossed.note(hop_round.pair_tests)
    for rail in fabric.rails if all_nodes else ():
        on = [nic for name in all_nodes if (nic := fabric.nic(name, rail))]
        below = Counter(nic.switch for nic in on)
        for near, far in product(below, below):
            if near != far or below[near] > 1:
                crossed.sent[near, far] += below[near] * below[far]
        crossed.nics |= {nic.id for nic in on}
    turns["distance"] += max(0, len(all_nodes) - 1 + len(all_nodes) % 2)
    pairs["distance"] += len(all_nodes) * (len(all_nodes) - 1) // 2
    crossed.add_up()
    return crossed.as_coverage(pairs, turns)


def coverage_of(fabric: Fabric, flows: Iterable[tuple[Nic, Nic]]) -> Coverage:
    """The coverage of given flows from NIC to NIC."""
    crossed = _Crossed(fabric)
    for source, target in flows:
        crossed.send(source, target)
    crossed.add_up()
    return crossed.as_coverage({}, {})


def coverage_by_job(fabric: Fabric, nodes: Collection[str]) -> Coverage:
    """The coverage if all of these nodes talk to each other on each rail. A path depends on its
    leaf and on its target only, so one source at each leaf stands for all."""

    def flows() -> Iterator[tuple[Nic, Nic]]:
        for rail in fabric.rails:
            nics = [nic for node in nodes if (nic := fabric.nic(node, rail))]
            at_leaf = {nic.switch: nic for nic in nics}
            for source, target in product(at_leaf.values(), nics):
                if source is not target:
                    yield source, target

    return coverage_of(fabric, flows())


@dataclass
class _Crossed:
    """The links, cables and switches crossed so far; notes count after `add_up`."""

    fabric: Fabric
    met: set[PairTest] = field(default_factory=set)  # a pair that meets again measures nothing new
    nics: set[str] = field(default_factory=set)
    cables: set[tuple[str, str]] = field(default_factory=set)  # by known routes: switch and port
    passed: set[str] = field(default_factory=set)  # switches, by known routes
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)  # from leaf to leaf

    def __post_init__(self) -> None:
        # logarithm of the chance that no flow crossed a cable of each link, or a switch
        self.links_missed = np.zeros(len(self.fabric.links))
        self.switches_missed = np.zeros(len(self.fabric.switches))

    def note(self, pair_tests: Iterable[PairTest]) -> None:
        for pair_test in pair_tests:
            if pair_test not in self.met:
                self.met |= {pair_test, mirror(self.fabric, pair_test)}
                for a, b in joined_nics(self.fabric, pair_test):
                    self.send(a, b)
                    self.send(b, a)

    def send(self, source: Nic, target: Nic) -> None:
        self.nics |= {source.id, target.id}
        if self.fabric.routes and (route := self.fabric.route(source, target)):
            self.passed.update(route)
            self.cables |= _cables(self.fabric, source, target)
        else:
            self.sent[source.switch, target.switch] += 1

    def add_up(self) -> None:
        times = np.array(list(self.sent.values()), dtype=np.float64)
        cables = np.array([len(link.cables) for link in self.fabric.links], dtype=np.float64)
        for part in self.fabric.spread(list(self.sent)):
            missed = times[part.link_pair] * _log_rest(part.link_share / cables[part.link])
            self.links_missed += np.bincount(part.link, missed, len(cables))
            missed = times[part.switch_pair] * _log_rest(part.switch_share)
            self.switches_missed += np.bincount(part.switch, missed, len(self.switches_missed))
        self.sent.clear()

    @property
    def link_chance(self) -> Shares:
        by_chance = -np.expm1(self.links_missed)
        return np.where(self._routed_flags(), 1.0, by_chance) if self.cables else by_chance

    def _routed_flags(self) -> Flags:
        """A flag for each link: do known routes lead over every cable of it?"""
        return np.array(
            [
                all((link.a, cable.port_a) in self.cables for cable in link.cables)
                for link in self.fabric.links
            ],
            dtype=bool,
        )

    def as_coverage(self, pairs: Mapping[Purpose, int], rounds: Mapping[Purpose, int]) -> Coverage:
        passed = [switch.id in self.passed for switch in self.fabric.switches]
        return Coverage(
            fabric=self.fabric,
            link_chance=self.link_chance,
            switch_chance=np.where(passed, 1.0, -np.expm1(self.switches_missed)),
            nics=frozenset(self.nics),
            pairs=pairs,
            rounds=rounds,
        )

    def copy_with(self, hop_round: HopRound) -> _Crossed:
        """A copy with this round added."""
        more = _Crossed(
            self.fabric, set(self.met), set(self.nics), set(self.cables), set(self.passed)
        )
        more.links_missed = self.links_missed.copy()
        more.switches_missed = self.switches_missed.copy()
        more.note(hop_round.pair_tests)
        more.add_up()
        return more

    def lack(self, reached: Flags) -> float:
        """The amount by which these links fall short of being crossed almost surely."""
        return float(np.maximum(ASSURED - self.link_chance[reached], 0).sum())

    def new_pairs(self, hop_round: HopRound) -> Round:
        """The pairs of a round that may cross a link which is not crossed almost surely."""
        fabric, is_open = self.fabric, self.link_chance < ASSURED
        flows = {
            pair_test.pair: [
                flow for a, b in joined_nics(fabric, pair_test) for flow in ((a, b), (b, a))
            ]
            for pair_test in hop_round.pair_tests
            if pair_test not in self.met
        }
        leaves = dict.fromkeys((a.switch, b.switch) for ab in flows.values() for a, b in ab)
        numbers = {ends: number for number, ends in enumerate(leaves)}
        brings = np.zeros(len(numbers), dtype=bool)
        for part in fabric.spread(list(numbers)):
            brings[part.link_pair[is_open[part.link]]] = True

        def is_new(a: Nic, b: Nic) -> bool:
            by_route = _cables(fabric, a, b) if fabric.routes else set()
            return (
                not by_route <= self.cables
                if by_route
                else bool(brings[numbers[a.switch, b.switch]])
            )

        return tuple(pair for pair, both in flows.items() if any(is_new(a, b) for a, b in both))


def _cables(fabric: Fabric, source: Nic, target: Nic) -> set[tuple[str, str]]:
    """The cables of the known route from source to target."""
    path = fabric.cables_between(source, target)
    return {(link.a, cable.port_a) for link, cable in path}


def _log_rest(share: Shares) -> Shares:
    with np.errstate(divide="ignore"):  # a share of 1 leaves nothing: minus infinity
        return np.log1p(-np.where(share > 1 - 1e-9, 1.0, share))


def scan_rounds(
    fabric: Fabric, nodes: Sequence[str], *, covering: bool, across: bool
) -> Iterator[HopRound]:
    """Yield a round of all nodes for each hop distance; then further rounds, until every uplink has
    been crossed.

    If few pairs fit into a round, the next rounds have other partners: a handful does not show what
    is normal, and in a small fabric most pairs may cross the one bad link.
    """
    quick = tuple(needed_rounds(fabric, quick_rounds(fabric, nodes)))
    yield from quick
    met: dict[int, set[frozenset[str]]] = {}
    for hop_round in quick:
        met.setdefault(hop_round.hops, set()).update(map(frozenset, hop_round.pairs))
    for turn in range(1, MOST_TURNS):
        few = [hops for hops, pairs in met.items() if len(pairs) < FEWEST_PAIRS]
        if not few:
            break
        for hop_round in quick_rounds(fabric, nodes, seed=turn, distances=few):
            already = met[hop_round.hops]
            new = tuple(pair for pair in hop_round.pairs if frozenset(pair) not in already)
            if len(already) < FEWEST_PAIRS and new:
                already.update(map(frozenset, new))
                more = replace(hop_round, pairs=new, purpose="normal")
                quick += (more,)
                yield more
    if covering:
        yield from covering_rounds(fabric, nodes, quick, across=across)


def covering_rounds(
    fabric: Fabric, nodes: Sequence[str], rounds: Sequence[HopRound], *, across: bool = True
) -> Iterator[HopRound]:
    """Yield further rounds, with other partners, until each link that pairs can cross is crossed
    almost surely.

    Rounds on like rails are tried first, at the distance that adds most; then rounds `across`
    rails, if they cross more. Pairs that cross nothing new are left out, and a kind of round that
    adds hardly anything is not tried again. If routes are known, pairs are then looked up for each
    cable that is left. `coverage` gives the result.
    """
    crossed = _Crossed(fabric)
    for hop_round in rounds:
        crossed.note(hop_round.pair_tests)
    crossed.add_up()
    kinds = _kinds(fabric, rounds, across)
    beyond_reach = _unreachable_links(crossed, nodes, across)
    for seed in count():
        if not np.any(~beyond_reach & (crossed.link_chance < ASSURED)):
            return
        if not kinds:
            break
        kind = kinds.pop(0)
        choices = list(_rounds_of_kind(crossed, nodes, kind, seed))
        after = [crossed.copy_with(hop_round) for hop_round in choices]
        worth = [
            crossed.lack(more.link_chance > 0) - more.lack(more.link_chance > 0) for more in after
        ]
        best = max(range(len(choices)), key=worth.__getitem__, default=None)
        if best is None or worth[best] <= WORTH * crossed.lack(after[best].link_chance > 0):
            continue
        crossed = after[best]
        yield choices[best]
        if kind.rounds_left > 1:
            in_turn = sum(waiting.is_in_turn_with(kind) for waiting in kinds)
            kinds.insert(in_turn, replace(kind, rounds_left=kind.rounds_left - 1))
    yield from _rounds_along_routes(crossed, nodes, across)


def _rounds_along_routes(
    crossed: _Crossed, nodes: Sequence[str], across: bool
) -> Iterator[HopRound]:
    """Yield rounds with a pair for each cable that is left and on a route."""
    fabric, routed = crossed.fabric, _RoutedPairs(crossed.fabric, nodes, across)
    pairs: dict[tuple[int, int], list[Pair]] = {}
    for number in np.flatnonzero(crossed.link_chance < ASSURED).tolist():
        link = fabric.links[number]
        for cable in link.cables:
            if (link.a, cable.port_a) in crossed.cables:
                continue
            ends = routed.find(link.a, cable.port_a) or routed.find(link.b, cable.port_b)
            hops = fabric.hops(*ends) if ends else None
            if ends and hops:
                pair_test = pair_test_at(fabric, (ends[0].rail_nic, ends[1].rail_nic))
                crossed.note([pair_test])
                pairs.setdefault((hops, pair_test.shift), []).append(pair_test.pair)
    for (hops, shift), alike in pairs.items():
        for disjoint in _disjoint_rounds(alike):
            yield HopRound(
                hops=hops,
                rails=fabric.rails,
                pairs=disjoint,
                alone=(),
                spare=(),
                purpose="cover",
                shift=shift,
            )


class _RoutedPairs:
    """The pairs of NICs of these nodes whose route leads over a given cable."""

    def __init__(self, fabric: Fabric, nodes: Collection[str], across: bool) -> None:
        self.fabric, self.across = fabric, across
        asked_for = set(nodes)
        self.nics = {nic.id: nic for nic in fabric.nics if nic.node in asked_for}
        self.under: dict[str, list[Nic]] = {}
        for nic in self.nics.values():
            self.under.setdefault(nic.switch, []).append(nic)

    def find(self, switch: str, port: str) -> tuple[Nic, Nic] | None:
        """The first two NICs whose route leaves this switch by this port, if there are any."""
        return next(self._find_all(switch, port), None)

    def _find_all(self, switch: str, port: str) -> Iterator[tuple[Nic, Nic]]:
        routes = self.fabric.routes
        ids = routes.nics_by(switch, port) if routes else ()
        targets = (self.nics[nic] for nic in ids if nic in self.nics)
        leaves = [switch] if switch in self.under else list(self.under)
        for target, leaf in islice(product(targets, leaves), MOST_FOLLOWED):
            if switch in self.fabric.route(self.under[leaf][0], target)[:-1]:
                for source in self.under[leaf]:
                    if source.node != target.node and (self.across or source.rail == target.rail):
                        yield source, target


def _disjoint_rounds(pairs: Iterable[Pair]) -> list[Round]:
    """Put each pair into the first round that has neither of its nodes."""
    rounds: list[list[Pair]] = []
    for pair in dict.fromkeys(pairs):
        free = (met for met in rounds if set(pair).isdisjoint(chain.from_iterable(met)))
        first = next(free, None)
        if first is None:
            rounds.append(first := [])
        first.append(pair)
    return [tuple(met) for met in rounds]


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A kind of rounds: those that cross much the same links."""

    shift: int
    distances: tuple[int, ...]
    rounds_left: int = MOST_ROUNDS

    def is_in_turn_with(self, kind: _Kind) -> bool:
        return bool(self.shift and kind.shift) and self.distances == kind.distances


def _kinds(fabric: Fabric, rounds: Sequence[HopRound], across: bool) -> list[_Kind]:
    """The kinds of rounds in the order in which they are tried: like rails, then the farthest nodes
    across rails."""
    distances = sorted({hop_round.hops for hop_round in rounds}, reverse=True)
    shifts = range(1, len(fabric.rails)) if across else range(0)
    between_leaves = tuple(hops for hops in distances if hops > 2)
    like = [_Kind(shift=0, distances=between_leaves)] if between_leaves else []
    return like + [_Kind(shift=s, distances=(hops,)) for hops in distances for s in shifts]


def _rounds_of_kind(
    crossed: _Crossed, nodes: Sequence[str], kind: _Kind, seed: int
) -> Iterator[HopRound]:
    """Yield rounds of the pairs that cross anything new; across rails only the one that most rails
    share."""
    shuffled = quick_rounds(crossed.fabric, nodes, seed=seed, distances=kind.distances)
    for hops in kind.distances:
        alike = [hop_round for hop_round in shuffled if hop_round.hops == hops]
        for hop_round in alike[:1] if kind.shift else alike:
            moved = replace(hop_round, purpose="cover", shift=kind.shift)
            if pairs := crossed.new_pairs(moved):
                yield replace(moved, pairs=pairs)


class Reach:
    """The links on any shortest path between two of these nodes."""

    def __init__(self, fabric: Fabric, nodes: Collection[str], *, across: bool) -> None:
        self.fabric = fabric
        asked_for = set(nodes)
        rail_nics = {(nic.switch, nic.rail) for nic in fabric.nics if nic.node in asked_for}
        bearing = {switch for switch, _ in rail_nics}
        self._leaves = [leaf for leaf in fabric.leaves if leaf in bearing]
        self._columns = [fabric.leaf_number[leaf] for leaf in self._leaves]
        self._steps = fabric.leaf_steps[np.ix_(self._columns, self._columns)].astype(np.int64)
        on = np.array([[(leaf, r) in rail_nics for r in fabric.rails] for leaf in self._leaves])
        meet = (on.astype(np.float32) @ on.T.astype(np.float32)) > 0
        self._meet = (meet | across) & (self._steps != NO_PATH)

    def has(self, link: Link) -> bool:
        first, second = self._steps_from(link.a), self._steps_from(link.b)
        return any(
            bool(np.any(self._meet & (near[:, None] + 1 + far[None, :] == self._steps)))
            for near, far in ((first, second), (second, first))
        )

    def _steps_from(self, switch: str) -> Numbers:
        """The steps to each leaf; NO_PATH if the switch passes nothing on."""
        number = self.fabric.switch_number[switch]
        steps = self.fabric.steps[number, self._columns].astype(np.int64)
        own = [leaf == switch for leaf in self._leaves]
        return np.where(self.fabric.passes_on[number] | np.array(own), steps, NO_PATH)


Why = Literal["out of reach", "across rails", "left out"]


def untested_by_reason(crossed: Coverage, nodes: Collection[str]) -> dict[Why, tuple[Link, ...]]:
    """The links that no pair of these nodes crosses, by reason: no path between the nodes leads
    over them, only paths across rails do, or other paths were taken."""
    links = crossed.untested_links
    if not links:
        return {}
    like, any_rails = (Reach(crossed.fabric, nodes, across=across) for across in (False, True))
    reasons: dict[Why, list[Link]] = {}
    for link in links:
        near = like.has(link)
        why: Why = "left out" if near else "across rails"
        reasons.setdefault(why if near or any_rails.has(link) else "out of reach", []).append(link)
    return {why: tuple(links) for why, links in reasons.items()}


def _unreachable_links(crossed: _Crossed, nodes: Sequence[str], across: bool) -> Flags:
    """Flags for the links that are known to be on no path between these nodes."""
    links, reach = crossed.fabric.links, Reach(crossed.fabric, nodes, across=across)
    beyond = np.zeros(len(links), dtype=bool)
    for number in np.flatnonzero(crossed.link_chance == 0).tolist()[:MOST_ASKED]:
        beyond[number] = not reach.has(links[number])
    return beyond
