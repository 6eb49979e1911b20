"""The samples of the last 20 minutes, as rows of numbers, and the text that others read.

A text is lines of JSON: first what the columns are, then a row for each sample:

    {"agent": 1, "node": "node017", "step_s": 1.0, "metrics": ["cpu_use", ...], "absent": {...}}
    [1795384123.0, 12.5, null, ...]

A row begins with its time in seconds since 1970; null is not known.
"""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from telemetry.sources import Sampled

FORM = 1  # raised if what an answer means changes
WORST = {  # of several devices: the least of activity, the most of errors and of heat
    **dict.fromkeys(("pfc_tx", "ecn", "cnp", "send_queue", "gpu_temperature"), max),
    **dict.fromkeys(("gpu_memory", "gpu_duty", "gpu_power", "gpu_clock", "gpu_graphics"), min),
    **dict.fromkeys(("gpu_sm", "gpu_tensor", "gpu_fp", "gpu_memory_bandwidth"), min),
    **dict.fromkeys(("pcie_throughput", "pcie_use", "nvlink_throughput"), min),
}


class Ring:
    """Samples that one thread writes and several read."""

    def __init__(self, node: str, step_s: float, span_s: float = 1200.0) -> None:
        self.node, self.step_s = node, step_s
        self.metrics: list[str] = []
        self.absent: dict[str, str] = {}
        self._rows: deque[tuple[float, ...]] = deque(maxlen=round(span_s / step_s))
        self._lock = threading.Lock()

    def add(self, time: float, samples: Iterable[Sampled]) -> str:
        """Add a sample and return its line. A clock that was set back removes the rows of a later
        time."""
        values: dict[str, float] = {}
        absent: dict[str, str] = {}
        for sampled in samples:
            absent |= sampled.absent
            for metric, devices in sampled.values.items():
                values |= node_values(metric, devices)
        with self._lock:
            self.metrics += [metric for metric in values if metric not in self.metrics]
            self.absent = absent
            while self._rows and self._rows[-1][0] >= time:
                self._rows.pop()
            row = (time, *(values.get(metric, math.nan) for metric in self.metrics))
            self._rows.append(row)
        return line_of(row)

    def heading(self) -> str:
        heading = {"agent": FORM, "node": self.node, "step_s": self.step_s}
        return json.dumps(heading | {"metrics": self.metrics, "absent": self.absent})

    def lines_since(self, time: float) -> Iterator[str]:
        """Yield the heading, and a line for each later row."""
        with self._lock:
            heading, rows = self.heading(), [row for row in self._rows if row[0] > time]
        yield heading
        width = 1 + len(self.metrics)
        for row in rows:
            yield line_of(row + (math.nan,) * (width - len(row)))


def node_values(metric: str, devices: Mapping[str, float]) -> dict[str, float]:
    """Return the mean over the devices that report, and the worst, which is unknown until all
    do."""
    numbers = [value for value in devices.values() if not math.isnan(value)]
    values = {metric: math.fsum(numbers) / len(numbers) if numbers else math.nan}
    if metric in WORST:
        is_whole = len(numbers) == len(devices)
        values[f"{metric}:worst"] = WORST[metric](numbers) if numbers and is_whole else math.nan
    return values


def line_of(row: Iterable[float]) -> str:
    return f"[{','.join(map(number, row))}]"


def number(value: float) -> str:
    """Format a number with as few digits as keep what was measured."""
    if math.isnan(value):
        return "null"
    if value == int(value):
        return str(int(value))
    return f"{value:.3f}" if value > 1e6 else f"{value:.7g}"
