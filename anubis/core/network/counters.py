"""Error counters of the ports of a fabric: which cable each is about, and which are fatal.

Counters run since somebody cleared them, maybe for years. So one reading tells facts, and only what
rose in a known time is judged: by the limits of RDMA ports, on whichever end of a cable they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.fabric import Cable, Fabric, Link, Nic, rail_of
from anubis.core.records import Count, Counters, Limit

MOST = {  # that a counter of the standard's can show (InfiniBand Architecture, PortCounters)
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
PERIODS = {"s": 1.0, "h": 3600.0}  # of the metrics port_errors_per_s and port_errors_per_h


def broken(counters: Counters, count: Count) -> Limit | None:
    """The limit that this rise is outside of; what took less than a period counts as one."""
    if counters.over_s is None:
        return None
    limits = {limit.metric: limit for limit in counters.limits}
    for period, seconds in PERIODS.items():
        limit = limits.get(f"port_errors_per_{period}:{count.counter}")
        rate = count.value / max(counters.over_s / seconds, 1.0)
        if limit and limit.excess(np.array([rate]))[0] > 0:
            return limit
    return None


def risen(
    before: Iterable[Count], after: Iterable[Count], over_s: float, limits: tuple[Limit, ...] = ()
) -> Counters:
    """By how much each counter went up; one that shows less than before was cleared meanwhile."""
    past = {(each.guid, each.port, each.counter): each.value for each in before}
    rises, stuck = [], []
    for each in after:
        was = past.get((each.guid, each.port, each.counter), 0)
        rise = each.value - was if each.value >= was else each.value
        if rise:
            rises.append(replace(each, value=rise))
        elif each.value == MOST.get(each.counter):
            stuck.append(each)
    return Counters(counts=tuple(rises), over_s=over_s, stuck=tuple(stuck), limits=limits)


# --- on a fabric -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class PortCount:
    """A count, and where in the fabric it was counted."""

    count: Count
    switch: str  # whose port it is; of a NIC's own port, the one it hangs on
    link: Link | None = None  # that its cable belongs to, between switches
    cable: Cable | None = None
    nic: Nic | None = None  # at either end of its cable
    place: str  # in words


def on_ports(counts: Collection[Count], fabric: Fabric) -> tuple[list[PortCount], list[Count]]:
    """Each count on its port, and those of whom the fabric does not know."""
    ports, placed, unknown = _Ports(fabric), [], []
    for count in counts:
        found = ports.find(count)
        if found:
            placed.append(found)
        else:
            unknown.append(count)
    return placed, unknown


class _Ports:
    """Looks for GUIDs, and for names where the source of the fabric has none."""

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
        self.switches = {switch.name: switch.id for switch in fabric.switches}
        self.switches |= {switch.guid: switch.id for switch in fabric.switches if switch.guid}
        self.hcas = {nic.guid: nic for nic in fabric.nics if nic.guid}

    def find(self, count: Count) -> PortCount | None:
        switch = self.switches.get(count.guid) or self.switches.get(count.name)
        if switch:
            return self._of_switch(count, switch)
        node, _, device = count.name.partition(" ")
        nic = self.hcas.get(count.guid) or self.fabric.nic(node, rail_of(device))
        if nic is None:
            return None
        place = f"NIC {nic.device} of {nic.node}" if nic.node else f'NIC "{count.name}"'
        return PortCount(count=count, switch=nic.switch, nic=nic, place=place)

    def _of_switch(self, count: Count, switch: str) -> PortCount:
        place = f"{self.fabric.name(switch)} port {count.port}"
        nic = self.nics.get((switch, count.port))
        link, cable = self.cables.get((switch, count.port), (None, None))
        if nic:
            place += f" to {nic.node or 'an unknown host'} {nic.device}".rstrip()
        elif link:
            place += f" to {self.fabric.name(link.b if link.a == switch else link.a)}"
        elif switch in self.numbered and count.port != "0":  # 0 is the switch itself
            place += ", where no cable is"
        return PortCount(count=count, switch=switch, link=link, cable=cable, nic=nic, place=place)


def most_telling(found: Iterable[PortCount], counters: Counters) -> list[PortCount]:
    """What is fatal first, then the largest."""
    return sorted(
        found,
        key=lambda each: (broken(counters, each.count) is None, -each.count.value, each.place),
    )


def sentence(found: PortCount, counters: Counters) -> str:
    """symbol_error 1523 at leaf-5 port 7 to node081 mlx5_0"""
    count = found.count
    if counters.over_s is None:
        full = " (the most it can show)" if count.value == MOST.get(count.counter) else ""
        return f"{count.counter} {count.value}{full} at {found.place}"
    limit = broken(counters, count)
    told = f"{count.counter} rose by {count.value} in {counters.over_s:g} s at {found.place}"
    if limit is None:
        return told
    period = limit.metric.partition(":")[0].removeprefix("port_errors_per_")
    return f"{told}: fatal, limit {limit} per {period}" + (limit.action and f"; {limit.action}")
