"""A seeded fleet: measurements of each node, and the nodes with planted trouble.

Everything follows from the seed and the names alone, never from the order of calls, so that the
same seed gives the same bytes in any course of a campaign.

A healthy node measures about what is typical of nodes with eight GPUs, by published figures.
Nothing is judged by them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist
from typing import Literal

import numpy as np

from anubis.core.records import BenchmarkSpec, Node, Readings, Samples, Series, Step
from anubis.text import hostlist

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
    "dcgm_diag": {},  # only compares answers
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
    "sdc_screen": {},  # only compares answers
    "sharded_matmul": {"tflops": Typical(640)},
    "train_cnn": {"samples_per_s": Typical(2900), "compute_s": Typical(0.088), "loss": fact(6.91)},
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
    }
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


def compares_answers_only(benchmark: str) -> bool:
    """Return whether the program only compares answers, so that trouble shows as a wrong one, not
    as slowness."""
    return benchmark in H100 and not H100[benchmark]


SHARES = (
    "slow_share",
    "loaded_share",
    "crash_share",
    "hang_share",
    "lost_share",
    "slow_by",
    "fast_share",
    "fast_by",
)
Trouble = Literal["slow", "crash", "hang", "lost"]


@dataclass(frozen=True, kw_only=True)
class SimulatedFleet:
    """How large, how even and how troubled a simulated fleet is. Shares are of all nodes."""

    nodes: str = "node[01-16]"
    """The nodes: a node list, or @file, beside this file."""
    sku: str = "simulated"
    """The kind of hardware."""
    skus: Mapping[str, str] = field(default_factory=dict)
    """Nodes with another label than that: a sku, and the list of its nodes."""
    seed: int = 0
    """The same seed gives the same results, byte for byte."""
    devices: int = 1
    """GPUs of each node."""
    samples: int = 16
    """Samples of each metric and device."""
    spread: float = 0.005
    """Standard deviation between nodes."""
    noise: float = 0.005
    """Standard deviation between the samples of a node."""
    slow_share: float = 0.03
    """Nodes that are slow in one benchmark."""
    slow_by: float = 0.2
    """How much slower they are."""
    crash_share: float = 0.0
    """Nodes on which one program crashes."""
    hang_share: float = 0.0
    """Nodes on which one program hangs."""
    lost_share: float = 0.0
    """Nodes that vanish in the middle."""
    fast_share: float = 0.0
    """Nodes of another kind, the last ones: faster in every benchmark."""
    fast_by: float = 0.07
    """How much faster they are."""
    loaded_share: float = 0.0
    """Cables that other jobs load, of all cables between switches; others in each minute."""
    faults: tuple[str, ...] = ()
    """Faults of the network that a scan meets: slow node, slow NIC, bad cable, lossy uplink, slow
    leaf, dead leaf."""

    def __post_init__(self) -> None:
        hostlist.labels(self.skus)
        for name in SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name):g}, expected a share from 0 to 1")
        for name, limit in (("devices", 1024), ("samples", 100_000)):
            if not 1 <= getattr(self, name) <= limit:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 1 to {limit:,}")


@dataclass(frozen=True)
class Plant:
    """A trouble, and the one benchmark in which it shows."""

    trouble: Trouble
    benchmark: str


def members(fleet: SimulatedFleet) -> tuple[Node, ...]:
    label_of = hostlist.labels(fleet.skus)
    names = hostlist.expand(fleet.nodes)
    return tuple(
        Node(name=name, sku=label_of.get(name, fleet.sku), gpus=fleet.devices) for name in names
    )


def plants(fleet: SimulatedFleet, benchmarks: Sequence[str]) -> dict[str, Plant]:
    """Nodes with a planted trouble; each share is exact, rounded to whole nodes."""
    names = hostlist.expand(fleet.nodes)
    rng = np.random.default_rng(fleet.seed)
    shuffled = [names[i] for i in rng.permutation(len(names))]
    shares: dict[Trouble, float] = {
        "slow": fleet.slow_share,
        "crash": fleet.crash_share,
        "hang": fleet.hang_share,
        "lost": fleet.lost_share,
    }
    planted: dict[str, Plant] = {}
    for trouble, share in shares.items():
        for _ in range(round(share * len(names))):
            if shuffled and benchmarks:
                name = shuffled.pop()
                planted[name] = Plant(trouble, benchmarks[int(rng.integers(len(benchmarks)))])
    return planted


def measure(
    fleet: SimulatedFleet,
    planted: dict[str, Plant],
    step: Step,
    spec: BenchmarkSpec,
    left: float = 1.0,
) -> Readings:
    """Readings of a step's participants. A group is as fast as its slowest member, times the share
    that the network between them leaves (`left`).

    Facts that only limits judge are not simulated, because their limits are the policy's business;
    nor is what such nodes lack, as the links of another maker's GPUs.
    """
    paces = (_pace(fleet, planted.get(name), name, spec.name) for name in step.participants)
    pace = min(paces) * max(left, 0.01)
    own = [plant for name in step.participants if (plant := planted.get(name))]
    lacks = {"gpus": 1.0} if any(map(is_short_of_a_gpu, own)) else {}
    if any(has_a_wrong_gpu(plant) and plant.benchmark == spec.name for plant in own):
        lacks["agreement"] = 0.5
    series = []
    for metric in spec.metrics:
        typical = typical_of(spec.name, metric.name)
        if metric.judged_by != "fleet" or typical is None:
            continue
        devices = _devices(fleet, spec, typical)
        for device in devices:
            if typical.is_exact:
                lacking = lacks.get(metric.name, 0) if device == devices[-1] else 0
                values = np.full(fleet.samples, typical.value - lacking)
            else:
                noise = _noise(fleet.seed, f"{step.id}/{metric.name}/{device}", fleet.samples)
                change = pace * np.maximum(1 + fleet.noise * noise, 0.01)
                values = typical.value * (1 / change if metric.direction == "lower" else change)
            series.append(Series(metric=metric.name, device=device, samples=values))
    return Readings.pack(series)


def settings(planted: dict[str, Plant], step: Step, spec: BenchmarkSpec) -> dict[str, object]:
    """Settings of the one participant, as its program reports them in its environment."""
    texts = SETTINGS.get(spec.name) if spec.settings and len(step.participants) == 1 else None
    if texts is None:
        return {}
    plant = planted.get(step.participants[0])
    if plant and (plant.trouble, plant.benchmark) == ("slow", spec.name):
        texts = {**texts, **OF_ANOTHER_DAY}
    return {"settings": {name: {"node": text} for name, text in texts.items()}}


def is_short_of_a_gpu(plant: Plant) -> bool:
    """Return whether the trouble is a missing GPU, as in programs that only state facts."""
    return plant.trouble == "slow" and states_facts_only(plant.benchmark)


def has_a_wrong_gpu(plant: Plant) -> bool:
    """Return whether the trouble is a GPU whose answers are wrong, as in programs that only compare
    answers."""
    return plant.trouble == "slow" and compares_answers_only(plant.benchmark)


def _devices(fleet: SimulatedFleet, spec: BenchmarkSpec, typical: Typical) -> list[str]:
    if typical.place != "gpu":
        return [typical.place]
    if spec.scope != "node":
        return ["cuda"]
    return [f"cuda:{number}" for number in range(fleet.devices)]


def _pace(fleet: SimulatedFleet, plant: Plant | None, node: str, benchmark: str) -> float:
    pace = 1 + fleet.spread * _STANDARD.inv_cdf(share(fleet.seed, f"{node}/{benchmark}"))
    pace *= 1 + fleet.fast_by * (node in _faster(fleet.nodes, fleet.fast_share))
    slow = plant is not None and plant.trouble == "slow" and plant.benchmark == benchmark
    return pace * (1 - fleet.slow_by) if slow else pace


@cache
def _faster(nodes: str, share_of_all: float) -> frozenset[str]:
    names = hostlist.expand(nodes)
    return frozenset(names[len(names) - round(share_of_all * len(names)) :])


_STANDARD = NormalDist()
_TABLE_SIZE = 1 << 16  # numbers: many more than a node has samples


def share(seed: int, subject: str) -> float:
    """Number between 0 and 1 that belongs to one subject, independent of other draws."""
    digest = hashlib.blake2b(f"{seed}/{subject}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") + 0.5) / 2.0**64


def _noise(seed: int, subject: str, size: int) -> Samples:
    """Standard normal numbers that belong to one subject: a position of its own in one long
    table."""
    start = int(share(seed, subject) * _TABLE_SIZE)
    return _table(seed).take(np.arange(start, start + size), mode="wrap")


@cache
def _table(seed: int) -> Samples:
    return np.random.default_rng(seed).standard_normal(_TABLE_SIZE)
