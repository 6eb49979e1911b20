"""Metrics in which a node left its peers, by how much and since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.watch.departures import Departure, departure
from anubis.core.watch.findings import Deviation, Sign
from anubis.core.watch.medians import Middle, medians
from anubis.core.watch.scaling import Span
from anubis.core.watch.telemetry import Side, Telemetry
from anubis.core.watch.watch_settings import WatchSettings

BEYOND_PEERS = 3.0  # times its peers' usual distance from the median is no chance
AT_ONCE = 128  # nodes at a time: intermediate results stay in the caches


@dataclass(frozen=True, kw_only=True)
class Deviations:
    telemetry: Telemetry
    spans: Sequence[Span]  # of its metrics
    settings: WatchSettings
    _middles: dict[int, list[Middle]] = field(default_factory=dict)  # of metrics, newest first

    def departure(
        self, metric: int, peers: Ints, row: int, first: int, last: int
    ) -> Departure | None:
        """Departure from its peers' median of a node that was apart between two points of time."""
        values = self.telemetry.values[metric]
        beside = peers[peers != row]
        return departure(
            values[row].astype(np.float64),
            self._medians(metric, peers, beside),
            first,
            last,
            self.settings.window,
            activity=self.telemetry.metrics[metric].fault is Side.LOW,
        )

    def share(self, metric: int, left: Departure) -> float:
        """Distance of a departure as a share of the metric's range."""
        width = self.spans[metric].width
        return left.distance / width if width > 0 else 0.0

    def deviation(
        self,
        metric: int,
        left: Departure,
        score: float = 0.0,
        threshold: float = 0.0,
        sign: Sign = Sign.UNLIKE_PEERS,
    ) -> Deviation:
        watched = self.telemetry.metrics[metric]
        return Deviation(
            sign=sign,
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
        """Deviations in other metrics in which the node left its peers at the same time."""
        deviations = []
        for second in range(len(self.telemetry.metrics)):
            if second != metric:
                left = self.departure(second, peers, row, first, last)
                if left and self._is_apart(second, peers, row, left, first, last):
                    deviations.append(self.deviation(second, left))
        return deviations

    def _is_apart(
        self, metric: int, peers: Ints, row: int, left: Departure, first: int, last: int
    ) -> bool:
        least = max(
            self.settings.min_effect * self.spans[metric].width,
            self.telemetry.metrics[metric].floor,
        )
        if left.returned or left.always or left.distance < least or left.distance == 0:
            return False
        beside = peers[peers != row]
        run = slice(first, last + 1)
        usual = self._medians(metric, peers, beside)[run]
        return is_beyond(left.distance, self.telemetry.values[metric][:, run], beside, usual)

    def _medians(self, metric: int, peers: Ints, beside: Ints) -> Floats:
        """Medians of the nodes `beside` one, at all times. They are among the `peers`."""
        middles = self._middles.setdefault(metric, [])
        for middle in middles:
            if (left_out := middle.excluded_rows(beside)) is not None:
                return middle.medians_without(left_out)
        middles.insert(0, Middle.from_rows(self.telemetry.values[metric], peers))
        return self._medians(metric, peers, beside)


def is_beyond(distance: float, values: Floats32, beside: Ints, usual: Floats) -> bool:
    """Return whether a distance from `usual` is several times the median distance of others. Others
    are compared in blocks until more than half of them prove it."""
    distances = [np.zeros(0)]
    near = 0
    for start in range(0, len(beside), AT_ONCE):
        distances.append(means(np.abs(values[beside[start : start + AT_ONCE]] - usual)))
        near += int((BEYOND_PEERS * distances[-1] <= distance).sum())
        if near * 2 > len(beside):
            return True
    return bool(distance >= BEYOND_PEERS * medians(np.concatenate(distances)[:, None])[0])


def means(values: Floats) -> Floats:
    """Mean of each row over its known values; NaN if there are none."""
    finite = np.isfinite(values)
    counts = finite.sum(axis=1)
    sums = np.where(finite, values, 0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
