"""Common parts of sources of telemetry: files of the kernel read every second, rates, samples.

What cannot be read is absent, with the reason; it is never 0.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LONGEST_GAP_S = 15.0  # the mean over more than this is no sample of now
SATURATED = 2**32 - 1  # where a counter of 32 bits of an HCA stops


class Place(NamedTuple):
    """The place of a machine's files."""

    root: Path
    proc: Path  # of processors, memory and NICs; a host among several on one machine has its own
    node: str = ""


class Line(NamedTuple):
    """A number as exporters of Prometheus call it."""

    name: str
    labels: str  # device="eth0"
    value: float


@dataclass(slots=True)
class Sampled:
    """The values of a source, by metric and device, as exporters write them, and what it could not
    read.

    If a device should report a value and does not, or not yet, the value is NaN.
    """

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    lines: Callable[[], Iterable[Line]] = tuple  # made when somebody asks for the page
    absent: dict[str, str] = field(default_factory=dict)  # metric and reason

    def add(self, metric: str, device: str, value: float | None) -> None:
        self.values.setdefault(metric, {})[device] = math.nan if value is None else value


class KernelFile:
    """A file of the kernel, read again and again through one descriptor."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path | str) -> None:
        self.path, self._descriptor = str(path), -1

    def read(self, size: int = 4096) -> bytes:
        """Return its begin; nothing if it is gone, with its device perhaps."""
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._descriptor, size, 0)
        except OSError:
            self.close()
            return b""

    def whole(self) -> bytes:
        """Return all of it: the kernel hands out a long one page by page."""
        parts: list[bytes] = []
        part = self.read(1 << 16)
        while part:
            parts.append(part)
            try:
                part = os.pread(self._descriptor, 1 << 16, sum(map(len, parts)))
            except OSError:
                break
        return b"".join(parts)

    def number(self) -> int | None:
        try:
            return int(self.read(64))
        except ValueError:  # empty, or N/A (no PMA) as an HCA without the counter says
            return None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


class Rates:
    """Rates of counters: by how much each rises a second, between two readings."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def rise(self, counter: str, count: float | None, now: float) -> float | None:
        """Return the rise; None if it is unknown, as at first, after a gap, and if it was set back
        or began anew."""
        if count is None or count == SATURATED:
            self._last.pop(counter, None)
            return None
        before, then = self._last.get(counter, (count, now))
        self._last[counter] = count, now
        elapsed = now - then
        if count < before or not 0 < elapsed <= LONGEST_GAP_S:
            return None
        return (count - before) / elapsed


def total(values: Mapping[str, float | None], names: Iterable[str]) -> float | None:
    """Return a sum; None if one of the values is unknown."""
    terms = [values.get(name) for name in names]
    numbers = [term for term in terms if term is not None]
    return sum(numbers) if len(numbers) == len(terms) else None


def numbered_lines(text: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Parse lines of `name: words` or `name words`."""
    for line in text.splitlines():
        words = line.replace(b":", b" ", 1).split()
        if words:
            yield words[0].decode(errors="replace"), words[1:]


def label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{name}="{escaped}"'


def labels(**values: str) -> str:
    return ",".join(label(name, value) for name, value in values.items())
