"""Ports in the report of node_health: down or not, how fast, and which counters rise."""

from __future__ import annotations

from kit.health.findings import Findings
from kit.network.ports import Port

UP, DOWN = 1.0, 0.5  # what a fleet is compared by is never 0
Counts = dict[str, dict[str, int]]  # by port and counter


def count_ports(ports: list[Port]) -> Counts:
    return {port.name: port.counters() for port in ports}


def report_states(findings: Findings, ports: list[Port], expected: list[str]) -> None:
    """Report states of ports. `expected` are the ports that must be up. If none is named, any state
    may be right: a port without a cable is down on all nodes, one whose cable failed on this one
    alone."""
    active = {port.name: port for port in ports if port.is_active}
    for name in expected:
        findings.add("port_down", name, name not in active)
    for port in ports if not expected else ():
        if not port.is_switched_off:
            findings.add(f"port_up:{port.name}", "node", UP if port.is_active else DOWN)
    if active:
        findings.add("ports_active", "node", len(active))
    for name, port in active.items():
        if gbps := port.gbps:
            findings.add("port_gbps", name, gbps)
        else:
            findings.miss(f"port_gbps of {name}", f'the kernel says "{port.says("rate")}"')
    findings.facts["ports"] = {port.name: describe(port) for port in ports}


def describe(port: Port) -> str:
    words = [port.says(file) for file in ("link_layer", "state", "phys_state", "rate")]
    return ", ".join([*words, f"firmware {port.firmware}"])


def report_rises(findings: Findings, before: Counts, after: Counts, seconds: float) -> None:
    """Report how fast each counter went up; its value before is a fact."""
    for name, counts in after.items():
        for counter in counts.keys() & before.get(name, {}).keys():
            rise = counts[counter] - before[name][counter]
            if rise < 0:  # cleared meanwhile
                rise = counts[counter]
            findings.add(f"port_errors_per_s:{counter}", name, rise / seconds)
    findings.facts["port_errors_since_start"] = {
        name: {counter: count for counter, count in counts.items() if count}
        for name, counts in after.items()
    }
