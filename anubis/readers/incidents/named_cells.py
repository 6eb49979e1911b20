"""Files of any common form as records of named cells: CSV, JSON, JSON Lines; also gzipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anubis.core.errors import UsageError
from anubis.text.files import decode, json_value, read_bytes
from anubis.text.tables import parse_table

KEY = "key"  # the column for the key under which a list of records stands


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    where: str  # "line 12"
    cells: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class SourceRecords:
    columns: tuple[str, ...]
    rows: tuple[SourceRecord, ...]
    unreadable: tuple[str, ...] = ()  # where


def read(path: Path) -> SourceRecords:
    return parse(decode(read_bytes(path, UsageError)), f'"{path}"')


def parse(text: str, where: str) -> SourceRecords:
    if not text.strip():
        raise UsageError(f"{where} is empty: expected CSV with a heading, JSON or JSON Lines")
    return _parse_json(text, where) if text.lstrip()[0] in "[{" else _parse_table(text, where)


def _parse_table(text: str, where: str) -> SourceRecords:
    table = parse_table(text, where, UsageError)
    table.refuse_doubled()
    rows = [
        SourceRecord(
            where=f"line {table.line}",
            cells=dict(zip(table.heading, (cell.strip() for cell in row), strict=False)),
        )
        for row in table
    ]
    return SourceRecords(columns=table.heading, rows=tuple(rows))


def _parse_json(text: str, where: str) -> SourceRecords:
    try:
        tables = enumerate(_flat(json_value(text), {}), start=1)
        rows = [SourceRecord(where=f"record {n}", cells=cells) for n, cells in tables]
        unreadable: list[str] = []
    except json.JSONDecodeError as error:
        rows, unreadable = _parse_lines(text)
        if not rows:
            raise UsageError(f"{where} is no JSON: {error}; was it cut off?") from None
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    columns = dict.fromkeys(name for row in rows for name in row.cells)
    return SourceRecords(columns=tuple(columns), rows=tuple(rows), unreadable=tuple(unreadable))


def _parse_lines(text: str) -> tuple[list[SourceRecord], list[str]]:
    rows, unreadable = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                for cells in _flat(json_value(line), {}):
                    rows.append(SourceRecord(where=f"line {number}", cells=cells))
            except ValueError:
                unreadable.append(f"line {number}")
    return rows, unreadable


def _flat(value: object, above: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield a record for each innermost table, with the cells beside the lists that hold it."""
    if isinstance(value, list):
        for element in value:
            yield from _flat(element, above)
        return
    if not isinstance(value, dict):
        yield above  # it has none of the columns, and is counted
        return
    lists = {key: member for key, member in value.items() if _holds_tables(member)}
    own = above | dict(_cells({k: v for k, v in value.items() if k not in lists}, ""))
    if not lists:
        yield own
    for key, tables in lists.items():
        yield from _flat(tables, own | {KEY: key})


def _holds_tables(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(element, dict) for element in value)


def _cells(table: dict[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _cells(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            yield f"{prefix}{key}", value.strip()
        else:
            yield f"{prefix}{key}", "" if value is None else json.dumps(value)
