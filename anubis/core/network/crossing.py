"""The parts of a fabric that each measured flow crosses, with the chance of each.

A part can be at fault and be replaced: a node, a NIC with its cable, a link, all uplinks of a leaf
together, a switch. Most can be at fault in one direction only. A column is a part with a direction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from anubis.core.fabric import Fabric, Link, Numbers, Part, RailNic, Shares
from anubis.core.network.sharing import CableUse

Way = Literal["both", "out", "in"]
WAYS: tuple[Way, ...] = ("both", "out", "in")
BOTH, OUT, IN = range(3)
DETOURED = 0.3  # share of flows that take a detour, in a fabric where they may
MOST_VIA = 64  # switches by way of which detours are taken into account
SELDOM = 1e-3  # a part that fewer detours cross is left out
VISIBLE = 0.1  # share of a flow: if half of it is lost, the flow falls short by the limit of 5 %


@dataclass(frozen=True, slots=True)
class Flow:
    """The traffic from one node to another, or between both at once."""

    source: RailNic
    target: RailNic
    via: tuple[str, ...] = field(default=(), compare=False)  # the switches it passed, if known
    mutual: bool = False
    back: tuple[str, ...] = field(default=(), compare=False)  # the way back of a mutual flow
    undisturbed: bool = field(default=False, compare=False)  # no other pair could use its cables
    excused: float = field(default=0.0, compare=False)  # the chance of another reason to be bad
    turns: tuple[int, ...] = field(default=(), compare=False)  # in which it was measured, if known
    gone: bool = field(default=False, compare=False)  # once bad, once good: says nothing of cables

    @property
    def may_share(self) -> bool:
        """True if it may have shared a cable with others, which it cannot if its path is known."""
        return not (self.via or self.undisturbed)


@dataclass(frozen=True)
class Crossings:
    """The columns that each row (a flow) crosses: row, column, chance; sorted by column, row."""

    row: Numbers
    column: Numbers
    chance: Shares


class Parts:
    """All parts of a fabric, numbered; a column is 3 x the number of its part + its way.

    Out is the direction from a node or NIC, from the first end of a link to its second, and upwards
    from a leaf.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.nics = [nic for nic in fabric.nics if nic.node]
        self.rail_nic = {nic.rail_nic: number for number, nic in enumerate(self.nics)}
        self.node_number = {node: number for number, node in enumerate(fabric.nodes)}
        owner = np.array([self.node_number[nic.node] for nic in self.nics], dtype=np.int64)
        self._owner = owner
        self._sole = np.bincount(owner, minlength=len(fabric.nodes))[owner] == 1
        self._leaf = [nic.switch for nic in self.nics]
        self._nic = len(fabric.nodes)
        self._link = self._nic + len(self.nics)
        self._switch = self._link + len(fabric.links)
        self._uplinks = self._switch + len(fabric.switches)
        self._use = CableUse(fabric)

    @property
    def columns(self) -> Numbers:
        """The first column of each part: at fault in both directions."""
        return np.arange(self._uplinks + len(self.fabric.leaves), dtype=np.int64) * 3

    def part(self, column: int) -> Part:
        number = column // 3
        if number < self._nic:
            return Part("node", self.fabric.nodes[number])
        if number < self._link:
            nic = self.nics[number - self._nic]
            return Part("nic", nic.node, nic.rail)
        if number < self._switch:
            link = self.fabric.links[number - self._link]
            return Part("link", link.a, link.b)
        if number < self._uplinks:
            return Part("switch", self.fabric.switches[number - self._switch].id)
        return Part("uplinks", self.fabric.leaves[number - self._uplinks])

    def has(self, part: Part) -> bool:
        try:
            return self.number(part) >= 0
        except KeyError:
            return False

    def number(self, part: Part) -> int:
        """The number of a part; three times it is the part's first column."""
        match part.kind:
            case "node":
                return self.node_number[part.name]
            case "nic":
                return self._nic + self.rail_nic[RailNic(part.name, part.other)]
            case "link":
                return self._link + self._link_between[part.name, part.other][0]
            case "switch":
                return self._switch + self.fabric.switch_number[part.name]
            case "uplinks":
                return self._uplinks + self.fabric.leaf_number[part.name]

    def kinds(self, columns: Numbers) -> Numbers:
        """The numbers of the kinds of these columns in KINDS."""
        bounds = [self._nic, self._link, self._switch, self._uplinks]
        return np.asarray(np.searchsorted(bounds, columns // 3, side="right"), dtype=np.int64)

    def are_one_way(self, columns: Numbers) -> npt.NDArray[np.bool_]:
        """A flag for each column: may its part be at fault in one direction only?

        Switches never are, and nodes only if they have a single NIC.
        """
        sole = np.zeros(self._uplinks + len(self.fabric.leaves), dtype=bool)
        sole[self._owner[self._sole]] = True
        return (self.kinds(columns) % 3 > 0) | sole[columns // 3]

    def crossings(self, flows: Sequence[Flow], columns: Numbers) -> Crossings:
        """The crossings of these columns by the flows."""
        rows, rail_nics = self._rail_nics(flows)
        keys, key = self._keys(flows, rows, rail_nics)
        between = _expand(self._crossings_between(keys, columns), key, rows)
        return _join(_select(self._ends(rows, rail_nics), columns), between)

    def chances_of_sharing(self, flows: Sequence[Flow], chosen: npt.NDArray[np.bool_]) -> Shares:
        """The chance that each of these flows shared a cable with others; 0 if its path is known.

        It is at most the chance that the schedule allowed, and the share of pairs at other leaves
        that fell short: chance does not prefer one leaf. All flows of a pair between two NICs met
        the same others, so together they have the chance of one.
        """
        chances = np.zeros(len(flows))
        rows = [row for row in np.flatnonzero(chosen).tolist() if flows[row].may_share]
        if not rows:
            return chances
        numbers: dict[frozenset[RailNic], int] = {}
        every = [frozenset((flow.source, flow.target)) for flow in flows]
        pair = np.array([numbers.setdefault(rail_nics, len(numbers)) for rail_nics in every])
        leaves = [
            (self._leaf[self.rail_nic[source]], self._leaf[self.rail_nic[target]])
            for source, target in numbers
        ]
        short = np.bincount(pair[rows], minlength=len(numbers))
        let_on = np.zeros(len(numbers))
        let_on[short > 0] = self._use.chances_of_sharing([leaves[n] for n in np.flatnonzero(short)])
        chance = np.minimum(let_on, self._short_shares_elsewhere(leaves, short > 0))
        chances[rows] = chance[pair[rows]] ** (1 / short[pair[rows]])
        return chances

    def _short_shares_elsewhere(
        self, leaves: Sequence[tuple[str, str]], short: npt.NDArray[np.bool_]
    ) -> Shares:
        """The share of short pairs among those that are as far apart and have no leaf in common
        with each of these, by the rule of succession."""
        number = self.fabric.leaf_number
        ends = np.sort([(number[a], number[b]) for a, b in leaves], axis=1)
        steps = self.fabric.leaf_steps[ends[:, 0], ends[:, 1]]
        rates = np.zeros(len(leaves))
        for distance in np.unique(steps[short & (steps > 0)]).tolist():
            here = steps == distance
            fell_short = _sums_elsewhere(ends[here], short[here] * 1.0)
            rates[here] = (fell_short + 1) / (_sums_elsewhere(ends[here], np.ones(here.sum())) + 2)
        return rates

    def classes(self, flows: Sequence[Flow], suspects: Numbers) -> tuple[Crossings, list[Numbers]]:
        """All crossings of the columns that suspect rows cross, equal columns merged into classes.

        Columns of the answer are numbers of classes; each class is returned with its own columns.
        The parts between two leaves are the same for all their flows, and are merged before they
        are expanded to flows.
        """
        rows, rail_nics = self._rail_nics(flows)
        chosen = np.isin(rows, suspects)
        ends = self._ends(rows, rail_nics)
        ends = _select(ends, np.unique(ends.column[np.isin(ends.row, rows[chosen])]))
        keys, key = self._keys(flows, rows, rail_nics)
        between = self._crossings_between(keys)
        seen = between.column[np.isin(between.row, np.unique(key[chosen]))]
        between, groups = _merge(_select(between, np.unique(seen)))
        first = np.array([group[0] for group in groups], dtype=np.int64)
        named = Crossings(between.row, first[between.column], between.chance)
        merged, classes = _merge(_join(ends, _expand(named, key, rows)))
        members = {int(group[0]): group for group in groups}
        return merged, [
            np.concatenate([members.get(int(c), np.array([c])) for c in columns])
            for columns in classes
        ]

    def _rail_nics(self, flows: Sequence[Flow]) -> tuple[Numbers, Numbers]:
        """A row number and two NIC numbers for each direction of each flow."""
        rows, rail_nics = [], []
        for row, flow in enumerate(flows):
            try:
                pair = self.rail_nic[flow.source], self.rail_nic[flow.target]
            except KeyError as missing:
                node, rail = missing.args[0]
                raise ValueError(f'node "{node}" has no NIC on rail "{rail}"') from None
            rows.append(row)
            rail_nics.append(pair)
            if flow.mutual:
                rows.append(row)
                rail_nics.append(pair[::-1])
        return np.array(rows, dtype=np.int64), np.array(rail_nics, dtype=np.int64).reshape(-1, 2)

    def _ends(self, rows: Numbers, rail_nics: Numbers) -> Crossings:
        row, column = [], []
        for end, way in ((0, OUT), (1, IN)):
            nic = rail_nics[:, end]
            node, sole = self._owner[nic] * 3, self._sole[nic]
            own = np.where(sole, node, (self._nic + nic) * 3)
            row += [rows, rows, rows[~sole]]
            column += [own, own + way, node[~sole]]
        return Crossings(np.concatenate(row), np.concatenate(column), np.ones(sum(map(len, row))))

    def _keys(
        self, flows: Sequence[Flow], rows: Numbers, rail_nics: Numbers
    ) -> tuple[list[tuple[str, str, tuple[str, ...]]], Numbers]:
        """The distinct paths from leaf to leaf, and the number of the one that each directed flow
        takes."""
        numbers: dict[tuple[str, str, tuple[str, ...]], int] = {}
        key = np.empty(len(rows), dtype=np.int64)
        back = False
        for place, row in enumerate(rows.tolist()):
            flow = flows[row]
            back = place > 0 and rows[place - 1] == row and not back
            a, b = self._leaf[rail_nics[place, 0]], self._leaf[rail_nics[place, 1]]
            via = (flow.back or flow.via[::-1]) if back else flow.via
            key[place] = numbers.setdefault((a, b, via), len(numbers))
        return list(numbers), key

    def _crossings_between(
        self, keys: Sequence[tuple[str, str, tuple[str, ...]]], columns: Numbers | None = None
    ) -> Crossings:
        unknown = [(number, a, b) for number, (a, b, via) in enumerate(keys) if not via]
        pieces = [self._uplinks_crossed(keys)]
        direct = 1 - DETOURED if self.fabric.may_detour else 1.0
        for some in self._shortest_ways(unknown, direct):
            pieces.append(some if columns is None else _select(some, columns))
        if self.fabric.may_detour:
            pieces += self._detours([(n, a, b) for n, a, b in unknown if a != b])
        every = _join(*pieces, *self._routed_crossings(keys))
        return every if columns is None else _select(every, columns)

    def _shortest_ways(
        self, keys: Sequence[tuple[int, str, str]], share: float
    ) -> Iterator[Crossings]:
        """Yield what this share of the traffic crosses, from leaf to leaf, under numbers of its
        own."""
        of = np.array([number for number, _, _ in keys], dtype=np.int64)
        leaf_number, steps = self.fabric.leaf_number, self.fabric.steps
        target = np.array([leaf_number[b] for _, _, b in keys], dtype=np.int64)
        for part in self.fabric.spread([(a, b) for _, a, b in keys]):
            a, b = self._link_ends[part.link].T
            out = steps[a, target[part.link_pair]] > steps[b, target[part.link_pair]]
            chance = self._chance(share * part.link_share, self._cables[part.link])
            yield from self._links_crossed(of[part.link_pair], part.link, out, chance)
            switch = (self._switch + part.switch) * 3
            yield Crossings(of[part.switch_pair], switch, self._chance(share * part.switch_share))

    def _detours(self, keys: Sequence[tuple[int, str, str]]) -> Iterator[Crossings]:
        """Yield what flows cross on detours, and the leaves that they cross on any way."""
        rows = np.array([number for number, _, _ in keys], dtype=np.int64)
        begins, ends = [a for _, a, _ in keys], [b for _, _, b in keys]
        for leaves, detours in zip((begins, ends), self._detours_by_leaf, strict=True):
            number, switch = self.fabric.leaf_number, self.fabric.switch_number
            yield _expand(detours, np.array([number[leaf] for leaf in leaves], np.int64), rows)
            column = (self._switch + np.array([switch[leaf] for leaf in leaves], np.int64)) * 3
            yield Crossings(rows, column, np.ones(len(rows)))

    @cached_property
    def _detours_by_leaf(self) -> tuple[Crossings, Crossings]:
        """The crossings of detours from each leaf to all, and from all to each leaf."""
        leaves = self.fabric.leaves
        via = leaves[:: -(-len(leaves) // MOST_VIA)]
        ways = [(number, leaf, there) for number, leaf in enumerate(leaves) for there in via]
        back = [(number, there, leaf) for number, leaf, there in ways]
        out, into = (
            _add_up(self._shortest_ways(keys, DETOURED / len(via))) for keys in (ways, back)
        )
        return out, into

    def _chance(self, share: Shares, cables: Shares | float = 1.0) -> Shares:
        """The chance that a fault of a part shows in a flow that has this share of its paths there.

        A flow on one path is hit if that is the one. Sprayed packets are on all paths at once, so
        every flow is hit, and shows it unless the part carries too little of it.
        """
        return np.minimum(share / VISIBLE, 1.0) if self.fabric.sprays else share / cables

    def _links_crossed(
        self, row: Numbers, link: Numbers, out: npt.NDArray[np.bool_], share: Shares
    ) -> list[Crossings]:
        column = (self._link + link) * 3
        return [
            Crossings(row, column, share),
            Crossings(row, column + np.where(out, OUT, IN), share),
        ]

    def _routed_crossings(
        self, keys: Sequence[tuple[str, str, tuple[str, ...]]]
    ) -> list[Crossings]:
        """The crossings of paths whose switches are known."""
        passed, crossed = [], []
        for number, (_, _, via) in enumerate(keys):
            passed += [(number, self.fabric.switch_number[switch]) for switch in via]
            crossed += [(number, *self._link_between[step]) for step in pairwise(via)]
        row, switch = np.array(passed, dtype=np.int64).reshape(-1, 2).T
        switches = Crossings(row, (self._switch + switch) * 3, np.ones(len(row)))
        row, link, out = np.array(crossed, dtype=np.int64).reshape(-1, 3).T
        return [switches, *self._links_crossed(row, link, out > 0, 1 / self._cables[link])]

    def _uplinks_crossed(self, keys: Sequence[tuple[str, str, tuple[str, ...]]]) -> Crossings:
        row, column = [], []
        for number, (a, b, _) in enumerate(keys):
            if a != b:
                for leaf, way in ((a, OUT), (b, IN)):
                    if leaf in self._bundled_leaves:
                        first = (self._uplinks + self.fabric.leaf_number[leaf]) * 3
                        row += [number, number]
                        column += [first, first + way]
        return Crossings(
            np.array(row, dtype=np.int64), np.array(column, dtype=np.int64), np.ones(len(row))
        )

    @cached_property
    def _bundled_leaves(self) -> set[str]:
        """The leaves with several cables upwards; a single one is a link like any other."""
        fabric = self.fabric
        return {
            leaf
            for leaf in fabric.leaves
            if sum(len(link.cables) for link in fabric.uplinks(leaf)) > 1
        }

    @cached_property
    def _cables(self) -> Shares:
        return np.array([len(link.cables) for link in self.fabric.links], dtype=np.float64)

    @cached_property
    def _link_ends(self) -> Numbers:
        number = self.fabric.switch_number
        ends = [(number[link.a], number[link.b]) for link in self.fabric.links]
        return np.array(ends, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def _link_between(self) -> dict[tuple[str, str], tuple[int, bool]]:
        numbers: dict[tuple[str, str], tuple[int, bool]] = {}
        for number, link in enumerate(self.fabric.links):
            numbers[link.a, link.b] = number, True
            numbers[link.b, link.a] = number, False
        return numbers


def may_cross(fabric: Fabric, flow: Flow, parts: Collection[Part]) -> bool:
    """True if one of these parts may be on the path of a flow."""
    a, b = fabric.nic(*flow.source), fabric.nic(*flow.target)
    passed = set(flow.via)
    if a and b and not passed:
        passed = set(fabric.parts_between(a.switch, b.switch)[1])
    ends = {flow.source, flow.target}
    for part in parts:
        match part.kind:
            case "node" if part.name in {rail_nic.node for rail_nic in ends}:
                return True
            case "nic" if RailNic(part.name, part.other) in ends:
                return True
            case "link" if {part.name, part.other} <= passed:
                return True
            case "switch" | "uplinks" if part.name in passed:
                return True
    return False


def links_that_may_be_crossed(fabric: Fabric, flow: Flow) -> set[Part]:
    """The links that may be on the path of a flow, as parts."""
    if flow.via:
        return {link_part(fabric.link(*step)) for step in pairwise(flow.via)}
    a, b = fabric.nic(*flow.source), fabric.nic(*flow.target)
    if not a or not b:
        return set()
    is_any = fabric.may_detour and a.switch != b.switch
    links = fabric.links if is_any else fabric.parts_between(a.switch, b.switch)[0]
    return set(map(link_part, links))


def nic_part(fabric: Fabric, node: str, rail: str) -> Part:
    """The part for a NIC; the node itself if it is the node's only NIC."""
    several = sum(1 for rail in fabric.rails if fabric.nic(node, rail)) > 1
    return Part("nic", node, rail) if several else Part("node", node)


def link_part(link: Link) -> Part:
    return Part("link", link.a, link.b)


def _sums_elsewhere(ends: Numbers, weight: Shares) -> Shares:
    """The weight of all pairs that have no leaf in common with each pair of leaves."""
    at_leaf = np.bincount(ends.ravel(), np.repeat(weight, 2))
    _, place = np.unique(ends, axis=0, return_inverse=True)
    at_both = np.bincount(place, weight)
    return np.asarray(weight.sum() - at_leaf[ends].sum(axis=1) + at_both[place])


# --- columns ---------------------------------------------------------------------------------


def _select(crossings: Crossings, columns: Numbers) -> Crossings:
    kept = np.isin(crossings.column, columns)
    return Crossings(crossings.row[kept], crossings.column[kept], crossings.chance[kept])


def _expand(crossings: Crossings, key: Numbers, rows: Numbers) -> Crossings:
    """Expand crossings from keys to the rows that have them."""
    order = np.argsort(key, kind="stable")
    count = np.bincount(key, minlength=int(crossings.row.max(initial=-1)) + 1)
    start = np.cumsum(count) - count
    times = count[crossings.row]
    origin = np.repeat(np.arange(len(crossings.row)), times)
    place = np.arange(len(origin)) - np.repeat(np.cumsum(times) - times, times)
    row = rows[order[start[crossings.row[origin]] + place]]
    return Crossings(row, crossings.column[origin], crossings.chance[origin])


def _join(*parts: Crossings) -> Crossings:
    """Join crossings, each row and column once. If a flow crosses a column twice, it has two
    chances to be hit."""
    row = np.concatenate([part.row for part in parts])
    column = np.concatenate([part.column for part in parts])
    chance = np.concatenate([part.chance for part in parts])
    order = np.lexsort((row, column))
    row, column, chance = row[order], column[order], chance[order]
    new = np.append(True, (row[1:] != row[:-1]) | (column[1:] != column[:-1]))[: len(row)]
    if new.all():
        return Crossings(row, column, chance)
    with np.errstate(divide="ignore"):
        missed = np.add.reduceat(np.log1p(-np.minimum(chance, 1)), np.flatnonzero(new))
    return Crossings(row[new], column[new], -np.expm1(missed))


def _add_up(parts: Iterable[Crossings]) -> Crossings:
    """Join crossings, each row and column once, with the sum of their chances; few are left out."""
    row, column, chance = zip(
        *((part.row, part.column, part.chance) for part in parts), strict=True
    )
    columns = np.concatenate(column)
    width = int(columns.max(initial=0)) + 1
    place, number = np.unique(np.concatenate(row) * width + columns, return_inverse=True)
    total = np.minimum(np.bincount(number, np.concatenate(chance)), 1.0)
    kept = total > SELDOM
    return Crossings(place[kept] // width, place[kept] % width, total[kept])


def _merge(crossings: Crossings) -> tuple[Crossings, list[Numbers]]:
    """Merge columns with the same rows and chances; return also the columns in each."""
    if not len(crossings.row):
        return crossings, []
    start = np.flatnonzero(np.append(True, np.diff(crossings.column) != 0))
    size = np.diff(np.append(start, len(crossings.row)))
    share = np.round(crossings.chance * 1e9).astype(np.uint64)
    entry = _mix(_mix(crossings.row.astype(np.uint64)) + share)
    sums = [np.add.reduceat(values, start) for values in (entry, _mix(entry + np.uint64(1)))]
    names = np.stack([*sums, size.astype(np.uint64)], axis=1)
    _, first, inverse = np.unique(names, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    columns = crossings.column[start]
    order = np.argsort(inverse, kind="stable")
    members = np.split(columns[order], np.flatnonzero(np.diff(inverse[order])) + 1)
    keep = np.zeros(len(start), dtype=bool)
    keep[first] = True
    kept = np.repeat(keep, size)
    column = np.repeat(inverse, size)[kept]
    merged = _join(Crossings(crossings.row[kept], column, crossings.chance[kept]))
    return merged, members


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix numbers (the final step of splitmix64), so that sums of them identify sets."""
    x = numbers + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
