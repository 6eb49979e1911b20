"""Telemetry of jobs made by a second hand, to try a watch on what it was not tuned to.

It shares nothing with anubis/lab/simulation/jobs.py but the names of metrics. Noise is heavy-tailed
and grows with the level, nodes drift together and alone, stages have levels of their own, all
nodes pause to write a checkpoint and some idle while peers evaluate, nodes join late, clocks are
apart, samples are lost in holes, and one node in four jobs has a role. Waiting GPUs spin, at a duty
that was never seen before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anubis.core.watch.telemetry import Telemetry
from anubis.readers.telemetry.config import shipped_settings

Floats = npt.NDArray[np.float64]
BEGAN = 1_800_000_000.0  # any time will do: nothing depends on it
LIVES_S = 1500  # of a job
LEVELS: Mapping[str, float] = {  # of a node at work
    "gpu_duty": 78.0,
    "pfc_tx": 30.0,
    "gpu_graphics": 74.0,
    "nvlink_throughput": 9.0e10,
    "gpu_power": 520.0,
    "cpu_use": 33.0,
    "gpu_tensor": 41.0,
    "throughput": 6.0e9,
    "memory_use": 47.0,
    "gpu_memory": 6.1e10,
    "disk_use": 38.0,
}
IDLE: Mapping[str, float] = {"cpu_use": 4.0, "gpu_power": 95.0}  # of a node that waits; else 0
STEADY = ("memory_use", "gpu_memory", "disk_use")
SPIN: Mapping[str, float] = {"gpu_duty": 99.5, "gpu_graphics": 99.0, "gpu_power": 260.0}
# what a fault makes of its node and of the peers, as factors on their levels
FAULTS: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]] = {
    "throttled": ({"gpu_tensor": 0.72, "gpu_power": 0.65, "gpu_duty": 1.2}, {"gpu_tensor": 0.95}),
    "pcie": ({"pfc_tx": 120.0, "throughput": 0.7}, {"throughput": 0.75, "gpu_tensor": 0.85}),
    "processor taken": ({"cpu_use": 2.4, "gpu_duty": 0.85}, {"gpu_duty": 0.97}),
    "nvlink": ({"nvlink_throughput": 0.35, "gpu_tensor": 0.8}, {"gpu_tensor": 0.88}),
    "hang": ({}, {}),
    "dead": ({}, {}),
}
HALTING = ("hang", "dead")


@dataclass(frozen=True, kw_only=True)
class MadeJob:
    telemetry: Telemetry
    kind: str  # of its fault; empty: none
    row: int  # of the faulty node
    onset: int  # point of time

    @property
    def has_ended(self) -> bool:
        return bool(self.kind)


def make_job(seed: int, *, is_faulty: bool = True) -> MadeJob:
    dice = np.random.default_rng([7, seed])
    nodes = int(dice.choice([4, 6, 8, 12, 16, 24, 32]))
    onset = int(dice.integers(500, 800)) if is_faulty else LIVES_S
    points = min(LIVES_S, onset + int(dice.integers(280, 700))) if is_faulty else LIVES_S
    row = int(dice.integers(nodes))
    kind = str(dice.choice(list(FAULTS))) if is_faulty else ""
    stages = dice.integers(0, int(dice.choice([1, 1, 2])), nodes) if nodes >= 8 else [0] * nodes
    role = (row + 1) % nodes if dice.random() < 0.25 else -1
    names = tuple(LEVELS)
    work = _work(dice, nodes, points)
    values = np.empty((len(names), nodes, points))
    for number, name in enumerate(names):
        level = np.full((nodes, 1), LEVELS[name]) * dice.normal(1.0, 0.02, (nodes, 1))
        level *= 1 + 0.06 * np.asarray(stages)[:, None]
        if role >= 0 and name in ("cpu_use", "memory_use", "gpu_duty"):
            level[role] *= 0.7
        shape = np.ones_like(work) if name in STEADY else work
        values[number] = IDLE.get(name, 0.0) * (1 - shape) + level * shape
        if kind:
            _plant(values[number], name, kind, row, onset)
        values[number] *= _noise(dice, nodes, points, 0.004 if name in STEADY else 0.05)
    _lose(dice, values)
    metrics = shipped_settings().watched_metrics(names)
    for number, metric in enumerate(metrics):
        np.clip(values[number], metric.low, metric.high, out=values[number])
    has_groups = dice.random() < 0.5
    telemetry = Telemetry(
        metrics=metrics,
        nodes=tuple(f"host{node:03d}" for node in range(nodes)),
        start=BEGAN,
        step_s=1.0,
        values=values.astype(np.float32),
        groups=tuple(f"stage {stage}" for stage in stages) if has_groups else (),
    )
    return MadeJob(telemetry=telemetry, kind=kind, row=row, onset=onset)


def _work(dice: np.random.Generator, nodes: int, points: int) -> Floats:
    """Share of its work that each node does at each time: less at checkpoints and evaluations, by
    clocks that are apart, and for one node that stops for a while."""
    at = np.arange(points)[None, :] + dice.integers(-4, 5, (nodes, 1))
    work = np.ones((nodes, points))
    every, lasts = int(dice.integers(240, 700)), int(dice.integers(8, 45))
    work[(at % every) < lasts] = 0.03
    every, lasts = int(dice.integers(350, 900)), int(dice.integers(20, 70))
    evaluates = (np.arange(nodes) % 2 == 0)[:, None] | (dice.random() < 0.5)
    work[((at + 150) % every < lasts) & evaluates] *= 0.6
    if dice.random() < 0.3:
        begin = int(dice.integers(100, max(101, points - 150)))
        work[int(dice.integers(nodes)), begin : begin + int(dice.integers(15, 100))] *= 0.2
    return work


def _noise(dice: np.random.Generator, nodes: int, points: int, size: float) -> Floats:
    """Factors: a drift of all, a drift of each, and heavy tails."""
    walk = dice.normal(0, size / 12, (nodes + 1, points))
    drift = np.empty_like(walk)
    drift[:, 0] = 0
    for point in range(1, points):
        drift[:, point] = 0.985 * drift[:, point - 1] + walk[:, point]
    tails = size / 3 * dice.standard_t(3, (nodes, points))
    factors: Floats = np.exp(np.clip(drift[:1] + drift[1:] + tails, -0.7, 0.7))
    return factors


def _plant(values: Floats, name: str, kind: str, row: int, onset: int) -> None:
    """Change a metric as a fault does, from its onset on."""
    late = values[:, onset:]
    if kind in HALTING:
        if name not in STEADY:
            late[:] = SPIN.get(name, IDLE.get(name, 0.0))
            if name == "cpu_use":
                late[:] = 0.9 * LEVELS[name]  # threads that poll
            late[row] = IDLE.get(name, 0.0)
            if kind == "hang" and name == "cpu_use":
                late[row] = 0.9 * LEVELS[name]
        elif kind == "dead" and name != "disk_use":
            late[row] *= 0.1
        return
    own, peers = FAULTS[kind]
    factor = np.full((len(values), 1), peers.get(name, 1.0))
    factor[row] = own.get(name, peers.get(name, 1.0))
    late *= factor


def _lose(dice: np.random.Generator, values: Floats) -> None:
    """Holes of a node and of all, and nodes that join late."""
    _, nodes, points = values.shape
    for _ in range(int(dice.integers(0, 6))):
        begin = int(dice.integers(points))
        values[:, int(dice.integers(nodes)), begin : begin + int(dice.integers(2, 25))] = np.nan
    if dice.random() < 0.3:
        begin = int(dice.integers(points))
        values[:, :, begin : begin + int(dice.integers(5, 20))] = np.nan
    if dice.random() < 0.2:
        values[:, int(dice.integers(nodes)), : int(dice.integers(50, 250))] = np.nan
