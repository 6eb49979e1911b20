"""Find runs of consecutive windows that a node stands out of, by testing few of the windows.

An interruption of no more windows than the patience belongs to a run, if the node stands out for
four times as long on either side: a checkpoint, in which all nodes are alike, ends no run, and a
row of brief jitters is none.

A run of k windows covers one of any k windows that are k apart. So every k-th window is tested
first, and the window one patience later: if the first falls into an interruption, the second does
not. All windows are tested only around one that a node stands out of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

BESIDE = 4  # length of the stretch on either side, over that of an interruption


class Probe(Protocol):
    def rows(self, window: int) -> Collection[int]:
        """Rows that stand out of a window."""

    def holds(self, window: int, row: int) -> bool:
        """Return whether this row stands out of the window, which may cost less."""


@dataclass(frozen=True)
class Run:
    row: int
    first: int  # windows; a run that is long enough may have begun earlier
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


def runs(probe: Probe, windows: int, least: int, enough: int, patience: int = 0) -> Iterator[Run]:
    """Runs of at least `least` windows, newest first. A run is followed for at most `enough`
    windows unless another run is asked for. Interruptions of up to `patience` windows belong to
    it."""
    patience = min(patience, least // BESIDE)
    reached: dict[int, int] = {}  # row → first window of its runs so far
    for anchor in range(windows - least, -1, -least):
        later = min(anchor + patience, windows - 1)
        for row in sorted({*probe.rows(anchor), *probe.rows(later)}):
            trail = _Trail(probe, row, windows, patience)
            if reached.get(row, windows) <= anchor or not trail.may_be_long(anchor, least):
                continue
            inside = next(filter(trail.counts, dict.fromkeys((anchor, later))), None)
            if inside is None or reached.get(row, windows) <= inside:
                continue
            last = trail.end(inside, windows - 1)
            begin = trail.end(inside, max(0, last - max(enough, least) + 1))
            first = max(begin, last - max(enough, least) + 1)
            if last - first + 1 >= least:
                yield Run(row, first, last)
            reached[row] = trail.end(begin, 0)


@dataclass(frozen=True)
class _Trail:
    """The windows that one row stands out of."""

    probe: Probe
    row: int
    windows: int
    patience: int

    @property
    def stretch(self) -> int:
        return max(1, BESIDE * self.patience)

    def may_be_long(self, anchor: int, least: int) -> bool:
        """Return whether a run of `least` windows can cover the anchor: it must then cover one of
        two windows that far apart, half before and half behind the anchor. Most jitters do not."""
        before = anchor - least // 2
        return any(
            self._holds(at) or self._holds(at + self.patience)
            for at in (before, before + least)
            if 0 <= at < self.windows
        )

    def counts(self, window: int) -> bool:
        """Return whether the row stands out of this window and of enough windows beside it."""
        if not self._holds(window):
            return False
        length = 1
        for step in (-1, 1):
            at = window + step
            while length < self.stretch and self._holds(at):
                length, at = length + 1, at + step
        return length >= self.stretch

    def end(self, start: int, goal: int) -> int:
        """Farthest window of the run around `start` in the direction of `goal`, or the first beyond
        `goal` at which it is certain."""
        step = 1 if goal >= start else -1
        end = at = start
        begin: int | None = None  # of a stretch after an interruption
        while (goal - end) * step > 0 and 0 <= at + step < self.windows:
            at += step
            if not self._holds(at):
                begin = None
                if abs(at - end) > self.patience:
                    break
            elif begin is None and at == end + step:
                end = at
            else:
                begin = at if begin is None else begin
                if abs(at - begin) + 1 >= self.stretch:
                    end, begin = at, None
        return end

    def _holds(self, window: int) -> bool:
        return 0 <= window < self.windows and self.probe.holds(window, self.row)
