"""Finds series that ended, series that never began, and times without any report.

If most nodes are silent at once, the cause is the monitoring, not the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anubis.core.arrays import Flags, Floats32, Ints


@dataclass(frozen=True, kw_only=True)
class Presence:
    """Reports of one metric. Points of time count only while most nodes report."""

    reported: bool  # whether most nodes ever reported at once
    silent: Ints  # rows that never reported
    vanished: Ints  # rows whose series ended long enough ago, while most continued
    last: Ints  # of each row: the last point it reported, -1: none
    newest: int  # the last point at which most nodes reported
    holes: tuple[tuple[int, int], ...]  # first and last points at which most nodes were silent
    gaps: tuple[tuple[int, int, int], ...]  # row silent for a while, first and last point


def presence(values: Floats32, *, long: int, least: int) -> Presence:
    """Presence of a metric's series. `long`: points for which a series must be gone; `least`:
    points that it must have had before."""
    there = np.isfinite(values)
    nodes, points = there.shape
    going_on = there.sum(axis=0) * 2 > nodes
    if not going_on.any():
        none = np.zeros(0, dtype=np.int64)
        return Presence(
            reported=False,
            silent=none,
            vanished=none,
            last=np.full(nodes, -1),
            newest=-1,
            holes=(),
            gaps=(),
        )
    ever = there.any(axis=1)
    last = np.where(ever, points - 1 - np.argmax(there[:, ::-1], axis=1), -1)
    so_far = np.concatenate(([0], np.cumsum(going_on)))
    missed = so_far[-1] - so_far[last + 1]
    vanished = ever & (missed >= long) & (there.sum(axis=1) >= least)
    return Presence(
        reported=True,
        silent=np.flatnonzero(~ever),
        vanished=np.flatnonzero(vanished),
        last=last,
        newest=int(np.flatnonzero(going_on)[-1]),
        holes=tuple(stretches(~going_on)),
        gaps=tuple(_gaps(there, going_on, last, long)),
    )


def _gaps(there: Flags, going_on: Flags, last: Ints, long: int) -> list[tuple[int, int, int]]:
    """Long silences that ended: row, first and last point."""
    rows = np.flatnonzero((going_on & ~there).sum(axis=1) >= long)
    return [
        (int(row), first, end)
        for row in rows
        for first, end in stretches(~there[row, : last[row] + 1])
        if going_on[first : end + 1].sum() >= long
    ]


def stretches(flags: Flags) -> list[tuple[int, int]]:
    """First and last point of each stretch that is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]
