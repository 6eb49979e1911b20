"""A fabric as the tools of InfiniBand would print it: its cables, and its forwarding tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anubis.core.fabric import Fabric, Nic
from tests.core.made_fabrics import FatTree, statically_routed


def routed_fabric(tree: FatTree) -> Fabric:
    """A fabric with GUIDs, LIDs and forwarding tables."""
    fabric = tree.fabric()
    switches = (replace(s, guid=f"2{n:05x}") for n, s in enumerate(fabric.switches))
    nics = (replace(nic, guid=f"1{n:05x}", lid=n + 1) for n, nic in enumerate(fabric.nics))
    return statically_routed(replace(fabric, switches=tuple(switches), nics=tuple(nics)))


def ibnetdiscover_of(fabric: Fabric) -> str:
    guid = {switch.id: f"S-{switch.guid:0>16}" for switch in fabric.switches}
    ends: dict[str, list[str]] = {switch.id: [] for switch in fabric.switches}
    for nic in fabric.nics:
        described = f'"H-{nic.guid:0>16}"[1]({nic.guid}) # "{nic.node} {nic.device}"'
        ends[nic.switch].append(f"[{nic.port}] {described} lid {nic.lid} 4xNDR")
    for link in fabric.links:
        for cable in link.cables:
            for here, port, far, far_port in (
                (link.a, cable.port_a, link.b, cable.port_b),
                (link.b, cable.port_b, link.a, cable.port_a),
            ):
                far_end = f'"{guid[far]}"[{far_port}] # "{fabric.name(far)}" lid 900 4xNDR'
                ends[here].append(f"[{port}] {far_end}")
    blocks = []
    for switch in fabric.switches:
        rows = ends[switch.id]
        head = f'Switch {len(rows)} "{guid[switch.id]}" # "{switch.name}" base port 0 lid 900 lmc 0'
        blocks.append("\n".join([head, *rows]))
    for nic in fabric.nics:
        leaf = f'"{guid[nic.switch]}"[{nic.port}] # lid {nic.lid} lmc 0 "leaf" lid 900 4xNDR'
        blocks.append(
            f'Ca 1 "H-{nic.guid:0>16}" # "{nic.node} {nic.device}"\n[1]({nic.guid}) {leaf}'
        )
    return "\n\n".join(blocks) + "\n"


def dump_fts_of(fabric: Fabric) -> str:
    return _tables(
        fabric,
        "Unicast lids [0x0-0xc] of switch DR path slid 0; dlid 0; 0,1,5 "
        "guid 0x{guid:0>16} ({name}):\n  Lid  Out   Destination\n       Port     Info ",
        lambda nic, port: (
            f"0x{nic.lid:04x} {port:03} : (Channel Adapter portguid 0x{nic.guid:0>16}: "
            f"'{nic.node} {nic.device}')"
        ),
        "{count} valid lids dumped ",
    )


def dump_fts_n_of(fabric: Fabric) -> str:
    """Tables without descriptions: the LIDs are known from ibnetdiscover alone."""
    return _tables(
        fabric,
        "Unicast lids [0x0-0xc] of switch Lid 3 guid 0x{guid:0>16} ({name}):"
        "\n  Lid  Out   Destination\n       Port     Info ",
        lambda nic, port: f"0x{nic.lid:04x} {port:03} ",
        "{count} valid lids dumped ",
    )


def opensm_lfts_of(fabric: Fabric) -> str:
    return _tables(
        fabric,
        "Unicast lids [0-12] of switch Lid 2 guid 0x{guid:0>16} ('{name}'):",
        lambda nic, port: (
            f"0x{nic.lid:04x} {port:03} # Channel Adapter portguid 0x{nic.guid:0>16}: '{nic.node}'"
        ),
        "{count} lids dumped",
    )


def opensm_fdbs_of(fabric: Fabric) -> str:
    return _tables(
        fabric,
        "osm_ucast_mgr_dump_ucast_routes: Switch 0x{guid:0>16}\nLID    : Port : Hops : Optimal",
        lambda nic, port: f"0x{nic.lid:04X} : {port:03}  : 03   : yes",
        "0x00FF : UNREACHABLE",
    )


def _tables(fabric: Fabric, head: str, entry: Callable[[Nic, int], str], end: str) -> str:
    lines = []
    for switch in fabric.switches:
        lines.append(head.format(guid=switch.guid, name=switch.name))
        ports = [(nic, fabric.routes.port(switch.id, nic.id)) for nic in fabric.nics]
        lines += [entry(nic, port) for nic, port in ports if port < 255]
        lines.append(end.format(count=len(ports)))
    return "\n".join(lines) + "\n"
