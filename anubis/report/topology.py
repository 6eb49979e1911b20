"""A fabric on a screen, from the top down: what is alike on one line, then the remarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anubis.core.fabric import Fabric, Nic, Placement, Remark, main_rails, natural_key
from anubis.core.network.counters import exceeded_limit
from anubis.core.network.inspection import Inspection
from anubis.core.records import Judgement
from anubis.report.blocks import Block, nics_of, nics_on, sort_by_name, take_apart
from anubis.report.json import json_line
from anubis.report.jsonl import part_fields
from anubis.text.wording import moment, quantity, short_node_list

LINES_OF_NEIGHBOURS = 12  # kinds of neighbours that have a line each; more are shown as ranges
SMALL = 24  # switches up to which each has its own line
NAMED = 2  # of a kind, in the first line
OF_A_KIND = 3  # remarks of one kind that are shown


@dataclass(frozen=True, kw_only=True)
class SwitchLine:
    tier: int
    plane: int


@dataclass(frozen=True, kw_only=True)
class LinkLine:
    uplink: bool


@dataclass(frozen=True, kw_only=True)
class ShortageLine:
    degraded: bool


@dataclass(frozen=True, kw_only=True)
class CounterLine:
    switch: str | None
    """null: the fabric has no such port."""
    link: Sequence[str] | None
    nic: str | None
    over_s: float | None
    """Number of seconds in which it rose."""
    fatal: bool


@dataclass(frozen=True, kw_only=True)
class TopologyLine:
    judgement: Judgement
    headline: str
    switches: int
    tiers: int
    planes: int
    nics: int
    nodes: int
    rails: Sequence[str]
    source: str
    """The source that it was read from."""
    as_of: float | None
    """When it was so, in seconds since 1970."""
    routes: str
    """The forwarding tables that count; empty: none."""
    ordered_pairs: Mapping[str, int]
    """Pairs of nodes by their distance in hops."""
    unplaced: Sequence[str]
    """Asked for, and not in the fabric."""
    not_asked_for: int
    missing_uplinks: int
    degraded: Sequence[str]


def text(
    inspection: Inspection,
    findings: Sequence[Remark],
    placement: Placement | None = None,
    routes: str = "",
) -> Iterator[str]:
    """Yield the whole answer, line by line; `findings` are remarks on the source."""
    fabric = inspection.fabric
    yield answer(inspection, placement)
    yield headline(fabric)
    yield f"source: {origin(fabric)}"
    yield from _nodes_by_nics(fabric)
    yield ""
    yield from drawing(fabric)
    yield from _domains(fabric)
    yield ""
    yield from _distances(fabric, placement.nodes if placement else None)
    if routes:
        yield f"routes: {routes}"
    if placement:
        yield from _placement_lines(placement)
    for title, odd in (("in the source", findings), ("in the fabric", inspection.findings)):
        if odd:
            yield ""
            yield f"{title}:"
            yield from _findings(odd)


def json_lines(
    inspection: Inspection,
    findings: Sequence[Remark],
    placement: Placement | None = None,
    routes: str = "",
) -> Iterator[str]:
    """Yield a record for each switch, link, NIC, NVLink domain, shortage, miscabled part, counter
    and finding, then a summary."""
    fabric = inspection.fabric
    plane = {switch: n for n, plane in enumerate(fabric.planes, start=1) for switch in plane}
    for switch in fabric.switches:
        line = SwitchLine(tier=fabric.tier[switch.id], plane=plane[switch.id])
        yield json_line("switch", switch, line)
    for link in fabric.links:
        yield json_line("link", link, LinkLine(uplink=fabric.is_uplink(link)))
    for nic in fabric.nics:
        yield json_line("nic", nic)
    for domain in fabric.domains:
        yield json_line("domain", domain)
    for shortage in inspection.shortages:
        yield json_line("shortage", shortage, ShortageLine(degraded=shortage.is_degraded))
    for verdict in inspection.miscabled:
        yield json_line("part", part_fields(verdict))
    yield from _counter_lines(inspection)
    for finding in (*findings, *inspection.findings):
        yield json_line("finding", finding)
    pairs = fabric.pairs_by_hops(placement.nodes if placement else None)
    summary = TopologyLine(
        judgement=inspection.judge(placement),
        headline=answer(inspection, placement),
        switches=len(fabric.switches),
        tiers=max(fabric.tier.values(), default=0),
        planes=len(fabric.planes),
        nics=len(fabric.nics),
        nodes=len(fabric.nodes),
        rails=list(fabric.rails),
        source=fabric.source,
        as_of=fabric.as_of,
        routes=routes,
        ordered_pairs={"no way" if hops is None else str(hops): n for hops, n in pairs.items()},
        unplaced=list(placement.unplaced) if placement else [],
        not_asked_for=len(placement.unrequested) if placement else 0,
        missing_uplinks=sum(shortage.lacks for shortage in inspection.shortages),
        degraded=[shortage.switch for shortage in inspection.shortages if shortage.is_degraded],
    )
    yield json_line("topology", summary)


def _counter_lines(inspection: Inspection) -> Iterator[str]:
    counters = inspection.counters
    for counted_port in inspection.counted:
        about = CounterLine(
            switch=counted_port.switch,
            link=[counted_port.link.a, counted_port.link.b] if counted_port.link else None,
            nic=counted_port.nic.id if counted_port.nic else None,
            over_s=counters.over_s,
            fatal=exceeded_limit(counters, counted_port.count) is not None,
        )
        yield json_line("counter", counted_port.count, about)
    for count in inspection.unplaced_counts:
        nowhere = CounterLine(switch=None, link=None, nic=None, over_s=counters.over_s, fatal=False)
        yield json_line("counter", count, nowhere)


def answer(inspection: Inspection, placement: Placement | None) -> str:
    """State in one line what is wrong, as far as it shows without traffic."""
    unplaced = placement.unplaced if placement else ()
    match inspection.judge(placement):
        case Judgement.DEFECTIVE:
            return f"defective: {', '.join(_defects(inspection))}"
        case Judgement.UNKNOWN:
            missing = f"{short_node_list(unplaced)} not in the fabric"
            return f"unknown: {missing if unplaced else 'no node is known in the fabric'}"
        case _:
            odd = len(inspection.findings)
            remarks = f"; {quantity(odd, 'thing is', 'things are')} odd, below" if odd else ""
            return f"no defect in the cabling{remarks}; nothing was measured"


def _defects(inspection: Inspection) -> Iterator[str]:
    fabric = inspection.fabric
    degraded = [fabric.name(short.switch) for short in inspection.shortages if short.is_degraded]
    if degraded:
        yield f"too few uplinks at {_either(degraded, 'switches')}"
    erring = {
        (port.switch, port.count.port)
        for port in inspection.counted
        if exceeded_limit(inspection.counters, port.count)
    }
    if erring:
        yield f"fatal errors at {quantity(len(erring), 'port')}"
    wrong = [
        verdict.subject
        for verdict in inspection.miscabled
        if verdict.judgement is Judgement.DEFECTIVE
    ]
    if wrong:
        yield f"wrongly cabled: {_either(wrong, 'cases')}"


def _either(listed: Sequence[str], several: str) -> str:
    return ", ".join(listed) if len(listed) <= NAMED else f"{len(listed):,} {several}"


def origin(fabric: Fabric) -> str:
    """Name the source of the fabric and its date."""
    as_of = "" if fabric.as_of is None else f", as of {moment(fabric.as_of)}"
    return f"{fabric.source or 'unknown'}{as_of}"


def headline(fabric: Fabric) -> str:
    tiers = quantity(max(fabric.tier.values(), default=0), "tier")
    planes = f", {len(fabric.planes)} parts with no cable between them" if fabric.planes[1:] else ""
    rails = f" on {len(fabric.rails)} rails" if len(fabric.rails) > 1 else ""
    return (
        f"{quantity(len(fabric.switches), 'switch', 'switches')} in {tiers}, "
        f"{quantity(len(fabric.nics), 'NIC')} of {quantity(len(fabric.nodes), 'node')}"
        f"{rails}{planes}"
    )


def _nodes_by_nics(fabric: Fabric) -> Iterator[str]:
    per_node = Counter(nic.node for nic in fabric.nics)
    unknown = per_node.pop("", 0)
    several = Counter(per_node.values())
    if len(several) > 1 or unknown:
        parts = [f"{nodes:,} with {nics}" for nics, nodes in sorted(several.items(), reverse=True)]
        whose = f"; {quantity(unknown, 'NIC')} of unknown nodes" if unknown else ""
        yield f"nodes by number of NICs: {', '.join(parts) or 'none'}{whose}"


def _domains(fabric: Fabric) -> Iterator[str]:
    for domain in fabric.domains:
        members = short_node_list([member.node for member in domain.nodes])
        gpus = sum(len(member.gpus) for member in domain.nodes)
        switches = f", NVLink switches {short_node_list(domain.switches)}" * bool(domain.switches)
        size = f"{quantity(gpus, 'GPU')} of {quantity(len(domain.nodes), 'node')}"
        yield f"NVLink domain {domain.name}: {size} ({members}){switches}"


def _distances(fabric: Fabric, nodes: Collection[str] | None) -> Iterator[str]:
    chosen = None if nodes is None else frozenset(nodes)
    yield "hops    ordered pairs of NICs" + ("" if chosen is None else ", of the nodes asked for")
    for hops, pairs in fabric.pairs_by_hops(chosen).items():
        yield f"{'no way' if hops is None else hops:<6}  {pairs:,}"


def _placement_lines(placement: Placement) -> Iterator[str]:
    yield ""
    total = quantity(len(placement.nodes) + len(placement.unplaced), "node")
    yield f"asked for: {total}, of which {len(placement.nodes):,} are in the fabric"
    if placement.unplaced:
        yield f"not in the fabric: {short_node_list(placement.unplaced)}"
    if placement.unrequested:
        yield f"in the fabric and not asked for: {short_node_list(placement.unrequested)}"


def _findings(findings: Sequence[Remark]) -> Iterator[str]:
    """Yield the first few of each kind: one kind in thousands must not hide the others."""
    kinds: dict[str, list[Remark]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    for alike in kinds.values():
        yield from (f"  {finding}" for finding in alike[:OF_A_KIND])
        if len(alike) > OF_A_KIND:
            yield f"  and {len(alike) - OF_A_KIND:,} more like these (--json has all)"


# --- the drawing -----------------------------------------------------------------------------


def drawing(fabric: Fabric) -> Iterator[str]:
    for alike in _alike(fabric, take_apart(fabric)):
        yield _label(fabric, alike)
        yield from _inside(fabric, alike, "")


def _inside(fabric: Fabric, alike: Sequence[Block], indent: str) -> Iterator[str]:
    """Yield what is below the first of several equal blocks; nothing if they are only roughly
    alike."""
    if len({_shape(fabric, block) for block in alike}) > 1:
        return
    lines = _alike(fabric, alike[0].below)
    for position, block in enumerate(lines, start=1):
        last = position == len(lines)
        yield f"{indent}{'└─' if last else '├─'} {_label(fabric, block)}"
        yield from _inside(fabric, block, indent + ("   " if last else "│  "))


def _alike(fabric: Fabric, blocks: Sequence[Block]) -> list[list[Block]]:
    """Group blocks of one shape; if that is too many lines, those on the same rails."""
    if len(fabric.switches) <= SMALL:
        return [[block] for block in blocks]
    for key in (_shape, _rough_shape):
        groups: dict[object, list[Block]] = {}
        for block in blocks:
            groups.setdefault(key(fabric, block), []).append(block)
        if len(groups) <= LINES_OF_NEIGHBOURS:
            break
    return list(groups.values())


def _shape(fabric: Fabric, block: Block) -> object:
    """Return a value that is equal for blocks that differ in names only."""
    below = Counter(_shape(fabric, inner) for inner in block.below)
    tops = Counter(_kind_of_switch(fabric, switch) for switch in block.top)
    return (frozenset(tops.items()), frozenset(below.items()))


def _kind_of_switch(fabric: Fabric, switch: str) -> object:
    nics = nics_on(fabric, (switch,))
    seated = sum(bool(nic.node) for nic in nics)
    return seated, len(nics), _uplinks(fabric, switch), frozenset(nic.rail for nic in nics)


def _rough_shape(fabric: Fabric, block: Block) -> object:
    return (fabric.tier[block.top[0]], frozenset(main_rails(nics_of(fabric, block))))


def _label(fabric: Fabric, alike: Sequence[Block]) -> str:
    tops = [switch for block in alike for switch in block.top]
    suffix = " each" if len(alike) > 1 else ""
    name = short_node_list([fabric.name(switch) for switch in sort_by_name(fabric, tops)])
    prefix = f"{len(alike):,} x " if len(alike) > 1 else ""
    if all(block.below for block in alike):
        switches = _range([len(block.top) for block in alike], "switch", "switches")
        exact = len({_shape(fabric, block) for block in alike}) == 1
        drawn = ", drawn once" if exact and prefix else ""
        nodes = _range([len(_nodes(nics_of(fabric, block))) for block in alike], "node")
        return (
            f"{prefix}{switches} {name}: {nodes} below{suffix}{_nics_on_top(fabric, tops)}{drawn}"
        )
    return f"{prefix}{name}: {_leaf_label(fabric, alike)}"


def _leaf_label(fabric: Fabric, alike: Sequence[Block]) -> str:
    suffix = " each" if len(alike) > 1 or len(alike[0].top) > 1 else ""
    tops = [switch for block in alike for switch in block.top]
    on = [nics_on(fabric, (switch,)) for switch in tops]
    parts = [f"{_range([len(_nodes(nics)) for nics in on], 'node')}{suffix}"]
    if nodes := _nodes(nics_on(fabric, tops)):
        parts[0] += f" ({short_node_list(sorted(nodes, key=natural_key))})"
    unknown = [sum(not nic.node for nic in nics) for nics in on]
    if any(unknown):
        parts.append(_range(unknown, "unknown NIC"))
    rails = {rail for block in alike for rail in main_rails(nics_of(fabric, block))}
    if len(fabric.rails) > 1 and rails:
        several = "rails" if len(rails) > 1 else "rail"
        parts.append(f"{several} {short_node_list(sorted(rails, key=natural_key)).strip('[]')}")
    uplinks = [_uplinks(fabric, switch) for switch in tops]
    if any(uplinks):
        parts.append(f"{_range(uplinks, 'uplink')}{_describe_oversubscription(fabric, tops)}")
    return ", ".join(parts)


def _describe_oversubscription(fabric: Fabric, leaves: Sequence[str]) -> str:
    shares = [share for leaf in leaves if (share := fabric.oversubscription(leaf)) is not None]
    if not shares or max(shares) <= 1:
        return ""
    return f" ({max(shares):.2g} to 1 oversubscribed{' at most' if len(set(shares)) > 1 else ''})"


def _nics_on_top(fabric: Fabric, tops: Sequence[str]) -> str:
    on = nics_on(fabric, tops)
    if not on:
        return ""
    nodes = sorted({nic.node or "an unknown node" for nic in on}, key=natural_key)
    return f"; {quantity(len(on), 'NIC')} directly on it, of {short_node_list(nodes)}"


def _nodes(nics: Iterable[Nic]) -> set[str]:
    return {nic.node for nic in nics if nic.node}


def _uplinks(fabric: Fabric, switch: str) -> int:
    return sum(len(link.cables) for link in fabric.uplinks(switch))


def _range(numbers: Sequence[int], singular: str, several: str = "") -> str:
    low, high = min(numbers), max(numbers)
    if low == high:
        return quantity(low, singular, several)
    return f"{low:,}-{high:,} {several or singular + 's'}"
