"""Calibrate a watch model: thresholds, and the order of metrics.

A threshold is the deviation of healthy nodes from the others, by the number compared. First in the
order is the metric nearest the root of a tree that separates windows with a fault from windows
without (Minder, NSDI '25). The paper's score of a node is signed, so a node with falling values
would make a window look more uniform; here the score is the distance from the mean in either
direction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.arrays import Flags, Floats, Floats32, Ints
from anubis.core.watch.distances import Comparison, DenoisesWindows, mean_distances, scores
from anubis.core.watch.model import Thresholds
from anubis.core.watch.telemetry import Telemetry, span_of
from anubis.core.watch.watch_settings import WatchSettings

SIZES = (
    4,
    5,
    6,
    8,
    11,
    15,
    16,
    24,
    32,
    64,
    128,
    256,
    512,
    1024,
)  # of jobs; thresholds between them are interpolated
LEAST = 2.0  # deviations: for a metric in which healthy nodes hardly differ
QUANTILE = 0.999  # of the scores of healthy nodes
FEWEST_SCORES = 2000  # so that two are beyond the quantile
EVERY = 40  # windows: neighbouring ones are nearly equal
EVERY_OF_FEW = 8  # closer, so that jobs of few nodes give enough scores
FEW = 64  # nodes: fewer have too few scores otherwise
DRAWS = 8  # samples of one size out of one window


class _AnyThreshold:
    def value_at(self, nodes: int) -> float:
        return np.inf


def calibrate(
    jobs: Iterable[Telemetry],
    metrics: Sequence[str],
    denoisers: Sequence[DenoisesWindows | None],
    settings: WatchSettings,
    seed: int = 0,
) -> Thresholds | None:
    """Thresholds from healthy `jobs`, or None if the jobs are too small or too short. Several
    `metrics` are compared as one. A suspicion takes minutes of windows in a row, and a node that
    stands out of one window by chance does not stand out of the next 200, so a score that one
    healthy node in a thousand has is high enough."""
    random = np.random.default_rng(seed)
    by_size: defaultdict[int, list[Floats]] = defaultdict(list)
    for job in jobs:
        for windows in _windows(job, metrics, denoisers, settings):
            for size in SIZES:
                for rows in _draws(len(windows), size, random):
                    distances = mean_distances(windows[rows])
                    by_size[size].append(scores(distances))
    return _thresholds({size: np.concatenate(parts) for size, parts in by_size.items()})


def _windows(
    job: Telemetry,
    metrics: Sequence[str],
    denoisers: Sequence[DenoisesWindows | None],
    settings: WatchSettings,
) -> Iterator[Floats32]:
    """Windows of nodes that are peers, as they are compared."""
    names = [metric.name for metric in job.metrics]
    comparison = Comparison(
        name="",
        metrics=tuple(names.index(metric) for metric in metrics),
        telemetry=job,
        spans=tuple(map(span_of, job.metrics, job.values)),
        denoisers=tuple(denoisers),
        threshold=_AnyThreshold(),
        least_effect=0.0,
        settings=settings,
        first=0,
    )
    labels = np.array(job.groups or [""] * len(job.nodes))
    for number, label in enumerate(dict.fromkeys(labels.tolist())):
        peers = np.flatnonzero(labels == label)
        every = EVERY_OF_FEW if len(peers) < FEW else EVERY
        for window in range(0, comparison.windows, every):
            yield comparison.peer_vectors(number, peers, window)[0]


def _draws(nodes: int, size: int, random: np.random.Generator) -> list[Ints]:
    """Disjoint random sets of rows."""
    mixed = random.permutation(nodes)
    count = min(nodes // size, DRAWS)
    return [mixed[draw * size : (draw + 1) * size] for draw in range(count)]


def _thresholds(by_size: dict[int, Floats]) -> Thresholds | None:
    sufficient = {size: values for size, values in by_size.items() if len(values) >= FEWEST_SCORES}
    if not sufficient:
        return None
    limits = [
        max(LEAST, float(np.quantile(sufficient[size], QUANTILE))) for size in sorted(sufficient)
    ]
    return Thresholds(nodes=tuple(sorted(sufficient)), scores=tuple(round(x, 4) for x in limits))


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
