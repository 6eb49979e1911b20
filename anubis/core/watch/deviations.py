"""Metrics in which a node left its peers, by how much and since when: for good, for a while, or
before all telemetry.

A run of windows shows that a node was apart, but not since which second. So at each point of time
the node's distance from the median of its peers is compared: more than half of the usual distance
during the run is apart. Being together with the peers proves something only if the peers are at a
level at which the node was apart during the run, or if the node was then on its way from where it
is in the run to where they are: all nodes are alike while a checkpoint is written, but a GPU that
worked with the others, and stands still while they spin as never before, did leave them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from anubis.core.arrays import Flags, Floats, Floats32, Ints
from anubis.core.watch.findings import Deviation, Sign
from anubis.core.watch.medians import Middle, medians
from anubis.core.watch.telemetry import Side, Span, Telemetry
from anubis.core.watch.watch_settings import WatchSettings

LEAST_WAY, MOST_WAY = 0.25, 1.25  # of the way from a node's level in the run to its peers'


@dataclass(frozen=True, kw_only=True)
class Departure:
    since: int  # points of the grid
    until: int  # the last at which it was apart
    returned: bool  # it is together with its peers again
    always: bool  # it was never together with them before
    value: float  # medians since then
    peers: float
    distance: float  # mean, in the unit of the metric
    side: Side

    @property
    def points(self) -> int:
        """Number of points for which it was apart: if samples are seldom, a window is long."""
        return self.until + 1 - self.since


def departure(
    own: Floats, peers: Floats, first: int, last: int, proof: int, *, activity: bool = False
) -> Departure | None:
    """Departure of a node that was apart from point `first` to `last`, or None. `own`: its values,
    and `peers`: the median of its peers, at all points; `proof`: so many points together prove that
    it is with them. `activity`: all idle nodes are alike, so being together proves little while the
    peers do less than in the run, and nothing for a node whose phases are early or late."""
    gaps = np.abs(own - peers)
    run = slice(first, last + 1)
    finite = np.isfinite(gaps[run])
    if not finite.any():
        return None
    usual = float(gaps[run][finite].mean())
    apart = gaps >= usual / 2  # false if unknown
    together = gaps < usual / 2
    telling = _levels_of_being_apart(peers, apart, run, usual / 2)
    level = float(np.median(own[run][finite]))
    side = _side((own - peers)[run][finite], usual)
    usually = float(peers[run][finite].mean())
    if side is not Side.EITHER:
        telling |= _is_on_the_way(own, level, usually) & np.isfinite(peers)
    lively = (peers >= usually) | (not activity)
    telling &= lively | (side is not Side.EITHER)
    back = together & telling
    steps = _extent(apart[last::-1], back[last::-1], proof)
    since = first if steps is None else last - steps
    steps = _extent(apart[since:], back[since:], proof)
    until = last if steps is None else since + steps
    met = together & (telling | lively)
    left_its_level = np.abs(own - level) >= usual / 2
    back = together & (telling | (left_its_level & lively))
    return Departure(
        since=since,
        until=until,
        returned=_ends_with(back[last + 1 :], apart[last + 1 :], proof),
        always=bool(met[:since].sum() < proof),
        value=float(np.nanmedian(own[since : last + 1])),
        peers=float(np.nanmedian(peers[since : last + 1])),
        distance=usual,
        side=side,
    )


def _levels_of_being_apart(peers: Floats, apart: Flags, run: slice, near: float) -> Flags:
    """Flags of the points at which the peers have a level at which, in the run, the node was mostly
    apart."""
    levels = peers[run]
    order = np.argsort(levels)
    ranked = levels[order]
    low = np.searchsorted(ranked, peers - near, side="left")
    high = np.searchsorted(ranked, peers + near, side="right")
    counted = np.concatenate(([0], np.cumsum(apart[run][order])))
    telling: Flags = (counted[high] - counted[low]) * 2 > high - low
    return telling & np.isfinite(peers)


def _is_on_the_way(own: Floats, level: float, usually: float) -> Flags:
    """Flags of the points at which a node was between its level in the run and that of its peers:
    it then did what it does not do in the run."""
    if usually == level:
        return np.zeros(len(own), dtype=bool)
    share = (own - level) / (usually - level)
    on_the_way: Flags = (share >= LEAST_WAY) & (share <= MOST_WAY)
    return on_the_way


def _extent(apart: Flags, together: Flags, proof: int) -> int | None:
    """Number of points, from the first, for which a node was more apart than not, until it is
    proven together. None: it was apart for a few points only."""
    balance = np.cumsum(apart.astype(np.int64) - together)
    behind = np.maximum.accumulate(balance) - balance
    proven = np.flatnonzero(behind >= proof)
    balance = balance[: proven[0] + 1] if len(proven) else balance
    return int(np.argmax(balance)) if balance.max() > 0 else None


def _ends_with(back: Flags, apart: Flags, proof: int) -> bool:
    balance: Ints = np.cumsum((back.astype(np.int64) - apart)[::-1])
    return bool(balance.size and balance.max() >= proof)


def _side(gaps: Floats, usual: float) -> Side:
    shift = float(gaps.mean())
    if abs(shift) < usual / 2:
        return Side.EITHER
    return Side.LOW if shift < 0 else Side.HIGH


BEYOND_PEERS = 3.0  # times its peers' usual distance from the median is no chance
AT_ONCE = 128  # nodes at a time: intermediate results stay in the caches


@dataclass(frozen=True, kw_only=True)
class Deviations:
    telemetry: Telemetry
    spans: Sequence[Span]  # of its metrics
    settings: WatchSettings
    _middles: dict[int, list[Middle]] = field(default_factory=dict)  # of metrics, newest first

    def departure(
        self, metric: int, peers: Ints, row: int, first: int, last: int, block: int = 1
    ) -> Departure | None:
        """Departure from its peers' median of a node that was apart between two points of time, by
        means of so many points."""
        values = self.telemetry.values[metric]
        beside = peers[peers != row]
        return departure(
            smoothed(values[row].astype(np.float64), last, block),
            smoothed(self._medians(metric, peers, beside), last, block),
            first,
            last,
            max(self.settings.window, block),
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


def smoothed(values: Floats, last: int, block: int) -> Floats:
    """Values with the mean of each block of points in place of its points. One block ends with the
    `last` point; a block that is cut at either end is short."""
    if block == 1:
        return values
    edges = np.arange((last + 1) % block, len(values), block)
    pieces = np.split(values, edges)
    return np.concatenate([np.full(len(piece), means(piece[None])[0]) for piece in pieces])


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
