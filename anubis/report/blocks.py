"""The blocks of a fabric, from the top down: switches that stay connected without the highest ones.

Drawings take their order from it: pods apart, and the leaves of a pod side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from anubis.core.fabric import Fabric, Nic, natural_key


@dataclass(frozen=True)
class Block:
    """A part of the fabric that stays connected without the switches above it."""

    top: tuple[str, ...]  # the switches of its highest tier
    below: tuple[Block, ...]


def take_apart(fabric: Fabric) -> tuple[Block, ...]:
    """Return the whole fabric as blocks, one for each plane."""
    return _blocks(fabric, {switch.id for switch in fabric.switches})


def pods(fabric: Fabric) -> dict[str, tuple[str, ...]]:
    """Map each switch to its pod, named by the pod's highest switches, in the order of a drawing.

    A pod is the smallest block with something below it: its leaves come first, then its spines.
    """
    pod_of: dict[str, tuple[str, ...]] = {}

    def walk(block: Block, above: Block) -> None:
        for inner in block.below:
            walk(inner, block)
        pod_of.update(dict.fromkeys(block.top, (block if block.below else above).top))

    for block in take_apart(fabric):
        walk(block, block)
    return pod_of


def nics_on(fabric: Fabric, switches: Iterable[str]) -> list[Nic]:
    return [nic for switch in switches for nic in fabric.nics_on.get(switch, ())]


def nics_of(fabric: Fabric, block: Block) -> list[Nic]:
    below = [nic for inner in block.below for nic in nics_of(fabric, inner)]
    return nics_on(fabric, block.top) + below


def sort_by_name(fabric: Fabric, switches: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(switches, key=lambda switch: natural_key(fabric.name(switch))))


def _blocks(fabric: Fabric, switches: set[str]) -> tuple[Block, ...]:
    """Return the connected parts; in each, the top tier is taken off to see what is below."""
    blocks = []
    for part in _parts(fabric, switches):
        highest = max(fabric.tier[switch] for switch in part)
        top = {switch for switch in part if fabric.tier[switch] == highest}
        blocks.append(Block(sort_by_name(fabric, top), _blocks(fabric, part - top)))
    return tuple(blocks)


def _parts(fabric: Fabric, switches: set[str]) -> Iterator[set[str]]:
    left = set(switches)
    for switch in sort_by_name(fabric, switches):
        if switch not in left:
            continue
        left.discard(switch)
        part, edge = {switch}, [switch]
        while edge:
            inner = edge.pop()
            beside = {
                link.a if link.b == inner else link.b for link in fabric.links_of[inner]
            } & left
            left -= beside
            part |= beside
            edge += beside
        yield part
