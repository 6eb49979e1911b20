"""Runs of consecutive windows out of which a node stands, found by few of the windows.

A run of k windows covers one of any k that are k apart. So every k-th window is asked first,
and only around one that a node stands out of are all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol


class Probe(Protocol):
    def rows(self, window: int) -> Collection[int]:
        """All that stand out of a window."""

    def holds(self, window: int, row: int) -> bool:
        """The same of one row, which may cost less."""


@dataclass(frozen=True)
class Run:
    row: int
    first: int  # windows; the run may have begun before, once it is as long as was asked for
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


def runs(probe: Probe, windows: int, least: int, enough: int) -> Iterator[Run]:
    """All runs of `least` windows and more, newest first; none is followed beyond `enough`
    windows unless another run is asked for."""
    reached: dict[int, int] = {}  # of each row: the first window of its runs so far
    for anchor in range(windows - least, -1, -least):
        for row in sorted(probe.rows(anchor)):
            if reached.get(row, windows) <= anchor:
                continue
            last = _follow(probe, row, anchor, min(anchor + least, windows) - 1)
            first = _follow(probe, row, anchor, max(0, last - max(enough, least) + 1))
            if last - first + 1 >= least:
                yield Run(row, first, last)
            reached[row] = _follow(probe, row, first, 0)


def _follow(probe: Probe, row: int, start: int, end: int) -> int:
    """The farthest window towards `end` that the row stands out of without a break."""
    step = 1 if end >= start else -1
    while start != end and probe.holds(start + step, row):
        start += step
    return start
