"""Fabrics that exist in memory only: fat trees of two or three tiers, with any number of rails."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from anubis.core.fabric import Cable, Fabric, Link, Nic, Switch, rail_of


@dataclass(frozen=True, kw_only=True)
class FatTree:
    """Pods of leaves and spines, joined by cores where there are several pods.

    With `rails` > 1 every rail has a leaf of its own above the same nodes (rail-optimised); with
    `planes` no cable joins the rails either.
    """

    nodes: int
    nodes_per_leaf: int = 32
    leaves_per_pod: int = 16  # of each rail
    spines: int = 16  # of a pod
    cores: int = 16
    rails: int = 1
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
            plane = f"{rail}-" if self.planes else ""
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
        if pods > 1:
            for spine, core in product(spines, range(self.cores)):
                plane = f"{spine.split('-')[1]}-" if self.planes else ""
                links.append(self._link(spine, f"core-{plane}{core}", 1))
                switches[links[-1].b] = None
        return Fabric(
            switches=tuple(Switch(id=name, name=name) for name in switches),
            links=tuple(links),
            nics=tuple(nics),
        )

    def _link(self, below: str, above: str, cables: int) -> Link:
        return Link(a=below, b=above, cables=(Cable(gbit_s=self.gbit_s),) * cables)
