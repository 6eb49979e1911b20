"""The neighbours of each host by LLDP: `lldpctl -f json`, collected from many machines.

One document is an object `{"node001": {"lldp": ...}, ...}`, or lines of
`{"host": "node001", "lldp": ...}`. Switches that run lldpd may be among the machines: their
neighbours are the links between switches. Others may know a port of theirs by an alias or a number;
then it has the name by which the switch itself knows it, which counters have too.

A machine may be called with its domain here and without it there, or only by its chassis: it is one
machine. One without capabilities is a switch, unless all hosts are without. A network for
management only is left out, as no job uses it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from anubis.core.errors import TopologyError
from anubis.core.fabric import natural_key, plain_name
from anubis.readers.topology.draft import Draft, Survey
from anubis.text.files import json_value

# The description of a port that is its name: an alias or a MAC address stands for it elsewhere.
_INTERFACE = re.compile(
    r"(?:eth|swp|et-|xe-|ge-|gi|te|twe|fo|hu|two|en|ib)[a-z-]*[\d/.:_spnf]+", re.IGNORECASE
)
# A port by which a switch is managed, and nothing else passes. Linux' eth0 is one, beside swp1.
_MANAGEMENT = re.compile(r"(?:mgmt|management|oob|fxp|me|em|ma)[-_ ]?[\d/]*", re.IGNORECASE)
_LINUX_MANAGEMENT = "eth0"
_SPEED = re.compile(
    r"(\d+(?:\.\d+)?)(G(?:ig)?)?base", re.IGNORECASE
)  # 1000BaseTFD, 10GigBaseX, 100GbaseCR4
SLOWEST_GBIT_S = 1.0  # ports that are no faster belong to management if there are faster ones


@dataclass(frozen=True)
class _Neighbour:
    of: str
    device: str
    name: str
    port: str
    is_switch: bool
    forwards: bool  # and says so
    addresses: tuple[str, ...] = ()
    chassis: str = ""
    port_id: str = ""
    gbit_s: float | None = None


def parse(text: str, where: str) -> Survey:
    draft = Draft()
    listed = [
        neighbour
        for host, document in _documents(text, where, draft)
        for neighbour in _neighbours(host, document, draft)
    ]
    machines = _find_hosts(_name_machines(_join_ends(_part_ports(listed))))
    neighbours = _name_ports(_leave_out_management(machines, draft))
    switches = {neighbour.name for neighbour in neighbours if neighbour.is_switch}
    _report_one_sided(neighbours, switches, draft)
    cabled: set[tuple[str, str]] = set()
    seen: dict[tuple[str, str], str] = {}
    for neighbour in neighbours:
        if neighbour.name not in switches and neighbour.of in switches:
            continue  # a host, as the switch sees it
        if neighbour.name not in switches:
            sentence = f"{neighbour.of} {neighbour.device} is next to {neighbour.name}"
            draft.find("no-switch", f"{sentence}, which is no switch")
        elif neighbour.of in switches:
            if (neighbour.of, neighbour.device) not in cabled:
                ports = neighbour.device, neighbour.port
                draft.cable(neighbour.of, neighbour.name, ports=ports, gbit_s=neighbour.gbit_s)
            cabled |= {(neighbour.of, neighbour.device), (neighbour.name, neighbour.port)}
        elif seen.setdefault((neighbour.of, neighbour.device), neighbour.name) != neighbour.name:
            first = seen[neighbour.of, neighbour.device]
            sentence = f"{neighbour.of} {neighbour.device} sees {neighbour.name} besides {first}"
            draft.find("two-neighbours", f"{sentence}: left out")
        else:
            draft.nic(
                node=neighbour.of,
                device=neighbour.device,
                switch=neighbour.name,
                port=neighbour.port,
                gbit_s=neighbour.gbit_s,
            )
    for neighbour in neighbours:
        if draft.has_switch(neighbour.name):
            draft.switch(neighbour.name, addresses=neighbour.addresses)
    return draft.survey()


def _part_ports(neighbours: Sequence[_Neighbour]) -> list[_Neighbour]:
    """Name a port by its id if several ports of its machine have the same description."""
    ids: dict[tuple[str, str], set[str]] = {}
    for neighbour in neighbours:
        ids.setdefault((neighbour.name, neighbour.port), set()).add(neighbour.port_id)
    return [
        replace(neighbour, port=neighbour.port_id)
        if len(ids[neighbour.name, neighbour.port]) > 1
        else neighbour
        for neighbour in neighbours
    ]


def _join_ends(neighbours: Sequence[_Neighbour]) -> list[_Neighbour]:
    """Name a machine of which others see only the chassis by the name under which it reports: it
    lists the other ends of the same cables. Once it has a name, more ends may be known."""
    named: Sequence[_Neighbour] = ()
    while named != neighbours:
        named, names = neighbours, _names_by_chassis(neighbours)
        neighbours = [
            replace(neighbour, name=names.get(neighbour.name, neighbour.name))
            for neighbour in named
        ]
    return list(neighbours)


def _names_by_chassis(neighbours: Sequence[_Neighbour]) -> dict[str, str]:
    """The only machine that lists the other ends of the cables to each chassis without a name."""
    listing: dict[tuple[str, str], set[str]] = {}
    for neighbour in neighbours:
        listing.setdefault((plain_name(neighbour.name), neighbour.port), set()).add(neighbour.of)
    own: dict[str, set[str]] = {}
    for neighbour in neighbours:
        if neighbour.name == neighbour.chassis:
            end = plain_name(neighbour.of), neighbour.device
            own.setdefault(neighbour.name, set()).update(listing.get(end, ()))
    uses = Counter(name for names in own.values() for name in names)
    return {
        chassis: min(names)
        for chassis, names in own.items()
        if len(names) == 1 and uses[min(names)] == 1
    }


def _find_hosts(neighbours: Sequence[_Neighbour]) -> list[_Neighbour]:
    """Take machines without capabilities for hosts if others forward, and none is a host
    otherwise."""
    if any(not neighbour.is_switch for neighbour in neighbours):
        return list(neighbours)
    forwarding = {neighbour.name for neighbour in neighbours if neighbour.forwards}
    ends = {n.name for n in neighbours if n.of in forwarding}.difference(forwarding)
    return [replace(n, is_switch=n.name not in ends) for n in neighbours]


def _name_machines(neighbours: Sequence[_Neighbour]) -> list[_Neighbour]:
    """Call each machine by one name: a switch as its neighbours do, another as it does itself.

    Names that differ by a domain or by case are one, unless two machines are called so. A machine
    without a system name has the name by which others know its chassis.
    """
    of_chassis: dict[str, set[str]] = {}
    for neighbour in neighbours:
        if neighbour.name != neighbour.chassis:
            of_chassis.setdefault(neighbour.chassis, set()).add(neighbour.name)
    named = [
        replace(neighbour, name=min(of_chassis[neighbour.name]))
        if neighbour.name == neighbour.chassis and len(of_chassis.get(neighbour.name, ())) == 1
        else neighbour
        for neighbour in neighbours
    ]
    own: dict[str, set[str]] = {}
    seen: dict[str, set[str]] = {}
    for neighbour in named:
        own.setdefault(plain_name(neighbour.of), set()).add(neighbour.of)
        seen.setdefault(plain_name(neighbour.name), set()).add(neighbour.name)
    switches = {plain_name(neighbour.name) for neighbour in named if neighbour.is_switch}
    spelling = {
        plain: (seen if plain in switches else own)[plain]
        for plain in own.keys() & seen.keys()
        if len({name.casefold() for name in own[plain]}) == 1
        and len({name.casefold() for name in seen[plain]}) == 1
    }

    def call(name: str) -> str:
        return min(spelling.get(plain_name(name), {name}))

    return [replace(n, of=call(n.of), name=call(n.name)) for n in named]


def _leave_out_management(neighbours: Sequence[_Neighbour], draft: Draft) -> list[_Neighbour]:
    """Leave out the ports by which switches are managed, and switches that only such ports reach or
    all of whose known ports are slow beside faster ones."""
    switches = {neighbour.name for neighbour in neighbours if neighbour.is_switch}
    devices: dict[str, set[str]] = {}
    speeds: dict[str, set[float]] = {}
    for neighbour in neighbours:
        devices.setdefault(neighbour.of, set()).add(neighbour.device)
        if neighbour.is_switch and neighbour.gbit_s is not None:
            speeds.setdefault(neighbour.name, set()).add(neighbour.gbit_s)
    is_mixed = any(name not in speeds or max(speeds[name]) > SLOWEST_GBIT_S for name in switches)
    slow = {name for name, of in speeds.items() if max(of) <= SLOWEST_GBIT_S} if is_mixed else set()

    def is_managed(neighbour: _Neighbour) -> bool:
        if neighbour.of not in switches:
            return False
        beside = [name for name in devices[neighbour.of] if not name.startswith("eth")]
        is_first = neighbour.device == _LINUX_MANAGEMENT and bool(beside)
        return is_first or bool(_MANAGEMENT.fullmatch(neighbour.device))

    reached = {neighbour.name for neighbour in neighbours if is_managed(neighbour)}
    reached -= {n.name for n in neighbours if n.of in switches and not is_managed(n)}
    left_out = [n for n in neighbours if is_managed(n) or (slow | reached) & {n.of, n.name}]
    through = {n.name for n in left_out if n.is_switch}
    if left_out:
        ports = "1 port" if len(left_out) == 1 else f"{len(left_out)} ports"
        at = f", at {', '.join(sorted(through, key=natural_key))}" if through else ""
        draft.find("management", f"{ports} for management{at}: left out")
    kept = set(neighbours).difference(left_out)
    return [neighbour for neighbour in neighbours if neighbour in kept]


def _name_ports(neighbours: Sequence[_Neighbour]) -> list[_Neighbour]:
    """Name the far ports of a machine as it does itself, if others call all of them otherwise and
    both ends list as many cables."""
    seen: dict[tuple[str, str], list[_Neighbour]] = {}
    for neighbour in neighbours:
        ends = plain_name(neighbour.of), plain_name(neighbour.name)
        seen.setdefault(ends, []).append(neighbour)
    own = {(plain_name(neighbour.of), neighbour.device) for neighbour in neighbours}
    agreed = {
        plain_name(neighbour.name)
        for neighbour in neighbours
        if (plain_name(neighbour.name), neighbour.port) in own
    }
    renamed: dict[_Neighbour, _Neighbour] = {}
    for (of, name), forth in seen.items():
        back = seen.get((name, of), [])
        if name not in agreed and len(back) == len(forth):
            ports = sorted((neighbour.device for neighbour in back), key=natural_key)
            in_order = sorted(forth, key=lambda neighbour: natural_key(neighbour.port))
            renamed |= {n: replace(n, port=port) for n, port in zip(in_order, ports, strict=True)}
    return [renamed.get(neighbour, neighbour) for neighbour in neighbours]


def _report_one_sided(neighbours: Sequence[_Neighbour], switches: Set[str], draft: Draft) -> None:
    """Report cables that only one end lists, if both ends reported and the switch calls its ports
    as others do.

    A machine that a switch knows by a name under which none reported may be any machine.
    """
    reporting = {plain_name(neighbour.of) for neighbour in neighbours}
    listed: dict[tuple[str, str], list[str]] = {}
    for neighbour in neighbours:
        listed.setdefault((neighbour.of, neighbour.device), []).append(neighbour.name)
    ends = {(neighbour.name, neighbour.port) for neighbour in neighbours}
    answering = switches & {name for name, _ in ends & listed.keys()}
    for neighbour in neighbours:
        if neighbour.name not in answering:
            continue
        sentence = f"{neighbour.of}[{neighbour.device}] is cabled to "
        sentence += f"{neighbour.name}[{neighbour.port}], which "
        back = listed.get((neighbour.name, neighbour.port), [])
        if not back:
            draft.find("one-sided", f"{sentence}does not list it")
        elif plain_name(neighbour.of) not in map(plain_name, back) and reporting.issuperset(
            map(plain_name, back)
        ):
            draft.find("contradiction", f"{sentence}names {' and '.join(back)}")


def _documents(text: str, where: str, draft: Draft) -> Iterator[tuple[str, Any]]:
    try:
        document = json_value(text)
    except ValueError:
        yield from _lines(text, where, draft)
        return
    if not isinstance(document, dict):
        raise TopologyError(f"{where}: expected a table from host to the output of lldpctl there")
    if isinstance(document.get("host"), str):
        yield document["host"], document
    elif "lldp" in document:
        raise TopologyError(
            f"{where}: this is the output of one host, which it does not name; "
            'expected {"<host>": {"lldp": ...}, ...}'
        )
    else:
        yield from document.items()


def _lines(text: str, where: str, draft: Draft) -> Iterator[tuple[str, Any]]:
    understood = False
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            document = json_value(line)
            host = document["host"]
        except (ValueError, TypeError, KeyError):
            draft.find("unreadable", f'is no {{"host": ..., "lldp": ...}}: "{line[:60]}"', number)
            continue
        understood = True
        yield str(host), document
    if not understood:
        raise TopologyError(f"{where}: no line is a JSON document of a host")


def _neighbours(host: str, document: Any, draft: Draft) -> Iterator[_Neighbour]:
    """Yield neighbours; lldpctl writes one interface as a table and several as a list of tables."""
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
    port = _port_name(seen.get("port", {}))
    capabilities = about.get("capability", [])
    listed = capabilities if isinstance(capabilities, list) else [capabilities]
    enabled = {capability["type"] for capability in listed if capability.get("enabled")}
    forwards = bool(enabled & {"Bridge", "Router"}) and "Station" not in enabled
    at = about.get("mgmt-ip", [])
    addresses = tuple(map(str, at if isinstance(at, list) else [at]))
    return _Neighbour(
        of=host,
        device=device,
        name=str(name),
        port=port,
        is_switch=forwards or not listed,
        forwards=forwards,
        addresses=addresses,
        chassis=str(about.get("id", {}).get("value", "")),
        port_id=str(seen.get("port", {}).get("id", {}).get("value", "")),
        gbit_s=_speed(seen.get("port", {})),
    )


def _speed(port: Any) -> float | None:
    """Return the speed that a port negotiated, in Gbit/s; None if it is not known."""
    match = _SPEED.search(str(port.get("auto-negotiation", {}).get("current", "")))
    return float(match[1]) / (1 if match[2] else 1000) if match else None


def _port_name(port: Any) -> str:
    """The name of a port: its id or, if that is an alias or an address, a description that is a
    name."""
    about = port.get("id", {})
    described = str(port.get("descr", ""))
    stands_for_it = about.get("type") in ("local", "mac", "ifalias")
    if stands_for_it and _INTERFACE.fullmatch(described):
        return described
    return str(about.get("value", ""))
