"""What is known of metrics before any job is looked at: what their noise looks like, how far apart
healthy nodes come, and which metric is asked first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from anubis.core.watch.candidates import MANY
from anubis.core.watch.denoiser import Denoiser


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The score that healthy nodes hardly ever exceed, by how many are compared: learned for some
    numbers, and in between taken from the neighbours, in the logarithm of the number. Fewer nodes
    than `MANY` have a score of another kind."""

    nodes: tuple[int, ...]  # rising
    scores: tuple[float, ...]

    def __post_init__(self) -> None:
        rises = all(a < b for a, b in zip(self.nodes, self.nodes[1:], strict=False))
        if not self.nodes or len(self.nodes) != len(self.scores) or not rises or self.nodes[0] < 1:
            raise ValueError("thresholds need a score for each of some rising numbers of nodes")
        if not all(np.isfinite(score) and score > 0 for score in self.scores):
            raise ValueError("a threshold is not a number above 0")

    def at(self, nodes: int) -> float:
        return _between(self, nodes)


@lru_cache(maxsize=4096)  # asked once a window
def _between(thresholds: Thresholds, nodes: int) -> float:
    counts = thresholds.nodes
    alike = [i for i, count in enumerate(counts) if (count >= MANY) == (nodes >= MANY)]
    rows = alike or range(len(counts))
    logs, scores = np.log([counts[i] for i in rows]), [thresholds.scores[i] for i in rows]
    return float(np.interp(np.log(nodes), logs, scores))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How well the windows of a metric are given back that nothing was learned from."""

    windows: int  # that were learned from
    error: float  # mean squared, of values scaled to 0..1
    variance: float  # of the same values: the error of a denoiser that always says the same


@dataclass(frozen=True, kw_only=True)
class WatchOrigin:
    """What a watch model was learned from."""

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
    order: tuple[str, ...]  # in which metrics are asked
    origin: WatchOrigin

    def __post_init__(self) -> None:
        if unknown := [name for name in self.order if name not in self.thresholds]:
            raise ValueError(f"no threshold for {', '.join(unknown)}")
