"""Typical measurements of a healthy node, so that a simulated fleet looks like a real one.

Orders of magnitude of published figures for nodes with eight GPUs; nothing is judged by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Place = Literal["gpu", "cpu", "node", "/"]  # each GPU, or one device of that name


@dataclass(frozen=True)
class Typical:
    """A metric of each GPU of a node, or of the node."""

    value: float
    place: Place = "gpu"
    is_exact: bool = False  # the same on every healthy node, sample by sample


def fact(value: float, place: Place = "gpu") -> Typical:
    return Typical(value, place, is_exact=True)


EVERY_PROGRAM: Mapping[str, Typical] = {"agreement": fact(1.0), "completeness": fact(1.0)}
H100: Mapping[str, Mapping[str, Typical]] = {
    "collective": {
        "busbw_gbps": Typical(365),
        "algbw_gbps": Typical(186),
        "latency_us": Typical(42),
    },
    "convolution": {"tflops": Typical(310)},
    "cpu_memory_latency": {"latency_ns": Typical(118, "cpu")},
    "disk_io": {
        "bandwidth_gbps": Typical(6.4, "/"),
        "iops": Typical(880_000, "/"),
        "latency_us": Typical(82, "/"),
    },
    "gemm": {"tflops": Typical(720)},
    "gpu_burn": {"tflops": Typical(660)},
    "host_device_copy": {
        "h2d_gbps": Typical(54),
        "d2h_gbps": Typical(53.5),
        "both_ways_gbps": Typical(88),
        "host_copy_gbps": Typical(24),
    },
    "ib_loopback": {"bandwidth_gbps": Typical(48.6)},
    "incast": {"ingress_gbps": Typical(47)},
    "intranode_collective": {
        "busbw_gbps": Typical(365),
        "algbw_gbps": Typical(209),
        "latency_us": Typical(24),
    },
    "kernel_launch": {"event_us": Typical(4.3), "wall_us": Typical(6.1)},
    "memory_bandwidth": {"bandwidth_gbps": Typical(410, "cpu"), "hbm_gbps": Typical(2980)},
    "nccl_tests": {
        "busbw_gbps": Typical(478),
        "algbw_gbps": Typical(273),
        "latency_us": Typical(24),
    },
    "node_health": {
        "gpus": fact(8, "node"),
        "gpu_memory_gb": fact(85.5),
        "pcie_max_generation": fact(5),
        "pcie_width": fact(16),
        "nvlinks": fact(18),
        "clock_max_mhz": fact(1980),
        "power_cap_w": fact(700),
        "ports_active": fact(8, "node"),
        "port_up": fact(1, "node"),
        "port_gbps": fact(50),
        "memory_gb": fact(2164, "node"),
        "cpus": fact(224, "node"),
    },
    "nvbandwidth": {"bandwidth_gbps": Typical(55), "latency_us": Typical(0.75)},
    "overlap": {"slowdown": Typical(1.18), "tflops": Typical(610), "busbw_gbps": Typical(330)},
    "pair_rdma": {"bandwidth_gbps": Typical(48.6), "latency_us": Typical(2.1)},
    "pair_torch": {"bandwidth_gbps": Typical(46), "latency_us": Typical(21)},
    "pair_ucx": {"bandwidth_gbps": Typical(48.4), "latency_us": Typical(2.3)},
    "peer_copy": {"bandwidth_gbps": Typical(390)},
    "sharded_matmul": {"tflops": Typical(640)},
    "train_cnn": {
        "samples_per_s": Typical(2900),
        "compute_s": Typical(0.088),
        "loss": fact(6.91),
    },
    "train_distributed": {
        "samples_per_s": Typical(390),
        "compute_s": Typical(0.164),
        "loss": fact(7.64),
    },
    "train_lstm": {
        "samples_per_s": Typical(19_400),
        "compute_s": Typical(0.013),
        "loss": fact(9.21),
    },
    "train_transformer": {
        "samples_per_s": Typical(412),
        "compute_s": Typical(0.155),
        "loss": fact(7.64),
    },
}
OF_ANOTHER_PROGRAM = Typical(100.0)
# Settings of a healthy node, by program; then the ones that differ if trouble is planted.
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "node_config": {
        "driver": "nvidia 570.86.15",
        "bios": "American Megatrends International, LLC. 2.4 05/17/2025",
        "kernel": "6.8.0-45-generic",
        "governor": "performance",
        "mounts": "/scratch",
    },
}
OF_ANOTHER_DAY = {"driver": "nvidia 535.183.06"}


def typical_of(benchmark: str, metric: str) -> Typical | None:
    """Return what a healthy node measures; None if nodes of this kind lack what is measured."""
    absent = None if benchmark in H100 else OF_ANOTHER_PROGRAM
    return {**EVERY_PROGRAM, **H100.get(benchmark, {})}.get(metric, absent)


def states_facts_only(benchmark: str) -> bool:
    """Return whether the program only states facts, so that trouble shows as a different fact, not
    as slowness."""
    metrics = H100.get(benchmark, {}).values()
    return bool(metrics) and all(metric.is_exact for metric in metrics)
