"""Forwarding tables of InfiniBand switches: the port that each uses for each address (LID).

They are written by dump_fts, ibroute, ibtracert and the subnet manager (opensm-lfts.dump,
opensm.fdbs; UFM keeps the same files). They may be in one file with the output of ibnetdiscover.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from anubis.core.fabric import Fabric
from anubis.core.routes import Routes
from anubis.readers.topology.ibnetdiscover import guid_of

LIVE = ("dump_fts",)
NO_WAY = 255  # as a table has it

_TABLE = re.compile(
    r"(?:Unicast lids .* of switch .*\bguid|\S*dump_ucast_routes: Switch) (0x\w+).*"
)
_ENTRY = re.compile(r"(0x[0-9a-fA-F]{1,4})\s*:?\s+(\d{3})\b(?:.*\bportguid (0x[0-9a-fA-F]+))?.*")
_HOP = re.compile(r"\[(\d{1,5})\] -> (?:(?:switch|ca) port )?\{(0x[0-9a-fA-F]+)\}\[\d+\].*")
_END = re.compile(
    r"(From|To) (?:(?:switch|ca) )?\{(0x[0-9a-fA-F]+)\}(?: portnum \d+ lid (\d{1,5})|\[\d+\]).*"
)
_REST = re.compile(
    r"\s*(Lid\s+Out\s+Destination|Port\s+Info|\d+ (valid )?lids dumped|LID\s*: Port\s*: Hops.*"
    r"|0x[0-9a-fA-F]{1,4}\s*: UNREACHABLE.*|\*\*\* WARNING \*\*\*: this command has been .*)\s*"
)
_LINES = (_TABLE, _ENTRY, _HOP, _END, _REST)


def split(text: str) -> tuple[str, str]:
    """Split a text into what is no forwarding table, and what is; both keep their line numbers."""
    rest, tables = list[str](), list[str]()
    for row in text.split("\n"):
        of_table = "Unicast" in row or "0x" in row or "lids dumped" in row or _REST.fullmatch(row)
        is_table = bool(of_table) and any(pattern.fullmatch(row) for pattern in _LINES)
        rest.append("" if is_table else row)
        tables.append(row if is_table else "")
    return "\n".join(rest), "\n".join(tables)


def parse(text: str, fabric: Fabric, source: str, as_of: float | None) -> Routes | None:
    """Return the routes in a text; None if it has no table of a switch of this fabric. If a switch
    has two, the later counts. LIDs change, GUIDs do not: a LID counts for a NIC only if no entry of
    that switch has the GUID of the NIC."""
    by_lid = {f"lid {nic.lid}": nic.id for nic in fabric.nics if nic.lid}
    by_guid = {nic.guid: nic.id for nic in fabric.nics if nic.guid}
    by_guid |= {guid_of(nic.id): nic.id for nic in fabric.nics if nic.guid}
    switch_of = {switch.guid: switch.id for switch in fabric.switches if switch.guid}
    ports: dict[str, dict[str, int]] = {}
    entries = list(_entries(text))
    for nic_of in (by_lid, by_guid):
        for guid, target, port in entries:
            switch, nic = switch_of.get(guid), nic_of.get(target)
            if switch and nic and 0 < port < NO_WAY:
                ports.setdefault(switch, {})[nic] = port
    return Routes.from_ports(ports, source, as_of) if ports else None


def _entries(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield GUID of the switch, LID or GUID of the target, and port; a line that names both yields
    both."""
    switch, path = "", list[tuple[str, int]]()
    for row in text.split("\n"):
        if table := _TABLE.fullmatch(row):
            switch = guid_of(table.group(1))
        elif entry := _ENTRY.fullmatch(row):
            lid, port, guid = entry.groups()
            if guid:
                yield switch, guid_of(guid), int(port)
            yield switch, f"lid {int(lid, 16)}", int(port)
        elif end := _END.fullmatch(row):
            direction, guid, lid = end.groups()
            if direction == "To":
                for here, port in path:
                    yield here, guid_of(guid), port
                    if lid:
                        yield here, f"lid {lid}", port
            switch, path = guid_of(guid), []
        elif hop := _HOP.fullmatch(row):
            path.append((switch, int(hop.group(1))))
            switch = guid_of(hop.group(2))
