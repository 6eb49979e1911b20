"""Fabrics for tests and studies: fat trees with any number of rails, tori, dragonflies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from anubis.core.fabric import Cable, Fabric, Link, Nic, Switch, rail_of
from anubis.core.routes import Routes
from anubis.lab.simulation.simulated_network import DEPTH, number_ports


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
            for node in below:
                device = f"mlx5_{rail}"
                nics.append(
                    Nic(
                        id=f"{node}/{device}",
                        node=node,
                        device=device,
                        rail=rail_of(device),
                        switch=leaf,
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
        return number_ports(
            Fabric(
                switches=tuple(Switch(id=name, name=name) for name in switches),
                links=tuple(links),
                nics=tuple(nics),
            )
        )

    def _link(self, below: str, above: str, cables: int) -> Link:
        return Link(a=below, b=above, cables=(Cable(gbit_s=self.gbit_s),) * cables)


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
    nics = (
        Nic(
            id=f"node{number:05}/mlx5_0",
            node=f"node{number:05}",
            device="mlx5_0",
            rail=rail_of("mlx5_0"),
            switch=switch.id,
            gbit_s=gbit_s,
        )
        for number, (switch, _) in enumerate(rail_nics, start=1)
    )
    return number_ports(Fabric(switches=switches, links=tuple(links), nics=tuple(nics)))


def statically_routed(fabric: Fabric) -> Fabric:
    """Fabric with forwarding tables: at the first fork NICs take the ways in turn, at later ones at
    random."""
    draws = np.random.default_rng(0).integers(1 << 30, size=(len(fabric.nics), DEPTH))
    for rail in fabric.rails:
        on = [place for place, nic in enumerate(fabric.nics) if nic.rail == rail]
        draws[on, 0] = np.arange(len(on))
    ways = {
        (switch.id, leaf): _ports_towards(fabric, switch.id, leaf)
        for switch in fabric.switches
        for leaf in fabric.leaves
    }
    ports: dict[str, dict[str, int]] = {switch.id: {} for switch in fabric.switches}
    for nic, turns in zip(fabric.nics, draws.tolist(), strict=True):
        for switch, to in ports.items():
            if some := ways[switch, nic.switch]:
                to[nic.id] = some[turns[fabric.tier[switch] - 1] % len(some)]
        ports[nic.switch][nic.id] = int(nic.port)
    return replace(fabric, routes=Routes.from_ports(ports, source="the simulation"))


def _ports_towards(fabric: Fabric, here: str, goal: str) -> list[int]:
    """Ports of the cables that lead nearer to the goal."""
    return [
        int(cable.port_a if link.a == here else cable.port_b)
        for link, _ in (fabric.links_onward(here, goal) if here != goal else ())
        for cable in link.cables
    ]
