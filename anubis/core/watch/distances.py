"""Distances of each node's window from those of its peers, the nodes that stand out of one window,
and comparisons of the nodes of a job by one metric, or by all as one, window by window.

A distance is given as the constant offset on every sample that has the same distance. So distances
of windows of any length are shares of the metric's range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.watch.telemetry import Side, Span, Telemetry
from anubis.core.watch.watch_settings import WatchSettings

_ROWS = 64  # compared at once with all: as many as fit the caches
FEW = 128  # nodes for which no loop needs to be compiled
ROUNDING = 1e-5  # of the range: more than the rounding error of sums in single precision


def mean_distances(windows: Floats32) -> Floats:
    """Mean distance of each row to all others; `windows`: nodes x samples, complete."""
    nodes, samples = windows.shape
    if nodes < 2:
        return np.zeros(nodes)
    return np.asarray(_sums(windows) / ((nodes - 1) * math.sqrt(samples)))


def distances_of(windows: Floats32, row: int) -> Floats:
    """Distances of one row to each."""
    gaps = windows.astype(np.float64) - windows[row]
    return np.asarray(np.sqrt((gaps**2).mean(axis=1)))


def bounds(windows: Floats32) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the mean Euclidean distances, by the distances to the mean of all.

    Two windows are no farther apart than the sum, and no nearer than the difference, of their
    distances to the mean; and the sum of a node's differences to all is n times its difference to
    the mean.
    """
    nodes, samples = windows.shape
    gaps = windows - windows.mean(axis=0, dtype=np.float64).astype(np.float32)
    radii = np.sqrt(np.einsum("ij,ij->i", gaps, gaps, dtype=np.float64))
    total, unit = radii.sum(), (nodes - 1) * math.sqrt(samples)
    lower = np.maximum(nodes * radii, total - nodes * radii)
    upper = (nodes - 2) * radii + total
    return lower / unit - ROUNDING, upper / unit + ROUNDING


def _sums(windows: Floats | Floats32) -> Floats:
    if len(windows) >= FEW and windows.shape[1] <= 8:
        return _compiled_sums(windows)
    windows = windows.astype(np.float64)
    sums = np.empty(len(windows))
    for start in range(0, len(windows), _ROWS):
        gaps = windows[start : start + _ROWS, None] - windows[None]
        sums[start : start + _ROWS] = np.sqrt((gaps**2).sum(axis=2)).sum(axis=1)
    return sums


def _compiled_sums(windows: Floats | Floats32) -> Floats:
    from anubis.core.watch import compiled_distances

    columns = np.zeros((compiled_distances.SAMPLES, len(windows)), dtype=np.float32)
    columns[: windows.shape[1]] = windows.T
    sums = np.empty(len(windows))
    compiled_distances.root_sums(columns, sums)
    return sums


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
    if _all_near(windows, least_effect):
        return np.zeros(0, dtype=np.int64)
    distances = mean_distances(windows)
    apart = (scores(distances) > threshold) & (distances >= least_effect)
    if settings.candidates == "largest" and apart.any():
        largest = int(np.argmax(distances >= distances.max() * (1 - TIE)))
        apart &= np.arange(len(apart)) == largest
    return np.flatnonzero(apart)


def _all_near(windows: Floats32, least_effect: float) -> bool:
    """Return whether the bounds prove that no node is far enough from the others."""
    if len(windows) < FEW or not least_effect:
        return False
    return bool(bounds(windows)[1].max() < least_effect)


def surely_stands_out(
    windows: Floats32, row: int, threshold: float, least_effect: float, settings: WatchSettings
) -> bool | None:
    """Return whether a row stands out, by the bounds of all rows and the distance of this one;
    None: the bounds do not decide."""
    if len(windows) < FEW:
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


FEWEST = 3  # peers that are left of a group when those with a role are set aside
UNDECIDED = 8  # failures in a row, after which bounds cost more than they save
AT_ONCE = 1024  # windows denoised at a time: with more, the values do not fit the caches


class DenoisesWindows(Protocol):
    def denoise(self, windows: Floats32) -> Floats32: ...


class ThresholdByNodes(Protocol):
    def value_at(self, nodes: int) -> float: ...


class AnswersForMetrics(Protocol):
    """Interface of a watch model for the detector."""

    @property
    def denoisers(self) -> Mapping[str, DenoisesWindows]: ...
    @property
    def thresholds(self) -> Mapping[str, ThresholdByNodes]: ...
    @property
    def order(self) -> tuple[str, ...]: ...


def unjudged_reason(
    name: str,
    telemetry: Telemetry,
    model: AnswersForMetrics,
    settings: WatchSettings,
    unreported: Mapping[str, str],
) -> str:
    """Reason why nodes are not compared by a metric; empty: they are."""
    if name not in (metric.name for metric in telemetry.metrics):
        return "not in the telemetry"
    if settings.denoised and name not in model.denoisers:
        return "the watch model was not trained for it"
    if not settings.concatenated and name not in model.thresholds:
        return "the watch model has no threshold for it"
    return unreported.get(name, "") or _too_little(name, telemetry)


def _too_little(name: str, telemetry: Telemetry) -> str:
    """Reason why no node can do less than others by an amount that counts; empty: one can."""
    metric = next(metric for metric in telemetry.metrics if metric.name == name)
    if metric.fault is not Side.LOW or np.nanmax(telemetry.series(name)) > metric.floor:
        return ""
    reason = f"no node reported more than {metric.floor:g} {metric.unit}, the least that counts"
    return f"{reason}: are these shares of 1, not percent?" if metric.unit == "%" else reason


@dataclass(kw_only=True)
class Comparison:
    name: str
    metrics: tuple[int, ...]  # rows of the telemetry
    telemetry: Telemetry
    spans: tuple[Span, ...]  # of all metrics of the telemetry
    denoisers: tuple[DenoisesWindows | None, ...]  # of the metrics compared; None: as it is
    threshold: ThresholdByNodes
    least_effect: float
    settings: WatchSettings
    first: int  # point of the telemetry at which the first window begins
    _denoised: dict[tuple[int, int], tuple[Floats32, Ints]] = field(default_factory=dict)
    _asked: dict[tuple[int, tuple[int, ...]], Among] = field(default_factory=dict)

    @property
    def windows(self) -> int:
        return max(0, self.telemetry.points - self.first - self.settings.window + 1)

    def probe(self, group: int, peers: Ints) -> Among:
        """Nodes of these peers that stand out. It is kept, with the windows already decided."""
        key = (group, tuple(peers.tolist()))
        if key not in self._asked:
            self._asked[key] = Among(self, group, peers)
        return self._asked[key]

    def score(self, group: int, peers: Ints, window: int, row: int) -> tuple[float, float]:
        """Score of a row in a window, and its threshold."""
        vectors, rows = self.peer_vectors(group, peers, window)
        deviations = scores(mean_distances(vectors))
        return float(deviations[rows == row][0]), self.threshold.value_at(len(rows))

    def peer_vectors(self, group: int, peers: Ints, window: int) -> tuple[Floats32, Ints]:
        vectors, rows = self._group_vectors(group, peers, window)
        is_peer = np.zeros(len(self.telemetry.nodes), dtype=bool)
        is_peer[peers] = True
        left = is_peer[rows]
        return (vectors, rows) if left.all() else (vectors[left], rows[left])

    def _group_vectors(self, group: int, peers: Ints, window: int) -> tuple[Floats32, Ints]:
        """Denoised windows of the group, kept: later calls have the same peers or fewer."""
        if (group, window) not in self._denoised:
            self._denoised[group, window] = self._denoise(peers, self.first + window)
        return self._denoised[group, window]

    def _denoise(self, peers: Ints, start: int) -> tuple[Floats32, Ints]:
        points = slice(start, start + self.settings.window)
        raw = [self.telemetry.values[metric, :, points][peers] for metric in self.metrics]
        complete = np.isfinite(np.hstack(raw)).all(axis=1)
        vectors = [
            self._clean(self.spans[metric].scale(values[complete]), denoiser)
            for metric, values, denoiser in zip(self.metrics, raw, self.denoisers, strict=True)
        ]
        return np.hstack(vectors), peers[complete]

    def _clean(self, windows: Floats32, denoiser: DenoisesWindows | None) -> Floats32:
        if denoiser is None or not len(windows):
            return windows
        blocks = range(0, len(windows), AT_ONCE)
        return np.concatenate([denoiser.denoise(windows[i : i + AT_ONCE]) for i in blocks])


@dataclass
class Among:
    """Nodes among some `peers` of a group that stand out of windows."""

    comparison: Comparison
    group: int
    peers: Ints
    _rows: dict[int, frozenset[int]] = field(default_factory=dict)
    _held: dict[tuple[int, int], bool] = field(default_factory=dict)
    _last: tuple[int, Floats32, Ints] | None = None  # the last window, and its vectors
    _undecided: int = 0  # times in a row that the bounds did not decide

    def rows(self, window: int) -> frozenset[int]:
        if window not in self._rows:
            self._rows[window] = self._stand_out(window)
        return self._rows[window]

    def holds(self, window: int, row: int) -> bool:
        if window in self._rows:
            return row in self._rows[window]
        if (window, row) not in self._held:
            sure = self._surely(window, row) if self._bounds_may_tell() else None
            self._undecided = self._undecided + 1 if sure is None else 0
            self._held[window, row] = row in self.rows(window) if sure is None else sure
        return self._held[window, row]

    def _bounds_may_tell(self) -> bool:
        """Return whether to try the bounds. If they failed several times in a row, as they usually
        do among several outliers, they are only tried now and then."""
        return self._undecided < UNDECIDED or self._undecided % UNDECIDED == 0

    def _stand_out(self, window: int) -> frozenset[int]:
        vectors, rows = self._comparable(window)
        if not len(rows):
            return frozenset()
        return frozenset(rows[stand_out(vectors, *self._bars(len(rows)))].tolist())

    def _surely(self, window: int, row: int) -> bool | None:
        vectors, rows = self._comparable(window)
        place = np.flatnonzero(rows == row)
        if not len(place):
            return False
        return surely_stands_out(vectors, int(place[0]), *self._bars(len(rows)))

    def _comparable(self, window: int) -> tuple[Floats32, Ints]:
        """Complete vectors of a window and their rows. Nodes with gaps in the window are excluded;
        if half of the peers are, the window is not compared."""
        if self._last is None or self._last[0] != window:
            self._last = (window, *self.comparison.peer_vectors(self.group, self.peers, window))
        _, vectors, rows = self._last
        least = min(self.comparison.settings.least_nodes, max(len(self.peers), FEWEST))
        enough = len(rows) >= least and len(rows) * 2 > len(self.peers)
        return (vectors, rows) if enough else (vectors[:0], rows[:0])

    def _bars(self, nodes: int) -> tuple[float, float, WatchSettings]:
        comparison = self.comparison
        threshold = comparison.threshold.value_at(nodes)
        return threshold, comparison.least_effect, comparison.settings
