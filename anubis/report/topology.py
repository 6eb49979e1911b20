"""A fabric on a screen: from the top down, what is alike on one line, then what is odd."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass

from anubis import hostlist
from anubis.core.topology import Fabric, Finding, Nic, Placement, by_number, irregularities
from anubis.report.wording import names

FEW = 12  # kinds of neighbours up to this many have a line each; more are told as ranges
SMALL = 24  # switches up to which nothing is told together
WIDTH = 48  # characters that a list of names may take
OF_A_KIND = 3  # findings of one kind that are shown


@dataclass(frozen=True)
class _Block:
    """A part of the fabric that hangs together without what is above it."""

    top: tuple[str, ...]  # the switches of its highest tier
    below: tuple[_Block, ...]


def text(
    fabric: Fabric, findings: Sequence[Finding], placement: Placement | None = None
) -> Iterator[str]:
    """The whole answer, line by line."""
    yield _headline(fabric)
    yield from _nodes_by_nics(fabric)
    yield ""
    yield from drawing(fabric)
    yield ""
    yield from _distances(fabric, placement.nodes if placement else None)
    if placement:
        yield from _placed(placement)
    for title, odd in (("in the source", findings), ("in the fabric", irregularities(fabric))):
        if odd:
            yield ""
            yield f"{title}:"
            yield from _findings(odd)


def json_lines(
    fabric: Fabric, findings: Sequence[Finding], placement: Placement | None = None
) -> Iterator[str]:
    """A record per switch, link, NIC and finding, and a summary at the end."""
    plane = {switch: n for n, plane in enumerate(fabric.planes, start=1) for switch in plane}
    for switch in fabric.switches:
        about = {"tier": fabric.tier[switch.id], "plane": plane[switch.id]}
        yield json.dumps({"type": "switch", **asdict(switch), **about})
    for link in fabric.links:
        yield json.dumps({"type": "link", **asdict(link), "uplink": fabric.is_uplink(link)})
    for nic in fabric.nics:
        yield json.dumps({"type": "nic", **asdict(nic)})
    for finding in (*findings, *irregularities(fabric)):
        yield json.dumps({"type": "finding", **asdict(finding)})
    pairs = fabric.pairs_by_hops(placement.nodes if placement else None)
    yield json.dumps(
        {
            "type": "topology",
            "switches": len(fabric.switches),
            "tiers": max(fabric.tier.values(), default=0),
            "planes": len(fabric.planes),
            "nics": len(fabric.nics),
            "nodes": len(fabric.nodes),
            "rails": list(fabric.rails),
            "ordered_pairs": {"no way" if hops is None else hops: n for hops, n in pairs.items()},
            "unplaced": list(placement.unplaced) if placement else [],
            "not_asked_for": len(placement.others) if placement else 0,
        }
    )


def _headline(fabric: Fabric) -> str:
    tiers = max(fabric.tier.values(), default=0)
    planes = f", {len(fabric.planes)} parts without a cable between" if fabric.planes[1:] else ""
    rails = f" on {len(fabric.rails)} rails" if len(fabric.rails) > 1 else ""
    return (
        f"{_count(len(fabric.switches), 'switch', 'switches')} in {_count(tiers, 'tier')}, "
        f"{_count(len(fabric.nics), 'NIC')} of {_count(len(fabric.nodes), 'node')}{rails}{planes}"
    )


def _nodes_by_nics(fabric: Fabric) -> Iterator[str]:
    per_node = Counter(nic.node for nic in fabric.nics)
    unknown = per_node.pop("", 0)
    several = Counter(per_node.values())
    if len(several) > 1 or unknown:
        parts = [f"{nodes:,} with {nics}" for nics, nodes in sorted(several.items(), reverse=True)]
        whose = f"; {_count(unknown, 'NIC')} of nobody known" if unknown else ""
        yield f"nodes by their NICs: {', '.join(parts) or 'none'}{whose}"


def _distances(fabric: Fabric, nodes: Collection[str] | None) -> Iterator[str]:
    asked = None if nodes is None else frozenset(nodes)
    yield "hops    ordered pairs of NICs" + ("" if asked is None else ", of the nodes asked for")
    for hops, count in fabric.pairs_by_hops(asked).items():
        yield f"{'no way' if hops is None else hops:<6}  {count:,}"


def _placed(placement: Placement) -> Iterator[str]:
    yield ""
    total = len(placement.nodes) + len(placement.unplaced)
    yield f"asked for: {_count(total, 'node')}, of which {len(placement.nodes):,} are in the fabric"
    if placement.unplaced:
        yield f"not in the fabric: {_called(placement.unplaced)}"
    if placement.others:
        yield f"in the fabric and not asked for: {_called(placement.others)}"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    """The first few of each kind: one kind in thousands must not hide the others."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    for alike in kinds.values():
        yield from (f"  {finding}" for finding in alike[:OF_A_KIND])
        if len(alike) > OF_A_KIND:
            yield f"  and {len(alike) - OF_A_KIND:,} more like these (--json has all)"


# --- the drawing -----------------------------------------------------------------------------


def drawing(fabric: Fabric) -> Iterator[str]:
    blocks = _blocks(fabric, {switch.id for switch in fabric.switches})
    for alike in _alike(fabric, blocks):
        yield _label(fabric, alike)
        yield from _inside(fabric, alike, "")


def _inside(fabric: Fabric, alike: Sequence[_Block], indent: str) -> Iterator[str]:
    """Below the first of several alike; where they are alike only roughly, their sizes must do."""
    if len({_shape(fabric, block) for block in alike}) > 1:
        return
    lines = _alike(fabric, alike[0].below)
    for position, each in enumerate(lines, start=1):
        last = position == len(lines)
        yield f"{indent}{'└─' if last else '├─'} {_label(fabric, each)}"
        yield from _inside(fabric, each, indent + ("   " if last else "│  "))


def _blocks(fabric: Fabric, switches: set[str]) -> tuple[_Block, ...]:
    """The parts that hang together; in each, the top tier is taken off to see what is below."""
    found = []
    for part in _parts(fabric, switches):
        highest = max(fabric.tier[switch] for switch in part)
        top = {switch for switch in part if fabric.tier[switch] == highest}
        found.append(_Block(_sorted(fabric, top), _blocks(fabric, part - top)))
    return tuple(found)


def _parts(fabric: Fabric, switches: set[str]) -> Iterator[set[str]]:
    left = set(switches)
    for switch in _sorted(fabric, switches):
        if switch not in left:
            continue
        left.discard(switch)
        part, edge = {switch}, [switch]
        while edge:
            here = edge.pop()
            beside = {link.a if link.b == here else link.b for link in fabric.links_of[here]} & left
            left -= beside
            part |= beside
            edge += beside
        yield part


def _alike(fabric: Fabric, blocks: Sequence[_Block]) -> list[list[_Block]]:
    """Blocks of one shape together; when that is too many lines, those on the same rails."""
    if len(fabric.switches) <= SMALL:
        return [[block] for block in blocks]
    for key in (_shape, _rough_shape):
        groups: dict[object, list[_Block]] = {}
        for block in blocks:
            groups.setdefault(key(fabric, block), []).append(block)
        if len(groups) <= FEW:
            break
    return list(groups.values())


def _shape(fabric: Fabric, block: _Block) -> object:
    """Equal for blocks that differ in names only."""
    below = Counter(_shape(fabric, each) for each in block.below)
    tops = Counter(
        (
            sum(bool(nic.node) for nic in fabric.nics_on.get(switch, ())),
            len(fabric.nics_on.get(switch, ())),
            _uplinks(fabric, switch),
            frozenset(nic.rail for nic in fabric.nics_on.get(switch, ())),
        )
        for switch in block.top
    )
    return (frozenset(tops.items()), frozenset(below.items()))


def _rough_shape(fabric: Fabric, block: _Block) -> object:
    return (fabric.tier[block.top[0]], frozenset(_main_rails(fabric, block)))


def _main_rails(fabric: Fabric, block: _Block) -> list[str]:
    """Those that most of its NICs are on: a service node or two on a leaf are no rail of it."""
    count = Counter(nic.rail for nic in _nics(fabric, block) if nic.node)
    usual = max(count.values(), default=0)
    return sorted((rail for rail, n in count.items() if 4 * n >= usual), key=by_number)


def _label(fabric: Fabric, alike: Sequence[_Block]) -> str:
    tops = [switch for block in alike for switch in block.top]
    each = " each" if len(alike) > 1 else ""
    called = _called([fabric.name(switch) for switch in _sorted(fabric, tops)])
    many = f"{len(alike):,} x " if len(alike) > 1 else ""
    if all(block.below for block in alike):
        switches = _some([len(block.top) for block in alike], "switch", "switches")
        exact = len({_shape(fabric, block) for block in alike}) == 1
        drawn = ", drawn once" if exact and many else ""
        nodes = _some([_nodes(fabric, block) for block in alike], "node")
        return f"{many}{switches} {called}: {nodes} below{each}{_nics_on_top(fabric, alike)}{drawn}"
    return f"{many}{called}: {_leaf_label(fabric, alike)}"


def _leaf_label(fabric: Fabric, alike: Sequence[_Block]) -> str:
    each = " each" if len(alike) > 1 or len(alike[0].top) > 1 else ""
    tops = [switch for block in alike for switch in block.top]
    on = [fabric.nics_on.get(switch, ()) for switch in tops]
    parts = [f"{_some([len({nic.node for nic in nics if nic.node}) for nics in on], 'node')}{each}"]
    nodes = [nic.node for nics in on for nic in nics if nic.node]
    if nodes:
        parts[0] += f" ({_called(sorted(set(nodes), key=by_number))})"
    unknown = [sum(not nic.node for nic in nics) for nics in on]
    if any(unknown):
        parts.append(_some(unknown, "unknown NIC"))
    rails = {rail for block in alike for rail in _main_rails(fabric, block)}
    if len(fabric.rails) > 1 and rails:
        several = "rails" if len(rails) > 1 else "rail"
        parts.append(f"{several} {_called(sorted(rails, key=by_number)).strip('[]')}")
    uplinks = [_uplinks(fabric, switch) for switch in tops]
    if any(uplinks):
        parts.append(f"{_some(uplinks, 'uplink')}{_oversubscribed(fabric, tops)}")
    return ", ".join(parts)


def _oversubscribed(fabric: Fabric, leaves: Sequence[str]) -> str:
    shares = [share for leaf in leaves if (share := fabric.oversubscription(leaf)) is not None]
    if not shares or max(shares) <= 1:
        return ""
    return f" ({max(shares):.2g} to 1 oversubscribed{' at most' if len(set(shares)) > 1 else ''})"


def _nics_on_top(fabric: Fabric, alike: Sequence[_Block]) -> str:
    on = [nic for block in alike for top in block.top for nic in fabric.nics_on.get(top, ())]
    if not on:
        return ""
    nodes = sorted({nic.node or "nobody known" for nic in on}, key=by_number)
    return f"; {_count(len(on), 'NIC')} right on it, of {_called(nodes)}"


def _nics(fabric: Fabric, block: _Block) -> list[Nic]:
    here = [nic for switch in block.top for nic in fabric.nics_on.get(switch, ())]
    return here + [nic for each in block.below for nic in _nics(fabric, each)]


def _nodes(fabric: Fabric, block: _Block) -> int:
    return len({nic.node for nic in _nics(fabric, block) if nic.node})


def _uplinks(fabric: Fabric, switch: str) -> int:
    return sum(len(link.cables) for link in fabric.uplinks(switch))


def _sorted(fabric: Fabric, switches: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(switches, key=lambda switch: by_number(fabric.name(switch))))


def _called(listed: Sequence[str]) -> str:
    short = hostlist.compress(listed)
    if len(short) <= WIDTH:
        return short
    first = next((n for n in (2, 1) if len(", ".join(listed[:n])) <= WIDTH), 0)
    return names(listed, first) if first else f"{listed[0][:20]}... and {len(listed) - 1:,} more"


def _some(numbers: Sequence[int], one: str, several: str = "") -> str:
    low, high = min(numbers), max(numbers)
    return _count(low, one, several) if low == high else f"{low:,}-{high:,} {several or one + 's'}"


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"
