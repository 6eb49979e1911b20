"""Tables from outside: the one reader of their separators, headings, quotes, encodings and limits.

What the columns mean is each reader's own. A cell that a reader cannot use is an error that names
the file, the line, the column, what was found and what was expected.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from anubis.core.errors import AnubisError, UsageError, did_you_mean
from anubis.core.text import escape_line
from anubis.text.files import SAMPLED, ErrorType, encoding_of, open_unpacked, refuse_unreadable
from anubis.text.wording import quantity

SEPARATORS = ",;\t|"
SHOWN = 40  # characters of a foreign cell in a sentence
HINTED = 20  # headings that "did you mean" looks at
UNDECODED = "\ufffd"  # stands for bytes that are not in the encoding of the file
_BINARY = re.compile(r"[\x01-\x08\x0e-\x1f]")  # what no heading has, in any encoding
_PLACE = re.compile(r"\{([^{}]+)\}")

Cells = Mapping[str, str]


class Table:
    """The heading of a table, and its rows, which can be read once. Empty rows are passed over."""

    def __init__(
        self,
        lines: Iterable[str],
        where: str,
        error: ErrorType,
        *,
        most_lines: float = math.inf,
        otherwise: str = "",
    ) -> None:
        """`otherwise`: what to do with a file that is JSON."""
        self.where, self._error, self._most_lines = where, error, most_lines
        lines = iter(lines)
        first, self._before = self._first_line(lines, otherwise)
        self.separator = separator_of(first) or ","
        self._reader = csv.reader(
            chain([first], lines), delimiter=self.separator, skipinitialspace=True
        )
        with self._quoted():
            self.heading = tuple(cell.strip() for cell in next(self._reader))
        self._places: dict[str, int] = {}

    def __iter__(self) -> Iterator[list[str]]:
        last = self._most_lines - self._before
        with self._quoted():
            for row in self._reader:
                if self._reader.line_num > last:
                    raise self._error(
                        f"{self.at}: at most {self._most_lines:,} lines are read: split the file"
                    )
                if any(row):
                    yield row

    @property
    def line(self) -> int:
        """Number of the line that was read last."""
        return self._before + self._reader.line_num

    @property
    def at(self) -> str:
        return f"{self.where}, line {self.line}"

    def require(self, *names: str, columns: Sequence[str] = ()) -> None:
        """Refuse the table if it lacks a column; `columns`: all that its reader knows."""
        for name in names:
            if name not in self:
                hint = _hint(name, [text[:SHOWN] for text in self.heading[:HINTED]])
                raise self._error(
                    f'{self.where} has no column "{name}", expected a heading such as '
                    f"{','.join(columns or names)}; {hint}"
                )

    def __contains__(self, name: str) -> bool:
        if name not in self._places:
            self._places[name] = self._find(name)
        return self._places[name] >= 0

    def cell(self, row: Sequence[str], name: str) -> str:
        """Return the cell of a column; empty if the table or the row has none."""
        if name not in self or self._places[name] >= len(row):
            return ""
        return row[self._places[name]].strip()

    def name(self, row: Sequence[str], name: str) -> str:
        """Return a cell that names something."""
        text = self.cell(row, name)
        if not text or UNDECODED in text:
            raise self.wrong(name, text, "a name in UTF-8" if text else "a name")
        return text

    def whole(self, row: Sequence[str], name: str, below: int = 10**9) -> int:
        text = self.cell(row, name)
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < below):
            raise self.wrong(name, text, f"a whole number from 0 to {below - 1:,}")
        return int(text)

    def seconds(self, row: Sequence[str], name: str) -> float:
        text = self.cell(row, name)
        number = parse_number(text)
        if not 0 <= number < 1e12:
            raise self.wrong(name, text, "seconds")
        return number

    def wrong(self, name: str, text: str, expected: str) -> AnubisError:
        """Return the error about a cell of the row that was read last."""
        shown = escape_line(text[:SHOWN])
        return self._error(f'{self.at}: {name} is "{shown}", expected {expected}')

    def misfit(self, row: Sequence[str]) -> str:
        """Say that a row has too few cells, or too many; empty if it fits the heading."""
        width = len(self.heading)
        if len(row) >= width and not any(row[width:]):
            return ""
        return f"{quantity(len(row), 'cell')}, expected {width} as in the heading"

    def refuse_doubled(self) -> None:
        """Refuse a heading that has a name twice, for a reader of all columns."""
        for name in filter(None, self.heading):
            self._refuse_doubled(name)

    def _refuse_doubled(self, name: str) -> None:
        if self.heading.count(name) > 1:
            raise self._error(f'{self.where} has two columns "{name}": rename one of them')

    def _find(self, name: str) -> int:
        spelled = own_column(self.heading, name)
        if spelled:
            self._refuse_doubled(spelled)
        return self.heading.index(spelled) if spelled else -1

    def _first_line(self, lines: Iterator[str], otherwise: str) -> tuple[str, int]:
        """Return the first line that is not empty, and how many are before it."""
        for number, line in enumerate(lines):
            if text := line.strip("\ufeff \t\r\n\v\f"):
                if text[0] in "[{":
                    raise self._error(
                        f"{self.where} is JSON, expected a table with a heading{otherwise}"
                    )
                if _BINARY.search(text):
                    raise self._error(f"{self.where} is no text, expected a table with a heading")
                return line.lstrip("\ufeff"), number
        raise self._error(f"{self.where} is empty, expected a table with a heading")

    @contextmanager
    def _quoted(self) -> Iterator[None]:
        try:
            yield
        except csv.Error as error:
            raise self._error(f"{self.at}: {error}; is a quote left open?") from None


@contextmanager
def open_table(
    path: Path, error: ErrorType, *, most_lines: float = math.inf, otherwise: str = ""
) -> Iterator[Table]:
    """Open a table as a stream, gzipped or not, so that its length costs no memory; whatever cannot
    be read while the block runs is one error."""
    where = f'"{path}"'
    with refuse_unreadable(where, error), path.open("rb") as file:
        source = open_unpacked(file, where, error)
        encoding = encoding_of(source.peek(SAMPLED)[:SAMPLED])
        with io.TextIOWrapper(source, encoding, errors="replace", newline="") as text:
            yield Table(text, where, error, most_lines=most_lines, otherwise=otherwise)


def parse_table(text: str, where: str, error: ErrorType, *, most_lines: float = math.inf) -> Table:
    return Table(io.StringIO(text, newline=""), where, error, most_lines=most_lines)


def separator_of(line: str) -> str:
    """Return the separator that a line has most of; empty if it has none."""
    separator = max(SEPARATORS, key=line.count)
    return separator if separator in line else ""


def split_line(line: str, separator: str) -> list[str]:
    """Return the cells of one line; a line whose quotes do not end is one cell."""
    try:
        (cells,) = csv.reader([line], delimiter=separator, skipinitialspace=True)
    except (csv.Error, ValueError):
        return [line.strip()]
    return [cell.strip() for cell in cells]


def parse_number(text: str) -> float:
    """Return the number; NaN if the text is none, or an infinite one. Python also takes `1_00` and
    digits of other scripts, which a table has by accident only."""
    if "_" in text or not text.isascii():
        return math.nan
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


# --- which column is meant -------------------------------------------------------------------


def own_column(heading: Sequence[str], name: str) -> str:
    """Return the heading that is this name, in any case of its letters if only one is; else
    nothing."""
    if name in heading:
        return name
    alike = [text for text in heading if text.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else ""


def choose_columns(
    columns: Mapping[str, str], keys: Sequence[str], heading: Sequence[str], where: str
) -> dict[str, str]:
    """Return for each key its column: the mapped one, or that of its own name; empty if neither."""
    chosen = {key: columns.get(key) or own_column(heading, key) for key in keys}
    for key, text in chosen.items():
        refuse_absent(key, text, heading, where)
    return chosen


def refuse_absent(
    key: str, text: str, heading: Sequence[str], where: str, advice: str = ""
) -> None:
    """Refuse a mapping to columns that the table does not have, or has twice."""
    for name in columns_in(text):
        if name not in heading:
            raise UsageError(
                f'{where} has no column "{name}", which the mapping names as "{key}"; '
                + _hint(name, heading)
                + advice
            )
        if heading.count(name) > 1:
            raise UsageError(f'{where} has two columns "{name}": rename one of them')


def _hint(name: str, heading: Sequence[str]) -> str:
    if any(UNDECODED in text for text in heading):
        return "its heading is not in UTF-8: save the table in that encoding"
    return did_you_mean(name, filter(None, heading))


def parse_columns(texts: Iterable[str]) -> dict[str, str]:
    """Parse columns as the command line writes them, `node=host`: by key a heading, or a text with
    headings."""
    columns: dict[str, str] = {}
    for text in texts:
        key, _, name = (part.strip() for part in text.partition("="))
        if not key or not name:
            raise UsageError(f'--map is "{text}", expected KEY=COLUMN such as node=host')
        if columns.setdefault(key, name) != name:
            raise UsageError(f'--map has two columns for "{key}": name one of them')
    return columns


def check_keys(columns: Iterable[str], keys: Sequence[str]) -> None:
    for key in columns:
        if key not in keys:
            raise UsageError(f'--map: unknown key "{key}"; {did_you_mean(key, keys)}')


def columns_in(text: str) -> list[str]:
    """Return the column that a text names, or those in its braces."""
    return _PLACE.findall(text) or ([text] if text else [])


def fill(text: str, cells: Cells) -> str:
    """Return a column's cell, or the text with cells in it; empty if one of its columns is."""
    if not _PLACE.search(text):
        return cells.get(text, "")
    if not all(cells.get(name) for name in columns_in(text)):
        return ""
    return _PLACE.sub(lambda place: cells[place[1]], text)
