"""Finds the nodes that stand out of one window."""

from __future__ import annotations

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.watch.distances import FEW, ROUNDING, bounds, distances_of, mean_distances
from anubis.core.watch.watch_settings import WatchSettings

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
