"""Calibrates thresholds: the deviation of healthy nodes from the others, by the number compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.watch.candidates import scores
from anubis.core.watch.comparisons import Comparison, DenoisesWindows
from anubis.core.watch.distances import mean_distances
from anubis.core.watch.model import Thresholds
from anubis.core.watch.scaling import span_of
from anubis.core.watch.telemetry import Telemetry
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
                    distances = mean_distances(windows[rows], settings.distance)
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
