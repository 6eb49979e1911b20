"""In which metrics a node left its peers, by how much and since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.watching.departures import Departure, departure
from anubis.core.watching.findings import Deviation, Sign
from anubis.core.watching.scaling import Span
from anubis.core.watching.settings import WatchSettings
from anubis.core.watching.telemetry import Side, Telemetry

BEYOND_PEERS = 3.0  # times as far from the median as its peers usually are is no chance


@dataclass(frozen=True, kw_only=True)
class Deviations:
    telemetry: Telemetry
    spans: Sequence[Span]  # of its metrics
    settings: WatchSettings

    def departure(
        self, metric: int, peers: Ints, row: int, first: int, last: int
    ) -> Departure | None:
        """From its peers' median, of a node that was apart between two points of time."""
        values = self.telemetry.values[metric]
        beside = peers[peers != row]
        return departure(
            values[row].astype(np.float64),
            medians(values[beside]),
            first,
            last,
            self.settings.window,
            activity=self.telemetry.metrics[metric].fault is Side.LOW,
        )

    def share(self, metric: int, left: Departure) -> float:
        """Of the metric's range."""
        width = self.spans[metric].width
        return left.distance / width if width > 0 else 0.0

    def deviation(
        self, metric: int, left: Departure, score: float = 0.0, threshold: float = 0.0
    ) -> Deviation:
        watched = self.telemetry.metrics[metric]
        return Deviation(
            sign=Sign.UNLIKE_PEERS,
            metric=watched.name,
            family=watched.family,
            since=float(self.telemetry.times[left.since]),
            until=float(self.telemetry.times[left.until]),
            side=left.side,
            value=left.value,
            peers=left.peers,
            effect=self.share(metric, left),
            score=score,
            threshold=threshold,
        )

    def elsewhere(
        self, metric: int | None, peers: Ints, row: int, first: int, last: int
    ) -> list[Deviation]:
        """The other metrics in which it left its peers meanwhile."""
        deviations = []
        for second in range(len(self.telemetry.metrics)):
            if second != metric:
                left = self.departure(second, peers, row, first, last)
                if left and self._is_apart(second, peers[peers != row], left, first, last):
                    deviations.append(self.deviation(second, left))
        return deviations

    def _is_apart(self, metric: int, beside: Ints, left: Departure, first: int, last: int) -> bool:
        least = max(
            self.settings.min_effect * self.spans[metric].width,
            self.telemetry.metrics[metric].floor,
        )
        if left.returned or left.always or left.distance < least or left.distance == 0:
            return False
        values = self.telemetry.values[metric][beside, first : last + 1]
        usual = medians(means(np.abs(values - medians(values)))[:, None])[0]
        return bool(left.distance >= BEYOND_PEERS * usual)


def medians(values: Floats | Floats32) -> Floats:
    """Of each column, of what is known; NaN where nothing is."""
    columns = np.ascontiguousarray(values.T)
    counts = np.isfinite(columns).sum(axis=1)
    middles = np.full(len(columns), np.nan)
    for count in np.unique(counts[counts > 0]).tolist():
        alike = np.flatnonzero(counts == count)  # NaN comes last in order
        low, high = (count - 1) // 2, count // 2
        ordered = np.partition(columns[alike], (low, high), axis=1)
        middles[alike] = (ordered[:, low].astype(np.float64) + ordered[:, high]) / 2
    return middles


def means(values: Floats) -> Floats:
    """Of each row, of what is known; NaN where nothing is."""
    finite = np.isfinite(values)
    counts = finite.sum(axis=1)
    sums = np.where(finite, values, 0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
