"""Distances of each node's window from those of its peers, and the nodes that stand out of one
window.

A distance is given as the constant offset on every sample that has the same distance. So all three
kinds of distance, for windows of any length, are shares of the metric's range.
"""

from __future__ import annotations

import math

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.watch.watch_settings import Distance, WatchSettings

_ROWS = 64  # compared at once with all: as many as fit the caches
FEW = 128  # nodes for which no loop needs to be compiled
ROUNDING = 1e-5  # of the range: more than the rounding error of sums in single precision


def mean_distances(windows: Floats32, distance: Distance = "l2") -> Floats:
    """Mean distance of each row to all others; `windows`: nodes x samples, complete."""
    nodes, samples = windows.shape
    if nodes < 2:
        return np.zeros(nodes)
    unit = (nodes - 1) * _offset_of_one(samples, distance)
    return np.asarray(_sums(windows, distance) / unit)


def distances_of(windows: Floats32, row: int, distance: Distance = "l2") -> Floats:
    """Distances of one row to each."""
    gaps = np.abs(windows.astype(np.float64) - windows[row])
    unit = _offset_of_one(windows.shape[1], distance)
    if distance == "l2":
        return np.asarray(np.sqrt((gaps**2).sum(axis=1)) / unit)
    return np.asarray((gaps.max(axis=1) if distance == "chebyshev" else gaps.sum(axis=1)) / unit)


def bounds(windows: Floats32) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the mean Euclidean distances, by the distances to the mean of all.

    Two windows are no farther apart than the sum, and no nearer than the difference, of their
    distances to the mean; and the sum of a node's differences to all is n times its difference to
    the mean.
    """
    nodes, samples = windows.shape
    gaps = windows - windows.mean(axis=0, dtype=np.float64).astype(np.float32)
    radii = np.sqrt(np.einsum("ij,ij->i", gaps, gaps, dtype=np.float64))
    total, unit = radii.sum(), (nodes - 1) * _offset_of_one(samples, "l2")
    lower = np.maximum(nodes * radii, total - nodes * radii)
    upper = (nodes - 2) * radii + total
    return lower / unit - ROUNDING, upper / unit + ROUNDING


def _offset_of_one(samples: int, distance: Distance) -> float:
    """Distance of two windows that differ by 1 on every sample."""
    return {"l2": math.sqrt(samples), "l1": float(samples), "chebyshev": 1.0}[distance]


def _sums(windows: Floats | Floats32, distance: Distance) -> Floats:
    if distance == "l2" and len(windows) >= FEW and windows.shape[1] <= 8:
        return _compiled_sums(windows)
    windows = windows.astype(np.float64)
    if distance == "l1":
        return _sums_by_sorting(windows)
    sums = np.empty(len(windows))
    for start in range(0, len(windows), _ROWS):
        gaps = np.abs(windows[start : start + _ROWS, None] - windows[None])
        lengths = gaps.max(axis=2) if distance == "chebyshev" else np.sqrt((gaps**2).sum(axis=2))
        sums[start : start + _ROWS] = lengths.sum(axis=1)
    return sums


def _compiled_sums(windows: Floats | Floats32) -> Floats:
    from anubis.core.watch import compiled_distances

    columns = np.zeros((compiled_distances.SAMPLES, len(windows)), dtype=np.float32)
    columns[: windows.shape[1]] = windows.T
    sums = np.empty(len(windows))
    compiled_distances.root_sums(columns, sums)
    return sums


def _sums_by_sorting(windows: Floats) -> Floats:
    """L1 sums: in each sample a node is above those before it in order and below those after it."""
    nodes = len(windows)
    order = np.argsort(windows, axis=0, kind="stable")
    ranked = np.take_along_axis(windows, order, axis=0)
    before = np.cumsum(ranked, axis=0) - ranked
    ranks = np.arange(nodes, dtype=np.float64)[:, None]
    after = ranked.sum(axis=0) - before - ranked
    gaps = ranks * ranked - before + after - (nodes - 1 - ranks) * ranked
    sums = np.empty_like(gaps)
    np.put_along_axis(sums, order, gaps, axis=0)
    total: Floats = sums.sum(axis=1)
    return total


MANY = 16  # nodes: with fewer each one has a large share of the deviation, so use the median
LEAST_DEVIATION = 0.01  # of the range: used for peers that agree better than this
TIE = 1e-9  # relative: sums in another order differ by less
NO_SPREAD = 1e-5  # relative: nodes are equally far from each other


def scores(distances: Floats) -> Floats:
    """Excess of each mean distance over the usual one among its peers, in deviations."""
    if len(distances) >= MANY:
        spread = float(distances.std())
        if spread <= NO_SPREAD * float(np.abs(distances).max(initial=0.0)):
            return np.zeros_like(distances)
        return np.asarray((distances - distances.mean()) / spread)
    middle = np.median(distances) if len(distances) else 0.0
    spread = 1.4826 * float(np.median(np.abs(distances - middle))) if len(distances) else 0.0
    return np.asarray((distances - middle) / (spread + LEAST_DEVIATION))


def stand_out(
    windows: Floats32, threshold: float, least_effect: float, settings: WatchSettings
) -> Ints:
    """Rows whose score and distance both exceed their limits. Of equally large ones the first is
    the largest."""
    if _all_near(windows, least_effect, settings):
        return np.zeros(0, dtype=np.int64)
    distances = mean_distances(windows, settings.distance)
    apart = (scores(distances) > threshold) & (distances >= least_effect)
    if settings.candidates == "largest" and apart.any():
        largest = int(np.argmax(distances >= distances.max() * (1 - TIE)))
        apart &= np.arange(len(apart)) == largest
    return np.flatnonzero(apart)


def _all_near(windows: Floats32, least_effect: float, settings: WatchSettings) -> bool:
    """Return whether the bounds prove that no node is far enough from the others."""
    if settings.distance != "l2" or len(windows) < FEW or not least_effect:
        return False
    return bool(bounds(windows)[1].max() < least_effect)


def surely_stands_out(
    windows: Floats32, row: int, threshold: float, least_effect: float, settings: WatchSettings
) -> bool | None:
    """Return whether a row stands out, by the bounds of all rows and the distance of this one;
    None: the bounds do not decide."""
    if settings.distance != "l2" or len(windows) < FEW:
        return None
    own = float(distances_of(windows, row).sum() / (len(windows) - 1))
    if own < least_effect - ROUNDING:
        return False
    lower, upper = (np.delete(bound, row) for bound in bounds(windows))
    if own < least_effect + ROUNDING or (
        settings.candidates == "largest" and own <= upper.max() + ROUNDING
    ):
        return None
    return True if _least_score(own, lower, upper) > threshold * (1 + ROUNDING) else None


def _least_score(own: float, lower: Floats, upper: Floats) -> float:
    """Least possible score of a distance among others between bounds: for the largest possible mean
    and spread of the others."""
    nodes = len(lower) + 1
    beyond = own - float(upper.mean())
    if beyond <= 0:
        return 0.0
    middle = float((lower + upper).mean()) / 2
    spread = float(np.maximum((upper - middle) ** 2, (lower - middle) ** 2).mean())
    share = (nodes - 1) / nodes
    return float(share * beyond / np.sqrt(share * spread + share / nodes * beyond**2))
