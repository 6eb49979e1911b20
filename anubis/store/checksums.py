"""Sums over the cells of a row, kept in a column beside them: a row that was damaged since is
refused, and never judged.

The upper half of a checksum is about the short cells of a row, the lower half about the long ones,
such as samples or a plan: a list of thousands reads only the short ones. CRC-32 finds every burst
of up to 32 wrong bits and misses one in four billion others. It is no seal against forgers, and a
fifth of the price of one. NULL stands in rows that were written before there were checksums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from zlib import crc32

import sqlalchemy as sa

BETWEEN = "\x1f"  # the cells
MASK = 0x7FFFFFFF  # of the upper half: the whole stays positive in 64 bits

RowCells = Sequence[Any]


class Damage(Exception):
    """What is damaged, as a sentence: a row that does not match its checksum, a shared value that
    does not match its digest, or rows that are gone."""

    def __init__(self, sentence: str, *, only_long: bool = False) -> None:
        super().__init__(sentence)
        self.only_long = only_long  # the short cells of the row are as they were written


class Checksum:
    """Of the rows of one table."""

    def __init__(self, short: Sequence[sa.Column[Any]], long: Sequence[sa.Column[Any]]) -> None:
        self.column = sa.Column("checksum", sa.BigInteger)
        self.short = tuple(short)
        self.long = tuple(long)

    def of(self, row: dict[str, Any]) -> int:
        """Cells that the row lacks will be NULL."""
        short = [_as_kept(column, row.get(column.name)) for column in self.short]
        return _short(short) << 32 | _long([row.get(column.name) for column in self.long])

    def fits(self, checksum: int | None, short: RowCells, long: RowCells) -> bool:
        return self.fits_short(checksum, short) and fits_long(checksum, long)

    def fits_short(self, checksum: int | None, cells: RowCells) -> bool:
        if checksum is None:
            return True
        if not isinstance(checksum, int):
            return False
        if checksum >> 32 == _short(cells):
            return True
        # databases differ in what they make of -0.0 and of what is no number
        settled = [_as_kept(column, cell) for column, cell in zip(self.short, cells, strict=True)]
        return checksum >> 32 == _short(settled)


def fits_long(checksum: int | None, cells: RowCells) -> bool:
    return checksum is None or checksum & 0xFFFFFFFF == _long(cells)


def _short(cells: RowCells) -> int:
    return crc32(BETWEEN.join(map(str, cells)).encode(errors="surrogatepass")) & MASK


def _long(cells: RowCells) -> int:
    total = 0
    for cell in cells:
        if cell is not None:
            total = crc32(cell if isinstance(cell, bytes) else str(cell).encode(), total)
    return total


def _as_kept(column: sa.Column[Any], cell: Any) -> Any:
    """The value that a database gives back for the one that it is given."""
    if cell is None:
        return None
    if isinstance(column.type, sa.Double):
        return None if cell != cell else float(cell) + 0.0
    if isinstance(column.type, sa.TypeDecorator):
        return cast(Any, column.type).process_bind_param(cell, None)
    if isinstance(column.type, sa.Boolean):
        return bool(cell)
    return cell
