"""Telemetry of jobs made by a third hand, to try a watch on what neither it nor its second
generator was tuned to.

It shares nothing with the other two generators but the names of metrics. Work comes in steps with a
phase of communication, sampled each 1 to 15 seconds by clocks that are apart, so that values beat.
Noise has a memory. Nodes are 4 to 512, of up to four stages. All pause for checkpoints and do less
in evaluations. One node may have a role, join late, lack a metric, or have counters that
start again. Percentages may be fractions, and some metrics are constant. Besides faults that begin
at once there are some that grow for ten minutes, that are there from the first sample on, that hold
two nodes at once, or a GPU of eight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anubis.core.watch.telemetry import Telemetry
from anubis.readers.telemetry.config import shipped_settings

Floats = npt.NDArray[np.float64]
Dice = np.random.Generator
LIVES_S = 1700
LEVELS: Mapping[str, float] = {  # of a node that computes
    "pfc_tx": 14.0,
    "gpu_duty": 91.0,
    "gpu_graphics": 86.0,
    "gpu_power": 640.0,
    "gpu_tensor": 37.0,
    "nvlink_throughput": 1.3e11,
    "cpu_use": 22.0,
    "throughput": 8.0e9,
    "memory_use": 35.0,
    "gpu_memory": 7.0e10,
    "disk_use": 57.0,
}
STEADY = ("memory_use", "gpu_memory", "disk_use")
OF_WIRES = ("pfc_tx", "nvlink_throughput", "throughput")
# what a fault makes of its node and of the rest, as factors on what they do
Factors = Mapping[str, float]
FAULTS: Mapping[str, tuple[Factors, Factors]] = {
    "throttled": ({"gpu_tensor": 0.68, "gpu_power": 0.7}, {"gpu_tensor": 0.9, "gpu_power": 0.95}),
    "slow network": ({"throughput": 0.6, "pfc_tx": 40.0}, {"throughput": 0.85}),
    "half a processor": ({"cpu_use": 0.5, "gpu_tensor": 0.92}, {"gpu_tensor": 0.92}),
    "slow disk": ({"cpu_use": 1.8, "gpu_duty": 0.8}, {"gpu_duty": 0.9, "gpu_tensor": 0.9}),
    "slow NVLink": ({"nvlink_throughput": 0.4, "gpu_tensor": 0.85}, {"gpu_tensor": 0.9}),
    "one GPU of eight": ({"gpu_tensor": 0.94, "gpu_power": 0.95}, {"gpu_tensor": 0.95}),
    "leak": ({"memory_use": 2.4}, {}),
    "hang": ({}, {}),
    "dead": ({}, {}),
}
HALTING = ("hang", "dead")
COURSES = ("at once", "at once", "at once", "grows", "from the first", "two nodes")
GROWS_S = 600.0


@dataclass(frozen=True, kw_only=True)
class ThirdJob:
    telemetry: Telemetry
    kind: str  # of its fault; empty: none
    rows: tuple[int, ...]  # of the faulty nodes
    onset: float  # point of time

    @property
    def has_ended(self) -> bool:
        return self.kind in HALTING


def make_third_job(seed: int, *, is_faulty: bool = True) -> ThirdJob:
    dice = np.random.default_rng([1_033, seed, is_faulty])
    step_s = float(dice.choice([1.0, 1.0, 1.0, 5.0, 15.0]))
    nodes = int(dice.choice([4, 6, 8, 12, 16, 24, 48, 96, 200, 512]))
    fault = str(dice.choice(list(FAULTS))) if is_faulty else ""
    course = str(dice.choice(COURSES)) if fault and fault not in HALTING else "at once"
    onset_s = 0.0 if course == "from the first" else float(dice.uniform(700, 1000))
    length_s = min(LIVES_S, onset_s + dice.uniform(320, 700)) if onset_s and fault else LIVES_S
    points = int(length_s / step_s)
    onset = min(points, int(onset_s / step_s))
    chosen = tuple(map(int, dice.choice(nodes, 2 if course == "two nodes" else 1, replace=False)))
    stages = np.arange(nodes) * int(dice.choice([1, 1, 2, 4]) if nodes >= 16 else 1) // nodes
    values = _working(dice, nodes, points, step_s, stages)
    if fault:
        ramp = np.ones(points - onset)
        if course == "grows" or fault == "leak":
            ramp = np.clip(np.arange(points - onset) * step_s / GROWS_S, 0, 1)
        _plant(values, fault, chosen, onset, ramp, dice)
    _spoil(dice, values, chosen)
    metrics = shipped_settings().watched_metrics(tuple(LEVELS))
    for rows, metric in zip(values, metrics, strict=True):
        np.clip(rows, metric.low, metric.high, out=rows)
    has_groups = bool(dice.random() < 0.6)
    telemetry = Telemetry(
        metrics=metrics,
        nodes=tuple(f"w{node:03d}" for node in range(nodes)),
        start=1.81e9,
        step_s=step_s,
        values=values.astype(np.float32),
        groups=tuple(f"stage {stage}" for stage in stages) if has_groups else (),
    )
    kind = fault if course == "at once" or not fault else f"{fault}, {course}"
    return ThirdJob(telemetry=telemetry, kind=kind, rows=chosen if fault else (), onset=onset)


def _working(
    dice: Dice, nodes: int, points: int, step_s: float, stages: npt.NDArray[np.int64]
) -> Floats:
    at = np.arange(points) * step_s
    skew_s = dice.normal(0, dice.choice([0.3, 3.0]), (nodes, 1))
    phase = ((at + skew_s) / dice.uniform(1.5, 14)) % 1
    computes = np.where(phase < 0.75, 1.0, 0.4)
    pauses = (at % dice.uniform(180, 600)) < dice.uniform(5, 30)
    evaluates = np.abs(at - dice.uniform(200, 1500)) < dice.uniform(20, 60)
    values = np.empty((len(LEVELS), nodes, points))
    for number, (name, level) in enumerate(LEVELS.items()):
        own = level * dice.normal(1, 0.025, (nodes, 1))
        if name in STEADY:
            is_constant = name == "disk_use" or dice.random() < 0.3
            values[number] = own * (1 if is_constant else 1 + _noise(dice, nodes, points, 0.0006))
            continue
        own *= 1 + 0.12 * stages[:, None] * (name in ("cpu_use", "gpu_tensor", "throughput"))
        work = 1.4 - computes if name in OF_WIRES else computes
        rows = own * work * (1 + _noise(dice, nodes, points, 0.035))
        rows[:, pauses] *= 0.6 if name == "cpu_use" else 0.12
        rows[:, evaluates] *= 0.55
        values[number] = rows
    return values


def _noise(dice: Dice, nodes: int, points: int, size: float) -> Floats:
    shocks = dice.standard_t(4, (nodes, points)) * size
    noise = np.zeros_like(shocks)
    for point in range(1, points):
        noise[:, point] = 0.6 * noise[:, point - 1] + shocks[:, point]
    return noise


def _plant(
    values: Floats, fault: str, chosen: tuple[int, ...], onset: int, ramp: Floats, dice: Dice
) -> None:
    faulty = np.isin(np.arange(values.shape[1]), chosen)
    for name, rows in zip(LEVELS, values, strict=True):
        late = rows[:, onset:]
        if fault in HALTING:
            late[:] = _halted(name, fault, faulty, late, dice)
        else:
            own, rest = (factors.get(name, 1.0) for factors in FAULTS[fault])
            late *= 1 + (np.where(faulty, own, rest)[:, None] - 1) * ramp


def _halted(
    name: str, fault: str, faulty: npt.NDArray[np.bool_], late: Floats, dice: Dice
) -> Floats:
    """Values once nothing moves: the rest spin, and wait."""
    if name in ("gpu_duty", "gpu_graphics"):
        spins = 99.0 + dice.normal(0, 0.3, late.shape)
        return np.where(faulty[:, None], np.abs(dice.normal(0, 0.3, late.shape)), spins)
    if name in ("gpu_tensor", *OF_WIRES):
        return np.zeros_like(late)
    if name == "gpu_power":
        mean: Floats = late.mean(axis=1, keepdims=True)
        return mean * np.where(faulty, 0.15, 0.45)[:, None]
    gone = {"cpu_use": 0.05, "gpu_memory": 0.02, "memory_use": 0.2} if fault == "dead" else {}
    return late * np.where(faulty, gone.get(name, 1.0), 1.0)[:, None]


def _spoil(dice: Dice, values: Floats, chosen: tuple[int, ...]) -> None:
    """Do to sound nodes and to the recording what happens beside any fault."""
    _, nodes, points = values.shape
    sound = [row for row in range(nodes) if row not in chosen]
    odd, names = int(dice.choice(sound)), list(LEVELS)
    wires = [names.index(name) for name in OF_WIRES]
    begin = int(dice.integers(points // 4, points // 2))
    match str(dice.choice(["", "", "role", "joins", "lacks", "resets", "fractions"])):
        case "role":
            values[[names.index("cpu_use"), names.index("memory_use")], odd] *= 1.6
        case "joins":
            values[:, odd, :begin] = np.nan
        case "lacks":
            values[names.index("gpu_tensor"), odd] = np.nan
        case "resets":
            values[wires, odd, begin] = 0.0
            values[wires, odd, begin + 1] *= 30.0
        case "fractions":
            percents = ("gpu_duty", "gpu_graphics", "gpu_tensor", "cpu_use", *STEADY[::2])
            values[[names.index(name) for name in percents]] /= 100.0
    values[:, dice.random((nodes, points)) < 0.002] = np.nan
    begin = int(dice.integers(points))
    values[:, int(dice.integers(nodes)), begin : begin + int(dice.integers(2, 30))] = np.nan
    if dice.random() < 0.3:
        values[:, :, begin : begin + max(1, points // 100)] = np.nan
