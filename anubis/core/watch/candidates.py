"""Which nodes stand out of one window."""

from __future__ import annotations

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.watch.distances import FEW, ROUNDING, bounds, distances_of, mean_distances
from anubis.core.watch.watch_settings import WatchSettings

MANY = 16  # below, no node's share of the deviation is small, and the median serves
LEAST_DEVIATION = 0.01  # of the range: peers that agree better are taken to differ by so much
TIE = 1e-9
NO_SPREAD = 1e-5  # relative: nodes are equally far from each other


def scores(distances: Floats) -> Floats:
    """By how many deviations each mean distance lies beyond what is usual among its peers."""
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
    """Rows whose score and distance both exceed what they must; of equals the first is largest."""
    if _all_near(windows, least_effect, settings):
        return np.zeros(0, dtype=np.int64)
    distances = mean_distances(windows, settings.distance)
    apart = (scores(distances) > threshold) & (distances >= least_effect)
    if settings.candidates == "largest" and apart.any():
        largest = int(np.argmax(distances >= distances.max() * (1 - TIE)))
        apart &= np.arange(len(apart)) == largest
    return np.flatnonzero(apart)


def _all_near(windows: Floats32, least_effect: float, settings: WatchSettings) -> bool:
    """Whether the bounds prove that nobody is far enough from the others."""
    if settings.distance != "l2" or len(windows) < FEW or not least_effect:
        return False
    return bool(bounds(windows)[1].max() < least_effect)


def surely_stands_out(
    windows: Floats32, row: int, threshold: float, least_effect: float, settings: WatchSettings
) -> bool | None:
    """By the bounds of all and the distance of this row; None: they do not tell."""
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
    """Of a distance among others that are only known to lie between bounds: their mean is as
    large and their spread is as wide as it can be."""
    nodes = len(lower) + 1
    beyond = own - float(upper.mean())
    if beyond <= 0:
        return 0.0
    middle = float((lower + upper).mean()) / 2
    spread = float(np.maximum((upper - middle) ** 2, (lower - middle) ** 2).mean())
    share = (nodes - 1) / nodes
    return float(share * beyond / np.sqrt(share * spread + share / nodes * beyond**2))
