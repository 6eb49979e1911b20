"""Medians of the known values of many nodes, and the same without a few nodes at little cost.

Every suspect is compared with the median of all others, metric by metric: the nodes are nearly the
same each time, so the values around the middle are sorted once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints

FEW = 32  # nodes that can be left out


def medians(values: Floats | Floats32) -> Floats:
    """Median of each column over its known values; NaN if there are none."""
    columns = np.ascontiguousarray(values.T)
    counts = np.isfinite(columns).sum(axis=1)
    middles = np.full(len(columns), np.nan)
    for count in np.unique(counts[counts > 0]).tolist():
        alike = np.flatnonzero(counts == count)  # NaN comes last in order
        low, high = (count - 1) // 2, count // 2
        ordered = np.partition(columns[alike], (low, high), axis=1)
        middles[alike] = (ordered[:, low].astype(np.float64) + ordered[:, high]) / 2
    return middles


@dataclass(frozen=True, kw_only=True, eq=False)
class Middle:
    """The values of some `rows` that are nearest to the median at each time, sorted."""

    values: Floats32  # all rows x times
    rows: Ints
    band: Floats32  # times x ranks; infinite beyond the last known value
    start: Ints  # rank of the first of the band, at each time
    counts: Ints  # known values at each time

    @classmethod
    def from_rows(cls, values: Floats32, rows: Ints) -> Middle:
        columns = np.ascontiguousarray(values[rows].T)
        counts = np.isfinite(columns).sum(axis=1)
        start = np.maximum(counts // 2 - FEW - 1, 0)
        band = np.full((len(columns), min(len(rows), 2 * FEW + 2)), np.inf, dtype=np.float32)
        for count in np.unique(counts[counts > 0]).tolist():
            alike = np.flatnonzero(counts == count)  # NaN comes last in order
            first = max(count // 2 - FEW - 1, 0)
            end = min(first + band.shape[1], count)
            ordered = np.partition(columns[alike], (first, end - 1), axis=1)[:, first:end]
            band[alike, : end - first] = np.sort(ordered, axis=1)
        return cls(values=values, rows=rows, band=band, start=start, counts=counts)

    def excluded_rows(self, rows: Ints) -> Ints | None:
        """Rows that are in this band and not in `rows`. None: `rows` has others, or far fewer."""
        few = len(self.rows) - len(rows)
        if not 0 <= few <= FEW:
            return None
        left = np.setdiff1d(self.rows, rows, assume_unique=True)
        return left if len(left) == few else None

    def medians_without(self, left_out: Ints) -> Floats:
        """Medians of all other rows. Of equal values any one may be taken out."""
        band, start, counts = self.band.copy(), self.start.copy(), self.counts.copy()
        times = np.arange(len(band))
        for row in left_out.tolist():
            value = self.values[row]
            finite = np.isfinite(value)
            at = (band == value[:, None]).argmax(axis=1)
            inside = finite & (band[times, at] == value)
            band[times[inside], at[inside]] = np.inf
            counts -= finite
            start -= finite & ~inside & (value <= self.band[:, 0])
        band.sort(axis=1)
        some = counts > 0
        low, high = (
            band[times, np.where(some, rank - start, 0)].astype(np.float64)
            for rank in ((counts - 1) // 2, counts // 2)
        )
        return np.where(some, (low + high) / 2, np.nan)
