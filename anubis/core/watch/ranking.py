"""Orders the metrics: first the one nearest the root of a tree that separates windows with a fault
from windows without (Minder, NSDI '25).

The paper's score of a node is signed, so a node with falling values would make a window look more
uniform; here the score is the distance from the mean in either direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.arrays import Flags, Floats, Ints
from anubis.core.watch.telemetry import Telemetry

DEEPEST = 8  # levels: a bound for the size of the tree


@dataclass(frozen=True, kw_only=True)
class Split:
    metric: int  # column of the features
    above: float  # smaller values go to the left
    depth: int  # 0: the root
    gain: float  # decrease of impurity over all windows


def oddness(telemetry: Telemetry, window: int) -> Floats:
    """Windows x metrics: largest deviation of any node from the mean of all at any sample, in
    standard deviations. Windows do not overlap; the rest at the end is left out."""
    count = telemetry.points // window
    values = telemetry.values[:, :, : count * window].astype(np.float64)
    finite = np.isfinite(values)
    number = np.maximum(finite.sum(axis=1, keepdims=True), 1)
    mean = np.where(finite, values, 0.0).sum(axis=1, keepdims=True) / number
    apart = np.where(finite, np.abs(values - mean), 0.0)
    deviation = np.sqrt((apart**2).sum(axis=1, keepdims=True) / number)
    alike = deviation <= 1e-9 * np.maximum(np.abs(mean), 1e-30)
    scores = np.where(alike, 0.0, apart / np.where(alike, 1.0, deviation)).max(axis=1)
    return np.asarray(scores.reshape(len(scores), count, window).max(axis=2).T)


def grow(features: Floats, faulty: Flags, deepest: int = DEEPEST) -> tuple[Split, ...]:
    """Splits of a Gini tree, root first."""
    return tuple(_splits(features, faulty, np.arange(len(faulty)), 0, deepest))


def _splits(
    features: Floats, faulty: Flags, rows: Ints, depth: int, deepest: int
) -> Iterator[Split]:
    if depth == deepest or faulty[rows].all() or not faulty[rows].any():
        return
    best = max(
        (
            (*_best_cut(features[rows, metric], faulty[rows]), -metric)
            for metric in range(features.shape[1])
        ),
        default=(0.0, 0.0, 0),
    )
    gain, above, metric = best[0], best[1], -best[2]
    if not gain > 0:
        return
    yield Split(metric=metric, above=above, depth=depth, gain=gain * len(rows) / len(faulty))
    left = features[rows, metric] <= above
    for side in (rows[left], rows[~left]):
        yield from _splits(features, faulty, side, depth + 1, deepest)


def _best_cut(values: Floats, faulty: Flags) -> tuple[float, float]:
    """Decrease of impurity by the best cut, and its position."""
    order = np.argsort(values, kind="stable")
    ranked, bad = values[order], faulty[order].astype(np.float64)
    left = np.arange(1, len(bad))
    right = len(bad) - left
    bad_left = np.cumsum(bad)[:-1]
    bad_right = bad.sum() - bad_left
    after = (bad_left * (1 - bad_left / left) + bad_right * (1 - bad_right / right)) / len(bad)
    gains = bad.mean() * (1 - bad.mean()) - after
    gains[ranked[1:] <= ranked[:-1]] = 0.0  # equal values cannot be separated
    if not gains.size or gains.max() <= 0:
        return 0.0, 0.0
    cut = int(np.argmax(gains))
    return 2 * float(gains[cut]), float((ranked[cut] + ranked[cut + 1]) / 2)


def rank(splits: Sequence[Split], metrics: Sequence[str]) -> tuple[str, ...]:
    """Metrics nearest the root first; of equally near ones, the one with the larger gain. Metrics
    without a split are left out."""
    nearest: dict[int, tuple[int, float]] = {}
    for split in splits:
        depth, gain = nearest.get(split.metric, (split.depth, 0.0))
        if split.depth == depth:
            nearest[split.metric] = depth, gain - split.gain
    return tuple(metrics[metric] for metric in sorted(nearest, key=lambda metric: nearest[metric]))
