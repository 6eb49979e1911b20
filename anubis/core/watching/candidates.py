"""Which nodes stand out of one window."""

from __future__ import annotations

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.watching.distances import mean_distances
from anubis.core.watching.settings import WatchSettings

MANY = 16  # below, no node's share of the deviation is small, and the median serves
LEAST_DEVIATION = 0.01  # of the range: peers that agree better are taken to differ by so much
TIE = 1e-9


def scores(distances: Floats) -> Floats:
    """By how many deviations each mean distance lies beyond what is usual among its peers."""
    if len(distances) >= MANY:
        spread = float(distances.std())
        if spread <= TIE * float(np.abs(distances).max(initial=0.0)):
            return np.zeros_like(distances)
        return np.asarray((distances - distances.mean()) / spread)
    middle = np.median(distances) if len(distances) else 0.0
    spread = 1.4826 * float(np.median(np.abs(distances - middle))) if len(distances) else 0.0
    return np.asarray((distances - middle) / (spread + LEAST_DEVIATION))


def stand_out(
    windows: Floats32, threshold: float, least_effect: float, settings: WatchSettings
) -> Ints:
    """Rows whose score and distance both exceed what they must; of equals the first is largest."""
    distances = mean_distances(windows, settings.distance)
    apart = (scores(distances) > threshold) & (distances >= least_effect)
    if settings.candidates == "largest" and apart.any():
        largest = int(np.argmax(distances >= distances.max() * (1 - TIE)))
        apart &= np.arange(len(apart)) == largest
    return np.flatnonzero(apart)
