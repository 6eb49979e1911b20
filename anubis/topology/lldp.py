"""What each host's neighbours say by LLDP: `lldpctl -f json`, gathered from many machines.

One document is an object `{"node001": {"lldp": ...}, ...}`, or lines of
`{"host": "node001", "lldp": ...}`. Switches that run lldpd may be among the machines: their
neighbours are the links between switches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anubis.core.errors import TopologyError
from anubis.topology.draft import Draft, Survey


@dataclass(frozen=True)
class _Neighbour:
    of: str
    device: str
    name: str
    port: str
    is_switch: bool


def parse(text: str, where: str) -> Survey:
    draft = Draft()
    found = [
        neighbour
        for host, document in _documents(text, where, draft)
        for neighbour in _neighbours(host, document, draft)
    ]
    switches = {each.name for each in found if each.is_switch}
    switches |= {each.of for each in found if each.of in switches}
    done: set[tuple[str, str]] = set()
    seen: dict[tuple[str, str], str] = {}
    for each in found:
        if each.name not in switches:
            sentence = f"{each.of} {each.device} is next to {each.name}, which is no switch"
            draft.find("no-switch", sentence)
        elif each.of in switches:
            if (each.of, each.device) not in done:
                draft.cable(each.of, each.name, ports=(each.device, each.port))
            done |= {(each.of, each.device), (each.name, each.port)}
        elif seen.setdefault((each.of, each.device), each.name) != each.name:
            sentence = f"{each.of} {each.device} sees {each.name} besides "
            draft.find("two-neighbours", f"{sentence}{seen[each.of, each.device]}: left out")
        else:
            draft.nic(node=each.of, device=each.device, switch=each.name, port=each.port)
    return draft.survey()


def _documents(text: str, where: str, draft: Draft) -> Iterator[tuple[str, Any]]:
    try:
        whole = json.loads(text)
    except ValueError:
        yield from _lines(text, where, draft)
        return
    if not isinstance(whole, dict):
        raise TopologyError(f"{where}: expected a table from host to what lldpctl says there")
    if isinstance(whole.get("host"), str):
        yield whole["host"], whole
    elif "lldp" in whole:
        raise TopologyError(
            f"{where}: this is what one host sees, and it does not say which; "
            'expected {"<host>": {"lldp": ...}, ...}'
        )
    else:
        yield from whole.items()


def _lines(text: str, where: str, draft: Draft) -> Iterator[tuple[str, Any]]:
    understood = False
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
            host = document["host"]
        except (ValueError, TypeError, KeyError, RecursionError):
            draft.find("unreadable", f'is no {{"host": ..., "lldp": ...}}: "{line[:60]}"', number)
            continue
        understood = True
        yield str(host), document
    if not understood:
        raise TopologyError(f"{where}: no line of it is a JSON document of a host")


def _neighbours(host: str, document: Any, draft: Draft) -> Iterator[_Neighbour]:
    """lldpctl writes one interface as a table and several as a list of tables."""
    try:
        interfaces = document["lldp"].get("interface", [])
        listed = interfaces if isinstance(interfaces, list) else [interfaces]
        pairs = [pair for table in listed for pair in table.items()]
    except (TypeError, KeyError, AttributeError):
        draft.find("unreadable", f"{host}: expected what lldpctl -f json writes")
        return
    if not pairs:
        draft.find("no-neighbour", f"{host} has no neighbour by LLDP")
    for device, seen in pairs:
        try:
            yield _neighbour(host, device, seen)
        except (TypeError, KeyError, AttributeError, StopIteration):
            draft.find("unreadable", f"{host} {device}: its neighbour cannot be read")


def _neighbour(host: str, device: str, seen: Any) -> _Neighbour:
    chassis = seen["chassis"]
    named = "id" not in chassis  # a neighbour without a system name is not wrapped in it
    name, about = next(iter(chassis.items())) if named else (chassis["id"]["value"], chassis)
    port = seen.get("port", {}).get("id", {}).get("value", "")
    capabilities = about.get("capability", [])
    listed = capabilities if isinstance(capabilities, list) else [capabilities]
    enabled = {each["type"] for each in listed if each.get("enabled")}
    forwards = bool(enabled & {"Bridge", "Router"}) and "Station" not in enabled
    return _Neighbour(host, device, str(name), str(port), forwards or not listed)
