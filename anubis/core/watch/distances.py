"""Distances of each node's window from those of its peers.

A distance is given as the constant offset on every sample that has the same distance. So all three
kinds of distance, for windows of any length, are shares of the metric's range.
"""

from __future__ import annotations

import math

import numpy as np

from anubis.core.arrays import Floats, Floats32
from anubis.core.watch.watch_settings import Distance

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
