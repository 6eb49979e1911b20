"""Scales values to shares of a metric's range: by its known limits, else by the values of the job.

Never per node: that would hide exactly the node that is unlike the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anubis.core.arrays import Floats32
from anubis.core.watch.telemetry import WatchedMetric


@dataclass(frozen=True)
class Span:
    """The values that a metric's scale maps to 0 and to 1."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low

    def scale(self, values: Floats32) -> Floats32:
        if not self.width > 0:
            return np.where(np.isfinite(values), np.float32(0), values)
        shares: Floats32 = ((values - self.low) / self.width).astype(np.float32)
        return np.clip(shares, 0, 1, out=shares)


def span_of(metric: WatchedMetric, values: Floats32) -> Span:
    """Span of a metric. `values`: of all nodes of a job, in the unit of the metric."""
    low, high = metric.low, metric.high
    if low is None:
        low = _least(values)
    if high is None:
        high = -_least(-values)
    return Span(low, max(low, high))


def _least(values: Floats32) -> float:
    least = float(np.fmin.reduce(values, axis=None)) if values.size else np.nan
    if np.isinf(least):  # an impossible reading
        finite = values[np.isfinite(values)]
        least = float(finite.min()) if finite.size else np.nan
    return 0.0 if np.isnan(least) else least
