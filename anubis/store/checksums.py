"""Sums over the cells of a row, kept in a column beside them: a row that was damaged since is
refused, and never judged.

The upper half of a checksum is about the short cells of a row, the lower half about the long ones,
such as samples or a plan: a list of thousands reads only the short ones. CRC-32 finds every burst
of up to 32 wrong bits and misses one in four billion others. It is no seal against forgers, which
would cost five times as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from struct import pack, unpack
from typing import Any, cast
from zlib import crc32

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

BETWEEN = "\x1f"  # the cells
FACTORS = (  # any odd numbers without a pattern
    0x9E3779B97F4A7C15,
    0xBF58476D1CE4E5B9,
    0x94D049BB133111EB,
    0xD6E8FEB86659FD93,
)
MASK = 0x7FFFFFFF  # of the upper half: the whole stays positive in 64 bits

RowCells = Sequence[Any]


class Damage(Exception):
    """A sentence that says what is damaged: a row that does not match its checksum, a shared value
    that does not match its digest, or rows that are gone."""

    def __init__(self, sentence: str, *, only_long: bool = False) -> None:
        super().__init__(sentence)
        self.only_long = only_long  # the short cells of the row are as they were written


class Checksum:
    """The checksum of the rows of one table."""

    def __init__(self, short: Sequence[sa.Column[Any]], long: Sequence[sa.Column[Any]]) -> None:
        self.column = sa.Column("checksum", sa.BigInteger, nullable=False)
        self.short = tuple(short)
        self.long = tuple(long)

    def compute(self, row: dict[str, Any]) -> int:
        """Return the checksum of a row; cells that the row lacks will be NULL."""
        short = [_as_kept(column, row.get(column.name)) for column in self.short]
        return self._sum(short) << 32 | _long([row.get(column.name) for column in self.long])

    def renew(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row whose short cells were changed, with its new checksum."""
        short = [_as_kept(column, row[column.name]) for column in self.short]
        return row | {"checksum": self._sum(short) << 32 | row["checksum"] & 0xFFFFFFFF}

    def fits(self, checksum: int | None, short: RowCells, long: RowCells) -> bool:
        return self.fits_short(checksum, short) and fits_long(checksum, long)

    def fits_short(self, checksum: int | None, cells: RowCells) -> bool:
        if checksum is None:  # a damaged page may say so
            return False
        try:
            if checksum >> 32 == self._sum(cells):
                return True
            # databases differ in what they make of -0.0 and of what is no number
            pairs = zip(self.short, cells, strict=True)
            return checksum >> 32 == self._sum([_as_kept(column, cell) for column, cell in pairs])
        except (TypeError, ValueError):  # a damaged cell may be of another type
            return False

    def _sum(self, short: RowCells) -> int:
        return crc32(BETWEEN.join(map(str, short)).encode(errors="surrogatepass")) & MASK


class ColumnChecksum(Checksum):
    """The checksum of rows of texts and times that are read by the ten thousand. It is computed a
    column at a time, in a tenth of the time: each cell is a number of 64 bits, which a factor of
    its column spreads over the upper half of the sum."""

    def fit(self, checksums: Sequence[int | None], columns: Sequence[RowCells]) -> bool:
        total = np.zeros(len(checksums), np.uint64)
        try:
            for column, cells, factor in zip(self.short, columns, FACTORS, strict=False):
                is_time = isinstance(column.type, sa.Double)
                total += (_times(cells) if is_time else _texts(cells)) * np.uint64(factor)
        except (TypeError, ValueError):  # a damaged cell may be of another type
            return False
        sums = ((total >> np.uint64(33)) << np.uint64(32)).tolist()
        return bool(list(checksums) == sums)

    def _sum(self, short: RowCells) -> int:
        """Compute the same sum without arrays, for single rows."""
        total = 0
        for column, cell, factor in zip(self.short, short, FACTORS, strict=False):
            is_time = isinstance(column.type, sa.Double)
            total += (_time(cell) if is_time else _text(cell)) * factor
        return (total & 0xFFFFFFFFFFFFFFFF) >> 33


def _times(cells: RowCells) -> npt.NDArray[np.uint64]:
    """Return the bits of times; NULL becomes NaN, and -0.0 becomes 0."""
    return (np.array(cells, np.float64) + 0.0).view(np.uint64)


def _time(cell: float | None) -> int:
    (number,) = unpack("<Q", pack("<d", nan if cell is None else cell + 0.0))
    return int(number)


def _texts(cells: RowCells) -> npt.NDArray[np.uint64]:
    by_cell = {cell: _text(cell) for cell in set(cells)}
    return np.fromiter(map(by_cell.__getitem__, cells), np.uint64, len(cells))


def _text(cell: object) -> int:
    if not isinstance(
        cell, str
    ):  # NULL would pass for the text "None", and a number for its digits
        raise TypeError(f"{cell!r} is no text")
    return crc32(cell.encode(errors="surrogatepass"))


def fits_long(checksum: int | None, cells: RowCells) -> bool:
    return checksum is not None and checksum & 0xFFFFFFFF == _long(cells)


def _long(cells: RowCells) -> int:
    total = 0
    for cell in cells:
        if cell is not None:
            total = crc32(cell if isinstance(cell, bytes) else str(cell).encode(), total)
    return total


def _as_kept(column: sa.Column[Any], cell: Any) -> Any:
    """Return the value that a database gives back for the one that it is given."""
    if cell is None:
        return None
    if isinstance(column.type, sa.Double):
        return None if cell != cell else float(cell) + 0.0
    if isinstance(column.type, sa.TypeDecorator):
        return cast(Any, column.type).process_bind_param(cell, None)
    if isinstance(column.type, sa.Boolean):
        return bool(cell)
    return cell
