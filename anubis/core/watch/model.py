"""The watch model: denoisers of metrics, thresholds of healthy nodes, and the order of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from anubis.core.watch.denoiser import Denoiser
from anubis.core.watch.distances import MANY


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Score that healthy nodes hardly ever exceed, by the number of nodes compared. It is learned
    for some numbers, and interpolated between them in the logarithm of the number. Fewer nodes than
    `MANY` have another kind of score."""

    nodes: tuple[int, ...]  # rising
    scores: tuple[float, ...]

    def __post_init__(self) -> None:
        rises = all(a < b for a, b in zip(self.nodes, self.nodes[1:], strict=False))
        if not self.nodes or len(self.nodes) != len(self.scores) or not rises or self.nodes[0] < 1:
            raise ValueError("thresholds need a score for each of some rising numbers of nodes")
        if not all(np.isfinite(score) and score > 0 for score in self.scores):
            raise ValueError("a threshold is not a number above 0")

    def value_at(self, nodes: int) -> float:
        return _interpolate(self, nodes)


@lru_cache(maxsize=4096)  # asked once a window
def _interpolate(thresholds: Thresholds, nodes: int) -> float:
    counts = thresholds.nodes
    alike = [i for i, count in enumerate(counts) if (count >= MANY) == (nodes >= MANY)]
    rows = alike or range(len(counts))
    logs, scores = np.log([counts[i] for i in rows]), [thresholds.scores[i] for i in rows]
    return float(np.interp(np.log(nodes), logs, scores))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Quality of a denoiser on windows of a metric that it was not trained with."""

    windows: int  # used for training
    error: float  # mean squared error of values scaled to 0..1
    variance: float  # of the same values: the error of a constant denoiser


@dataclass(frozen=True, kw_only=True)
class WatchOrigin:
    """Training data of a watch model."""

    source: str  # in a sentence
    is_synthetic: bool
    jobs: int
    seed: int
    versions: Mapping[str, str]
    fits: Mapping[str, Fit]  # by metric
    order: str = ""  # where the order of the metrics comes from


@dataclass(frozen=True, kw_only=True, eq=False)
class WatchModel:
    denoisers: Mapping[str, Denoiser]  # by metric
    thresholds: Mapping[str, Thresholds]
    order: tuple[str, ...]  # of the metrics
    origin: WatchOrigin

    def __post_init__(self) -> None:
        if unknown := [name for name in self.order if name not in self.thresholds]:
            raise ValueError(f"no threshold for {', '.join(unknown)}")
