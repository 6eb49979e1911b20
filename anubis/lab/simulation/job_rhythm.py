"""The course of a simulated job from second to second, and what its nodes report while all is well.

A job repeats its step: it computes, it communicates, a pipeline waits. All nodes do so together,
also when a checkpoint is written or data does not come. Each metric follows from that, plus the
node's own offset, noise, and the moment at which its clock takes a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Floats, Floats32, Ints

FINE = 4  # instants of the job's course for each sample
MOST_SKEW_S = 4  # the largest distance of a node's samples from the grid
STATES = ("compute", "communicate", "bubble", "data", "checkpoint", "wait", "off")


@dataclass(frozen=True)
class MetricLevel:
    """Levels of a metric in each state of the job, and the differences between nodes."""

    compute: float
    communicate: float
    bubble: float
    data: float
    checkpoint: float
    wait: float  # for a node that does not arrive: NCCL spins meanwhile
    off: float  # no process is left
    varies: float = 0.0  # from job to job, as a share
    apart: float = 0.0  # from node to node, as a share
    offset: float = 0.0  # and in the unit of the metric
    noise: float = 0.01  # from sample to sample, as a share
    least_noise: float = 0.0  # in the unit
    most: float = np.inf
    bursts: float = 0.0  # for counts of packets: deviation of the logarithm

    @property
    def levels(self) -> Floats:
        return np.array([getattr(self, state) for state in STATES])


POWER_CAP = 400.0  # watts: an A100 SXM
LEVELS: Mapping[str, MetricLevel] = {
    "cpu_use": MetricLevel(38, 36, 35, 32, 46, 36, 3, 0.4, 0.01, 2.0, 0.03, 0.4, 100),
    "memory_use": MetricLevel(42, 42, 42, 42, 44, 42, 5, 0.4, 0.01, 0.8, 0.001, 0.05, 100),
    "disk_use": MetricLevel(40, 40, 40, 40, 40, 40, 40, 0.5, 0.05, 3.0, 0.0, 0.01, 100),
    "tcp_throughput": MetricLevel(4e6, 4e6, 4e6, 2e8, 9e8, 1e6, 5e5, 0.5, 0.03, 0, 0.15, 1e5),
    "throughput": MetricLevel(2e9, 1.6e10, 8e8, 3e8, 1e9, 2e6, 1e6, 0.6, 0.01, 0, 0.04, 1e5),
    "pfc_tx": MetricLevel(4, 25, 3, 0, 2, 0, 0, 0.8, 0.15, 0, 0.2, 0.5, bursts=0.5),
    "ecn": MetricLevel(10, 120, 8, 0, 4, 0, 0, 0.8, 0.15, 0, 0.2, 1.0, bursts=0.5),
    "cnp": MetricLevel(8, 90, 6, 0, 4, 0, 0, 0.8, 0.15, 0, 0.2, 1.0, bursts=0.5),
    "gpu_memory": MetricLevel(
        6e10, 6e10, 6e10, 6e10, 6e10, 6e10, 5e8, 0.25, 0.005, 0, 0.001, 1e7, 8e10
    ),
    "gpu_duty": MetricLevel(99, 98, 96, 12, 8, 100, 0, 0.01, 0.003, 0, 0.01, 0.3, 100),
    "gpu_power": MetricLevel(370, 235, 190, 105, 95, 160, 80, 0.06, 0.04, 0, 0.015, 1.5, 430),
    "gpu_temperature": MetricLevel(66, 56, 53, 44, 43, 50, 38, 0.05, 0, 3.0, 0.005, 0.3, 110),
    "gpu_sm": MetricLevel(90, 24, 12, 4, 3, 14, 0, 0.08, 0.01, 0, 0.02, 0.4, 100),
    "gpu_tensor": MetricLevel(58, 3, 0.5, 0, 0, 0, 0, 0.25, 0.01, 0, 0.02, 0.3, 100),
    "gpu_graphics": MetricLevel(98, 97, 92, 8, 6, 99, 0, 0.01, 0.003, 0, 0.01, 0.3, 100),
    "gpu_fp": MetricLevel(14, 4, 1, 0, 0, 1, 0, 0.3, 0.02, 0, 0.03, 0.2, 300),
    "gpu_memory_bandwidth": MetricLevel(48, 16, 6, 2, 3, 2, 0, 0.2, 0.01, 0, 0.02, 0.3, 100),
    "gpu_clock": MetricLevel(
        1365, 1395, 1400, 1410, 1410, 1405, 1410, 0.01, 0.003, 0, 0.004, 3, 1410
    ),
    "pcie_throughput": MetricLevel(3e9, 9e9, 8e8, 5e8, 3e9, 1e6, 1e5, 0.3, 0.02, 0, 0.05, 1e5),
    "pcie_use": MetricLevel(9.5, 28, 2.5, 1.6, 9.5, 0.01, 0, 0.3, 0.02, 0, 0.05, 0.02, 100),
    "nvlink_throughput": MetricLevel(7e10, 1.1e11, 1e10, 1e8, 1e8, 1e6, 0, 0.3, 0.01, 0, 0.03, 1e6),
}
ONLY_BEFORE = np.array([[1, 0], [1, -0.6]], dtype=np.float32)
SLOW_S = {"gpu_temperature": 40.0, "gpu_memory": 2.0, "memory_use": 3.0, "gpu_power": 1.0}


@dataclass(frozen=True, kw_only=True)
class StepRhythm:
    """One step of a job, as shares of its period."""

    period_s: float
    compute: float
    communicate: float

    def lengthen(self, factor: float) -> StepRhythm:
        """Rhythm of a stage that computes longer while the others wait for it."""
        return StepRhythm(
            period_s=self.period_s,
            compute=min(0.98 - self.communicate, self.compute * factor),
            communicate=self.communicate,
        )


def draw_rhythm(rng: np.random.Generator) -> StepRhythm:
    communicate = rng.uniform(0.1, 0.3)
    bubble = rng.uniform(0.02, 0.2)
    return StepRhythm(
        period_s=float(rng.uniform(0.5, 20)),
        compute=float(1 - communicate - bubble),
        communicate=float(communicate),
    )


def pauses(rng: np.random.Generator, seconds: int) -> dict[str, Floats]:
    """Times at which all nodes wait for data, and at which a checkpoint is written: rows of start
    and end."""
    apart = rng.uniform(600, HOUR_S)
    starts = np.arange(rng.uniform(0, apart), seconds, apart)
    checkpoints = np.column_stack([starts, starts + rng.uniform(5, 60)])
    stalls = rng.uniform(0, seconds, rng.poisson(seconds / 1800))
    return {
        "checkpoint": checkpoints,
        "data": np.column_stack([stalls, stalls + rng.uniform(2, 40, len(stalls))]),
    }


def instants(seconds: int) -> Floats:
    """Instants of a job's course: those of all samples, and some before and after."""
    return np.arange(-MOST_SKEW_S * FINE, (seconds + MOST_SKEW_S) * FINE) / FINE


def progress(rng: np.random.Generator, times: Floats, paused: Mapping[str, Floats]) -> Floats:
    """Progress of the job's steps in seconds of work; steps differ by some percent."""
    wander = lfilter([0.02], [1, -0.98], rng.standard_normal(len(times)))
    pace = np.clip(1 + 0.15 * wander, 0.7, 1.3)
    for spans in paused.values():
        for start, end in spans:
            pace[(times >= start) & (times < end)] = 0
    return np.asarray(np.cumsum(pace) / FINE)


def shares(
    rhythm: StepRhythm,
    worked: Floats,
    times: Floats,
    paused: Mapping[str, Floats],
    lag: float = 0.0,
) -> Floats:
    """States x instants: share of the preceding second in each state."""
    at = (worked / rhythm.period_s - lag) % 1
    states = np.zeros((len(STATES), len(times)))
    states[0] = at < rhythm.compute
    states[1] = (at >= rhythm.compute) & (at < rhythm.compute + rhythm.communicate)
    states[2] = 1 - states[0] - states[1]
    for name, spans in paused.items():
        for start, end in spans:
            within = (times >= start) & (times < end)
            states[:, within] = 0
            states[STATES.index(name), within] = 1
    return np.asarray(lfilter(np.ones(FINE) / FINE, 1, states, axis=1))


def enter(states: Floats, times: Floats, name: str, start: float) -> None:
    """Switch the job to a state at `start`, over two seconds, for the rest of its life."""
    reached = np.clip((times - start) / 2, 0, 1)
    states *= 1 - reached
    states[STATES.index(name)] += reached


def course(metric: str, states: Floats, levels: Floats) -> Floats32:
    """Course of a metric on a typical node."""
    values = levels @ states
    if metric in SLOW_S:
        keep = np.exp(-1 / (FINE * SLOW_S[metric]))
        values, _ = lfilter([1 - keep], [1, -keep], values, zi=[keep * values[0]])
    return np.asarray(values, dtype=np.float32)


def sample(lines: Sequence[Floats32], roles: Ints, skews: Ints, seconds: int) -> Floats32:
    """Nodes x seconds: the line of each node's role, at the instants of its own clock."""
    values = np.empty((len(roles), seconds), dtype=np.float32)
    for role, line in enumerate(lines):
        for skew in np.unique(skews[roles == role]):
            first = MOST_SKEW_S * FINE + int(skew)
            part = line[first : first + seconds * FINE : FINE]
            values[(roles == role) & (skews == skew)] = part
    return values


def noise(rng: np.random.Generator, nodes: int, seconds: int) -> Floats32:
    """Noise of deviation 1; each sample keeps six tenths of the one before."""
    white = rng.standard_normal((nodes, seconds), dtype=np.float32)
    white[:, 1:] *= np.float32(0.8)
    filtered = lfilter(*ONLY_BEFORE, white, axis=1)
    return np.asarray(filtered, dtype=np.float32)
