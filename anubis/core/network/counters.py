"""Error counters of the ports of a fabric: the cable of each, and the fatal ones.

Counters add up since they were last cleared, perhaps years ago. So a single reading is only a fact.
The rise in a known time is judged, by the limits of RDMA ports, at both ends of a cable.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.fabric import Cable, Fabric, Link, Nic, Switch, plain_name, rail_of
from anubis.core.records import Count, Counters, Limit

MOST = {  # the largest value of each standard counter (InfiniBand Architecture, PortCounters)
    "symbol_error": 65535,
    "link_error_recovery": 255,
    "link_downed": 255,
    "port_rcv_errors": 65535,
    "port_rcv_remote_physical_errors": 65535,
    "port_rcv_switch_relay_errors": 65535,
    "port_xmit_discards": 65535,
    "port_xmit_constraint_errors": 255,
    "port_rcv_constraint_errors": 255,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
    "VL15_dropped": 65535,
}
PORT_DOWN = "port_down"  # 1 for a port that should be up and is not, of switches that say so
PERIODS = {"s": 1.0, "h": HOUR_S}  # for the metrics port_errors_per_s and port_errors_per_h


def exceeded_limit(counters: Counters, count: Count) -> Limit | None:
    """The limit that this rise exceeds, if any; less than a period of time counts as one period."""
    if counters.over_s is None:
        return None
    limits = {limit.metric: limit for limit in counters.limits}
    for period, seconds in PERIODS.items():
        limit = limits.get(f"port_errors_per_{period}:{count.counter}")
        rate = count.value / max(counters.over_s / seconds, 1.0)
        if limit and limit.excess(np.array([rate]))[0] > 0:
            return limit
    return None


def count_rises(
    before: Iterable[Count], after: Iterable[Count], over_s: float, limits: tuple[Limit, ...] = ()
) -> Counters:
    """The rise of each counter; a counter that is lower than before was cleared in between."""
    past = {_counter(count): count.value for count in before}
    rises, stuck = [], []
    for count in after:
        was = past.get(_counter(count), 0)
        rise = count.value - was if count.value >= was else count.value
        if rise:
            rises.append(replace(count, value=rise))
        elif count.value == MOST.get(count.counter):
            stuck.append(count)
    return Counters(counts=tuple(rises), over_s=over_s, stuck=tuple(stuck), limits=limits)


def _counter(count: Count) -> tuple[str, str, str]:
    """The key of a counter; ports without a GUID are known by name."""
    return count.guid or count.name, count.port, count.counter


# --- on a fabric -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class PortCount:
    """A count, and its place in the fabric."""

    count: Count
    switch: str  # the switch of the port; for the port of a NIC, the one it is plugged into
    link: Link | None = None  # the link between switches to which its cable belongs
    cable: Cable | None = None
    nic: Nic | None = None  # at either end of its cable
    place: str  # in words


def place_counts(counts: Collection[Count], fabric: Fabric) -> tuple[list[PortCount], list[Count]]:
    """The counts at the ports of the fabric, and the counts of ports that it does not have."""
    ports, placed, unknown = _Ports(fabric), [], []
    for count in counts:
        port_count = ports.find(count)
        if port_count is None:
            unknown.append(count)
        elif count.counter != PORT_DOWN or port_count.link or port_count.nic:
            placed.append(port_count)  # a port without a cable may be down
    return placed, unknown


class _Ports:
    """An index of ports by GUID, or by name if the source of the fabric has no GUIDs."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.cables = {
            end: (link, cable)
            for link in fabric.links
            for cable in link.cables
            for end in ((link.a, cable.port_a), (link.b, cable.port_b))
            if end[1]
        }
        self.nics = {(nic.switch, nic.port): nic for nic in fabric.nics if nic.port}
        self.numbered = {switch for switch, _ in (*self.cables, *self.nics)}
        self.ports: dict[tuple[str, str], list[str]] = {}  # of a switch, by their numbers
        for id, port in (*self.cables, *self.nics):
            self.ports.setdefault((id, _split_port(port)[1]), []).append(port)
        self.plain: dict[str, list[Switch]] = {}
        for switch in fabric.switches:
            self.plain.setdefault(plain_name(switch.name), []).append(switch)
        self.switches = {at: switch.id for switch in fabric.switches for at in switch.addresses}
        self.switches |= {switch.name: switch.id for switch in fabric.switches}
        self.switches |= {switch.guid: switch.id for switch in fabric.switches if switch.guid}
        if fabric.is_nvlink:
            self.switches |= {
                name: domain.name for domain in fabric.domains for name in domain.switches
            }
        self.hcas = {nic.guid: nic for nic in fabric.nics if nic.guid}

    def find(self, count: Count) -> PortCount | None:
        named = self.switches.get(count.name) or self._switch_without_domain(count.name)
        if switch := self.switches.get(count.guid) or named:
            return self._switch_count(count, switch)
        node, _, device = count.name.partition(" ")
        nic = self.hcas.get(count.guid) or self.fabric.nic(node, rail_of(device))
        if nic is None:
            return None
        place = f"NIC {nic.device} of {nic.node}" if nic.node else f'NIC "{count.name}"'
        return PortCount(count=count, switch=nic.switch, nic=nic, place=place)

    def _switch_without_domain(self, name: str) -> str:
        """The only switch of that name if one of both names has no domain; "" if there is none."""
        alike = self.plain.get(plain_name(name), ())
        same = [switch.id for switch in alike if "." not in name or "." not in switch.name]
        return same[0] if len(same) == 1 else ""

    def _switch_count(self, count: Count, switch: str) -> PortCount:
        name = count.name if self.fabric.is_nvlink else self.fabric.name(switch)
        port = self._port(switch, count.port)
        place = f"{name} port {port}"
        nic = self.nics.get((switch, port))
        link, cable = self.cables.get((switch, port), (None, None))
        if nic:
            place += f" to {nic.node or 'an unknown host'} {nic.device}".rstrip()
        elif link:
            place += f" to {self.fabric.name(link.b if link.a == switch else link.a)}"
        elif switch in self.numbered and port != "0":  # 0 is the switch itself
            place += ", which has no cable"
        return PortCount(count=count, switch=switch, link=link, cable=cable, nic=nic, place=place)

    def _port(self, switch: str, port: str) -> str:
        """The port as the fabric calls it: one program says Eth1/7 for another's Ethernet1/7."""
        letters, numbers = _split_port(port)
        alike = self.ports.get((switch, numbers), ()) if numbers else ()
        same = [name for name in alike if _abbreviates(letters, _split_port(name)[0])]
        return port if port in alike or len(same) != 1 else same[0]


def _split_port(port: str) -> tuple[str, str]:
    """The word and the numbers in the name of a port, such as `ethernet` and `1/7`."""
    named = re.fullmatch(r"([a-z][a-z -]*?)[ -]?(\d[\d/.:]*)", port.casefold())
    return (named.group(1), named.group(2)) if named else (port, "")


def _abbreviates(first: str, second: str) -> bool:
    """True if one word begins the other, with at least two letters."""
    short, long = sorted((first, second), key=len)
    return len(short) >= 2 and long.startswith(short)


def sort_by_severity(port_counts: Iterable[PortCount], counters: Counters) -> list[PortCount]:
    """Sort fatal counts first, then the largest."""
    return sorted(
        port_counts,
        key=lambda port_count: (
            exceeded_limit(counters, port_count.count) is None,
            -port_count.count.value,
            port_count.place,
        ),
    )


def sentence(port_count: PortCount, counters: Counters) -> str:
    """A sentence about a count: `symbol_error 1523 at leaf-5 port 7 to node081 mlx5_0`."""
    count = port_count.count
    if counters.over_s is None:
        full = " (the most it can show)" if count.value == MOST.get(count.counter) else ""
        return f"{count.counter} {count.value}{full} at {port_count.place}"
    limit = exceeded_limit(counters, count)
    text = f"{count.counter} rose by {count.value} in {counters.over_s:g} s at {port_count.place}"
    if limit is None:
        return text
    period = limit.metric.partition(":")[0].removeprefix("port_errors_per_")
    return f"{text}: fatal, limit {limit} per {period}" + (limit.action and f"; {limit.action}")
