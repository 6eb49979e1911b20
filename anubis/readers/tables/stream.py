"""A table as a stream of rows, so that its length costs no memory: CSV with any common separator
and encoding, gzipped or not."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from anubis.core.errors import UsageError
from anubis.readers.topology.text import SAMPLED, encoding_of
from anubis.text.files import GZIPPED, Bounded

SEPARATORS = ",;\t|"
CHUNK = 1 << 16


class TableStream:
    """The heading of a table, and its rows, which can be read once."""

    def __init__(self, text: io.TextIOWrapper, where: str) -> None:
        first, self._before = _first_line(text, where)
        separator = max(SEPARATORS, key=first.count)
        lines = chain([first], text)
        self._reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        self.heading = tuple(cell.strip() for cell in next(self._reader))
        self.where = where

    def __iter__(self) -> Iterator[list[str]]:
        return self._reader

    @property
    def line(self) -> int:
        """Number of the line that was read last."""
        return self._before + self._reader.line_num


@contextmanager
def open_table(path: Path) -> Iterator[TableStream]:
    """Open a table; whatever cannot be read while the block runs is one error."""
    where, stream = f'"{path}"', None
    try:
        with path.open("rb") as file:
            begins = file.read(2)
            file.seek(0)
            unpacking = gzip.GzipFile(fileobj=file) if begins == GZIPPED else file
            source = io.BufferedReader(Bounded(unpacking, file, where, UsageError), CHUNK)
            encoding = encoding_of(source.peek(SAMPLED)[:SAMPLED])
            with io.TextIOWrapper(source, encoding, errors="replace", newline="") as text:
                stream = TableStream(text, where)
                yield stream
    except csv.Error as error:
        line = stream.line if stream else 1
        raise UsageError(f"{where}, line {line}: {error}; is a quote left open?") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not a complete gzip file"
        raise UsageError(f"cannot read {where}: {reason}") from None


def _first_line(text: io.TextIOWrapper, where: str) -> tuple[str, int]:
    """Return the first line that is not empty, and how many are before it."""
    for number, line in enumerate(text):
        if line.strip():
            if line.lstrip()[0] in "[{":
                raise UsageError(
                    f"{where} is JSON, expected a table with a heading; SuperBench's results are "
                    "read by anubis import superbench"
                )
            return line, number
    raise UsageError(f"{where} is empty, expected a table with a heading")
