"""A fabric: the switch of each NIC, the distance of two NICs, and the parts between them.

A fabric is a graph of switches with NICs at its edge: a tree, several planes, or anything else.
Beside it, NVLink domains join GPUs of several nodes (`Fabric.nvlink`).
The readers in anubis/readers/topology/ make it; nothing here depends on a file format.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from anubis.core.arrays import Flags
from anubis.core.routes import Routes

Numbers = npt.NDArray[np.int64]
Steps = npt.NDArray[np.uint16]
Shares = npt.NDArray[np.float64]
NO_PATH = np.iinfo(np.uint16).max
NVLINK = "nvlink"  # with the number of a GPU, the rail of its NVLinks
PartKind = Literal["node", "nic", "link", "uplinks", "switch"]
KINDS: tuple[PartKind, ...] = ("node", "nic", "link", "switch", "uplinks")

MOST_DIGITS = 40  # longer numbers in names are text
_NUMBERED = re.compile(r"(?:mlx\d+_|HCA-)(\d+)(.*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    id: str
    name: str
    tier: int = 0  # by the source; 0 if it does not say
    guid: str = ""  # in hexadecimal without leading zeros; "" if it has none
    addresses: tuple[str, ...] = ()  # at which it is managed


@dataclass(frozen=True, kw_only=True, slots=True)
class Cable:
    """One of the cables of a link: its port at either end, "" if unknown."""

    port_a: str = ""
    port_b: str = ""
    gbit_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """All cables between two switches."""

    a: str
    b: str
    cables: tuple[Cable, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainNode:
    """A node in an NVLink domain, and those of its GPUs that are in it."""

    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Domain:
    """GPUs of several nodes that reach each other by NVLink.

    Each GPU spreads its traffic over all NVLink switches of its domain, so no pair can tell these
    apart, and they are one part.
    """

    name: str
    nodes: tuple[DomainNode, ...]
    switches: tuple[str, ...] = ()  # their names; () if unknown


class RailNic(NamedTuple):
    """A node's place on a rail."""

    node: str
    rail: str


RailNics = tuple[RailNic, RailNic]  # source and target of a flow: on the same rail, or across rails


def rail_nics_on(first: str, second: str, rail: str) -> RailNics:
    return RailNic(first, rail), RailNic(second, rail)


@dataclass(frozen=True, kw_only=True, slots=True)
class Nic:
    """One port of a network adapter. The ports of a node stay separate: each is on a rail of its
    own."""

    id: str
    node: str  # "" if its node is unknown
    device: str  # its name on the node: mlx5_4, HCA-5, eth0
    rail: str
    switch: str
    port: str = ""  # of the switch
    gbit_s: float | None = None
    guid: str = ""  # of this port, written as for a switch
    lid: int = 0  # its address in the tables of InfiniBand switches; 0 if unknown

    @property
    def rail_nic(self) -> RailNic:
        return RailNic(self.node, self.rail)


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """node: its name. nic: its node and rail. link: both ends. uplinks: the leaf. switch: its id.

    A node and its only NIC are one part: no traffic could tell them apart.
    """

    kind: PartKind
    name: str
    other: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """Something odd: one sentence, with the line or the switches it is about, if any."""

    kind: str
    sentence: str
    line: int = 0
    switches: tuple[str, ...] = ()  # the switch, or both ends of the link

    def __str__(self) -> str:
        return f"line {self.line}: {self.sentence}" if self.line else self.sentence


def rail_of(device: str) -> str:
    """The rail of a device, so that nodes that name their devices differently still agree.

    `HCA-1` is the older name of `mlx5_0`: it counts from one. Other names are rails themselves.
    """
    match = _NUMBERED.fullmatch(device)
    if not match or len(match[1]) > MOST_DIGITS:
        return device
    number, rest = match.groups()
    return f"{int(number) - device.startswith('HCA-')}{rest}"


@dataclass(frozen=True, kw_only=True)
class Fabric:
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    nics: tuple[Nic, ...]
    routes: Routes | None = None  # None: it is unknown which of several paths a flow takes
    domains: tuple[Domain, ...] = ()  # of NVLink
    sprays: bool = False  # the packets of a flow take all shortest paths at once
    is_outline: bool = False  # a link of it may be cables of several planes or rails
    source: str = field(default="", compare=False)  # in words
    as_of: float | None = field(default=None, compare=False)  # seconds since 1970

    def __post_init__(self) -> None:
        if len(self.switch_number) < len(self.switches):
            raise ValueError("two switches have the same id")
        if len(self._rail_nics) < sum(1 for nic in self.nics if nic.node):
            raise ValueError("a node has two NICs on one rail")
        ids = self.switch_number.keys()
        for link in self.links:
            if link.a == link.b or not link.cables or not {link.a, link.b} <= ids:
                raise ValueError(f"the link {link.a} - {link.b} does not join two switches")
        for nic in self.nics:
            if nic.switch not in ids:
                raise ValueError(f"{nic.id} is on a switch that does not exist: {nic.switch}")
        if len(self.domain_of) < sum(len(domain.nodes) for domain in self.domains):
            raise ValueError("a node is in two NVLink domains")

    # --- switches and NICs -----------------------------------------------------------------

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, in the order of their first NICs."""
        return tuple(dict.fromkeys(nic.node for nic in self.nics if nic.node))

    @cached_property
    def rails(self) -> tuple[str, ...]:
        return tuple(sorted({nic.rail for nic in self.nics if nic.node}, key=natural_key))

    @cached_property
    def rail_number(self) -> dict[str, int]:
        return {rail: number for number, rail in enumerate(self.rails)}

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The switches that have NICs, on any tier."""
        bearing = {nic.switch for nic in self.nics}
        return tuple(switch.id for switch in self.switches if switch.id in bearing)

    @cached_property
    def switch_number(self) -> dict[str, int]:
        return {switch.id: number for number, switch in enumerate(self.switches)}

    def nodes_below(self, switch: str) -> frozenset[str]:
        """The nodes whose way to the rest of the fabric may lead over this switch."""
        below, waiting = {switch}, [switch]
        while waiting:
            upper = waiting.pop()
            for link in self.links_of[upper]:
                lower = link.a if link.b == upper else link.b
                if self.is_uplink(link) and self.upper(link) == upper and lower not in below:
                    below.add(lower)
                    waiting.append(lower)
        nics = (nic for leaf in below for nic in self.nics_on.get(leaf, ()))
        return frozenset(nic.node for nic in nics if nic.node)

    def name(self, switch: str) -> str:
        return self.switches[self.switch_number[switch]].name

    def nic(self, node: str, rail: str) -> Nic | None:
        return self._rail_nics.get(RailNic(node, rail))

    @cached_property
    def nics_on(self) -> dict[str, tuple[Nic, ...]]:
        nics_of: dict[str, list[Nic]] = {leaf: [] for leaf in self.leaves}
        for nic in self.nics:
            nics_of[nic.switch].append(nic)
        return {leaf: tuple(nics) for leaf, nics in nics_of.items()}

    # --- NVLink ----------------------------------------------------------------------------

    @cached_property
    def domain_of(self) -> dict[str, Domain]:
        """The NVLink domain of each node that is in one."""
        return {member.node: domain for domain in self.domains for member in domain.nodes}

    @cached_property
    def nvlink(self) -> Fabric:
        """The NVLink domains as a fabric of its own: one switch stands for all of a domain, and
        each GPU is on the rail of its number."""
        return Fabric(
            switches=tuple(Switch(id=domain.name, name=domain.name) for domain in self.domains),
            links=(),
            nics=tuple(
                Nic(
                    id=f"{member.node}/{NVLINK}{gpu}",
                    node=member.node,
                    device=f"{NVLINK}{gpu}",
                    rail=f"{NVLINK}{gpu}",
                    switch=domain.name,
                )
                for domain in self.domains
                for member in domain.nodes
                for gpu in member.gpus
            ),
            domains=self.domains,
            source=self.source,
            as_of=self.as_of,
        )

    @property
    def is_nvlink(self) -> bool:
        """True if its NICs are the NVLinks of GPUs."""
        return bool(self.nics) and self.nics[0].device.startswith(NVLINK)

    # --- tiers and planes ------------------------------------------------------------------

    @cached_property
    def tier(self) -> dict[str, int]:
        """The tier of each switch: 1 for leaves, 2 for the switches above them, and so on; 0 if no
        leaf is in reach.

        If the source does not say, tiers are counted from the leaves. A switch with NICs is still
        an upper one if it has fewer than half as many as its neighbours with NICs usually have: a
        few service nodes may be on spines. If no node is plugged in yet, a switch has the tier of
        those that share the switches above it.
        """
        declared = {switch.id: switch.tier for switch in self.switches}
        if all(declared.values()):
            return declared
        count = Counter(nic.switch for nic in self.nics)
        sizes = [count[switch.id] for switch in self.switches]
        beside = [self._graph.neighbours(number) for number in range(len(sizes))]
        lowest = set()
        for number, size in enumerate(sizes):
            sizes_beside = [sizes[neighbour] for neighbour in beside[number] if sizes[neighbour]]
            if size and 2 * size >= (float(np.median(sizes_beside)) if sizes_beside else 0):
                lowest.add(number)
        if not lowest:
            return dict.fromkeys(self.switch_number, 0)
        tiers = _tiers_above(lowest, beside)
        return {switch.id: tiers.get(number, 0) for number, switch in enumerate(self.switches)}

    def is_uplink(self, link: Link) -> bool:
        return self.tier[link.a] != self.tier[link.b]

    def upper(self, link: Link) -> str:
        """The end of an uplink that is further from the nodes."""
        return link.a if self.tier[link.a] > self.tier[link.b] else link.b

    def link(self, a: str, b: str) -> Link:
        return self._link_of[frozenset((a, b))]

    @cached_property
    def links_of(self) -> dict[str, tuple[Link, ...]]:
        links_of: dict[str, list[Link]] = {switch.id: [] for switch in self.switches}
        for link in self.links:
            links_of[link.a].append(link)
            links_of[link.b].append(link)
        return {switch: tuple(links) for switch, links in links_of.items()}

    @property
    def has_rdma_adapters(self) -> bool:
        """True if a NIC has the name of an adapter that does remote memory access."""
        return any(nic.device.startswith(("mlx", "HCA")) for nic in self.nics)

    def uplinks(self, switch: str) -> tuple[Link, ...]:
        return tuple(
            link
            for link in self.links_of[switch]
            if self.is_uplink(link) and self.upper(link) != switch
        )

    def oversubscription(self, switch: str) -> float | None:
        """The speed of a leaf's NICs divided by that of its uplinks; None if unknown."""
        below = [nic.gbit_s for nic in self.nics_on.get(switch, ())]
        above = [cable.gbit_s for link in self.uplinks(switch) for cable in link.cables]
        speeds = [speed for speed in (*below, *above) if speed is not None]
        if not below or not above or len(speeds) < len(below) + len(above):
            return None
        return sum(speeds[: len(below)]) / sum(speeds[len(below) :])

    @cached_property
    def planes(self) -> tuple[tuple[str, ...], ...]:
        """The parts without a cable between them, as tuples of switches; the largest first."""
        planes: dict[int, list[str]] = {}
        for switch, part in zip(self.switches, self._graph.parts(), strict=True):
            planes.setdefault(int(part), []).append(switch.id)
        return tuple(sorted(map(tuple, planes.values()), key=len, reverse=True))

    @cached_property
    def may_detour(self) -> bool:
        """True if switches may send some flows by way of others (Valiant, UGAL), as in a dragonfly
        or torus: no switch is above another, and no table shows which way is taken."""
        is_flat = self.links and not any(map(self.is_uplink, self.links))
        return bool(is_flat and not self.routes and len(self.leaves) > 2)

    # --- distances and paths ---------------------------------------------------------------

    @cached_property
    def steps(self) -> Steps:
        """The number of links between each switch (row) and each leaf (column), or NO_PATH.

        No path leads down to a leaf and up again: no router would choose it.
        """
        return self._graph.steps(
            [[self.switch_number[leaf]] for leaf in self.leaves], self.passes_on
        )

    @cached_property
    def passes_on(self) -> Flags:
        """A flag for each switch: does it carry traffic between others? Leaves below an upper tier
        do not.

        A leaf does if it joins to the rest a neighbour that has no uplink of its own.
        """
        tiers = np.array([self.tier[switch.id] for switch in self.switches], dtype=np.int64)
        passes_on = np.ones(len(tiers), dtype=bool)
        beside = [self._graph.neighbours(number) for number in range(len(tiers))]
        leaves = np.flatnonzero(tiers == 1).tolist()
        below = {leaf for leaf in leaves if any(tiers[m] > 1 for m in beside[leaf])}
        for leaf in below:
            passes_on[leaf] = any(tiers[m] <= 1 and m not in below for m in beside[leaf])
        return passes_on

    @cached_property
    def leaf_steps(self) -> Steps:
        return self.steps[[self.switch_number[leaf] for leaf in self.leaves]]

    @cached_property
    def leaf_number(self) -> dict[str, int]:
        """The column of each leaf in `steps`."""
        return {leaf: number for number, leaf in enumerate(self.leaves)}

    def hops(self, a: Nic, b: Nic) -> int | None:
        """The number of cables between two NICs: 2 on the same leaf, None if there is no path."""
        steps = self.steps[self.switch_number[a.switch], self.leaf_number[b.switch]]
        return None if steps == NO_PATH else int(steps) + 2

    def links_onward(self, switch: str, leaf: str) -> list[tuple[Link, str]]:
        """The links that lead from a switch nearer to a leaf, and their far ends."""
        away = self.steps_between(switch, leaf)
        nearer = []
        for link in self.links_of[switch]:
            there = link.b if link.a == switch else link.a
            passes_on = there == leaf or self.passes_on[self.switch_number[there]]
            if passes_on and self.steps_between(there, leaf) + 1 == away:
                nearer.append((link, there))
        return nearer

    def steps_between(self, switch: str, leaf: str) -> int:
        return int(self.steps[self.switch_number[switch], self.leaf_number[leaf]])

    def pairs_by_hops(self, nodes: Collection[str] | None = None) -> dict[int | None, int]:
        """The number of ordered pairs of NICs at each distance; None counts those without a path.

        It counts all NICs, even those of unknown nodes, or only the NICs of some nodes.
        """
        sizes = np.array(
            [
                sum(nodes is None or nic.node in nodes for nic in self.nics_on[leaf])
                for leaf in self.leaves
            ],
            dtype=np.int64,
        )
        counts: Counter[int | None] = Counter()
        counts[2] = int(np.sum(sizes * (sizes - 1)))
        for row, size in zip(self.leaf_steps, sizes, strict=True):
            for steps, count in _counts(row, sizes):
                if steps:
                    counts[None if steps == NO_PATH else steps + 2] += int(size) * count
        return {hops: count for hops, count in sorted(counts.items(), key=_hops_key) if count}

    def spread(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Spread]:
        """Yield the shares of traffic from one leaf to another, for each (from, to), in batches.

        At each switch all shortest paths carry equal shares, cable by cable (ECMP, adaptive
        routing). With static routes a single unknown path carries everything. Leaves with the same
        cabling are computed once.
        """
        ends = np.array([[self.switch_number[end] for end in pair] for pair in pairs])
        alike, pair_of = self._twins.stand_ins(ends.reshape(-1, 2).astype(np.int64))
        order = np.argsort(pair_of, kind="stable")
        column = np.full(len(self.switches), -1)
        column[[self.switch_number[leaf] for leaf in self.leaves]] = np.arange(len(self.leaves))
        for begin in range(0, len(alike), BATCH):
            batch = alike[begin : begin + BATCH]
            spread = self._graph.spread(
                batch[:, 0], column[batch[:, 1]], self.steps, self.passes_on
            )
            first, last = np.searchsorted(pair_of[order], [begin, begin + len(batch)])
            for some in range(first, last, BATCH):
                rows = order[some : min(some + BATCH, last)]
                yield self._twins.translate(spread, batch, rows, pair_of[rows] - begin, ends[rows])

    def route(self, a: Nic, b: Nic) -> tuple[str, ...]:
        """The switches on the route from one NIC to another; () if unknown."""
        key = a.switch, b.id
        if key not in self._known_routes:
            self._known_routes[key] = self._follow(a.switch, b) if self.routes else ()
        return self._known_routes[key]

    def cables_between(self, a: Nic, b: Nic) -> tuple[tuple[Link, Cable], ...]:
        """The cables on the route from one NIC to another."""
        return tuple(
            self._cable_at[switch, self._out_port(switch, b)] for switch in self.route(a, b)[:-1]
        )

    def _follow(self, here: str, goal: Nic) -> tuple[str, ...]:
        """The switches on the route; none if a table has a gap, or leads in a circle or to another
        port."""
        passed = [here]
        while here != goal.switch:
            if (here, self._out_port(here, goal)) not in self._cable_at:
                return ()
            link, _ = self._cable_at[here, self._out_port(here, goal)]
            here = link.b if link.a == here else link.a
            if here in passed:
                return ()
            passed.append(here)
        arrives = not goal.port or goal.port == self._out_port(here, goal)
        return tuple(passed) if arrives else ()

    def _out_port(self, switch: str, goal: Nic) -> str:
        return str(self.routes.port(switch, goal.id)) if self.routes else ""

    def parts_between(self, a: str, b: str) -> tuple[tuple[Link, ...], tuple[str, ...]]:
        """All links and all switches on the shortest paths between two leaves, ends included."""
        (crossed,) = self.spread([(a, b)])
        links = tuple(self.links[number] for number in np.unique(crossed.link))
        return links, tuple(self.switches[number].id for number in np.unique(crossed.switch))

    # --- for the rest of this file ---------------------------------------------------------

    @cached_property
    def _known_routes(self) -> dict[tuple[str, str], tuple[str, ...]]:
        return {}

    @cached_property
    def _twins(self) -> _Twins:
        return _Twins(self)

    @cached_property
    def _cable_at(self) -> dict[tuple[str, str], tuple[Link, Cable]]:
        """The link and cable at each port of a switch that leads to another."""
        return {
            end: (link, cable)
            for link in self.links
            for cable in link.cables
            for end in ((link.a, cable.port_a), (link.b, cable.port_b))
            if end[1]
        }

    @cached_property
    def _link_of(self) -> dict[frozenset[str], Link]:
        return {frozenset((link.a, link.b)): link for link in self.links}

    @cached_property
    def _rail_nics(self) -> dict[RailNic, Nic]:
        return {nic.rail_nic: nic for nic in self.nics if nic.node}

    @cached_property
    def _graph(self) -> _Graph:
        ends = np.array(
            [(self.switch_number[link.a], self.switch_number[link.b]) for link in self.links],
            dtype=np.int64,
        ).reshape(-1, 2)
        return _Graph.from_links(
            len(self.switches), ends, [len(link.cables) for link in self.links]
        )


MOST_PORTS = 4  # ports of a link in its name
BATCH = 2048  # leaf pairs spread at once, to bound the memory


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Shares of each pair's traffic, as columns: pair, link, share; and pair, switch, share."""

    link_pair: Numbers
    link: Numbers
    link_share: Shares
    switch_pair: Numbers
    switch: Numbers
    switch_share: Shares


@dataclass(frozen=True)
class _Graph:
    """The switches as numbers. Each link is listed twice, sorted by its begin."""

    start: Numbers  # the begin of each switch's links in the columns below
    end: Numbers
    head: Numbers
    link: Numbers
    cables: Shares

    @classmethod
    def from_links(cls, switches: int, ends: Numbers, cables: Sequence[int]) -> _Graph:
        tail = np.concatenate([ends[:, 0], ends[:, 1]])
        head = np.concatenate([ends[:, 1], ends[:, 0]])
        order = np.lexsort((head, tail))
        bounds = np.searchsorted(tail[order], np.arange(switches + 1))
        link = np.tile(np.arange(len(ends)), 2)[order]
        weight = np.asarray(cables, dtype=np.float64)
        return cls(bounds[:-1], bounds[1:], head[order], link, weight[link])

    def neighbours(self, switch: int) -> frozenset[int]:
        return frozenset(self.head[self.start[switch] : self.end[switch]].tolist())

    def parts(self) -> npt.NDArray[np.int32]:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        count = len(self.start)
        bounds = np.append(self.start, len(self.head))
        matrix = csr_array((self.cables, self.head, bounds), shape=(count, count))
        _, parts = connected_components(matrix, directed=False)
        return np.asarray(parts)

    def steps(self, sources: Sequence[Sequence[int]], passes_on: Flags | None = None) -> Steps:
        """The number of links from each switch (row) to the nearest of each group of sources
        (column).

        The search is breadth first from all groups at once. A row of bits per switch shows which
        groups have reached it; its distance is the number of steps before that. Switches that pass
        nothing on are reached, but nothing is reached through them.
        """
        distances = np.zeros((len(self.start), len(sources)), dtype=np.uint16)
        reached = np.zeros((len(self.start), -(-len(sources) // 64) * 8), dtype=np.uint8)
        for column, group in enumerate(sources):
            reached[group, column // 8] |= np.uint8(1 << (column % 8))
        words = reached.view(np.uint64)
        ends = np.empty(0, dtype=np.int64) if passes_on is None else np.flatnonzero(~passes_on)
        own = words[ends].copy()
        linked = np.flatnonzero(self.end > self.start)
        while True:
            missing = np.unpackbits(~reached, axis=1, count=len(sources), bitorder="little")
            arriving = np.zeros_like(words)
            if len(linked):
                sent = words.copy()
                sent[ends] = own
                arriving[linked] = np.bitwise_or.reduceat(
                    sent[self.head], self.start[linked], axis=0
                )
            if not np.any(arriving & ~words):
                distances[missing.astype(bool)] = NO_PATH
                return distances
            distances += missing
            words |= arriving

    def spread(self, switch: Numbers, target: Numbers, steps: Steps, passes_on: Flags) -> Spread:
        """Spread traffic one link nearer to the target at a time; shares that meet at a switch are
        added."""
        pair = np.flatnonzero(steps[switch, target] != NO_PATH)
        at: Numbers = switch[pair]
        share: Shares = np.ones(len(pair))
        empty = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        links: list[tuple[Numbers, Numbers, Shares]] = [empty]
        seen: list[tuple[Numbers, Numbers, Shares]] = [empty]
        while len(pair):
            seen.append((pair, at, share))
            fan = self.end[at] - self.start[at]
            origin = np.repeat(np.arange(len(at)), fan)
            edge = np.arange(len(origin)) - np.repeat(np.cumsum(fan) - fan, fan)
            edge += self.start[at][origin]
            goal = target[pair[origin]]
            there = steps[self.head[edge], goal].astype(int)
            nearer = there + 1 == steps[at[origin], goal]
            nearer &= passes_on[self.head[edge]] | (there == 0)
            origin, edge = origin[nearer], edge[nearer]
            total = np.bincount(origin, self.cables[edge], minlength=len(at))
            part: Shares = share[origin] * self.cables[edge] / total[origin]
            links.append((pair[origin], self.link[edge], part))
            key = pair[origin] * len(self.start) + self.head[edge]
            pair_test, place = np.unique(key, return_inverse=True)
            share = np.bincount(place, part, minlength=len(pair_test)).astype(np.float64)
            pair, at = pair_test // len(self.start), pair_test % len(self.start)
        return Spread(
            link_pair=np.concatenate([column[0] for column in links]),
            link=np.concatenate([column[1] for column in links]),
            link_share=np.concatenate([column[2] for column in links]),
            switch_pair=np.concatenate([column[0] for column in seen]),
            switch=np.concatenate([column[1] for column in seen]),
            switch_share=np.concatenate([column[2] for column in seen]),
        )


class _Twins:
    """Leaves with cables to the same switches: the parts above are the same for all of them."""

    def __init__(self, fabric: Fabric) -> None:
        number = fabric.switch_number
        beside: list[dict[int, tuple[int, int]]] = [{} for _ in fabric.switches]
        for place, link in enumerate(fabric.links):
            a, b = number[link.a], number[link.b]
            beside[a][b] = beside[b][a] = place, len(link.cables)
        leaves = [number[leaf] for leaf in fabric.leaves]
        groups: dict[object, list[int]] = {}
        for leaf in leaves:
            is_end = not fabric.passes_on[leaf] and beside[leaf].keys().isdisjoint(leaves)
            cabled = frozenset((there, cables) for there, (_, cables) in beside[leaf].items())
            groups.setdefault(cabled if is_end else leaf, []).append(leaf)
        every = np.arange(len(number))
        self._first, self._second = every, every.copy()  # of its twins
        for alike in groups.values():
            self._first[alike], self._second[alike] = alike[0], alike[min(1, len(alike) - 1)]
        widest = max((len(beside[leaf]) for leaf in leaves), default=0)
        self._links = np.full((len(number), widest), -1)  # the links of each leaf, by target
        self._place = np.full((len(fabric.links), 2), -1)  # of a link, in the rows of both ends
        ends = [(number[link.a], number[link.b]) for link in fabric.links]
        self._ends = np.array(ends, dtype=np.int64).reshape(-1, 2)
        for leaf in leaves:
            links = [place for _, (place, _) in sorted(beside[leaf].items())]
            self._links[leaf, : len(links)] = links
            for at, place in enumerate(links):
                self._place[place, int(self._ends[place, 1] == leaf)] = at

    def stand_ins(self, pairs: Numbers) -> tuple[Numbers, Numbers]:
        """The pairs that differ in more than twins, and the number of the one that represents each
        pair."""
        a, b = self._first[pairs[:, 0]], self._first[pairs[:, 1]]
        b = np.where((a == b) & (pairs[:, 0] != pairs[:, 1]), self._second[pairs[:, 1]], b)
        alike, of = np.unique(a * len(self._first) + b, return_inverse=True)
        return np.stack(np.divmod(alike, len(self._first)), axis=1), of

    def translate(
        self, spread: Spread, alike: Numbers, rows: Numbers, of: Numbers, pairs: Numbers
    ) -> Spread:
        """The parts that the pairs in these rows cross, from those of their representatives."""
        link_at, link_row = _expand(spread.link_pair, of)
        taken = spread.link[link_at]
        link = taken.copy()
        for end, side in product((0, 1), (0, 1)):
            own = self._ends[taken, side] == alike[of[link_row], end]
            place = self._place[taken[own], side]
            link[own] = self._links[pairs[link_row[own], end], place]
        switch_at, switch_row = _expand(spread.switch_pair, of)
        passed = spread.switch[switch_at]
        switch = passed.copy()
        for end in (0, 1):
            own = passed == alike[of[switch_row], end]
            switch[own] = pairs[switch_row[own], end]
        return Spread(
            link_pair=rows[link_row],
            link=link,
            link_share=spread.link_share[link_at],
            switch_pair=rows[switch_row],
            switch=switch,
            switch_share=spread.switch_share[switch_at],
        )


def _expand(pair: Numbers, of: Numbers) -> tuple[Numbers, Numbers]:
    """The positions of the entries of a pair, for each place that asks for it; and these places."""
    order = np.argsort(pair, kind="stable")
    bounds = np.searchsorted(pair[order], np.stack([of, of + 1]))
    count = bounds[1] - bounds[0]
    row = np.repeat(np.arange(len(of)), count)
    at = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + bounds[0][row]
    return order[at], row


# --- a fleet on a fabric ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The requested nodes on the fabric; either side may have nodes that the other lacks."""

    fabric: Fabric  # its nodes under the requested names
    nodes: tuple[str, ...]
    unplaced: tuple[str, ...]  # requested, but not in the fabric
    unrequested: tuple[str, ...]  # in the fabric, but not requested


def place(fabric: Fabric, nodes: Sequence[str]) -> Placement:
    """Place nodes on a fabric. Names match exactly, or else without case and domain if that is
    unambiguous."""
    names = dict.fromkeys((*fabric.nodes, *fabric.domain_of))
    short: dict[str, list[str]] = {}
    for name in names:
        short.setdefault(plain_name(name), []).append(name)
    asked_for = Counter(map(plain_name, nodes))
    matches: dict[str, str] = {}
    for name in nodes:
        alike = short.get(plain_name(name), [])
        if name in names:
            matches[name] = name
        elif len(alike) == 1 and asked_for[plain_name(name)] == 1:
            matches[alike[0]] = name
    placed = set(matches.values())
    return Placement(
        fabric=rename_nodes(fabric, matches),
        nodes=tuple(name for name in nodes if name in placed),
        unplaced=tuple(name for name in nodes if name not in placed),
        unrequested=tuple(name for name in names if name not in matches),
    )


def rename_nodes(fabric: Fabric, names: Mapping[str, str]) -> Fabric:
    if all(old == new for old, new in names.items()):
        return fabric
    nics = (replace(nic, node=names.get(nic.node, nic.node)) for nic in fabric.nics)
    domains = (
        replace(domain, nodes=tuple(_renamed(member, names) for member in domain.nodes))
        for domain in fabric.domains
    )
    return replace(fabric, nics=tuple(nics), domains=tuple(domains))


def _renamed(member: DomainNode, names: Mapping[str, str]) -> DomainNode:
    return replace(member, node=names.get(member.node, member.node))


def plain_name(name: str) -> str:
    """A name without its domain and without case."""
    return name.partition(".")[0].casefold()


def single_switch(nodes: Sequence[str]) -> Fabric:
    """A fabric for an unknown network: all nodes are equally far apart."""
    switch = Switch(id="network", name="the network")
    nics = (Nic(id=node, node=node, device="", rail="", switch=switch.id) for node in nodes)
    source = "none, so all nodes count as being on one switch"
    return Fabric(switches=(switch,), links=(), nics=tuple(nics), source=source)


# --- small things ----------------------------------------------------------------------------


def link_name(fabric: Fabric, link: Link) -> str:
    """The name of a link, with the known ports of its cables: `leaf-1[7,8] - spine-2[3,4]`."""
    ports_a, ports_b = zip(*((cable.port_a, cable.port_b) for cable in link.cables), strict=True)
    ends = ((link.a, ports_a), (link.b, ports_b))
    return " - ".join(port_name(fabric, end, _ports(ports)) for end, ports in ends)


def _ports(ports: Sequence[str]) -> str:
    numbers = [port for port in ports if port]
    return ",".join(numbers[:MOST_PORTS]) + (",..." if len(numbers) > MOST_PORTS else "")


def cable_name(fabric: Fabric, link: Link, cable: Cable) -> str:
    ends = ((link.a, cable.port_a), (link.b, cable.port_b))
    return " - ".join(port_name(fabric, end, port) for end, port in ends)


def port_name(fabric: Fabric, switch: str, port: str) -> str:
    """The name of a port, `leaf-1[7]`; only the switch if its port is unknown."""
    return fabric.name(switch) + (f"[{port}]" if port else "")


def main_rails(nics: Collection[Nic]) -> tuple[str, ...]:
    """The rails of most NICs: one or two service nodes on a leaf do not give it another rail."""
    count = Counter(nic.rail for nic in nics if nic.node)
    usual = max(count.values(), default=0)
    return tuple(sorted((rail for rail, n in count.items() if 4 * n >= usual), key=natural_key))


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key to sort names as people do: leaf2 before leaf10."""
    return tuple(
        (0, int(part), part) if part.isdecimal() and len(part) <= MOST_DIGITS else (1, 0, part)
        for part in re.split(r"(\d+)", name)
        if part
    )


ALIKE = 2 / 3  # a switch that shares a larger share of its links with another is its sister


def _tiers_above(leaves: set[int], beside: Sequence[frozenset[int]]) -> dict[int, int]:
    """The tier of each switch in reach of the leaves: upwards, and down into empty pods."""
    tiers = dict.fromkeys(leaves, 1)
    tier, here = 1, leaves
    while here:
        above = {m for n in here for m in beside[n]} - tiers.keys()
        sisters = _sisters(here, above, beside, tiers.keys() | above, by_all=tier == 1)
        tiers |= dict.fromkeys(sisters, tier)
        if tier == 1:
            above |= {m for n in sisters for m in beside[n]} - tiers.keys()
        tiers |= dict.fromkeys(above, tier + 1)
        below, down = sisters, tier - 1
        while down:
            below = {m for n in below for m in beside[n]} - tiers.keys()
            tiers |= dict.fromkeys(below, down)
            down -= 1
        tier, here = tier + 1, above
    return tiers


def _sisters(
    settled_here: set[int],
    above: set[int],
    beside: Sequence[frozenset[int]],
    settled: Collection[int],
    *,
    by_all: bool,
) -> set[int]:
    """The switches that share most uplinks with a settled one; for leaves, all links count."""
    sisters = set()
    for number in {m for n in above for m in beside[n]} - set(settled):
        own = beside[number] if by_all else beside[number] & above
        rivals = {m for n in own for m in beside[n]} & settled_here
        if any(len(own & beside[rival]) > ALIKE * len(own) for rival in rivals):
            sisters.add(number)
    return sisters


def _counts(row: Steps, sizes: Numbers) -> Iterator[tuple[int, int]]:
    for steps in np.unique(row):
        yield int(steps), int(np.sum(sizes[row == steps]))


def _hops_key(entry: tuple[int | None, int]) -> float:
    return np.inf if entry[0] is None else entry[0]
