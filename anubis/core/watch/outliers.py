"""Aegis' rule on a stream: beyond mean + 2 deviations of its peers for all of ten minutes.

The compared value is a node's distance from its own level of the last hour: nodes differ steadily,
and a steady difference is no fault. A fixed amount is stored for each metric and node: the means of
the last 60 minutes, and the number of samples apart in each of the last ten.

The state of a stream is stored as bytes between two looks, because each look of a service is a
process of its own, and the rule of ten minutes needs an hour. Some 300 bytes for each metric and
node are stored, fewer once compressed. A stream of other metrics, nodes or peers, or of another
release, cannot use them and begins anew.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.watch.findings import Deviation, Sign
from anubis.core.watch.telemetry import Side, Telemetry, WatchedMetric


@dataclass(frozen=True, kw_only=True)
class OutlierRule:
    deviations: float = 2.0
    span_s: float = 600.0  # a node must be apart for all of it
    share: float = 0.95  # of its samples; missing ones count as not apart
    level_s: float = HOUR_S  # a node's own level is the median of its minutes in this time before
    effect: float = 0.05  # of the metric's range, or of its level if it has no limits
    minutes: int = 10  # that the span is counted in

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"a share of {self.share:g}, expected more than 0 and at most 1")
        if self.level_s < self.span_s:
            raise ValueError(
                f"a level of {self.level_s:g} s, expected at least the {self.span_s:g} s in which"
                " a node has to stand apart"
            )

    @property
    def fewest_peers(self) -> int:
        """Least number of peers: among N values none is further than sqrt(N - 1) deviations from
        their mean."""
        return math.floor(self.deviations**2) + 2

    @property
    def minute_s(self) -> float:
        return self.span_s / self.minutes

    @property
    def level_minutes(self) -> int:
        return math.ceil(self.level_s / self.minute_s)


class OutlierStream:
    """Stream that receives the telemetry of a job piece by piece; pieces may overlap but not go
    back."""

    def __init__(
        self,
        metrics: Sequence[WatchedMetric],
        nodes: Sequence[str],
        groups: Sequence[str] = (),
        rule: OutlierRule | None = None,
    ) -> None:
        self.metrics, self.nodes, self.rule = tuple(metrics), tuple(nodes), rule or OutlierRule()
        self.groups = tuple(groups)
        names = self.groups or ("",) * len(self.nodes)
        self._peers = [
            np.flatnonzero([name == group for name in names]) for group in sorted(set(names))
        ]
        shape = len(self.metrics), len(self.nodes)
        self._means = np.full((*shape, self.rule.level_minutes), np.nan, dtype=np.float32)
        self._apart = np.zeros((2, *shape, self.rule.minutes), dtype=np.int32)  # below, above
        self._sums, self._samples = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        self._minute_apart = np.zeros((2, *shape), dtype=np.int32)
        self._since = np.full((2, *shape), np.nan)
        self._levels = np.full(shape, np.nan)
        self._began, self._heard, self._minute, self._step_s = math.inf, -math.inf, -1, math.nan

    @property
    def has_peers(self) -> bool:
        """Return whether there are enough peers for the rule to name any node."""
        return any(len(peers) >= self.rule.fewest_peers for peers in self._peers)

    def unable(self) -> str:
        """Reason why the rule cannot name any node; empty: it can."""
        if not self.has_peers:
            largest = max((len(peers) for peers in self._peers), default=0)
            return (
                f"{largest} peers: among fewer than {self.rule.fewest_peers} nodes none can be"
                f" {self.rule.deviations:g} deviations from their mean"
            )
        if not np.isfinite(self._levels).any():
            return f"no node has reported for {self.rule.minutes} minutes, so none has a level"
        return ""

    def is_about(self, telemetry: Telemetry) -> bool:
        return (telemetry.metrics, telemetry.nodes, telemetry.groups) == (
            self.metrics,
            self.nodes,
            self.groups,
        )

    @property
    def heard_s(self) -> float:
        """Seconds of telemetry so far, including gaps shorter than the rule's span."""
        return max(0.0, self._heard - self._began + self._step_s) if self._minute >= 0 else 0.0

    def hear(self, telemetry: Telemetry) -> None:
        if not self.is_about(telemetry):
            raise ValueError(
                "a stream of outliers must receive the same metrics and nodes every time"
            )
        self._step_s = telemetry.step_s
        if telemetry.start > self._heard + self.rule.span_s:  # the known levels are too old
            self._began = telemetry.start
        for minute, points in self._new_points(telemetry):
            self._begin(minute)
            self._count(telemetry.values[:, :, points])

    def _new_points(self, telemetry: Telemetry) -> Iterator[tuple[int, Ints]]:
        """New points by the minute that they belong to."""
        points = np.flatnonzero(telemetry.times > self._heard)
        minutes = (telemetry.times[points] // self.rule.minute_s).astype(np.int64)
        for minute in np.unique(minutes):
            yield int(minute), points[minutes == minute]
        self._heard = max(self._heard, telemetry.end)

    def _begin(self, minute: int) -> None:
        """End the minutes before this one; minutes without data are empty."""
        if self._minute < 0:
            self._minute = minute
        forgotten = self.rule.level_minutes + self.rule.minutes
        for _ in range(min(minute - self._minute, forgotten)):
            self._end_minute()
        self._minute = minute

    def _end_minute(self) -> None:
        fewest = 0.5 * self.rule.minute_s / self._step_s
        enough = self._samples >= max(1.0, fewest)
        mean = np.where(enough, self._sums / np.maximum(self._samples, 1), np.nan)
        self._means = _append(self._means, mean.astype(np.float32))
        self._apart = _append(self._apart, self._minute_apart)
        self._levels = self._own_levels()
        self._sums[:], self._samples[:], self._minute_apart[:] = 0, 0, 0
        fires = self._fires()
        began = (self._minute + 1 - self.rule.minutes) * self.rule.minute_s
        self._since = np.where(fires, np.fmin(self._since, began), np.nan)
        self._minute += 1

    def _own_levels(self) -> Floats:
        """Median of a node's minutes, once there are as many as must be apart."""
        enough = np.isfinite(self._means).sum(axis=2) >= self.rule.minutes
        levels = np.full(enough.shape, np.nan)
        levels[enough] = np.nanmedian(self._means[enough], axis=1)
        return levels

    def _count(self, values: Floats32) -> None:
        """Add values of one minute, metrics x nodes x points."""
        finite = np.isfinite(values)
        self._sums += np.where(finite, values, 0.0).sum(axis=2, dtype=np.float64)
        self._samples += finite.sum(axis=2)
        changes = values - self._levels[:, :, None]
        for peers in self._peers:
            self._count_apart(changes[:, peers], peers)

    def _count_apart(self, changes: Floats, peers: Ints) -> None:
        finite = np.isfinite(changes)
        number = np.maximum(finite.sum(axis=1, keepdims=True), 1)
        mean = np.where(finite, changes, 0.0).sum(axis=1, keepdims=True) / number
        apart = np.where(finite, changes - mean, 0.0)
        deviation = np.sqrt((apart**2).sum(axis=1, keepdims=True) / number)
        bound = np.maximum(self.rule.deviations * deviation, self._floors(peers)[:, None, None])
        self._minute_apart[0][:, peers] += (apart < -bound).sum(axis=2)
        self._minute_apart[1][:, peers] += (apart > bound).sum(axis=2)

    def _floors(self, peers: Ints) -> Floats:
        levels = self._levels[:, peers]
        learned = np.isfinite(levels).any(axis=1)
        typical = np.zeros(len(self.metrics))
        typical[learned] = np.abs(np.nanmedian(levels[learned], axis=1))
        return np.array(
            [
                max(metric.floor, self.rule.effect * _range(metric, level))
                for metric, level in zip(self.metrics, typical, strict=True)
            ]
        )

    def _fires(self) -> Ints:
        samples = self.rule.span_s / self._step_s
        fires: Ints = self._apart.sum(axis=3) >= self.rule.share * samples
        return fires

    def state(self) -> dict[str, Any]:
        """State as arrays of fixed size: a stream that restores it continues as if it had never
        ended."""
        return {
            "means": self._means,
            "apart": self._apart.astype(np.uint16),  # of a minute of samples
            "minute_apart": self._minute_apart.astype(np.uint16),
            "sums": self._sums,
            "samples": self._samples.astype(np.uint16),
            "since": self._since,
            "clock": np.array([self._began, self._heard, self._minute, self._step_s]),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, own in self.state().items():
            if state[name].shape != own.shape or state[name].dtype != own.dtype:
                raise ValueError(f"the state of another stream: its {name} are of another shape")
        self._means, self._sums, self._since = state["means"], state["sums"], state["since"]
        self._apart = state["apart"].astype(np.int32)
        self._minute_apart = state["minute_apart"].astype(np.int32)
        self._samples = state["samples"].astype(np.int64)
        self._began, self._heard, minute, self._step_s = state["clock"].tolist()
        self._minute = int(minute)
        self._levels = self._own_levels()

    def deviations(self) -> Mapping[str, Sequence[Deviation]]:
        """Deviations of each node that is apart, by metric, on the side of a fault."""
        named: dict[str, list[Deviation]] = {}
        for side, metric, node in np.argwhere(np.isfinite(self._since)):
            if self.metrics[metric].fault in (Side.EITHER, (Side.LOW, Side.HIGH)[side]):
                deviation = self._deviation(side, metric, node)
                named.setdefault(self.nodes[node], []).append(deviation)
        return named

    def _deviation(self, side: int, row: int, node: int) -> Deviation:
        metric = self.metrics[row]
        recent = self._means[row, :, -self.rule.minutes :]
        peers = next(group for group in self._peers if node in group)
        value = float(np.nanmedian(recent[node]))
        middle = float(np.nanmedian(recent[peers[peers != node]]))
        scale = _range(metric, abs(middle))
        return Deviation(
            sign=Sign.OUTLIER,
            metric=metric.name,
            family=metric.family,
            since=float(self._since[side, row, node]),
            until=self._minute * self.rule.minute_s,
            side=(Side.LOW, Side.HIGH)[side],
            value=value,
            peers=middle,
            effect=abs(value - middle) / scale if scale else math.inf,
            score=float(self._apart[side, row, node].sum() * self._step_s / self.rule.span_s),
            threshold=self.rule.share,
        )


def _range(metric: WatchedMetric, level: float) -> float:
    if metric.low is None or metric.high is None:
        return level
    return metric.high - metric.low


def _append(kept: Any, newest: Any) -> Any:
    """Copy with the newest values at the end of the last axis and without the oldest."""
    moved = np.roll(kept, -1, axis=-1)
    moved[..., -1] = newest
    return moved


VERSION = 1  # of the arrays of `OutlierStream.state` and their meaning
SEAL_BYTES = sha256().digest_size


def pack_stream(stream: OutlierStream) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **stream.state())
    state = file.getvalue()
    return _seal(stream, state) + state


def resume_stream(stream: OutlierStream, kept: bytes) -> bool:
    """Restore the stream from stored bytes. Return whether they were complete and from such a
    stream; else it stays as new."""
    seal, state = kept[:SEAL_BYTES], kept[SEAL_BYTES:]
    if seal != _seal(stream, state):
        return False
    with np.load(io.BytesIO(state), allow_pickle=False) as arrays:
        stream.restore(dict(arrays))
    return True


def _seal(stream: OutlierStream, state: bytes) -> bytes:
    facts = (VERSION, stream.rule, stream.metrics, stream.nodes, stream.groups)
    return sha256(repr(facts).encode() + state).digest()
