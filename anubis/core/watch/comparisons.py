"""Comparisons of the nodes of a job by one metric, or by all as one, window by window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from anubis.core.arrays import Floats32, Ints
from anubis.core.watch.distances import mean_distances, scores, stand_out, surely_stands_out
from anubis.core.watch.telemetry import Span, Telemetry
from anubis.core.watch.watch_settings import WatchSettings

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
        deviations = scores(mean_distances(vectors, self.settings.distance))
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
