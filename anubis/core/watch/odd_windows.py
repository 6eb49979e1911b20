"""Windows of a job's telemetry that are kept with a suspicion: how far the oddest node of each
metric was from the others. Those whose tests ended show which metrics to compare first.

They take a few KB for any number of nodes. The text may come from strangers, and is bounded.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.arrays import Flags, Floats
from anubis.core.watch.telemetry import Telemetry
from anubis.core.watch.thresholds import oddness

MOST_WINDOWS = 128  # the last ones: 17 minutes, sampled each second
MOST_METRICS = 64  # three times those that are watched
LONGEST = 16_384  # letters of the packed text; a longer one is not kept


@dataclass(frozen=True, kw_only=True, eq=False)
class OddWindows:
    metrics: tuple[str, ...]
    features: Floats  # windows x metrics
    first: int  # window of the suspicion; those before it are without a fault

    def columns(self, metrics: Sequence[str]) -> Floats:
        """Features of these metrics; 0 for one that was not there."""
        places = {metric: place for place, metric in enumerate(self.metrics)}
        columns = [
            self.features[:, places[metric]] if metric in places else np.zeros(len(self.features))
            for metric in metrics
        ]
        return np.stack(columns, axis=1)

    def faulty(self, *, is_confirmed: bool) -> Flags:
        return np.asarray((np.arange(len(self.features)) >= self.first) & is_confirmed)


def pack_windows(telemetry: Telemetry, since: float, window: int) -> str:
    """Pack the last windows; empty if there are none, or if they would be too long."""
    last = telemetry.last(MOST_WINDOWS * window * telemetry.step_s)
    columns = [  # one by one: a large job has hundreds of MB
        oddness(replace(last, metrics=(metric,), values=last.values[row : row + 1]), window)
        for row, metric in enumerate(last.metrics[:MOST_METRICS])
    ]
    if not columns or not len(columns[0]):
        return ""
    features = np.concatenate(columns, axis=1).astype(np.float16)
    head = {
        "metrics": [metric.name for metric in last.metrics[:MOST_METRICS]],
        "windows": len(features),
        "first": max(0, int((since - last.start) // (window * last.step_s))),
    }
    packed = zlib.compress(json.dumps(head).encode() + b"\n" + features.tobytes(), 9)
    text = base64.b85encode(packed).decode()
    return text if len(text) <= LONGEST else ""


def unpack_windows(text: str) -> OddWindows | None:
    """Return the windows; None if the text has none."""
    most_bytes = 2 * MOST_WINDOWS * MOST_METRICS + LONGEST
    try:
        data = zlib.decompressobj().decompress(base64.b85decode(text[:LONGEST]), most_bytes)
        line, _, numbers = data.partition(b"\n")
        head = json.loads(line)
        metrics = tuple(map(str, head["metrics"]))
        features = np.frombuffer(numbers, dtype=np.float16).astype(np.float64)
        features = features.reshape(int(head["windows"]), len(metrics))
        first = int(head["first"])
    except (ValueError, KeyError, TypeError, zlib.error, RecursionError, OverflowError):
        return None
    if not (metrics and len(features) and np.isfinite(features).all() and first >= 0):
        return None
    return OddWindows(metrics=metrics, features=features, first=first)
