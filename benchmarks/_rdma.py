"""What the kernel shows of RDMA adapters (HCAs): which are up, how fast, and what lies near.

Everything is read below `root`, so that a test can plant a machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys/class/infiniband")
GPUS = Path("/proc/driver/nvidia/gpus")
PCI = Path("/sys/bus/pci/devices")
NO_HCA = "no HCA with an active port below /sys/class/infiniband"


@dataclass(frozen=True, kw_only=True)
class Hca:
    """One adapter with a port that is up."""

    name: str
    port: int
    gbps: float  # of its link, one way; 0 where the kernel does not say
    cpus: frozenset[int]  # near it; empty where the kernel does not say
    place: str  # its PCI path


def active(root: Path = SYSFS) -> list[Hca]:
    """Adapters with their first active port, by name; those without one are not in use."""
    found = []
    for adapter in sorted(root.glob("*"), key=lambda path: numbered(path.name)):
        ports = sorted((adapter / "ports").glob("*"), key=lambda path: int(path.name))
        up = [port for port in ports if "ACTIVE" in text(port / "state")]
        if up:
            found.append(
                Hca(
                    name=adapter.name,
                    port=int(up[0].name),
                    gbps=link_gbps(text(up[0] / "rate")),
                    cpus=cpu_list(text(adapter / "device" / "local_cpulist")),
                    place=os.path.realpath(adapter / "device"),
                )
            )
    return found


def ceiling_of(hcas: list[Hca]) -> float:
    """Their common link rate in GB/s; 0 when they differ, or the kernel does not say."""
    rates = {hca.gbps for hca in hcas}
    return rates.pop() if len(rates) == 1 else 0.0


def link_gbps(rate: str) -> float:
    """`400 Gb/sec (4X NDR)` is 50 GB/s."""
    number, _, rest = rate.partition(" ")
    return float(number) / 8 if rest.startswith("Gb/sec") else 0.0


def cpu_list(text: str) -> frozenset[int]:
    """`0-3,8` as a set."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def sent_bytes(root: Path = SYSFS) -> int:
    """Over all ports since the counters began; the kernel counts words of four bytes."""
    counters = root.glob("*/ports/*/counters/port_xmit_data")
    return sum(4 * int(text(counter) or 0) for counter in counters)


def nearest_gpu(place: str, gpus: list[str]) -> int:
    """Which of some PCI paths shares most of its way from the root with `place`."""

    def shared(index: int) -> int:
        return len(Path(os.path.commonpath([place, gpus[index]])).parts)

    return max(range(len(gpus)), key=shared)


def gpu_places(gpus: Path = GPUS, pci: Path = PCI) -> list[str]:
    """PCI paths of the GPUs, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    return [os.path.realpath(pci / gpu.name) for gpu in sorted(gpus.glob("*"))]


def numbered(name: str) -> tuple[str, int]:
    """mlx5_2 before mlx5_10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
