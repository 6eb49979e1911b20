"""RDMA ports as the kernel shows them: up or not, how fast, and which error counters move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from _findings import Findings, number
from _rdma import link_gbps, numbered, text

COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
)
HARDWARE_COUNTERS = (
    "local_ack_timeout_err",
    "out_of_sequence",
    "packet_seq_err",
    "req_transport_retries_exceeded",
    "rnr_nak_retry_err",
    "roce_slow_restart",
)


@dataclass(frozen=True)
class Port:
    name: str  # the adapter, and the port's number where it has several
    path: Path

    @property
    def is_active(self) -> bool:
        """Up for data: the link alone is not enough, a subnet manager must have brought it up."""
        return "ACTIVE" in text(self.path / "state")

    @property
    def is_switched_off(self) -> bool:
        return "Disabled" in text(self.path / "phys_state")

    def counters(self) -> dict[str, int]:
        """Those that this adapter has."""
        places = {name: self.path / "counters" / name for name in COUNTERS}
        places |= {name: self.path / "hw_counters" / name for name in HARDWARE_COUNTERS}
        counts = {name: number(place) for name, place in places.items()}
        return {name: count for name, count in counts.items() if count is not None}


def ports(root: Path) -> list[Port]:
    """Of physical adapters; the virtual functions of one have no link of their own."""
    return list(_ports(root / "sys/class/infiniband"))


def _ports(adapters: Path) -> Iterator[Port]:
    for adapter in sorted(adapters.glob("*"), key=lambda path: numbered(path.name)):
        if (adapter / "device/physfn").exists():
            continue
        found = sorted((adapter / "ports").glob("*"), key=lambda path: int(path.name))
        for port in found:
            name = adapter.name if len(found) == 1 else f"{adapter.name}/{port.name}"
            yield Port(name, port)


def read(found: Findings, all_ports: list[Port], expected: list[str]) -> None:
    """`expected` are the ports that must be up; none named: all that nobody switched off."""
    known = {port.name: port for port in all_ports}
    wanted = expected or [port.name for port in all_ports if not port.is_switched_off]
    for name in wanted:
        up = name in known and known[name].is_active
        found.add("port_down", name, not up)
    active = [port for port in all_ports if port.is_active]
    if active:
        found.add("ports_active", "node", len(active))
    for port in active:
        rate = text(port.path / "rate")
        if gbps := link_gbps(rate):
            found.add("port_gbps", port.name, gbps)
        else:
            found.miss(f"port_gbps of {port.name}", f'the kernel says "{rate}"')
    found.facts["ports"] = {
        port.name: f"{text(port.path / 'link_layer')}, {text(port.path / 'state')}, "
        f"{text(port.path / 'phys_state')}, {text(port.path / 'rate')}, firmware "
        f"{text(port.path.parents[1] / 'fw_ver')}"
        for port in all_ports
    }


def rises(
    found: Findings, before: dict[str, dict[str, int]], all_ports: list[Port], seconds: float
) -> None:
    """How fast each counter went up since `before`; what stands in it from earlier is a fact."""
    totals: dict[str, dict[str, int]] = {}
    for port in all_ports:
        now = port.counters()
        totals[port.name] = {name: count for name, count in now.items() if count}
        for name, count in now.items():
            past = before.get(port.name, {}).get(name)
            if past is not None:
                rise = count - past if count >= past else count  # cleared meanwhile
                found.add(f"port_errors_per_s:{name}", port.name, rise / seconds)
    found.facts["port_errors_since_start"] = totals
