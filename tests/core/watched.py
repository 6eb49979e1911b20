"""Made telemetry for tests of watching, and simple models in place of trained ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from anubis.core.watch.telemetry import Side, Telemetry, WatchedMetric

CPU = WatchedMetric(name="cpu_use", unit="%", low=0, high=100, fault=Side.LOW, family="cpu")
DUTY = WatchedMetric(name="gpu_duty", unit="%", low=0, high=100, fault=Side.LOW, family="gpu")
TENSOR = WatchedMetric(name="gpu_tensor", unit="%", low=0, high=100, fault=Side.LOW, family="gpu")
PFC = WatchedMetric(
    name="pfc_tx", unit="packets/s", low=0, high=None, fault=Side.HIGH, family="pfc", floor=50
)
START = 1_700_000_000.0


class AsItIs:
    def denoise(self, windows):
        return windows


@dataclass
class Fixed:
    threshold: float = 3.0

    def value_at(self, nodes):
        return self.threshold


@dataclass
class StandIn:
    """A watch model that denoises nothing."""

    order: tuple[str, ...] = ("pfc_tx", "cpu_use", "gpu_duty")
    threshold: float = 3.0
    denoisers: dict = field(init=False)
    thresholds: dict = field(init=False)

    def __post_init__(self):
        self.denoisers = {name: AsItIs() for name in self.order}
        self.thresholds = {name: Fixed(self.threshold) for name in (*self.order, "concatenated")}


def healthy(nodes=8, points=900, *, step_s=1.0, metrics=(PFC, CPU, DUTY), seed=1, groups=()):
    """All nodes alike: some noise, and a level of its own for each metric."""
    random = np.random.default_rng(seed)
    levels = {
        "pfc_tx": (10.0, 3.0),
        "cpu_use": (40.0, 1.0),
        "gpu_duty": (95.0, 1.0),
        "gpu_tensor": (40.0, 1.0),
    }
    rows = [random.normal(*levels[metric.name], size=(nodes, points)) for metric in metrics]
    return Telemetry(
        metrics=metrics,
        nodes=tuple(f"n{i}" for i in range(nodes)),
        start=START,
        step_s=step_s,
        values=np.maximum(rows, 0).astype(np.float32),
        groups=groups,
    )


def set_values(telemetry, metric, node, start, stop, value):
    """Set in place what a node reports of a metric from one point to another."""
    telemetry.series(metric)[telemetry.nodes.index(node), start:stop] = value
    return telemetry
