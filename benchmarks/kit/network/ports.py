"""The kernel's facts about RDMA adapters (HCAs) and their ports: plain functions of a path.

They are which ports are up, how fast, the values of their counters, and what is near. Nothing here
repeats, reports or judges, and everything is read below a root, so that a test can plant a machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kit.gpus.cards import machine_root
from kit.sysfs import number, parse_list, text

SYSFS = machine_root() / "sys/class/infiniband"
GPUS = machine_root() / "proc/driver/nvidia/gpus"
PCI = machine_root() / "sys/bus/pci/devices"
NO_HCA = "no HCA with an active port below /sys/class/infiniband"

COUNTERS = {
    "counters": (
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
    ),
    "hw_counters": (
        "local_ack_timeout_err",
        "out_of_sequence",
        "packet_seq_err",
        "req_transport_retries_exceeded",
        "rnr_nak_retry_err",
        "roce_slow_restart",
    ),
}

# Of the adapters (ConnectX-7) by which a node manages its own NVSwitches, as on HGX B200 and B300;
# by their vital product data, as Fabric Manager finds them. Their ports lead to no other node.
SWITCH_MANAGER, PRODUCT = b"SMDL=SW_MNG", "0x1021"

# What a port has carried: families of counters, and the bytes of a unit. InfiniBand counts words of
# four bytes; drivers of EFA and Broadcom have no such folder, and count in hw_counters.
BYTES = (
    (("counters/port_xmit_data", "counters/port_rcv_data"), 4),
    (("hw_counters/tx_bytes", "hw_counters/rx_bytes"), 1),  # EFA's, bnxt_re's
    (
        (
            "hw_counters/rdma_write_bytes",
            "hw_counters/rdma_write_recv_bytes",
            "hw_counters/rdma_read_bytes",
            "hw_counters/rdma_read_resp_bytes",
            "hw_counters/send_bytes",
            "hw_counters/recv_bytes",
        ),
        1,
    ),
)


@dataclass(frozen=True)
class Port:
    path: Path

    @property
    def adapter(self) -> Path:
        return self.path.parents[1]

    @property
    def name(self) -> str:
        """Name of the adapter, and the port's number if there are several."""
        is_only = len(list(self.path.parent.iterdir())) == 1
        return self.adapter.name if is_only else f"{self.adapter.name}/{self.path.name}"

    @property
    def firmware(self) -> str:
        return text(self.adapter / "fw_ver")

    def says(self, file: str) -> str:
        return text(self.path / file)

    @property
    def is_active(self) -> bool:
        """True if it is up for data: the link alone is not enough, a subnet manager must have
        brought it up."""
        return "ACTIVE" in self.says("state")

    @property
    def is_switched_off(self) -> bool:
        return "Disabled" in self.says("phys_state")

    @property
    def gbps(self) -> float:
        """Rate of its link in GB/s, one way: `400 Gb/sec (4X NDR)` is 50. 0: the kernel does not
        say."""
        rate, _, rest = self.says("rate").partition(" ")
        return float(rate) / 8 if rest.startswith("Gb/sec") else 0.0

    def counters(self) -> dict[str, int]:
        """Return the counters that this adapter has."""
        counts = {
            name: number(self.path / folder / name)
            for folder, names in COUNTERS.items()
            for name in names
        }
        return {name: count for name, count in counts.items() if count is not None}


@dataclass(frozen=True, kw_only=True)
class Hca:
    """One adapter with a port that is up."""

    name: str
    port: int
    gbps: float  # of its link, one way; 0 where the kernel does not say
    cpus: frozenset[int]  # near it; empty where the kernel does not say
    place: str  # its PCI path


def adapters(root: Path = SYSFS) -> Iterator[list[Port]]:
    """Yield the ports of each adapter of the network, by name and number."""
    for adapter in sorted(root.glob("*"), key=lambda path: number_key(path.name)):
        if manages_nvswitches(adapter / "device"):
            continue
        places = sorted((adapter / "ports").glob("*"), key=lambda path: int(path.name))
        if places:
            yield [Port(place) for place in places]


@cache
def manages_nvswitches(device: Path) -> bool:
    """Return whether an adapter is for the NVSwitches of its node; only root may read it. It is
    read once, which takes the card a while."""
    if text(device / "device") != PRODUCT:
        return False
    with suppress(OSError):
        return SWITCH_MANAGER in (device / "vpd").read_bytes()
    return False


def physical_ports(root: Path = SYSFS) -> list[Port]:
    """Return ports without those of virtual functions, which have no link of their own."""
    ports = (port for adapter in adapters(root) for port in adapter)
    return [port for port in ports if not (port.adapter / "device/physfn").exists()]


def active(root: Path = SYSFS) -> list[Hca]:
    """Return adapters with their first active port; those without one are not in use."""
    up = ([port for port in adapter if port.is_active] for adapter in adapters(root))
    return [
        Hca(
            name=port.adapter.name,
            port=int(port.path.name),
            gbps=port.gbps,
            cpus=parse_list(text(port.adapter / "device/local_cpulist")),
            place=os.path.realpath(port.adapter / "device"),
        )
        for port, *_ in filter(None, up)
    ]


def ceiling_of(hcas: list[Hca]) -> float:
    """Return their common link rate in GB/s; 0 when they differ, or the kernel does not say."""
    rates = {hca.gbps for hca in hcas}
    return rates.pop() if len(rates) == 1 else 0.0


def carried_bytes(hca: str, root: Path = SYSFS) -> int | None:
    """Return what one adapter has sent and received since its counters began; None if its driver
    counts no bytes, or a container does not see the counters."""
    counts = [carried_by_port(port) for port in (root / hca).glob("ports/*")]
    counted = [count for count in counts if count is not None]
    return sum(counted) if counted else None


def carried_by_port(port: Path) -> int | None:
    """Return the largest sum of a family of counters: drivers fill one or several of them, which
    overlap."""
    sums = []
    for names, unit in BYTES:
        counts = [number(port / name) for name in names]
        if any(count is not None for count in counts):
            sums.append(unit * sum(count or 0 for count in counts))
    return max(sums, default=None)


def risen(before: int | None, after: int | None) -> int | None:
    """Return by how much a counter rose; None if it is not there, or began anew."""
    return None if before is None or after is None or after < before else after - before


def nearest_gpu(place: str, gpus: list[str]) -> int:
    """Return the index of the PCI path that shares most of its way from the root with `place`."""

    def shared_parts(index: int) -> int:
        return len(Path(os.path.commonpath([place, gpus[index]])).parts)

    return max(range(len(gpus)), key=shared_parts)


def gpu_places(gpus: Path = GPUS, pci: Path = PCI) -> list[str]:
    """Return PCI paths of the GPUs, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    return [os.path.realpath(pci / gpu.name) for gpu in sorted(gpus.glob("*"))]


def number_key(name: str) -> tuple[str, int]:
    """Return a key that sorts mlx5_2 before mlx5_10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)
