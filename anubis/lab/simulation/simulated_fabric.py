"""Fabrics that exist in memory only: fat trees with any number of rails, tori, dragonflies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from anubis.core.fabric import Cable, Fabric, Link, Nic, Switch, rail_of


@dataclass(frozen=True, kw_only=True)
class FatTree:
    """Pods of leaves and spines, joined by cores if there are several pods.

    With `rails` > 1 every rail has a leaf of its own above the same nodes (rail-optimised); with
    `rail_spines` it has spines of its own as well, joined by the cores only; with `planes` no cable
    joins the rails.
    """

    nodes: int
    nodes_per_leaf: int = 32
    leaves_per_pod: int = 16  # of each rail
    spines: int = 16  # of a pod
    cores: int = 16
    rails: int = 1
    rail_spines: bool = False
    planes: bool = False
    cables: int = 1  # between a leaf and a spine
    gbit_s: float = 400.0

    def fabric(self) -> Fabric:
        switches: dict[str, None] = {}
        links: list[Link] = []
        nics: list[Nic] = []
        groups = -(-self.nodes // self.nodes_per_leaf)
        pods = -(-groups // self.leaves_per_pod)
        names = [f"node{number:05}" for number in range(1, self.nodes + 1)]
        for rail, group in product(range(self.rails), range(groups)):
            leaf = f"leaf-{rail}-{group}"
            plane = f"{rail}-" if self.planes or self.rail_spines else ""
            switches[leaf] = None
            if groups > 1:
                pod = group // self.leaves_per_pod
                spines = [f"spine-{plane}{pod}-{i}" for i in range(self.spines)]
                links += [self._link(leaf, spine, self.cables) for spine in spines]
            below = names[group * self.nodes_per_leaf : (group + 1) * self.nodes_per_leaf]
            for port, node in enumerate(below, start=1):
                device = f"mlx5_{rail}"
                nics.append(
                    Nic(
                        id=f"{node}/{device}",
                        node=node,
                        device=device,
                        rail=rail_of(device),
                        switch=leaf,
                        port=str(port),
                        gbit_s=self.gbit_s,
                    )
                )
        spines = list(dict.fromkeys(link.b for link in links))
        switches.update(dict.fromkeys(spines))
        if pods > 1 or (groups > 1 and self.rail_spines and self.rails > 1):
            for spine, core in product(spines, range(self.cores)):
                plane = f"{spine.split('-')[1]}-" if self.planes else ""
                links.append(self._link(spine, f"core-{plane}{core}", 1))
                switches[links[-1].b] = None
        return Fabric(
            switches=tuple(Switch(id=name, name=name) for name in switches),
            links=tuple(_assign_ports(links, Counter(nic.switch for nic in nics))),
            nics=tuple(nics),
        )

    def _link(self, below: str, above: str, cables: int) -> Link:
        return Link(a=below, b=above, cables=(Cable(gbit_s=self.gbit_s),) * cables)


def _assign_ports(links: Iterable[Link], taken: Counter[str]) -> Iterator[Link]:
    """Links with each cable at the next free port of either end, after those of the NICs."""

    def next_port(switch: str) -> str:
        taken[switch] += 1
        return str(taken[switch])

    for link in links:
        cables = (
            replace(cable, port_a=next_port(link.a), port_b=next_port(link.b))
            for cable in link.cables
        )
        yield replace(link, cables=tuple(cables))


def number_ports(fabric: Fabric) -> Fabric:
    """Fabric with a number at each port, as switches have them: a fabric that was written by hand
    names none. One that names ports already stays as it is."""
    ports = [nic.port for nic in fabric.nics]
    ports += [end for link in fabric.links for c in link.cables for end in (c.port_a, c.port_b)]
    if any(ports):
        return fabric
    taken: Counter[str] = Counter()
    nics = []
    for nic in fabric.nics:
        taken[nic.switch] += 1
        nics.append(replace(nic, port=str(taken[nic.switch])))
    return replace(fabric, nics=tuple(nics), links=tuple(_assign_ports(fabric.links, taken)))


@dataclass(frozen=True, kw_only=True)
class Torus:
    """Switches on a grid, each linked with the next one along every axis, and the last with the
    first."""

    shape: tuple[int, ...]
    nodes_per_switch: int = 4
    gbit_s: float = 400.0

    def fabric(self) -> Fabric:
        places = list(product(*map(range, self.shape)))
        ends = {
            frozenset((_name(place), _name(_next(place, axis, length))))
            for place in places
            for axis, length in enumerate(self.shape)
            if length > 1
        }
        return _flat(map(_name, places), ends, self.nodes_per_switch, self.gbit_s)


@dataclass(frozen=True, kw_only=True)
class Dragonfly:
    """Groups of switches that are all linked with each other, and one link between any two groups,
    spread over the switches of each."""

    groups: int
    switches: int  # of a group
    nodes_per_switch: int = 4
    gbit_s: float = 400.0

    def fabric(self) -> Fabric:
        names = [_name(place) for place in product(range(self.groups), range(self.switches))]
        ends = {
            frozenset((_name((group, a)), _name((group, b))))
            for group in range(self.groups)
            for a, b in combinations(range(self.switches), 2)
        }
        used = [0] * self.groups
        for a, b in combinations(range(self.groups), 2):
            ends.add(frozenset(_name((g, used[g] % self.switches)) for g in (a, b)))
            used[a] += 1
            used[b] += 1
        return _flat(names, ends, self.nodes_per_switch, self.gbit_s)


def _name(place: Sequence[int]) -> str:
    return "switch-" + "-".join(map(str, place))


def _next(place: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return (*place[:axis], (place[axis] + 1) % length, *place[axis + 1 :])


def _flat(
    names: Iterable[str], ends: Iterable[frozenset[str]], nodes_per_switch: int, gbit_s: float
) -> Fabric:
    """Fabric of switches that all have nodes."""
    switches = tuple(Switch(id=name, name=name) for name in names)
    links = (
        Link(a=a, b=b, cables=(Cable(gbit_s=gbit_s),))
        for a, b in sorted(sorted(pair) for pair in ends)
    )
    rail_nics = product(switches, range(nodes_per_switch))
    taken = Counter({switch.id: nodes_per_switch for switch in switches})
    return Fabric(
        switches=switches,
        links=tuple(_assign_ports(links, taken)),
        nics=tuple(
            Nic(
                id=f"node{number:05}/mlx5_0",
                node=f"node{number:05}",
                device="mlx5_0",
                rail=rail_of("mlx5_0"),
                switch=switch.id,
                port=str(port + 1),
                gbit_s=gbit_s,
            )
            for number, (switch, port) in enumerate(rail_nics, start=1)
        ),
    )
