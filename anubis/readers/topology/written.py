"""A fabric written by hand: which nodes are under which leaves, and what is above.

rails: [mlx5_0, mlx5_1]
racks:
  - {nodes: "node[001-016]", leaves: "leaf[1-2]"}    # a leaf per rail, or one for all
links:
  - {below: "leaf[1-8]", above: "spine[1-4]", cables: 2}
domains:                                             # racks whose GPUs are joined by NVLink
  - {name: rack1, nodes: "node[001-018]", gpus: 4, switches: "nvswitch[1-9]"}
"""

from __future__ import annotations

from dataclasses import dataclass

from anubis.core.errors import TopologyError
from anubis.core.fabric import Domain, DomainNode
from anubis.readers.topology.draft import Draft, Survey
from anubis.readers.topology.nvlink import add_domains
from anubis.text.hostlist import expand
from anubis.text.reading import read

MOST_CABLES = 1_000_000  # of one entry; more must be a typing error
MOST_GPUS = 64  # of a node; more must be a typing error


@dataclass(frozen=True, kw_only=True)
class Rack:
    nodes: str
    """Its nodes, as a node list."""
    leaves: str
    """The switches they are connected to: one for each rail, in order, or one for all."""
    name: str = ""
    """A name for people only."""

    def __post_init__(self) -> None:
        expand(self.nodes)
        expand(self.leaves)


@dataclass(frozen=True, kw_only=True)
class Links:
    below: str
    """The lower switches, as a node list."""
    above: str
    """The upper switches; each is linked with each of the lower ones."""
    cables: int = 1
    """Cables between each lower and each upper switch."""
    gbit_s: float | None = None
    """The speed of a cable, if it differs from that of the file."""
    name: str = ""
    """A name for people only."""

    def __post_init__(self) -> None:
        pairs = len(expand(self.below)) * len(expand(self.above))
        if self.cables < 1:
            raise ValueError(f"cables is {self.cables}, expected at least 1")
        if pairs * self.cables > MOST_CABLES:
            raise ValueError(
                f"these are {pairs * self.cables:,} cables, expected at most {MOST_CABLES:,}"
            )
        _refuse_speed(self.gbit_s)


@dataclass(frozen=True, kw_only=True)
class WrittenDomain:
    name: str
    """Its name, such as that of the rack."""
    nodes: str
    """Its nodes, as a node list."""
    gpus: int = 4
    """GPUs of each node that are in it."""
    switches: str = ""
    """The names of its NVLink switches, as a node list; their counters are joined by them."""

    def __post_init__(self) -> None:
        expand(self.nodes)
        expand(self.switches) if self.switches else None
        if not 0 < self.gpus <= MOST_GPUS:
            raise ValueError(f"gpus is {self.gpus}, expected 1 to {MOST_GPUS}")


@dataclass(frozen=True, kw_only=True)
class Written:
    racks: tuple[Rack, ...] = ()
    """The nodes of each leaf."""
    domains: tuple[WrittenDomain, ...] = ()
    """The NVLink domains, each of several nodes."""
    links: tuple[Links, ...] = ()
    """What is above the leaves."""
    rails: tuple[str, ...] = ("",)
    """The NICs that every node has. Default: one."""
    gbit_s: float | None = None
    """The speed of NICs and cables, unless a link says otherwise."""
    summary: str = ""
    """What the fabric is, in one line."""

    def __post_init__(self) -> None:
        _refuse_speed(self.gbit_s)
        if not (self.racks or self.domains):
            raise ValueError("expected racks, or domains of NVLink")
        if len(set(self.rails)) < len(self.rails) or not self.rails:
            raise ValueError("rails: expected each device once, and at least one")
        for number, rack in enumerate(self.racks, start=1):
            leaves = len(expand(rack.leaves))
            if leaves not in (1, len(self.rails)):
                raise ValueError(
                    f"racks, entry {number}: {leaves} leaves for {len(self.rails)} rails; "
                    "expected one leaf for all, or one for each"
                )


def _refuse_speed(gbit_s: float | None) -> None:
    if gbit_s is not None and gbit_s <= 0:
        raise ValueError(f"gbit_s is {gbit_s:g}, expected more than 0")


def parse(document: object, where: str) -> Survey:
    written = read(document, Written, where, TopologyError)
    draft = Draft()
    placed: dict[str, int] = {}
    for number, rack in enumerate(written.racks, start=1):
        leaves = expand(rack.leaves)
        for position, rail in enumerate(written.rails):
            leaf = leaves[position % len(leaves)]
            draft.switch(leaf)
            for node in expand(rack.nodes):
                if placed.setdefault(node, number) == number:
                    draft.nic(node=node, device=rail, switch=leaf, gbit_s=written.gbit_s)
        for node in expand(rack.nodes):
            if placed[node] != number:
                sentence = f"racks, entry {number}: {node} is already in entry {placed[node]}: "
                draft.find("node-twice", f"{sentence}left out here")
    _add_links(written, draft)
    domains = _domains(written, draft)
    return add_domains(draft.survey(), domains)


def _domains(written: Written, draft: Draft) -> list[Domain]:
    placed: dict[str, str] = {}
    domains = list[Domain]()
    for wish in written.domains:
        nodes = []
        for node in dict.fromkeys(expand(wish.nodes)):
            if (earlier := placed.setdefault(node, wish.name)) == wish.name:
                nodes.append(DomainNode(node=node, gpus=tuple(range(wish.gpus))))
            else:
                sentence = f"domain {wish.name}: {node} is already in {earlier}: left out here"
                draft.find("node-twice", sentence)
        switches = tuple(expand(wish.switches)) if wish.switches else ()
        if any(wish.name == domain.name for domain in domains):
            draft.find("twice", f'two domains are called "{wish.name}": the second is left out')
        elif nodes:
            domains.append(Domain(name=wish.name, nodes=tuple(nodes), switches=switches))
    return domains


def _add_links(written: Written, draft: Draft) -> None:
    below_links = {leaf for rack in written.racks for leaf in expand(rack.leaves)}
    below_links |= {name for links in written.links for name in expand(links.above)}
    for number, links in enumerate(written.links, start=1):
        for below in expand(links.below):
            if below not in below_links:
                sentence = f'links, entry {number}: nothing is below "{below}"; is it misspelled?'
                draft.find("unknown-switch", sentence)
            for above in expand(links.above):
                for _ in range(links.cables):
                    draft.uplink(below, above, gbit_s=links.gbit_s or written.gbit_s)
    linked = {name for links in written.links for name in expand(links.below)}
    for leaf in sorted(below_links - linked if written.links else ()):
        if leaf in {name for rack in written.racks for name in expand(rack.leaves)}:
            draft.find("no-uplink", f'"{leaf}" has nodes and no link to anything above')
