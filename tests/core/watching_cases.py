"""Random jobs in a few dozen points each: faults, jitters, roles, ties, holes, groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from watched import CPU, DUTY, PFC, START, StandIn

from anubis.core.watch.telemetry import Telemetry
from anubis.core.watch.watch_settings import WatchSettings


class Smoothing:
    """A simple model that changes windows, each by itself."""

    def denoise(self, windows):
        middle = np.median(windows, axis=1, keepdims=True)
        return (windows * 0.25 + middle * 0.75).astype(np.float32)


@dataclass
class ByNodes:
    factor: float

    def value_at(self, nodes):
        return self.factor * (1.5 + 0.2 * np.log(nodes))


def made_case(seed):
    """A question for `look`: telemetry, model, settings and the rest."""
    random = np.random.default_rng(seed)
    telemetry = _telemetry(random)
    model = StandIn(order=tuple(random.permutation(["pfc_tx", "cpu_use", "gpu_duty"]).tolist()))
    model.denoisers = dict.fromkeys(model.order, Smoothing())
    model.thresholds = dict.fromkeys(
        (*model.order, "concatenated"), ByNodes(random.choice([0.5, 1.0, 2.0]))
    )
    return (telemetry, model, _settings(random)), {"ended": bool(random.random() < 0.3)}


def _settings(random):
    return WatchSettings(
        pull_s=float(random.choice([30, 45, 100])),
        interval_s=10,
        continuity_s=float(random.choice([1, 8, 12])),
        continuity_ended_s=random.choice([None, 4.0]),
        remark_s=float(random.choice([1, 4, 6])),
        vanished_s=float(random.choice([4, 8])),
        gap_s=3.0,
        window=int(random.choice([1, 4, 8])),
        min_effect=float(random.choice([0.0, 0.05, 0.05])),
        most_suspects=float(random.choice([0.05, 0.3])),
        candidates=str(random.choice(["all", "largest"])),
        denoised=bool(random.random() < 0.5),
        concatenated=bool(random.random() < 0.15),
        contrast=False,
        returns=bool(random.random() < 0.8),
        patience=float(random.choice([0.0, 1 / 12, 1 / 8, 1 / 4])),
    )


def _telemetry(random):
    nodes = int(random.choice([*range(2, 20), 24, 32, 40]))
    points = int(random.integers(20, 60))
    values = np.stack(
        [
            random.normal(level, random.choice([0.0, noise, 3 * noise]), (nodes, points))
            for level, noise in ((10.0, 3.0), (40.0, 1.0), (95.0, 1.0))
        ]
    )
    values += 20 * (random.random(points) < random.choice([0, 0.3]))  # phases, the same for all
    for _ in range(random.integers(0, 4)):
        _disturb(random, values)
    if random.random() < 0.3:
        values = np.round(values / 5) * 5  # ties
    for _ in range(random.integers(0, 3)):
        _silence(random, values)
    few = [f"g{i}" for i in random.integers(0, 3, nodes)]
    return Telemetry(
        metrics=(PFC, CPU, DUTY),
        nodes=tuple(f"n{i}" for i in range(nodes)),
        start=START,
        step_s=float(random.choice([1.0, 1.0, 2.0])),
        values=np.maximum(values, 0).astype(np.float32),
        groups=tuple(few) if random.random() < 0.25 else (),
    )


def _disturb(random, values):
    """Let one or several nodes leave the others, for good or for a while, in some of the
    metrics."""
    metrics, nodes, points = values.shape
    before = values.copy()
    start = int(random.choice([0, random.integers(0, points)]))
    stop = int(random.choice([points, random.integers(start, points + 1)]))
    rows = random.choice(nodes, size=min(nodes, int(random.choice([1, 1, 1, 2, 3]))), replace=False)
    for metric in np.flatnonzero(random.random(metrics) < 0.6):
        if random.random() < 0.5:
            values[metric, rows, start:stop] = random.choice([0.0, 5.0, 300.0])
        else:
            values[metric, rows, start:stop] += random.normal(0, 15)
    if random.random() < 0.5:  # all are alike now and then, as at a checkpoint
        alike = random.random(points) < random.choice([0.05, 0.15])
        values[:, :, alike] = before[:, :, alike]


def _silence(random, values):
    metrics, nodes, points = values.shape
    start = int(random.integers(0, points))
    stop = int(random.choice([points, min(points, start + random.integers(1, 15))]))
    rows = random.random(nodes) < random.choice([0.1, 0.3, 0.6, 1.0])
    which = random.random(metrics) < 0.6
    if random.random() < 0.3:
        values[random.random(values.shape) < 0.03] = np.nan
    else:
        values[np.ix_(which, rows, np.arange(start, stop))] = np.nan
