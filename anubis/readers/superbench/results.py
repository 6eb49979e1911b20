"""results-summary.jsonl and baseline.json into plain values: strict, nothing interpreted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anubis.core.errors import UsageError
from anubis.text.files import json_value, read_text

LONGEST = 60  # characters of a foreign value or name in a sentence


@dataclass(frozen=True)
class NodeResults:
    """The line of one node, with its metrics as written, numbers or not."""

    node: str
    values: Mapping[str, object]


def read_results(path: Path) -> tuple[NodeResults, ...]:
    return parse_results(_text(path), f'"{path}"')


def read_baseline(path: Path) -> dict[str, object]:
    return parse_baseline(_text(path), f'"{path}"')


def parse_results(text: str, where: str) -> tuple[NodeResults, ...]:
    rows: dict[str, NodeResults] = {}
    seen: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):  # not at every Unicode line end
        if not line.strip():
            continue
        here = f"{where}, line {number}"
        if line.strip() == "{":
            raise UsageError(
                f"{here}: a JSON document over several lines, expected one node per line; a "
                "baseline.json is read by anubis history import superbench-baseline"
            )
        row = _row(_object(line, here), here)
        if row.node in rows:
            raise UsageError(
                f'{here}: node "{row.node}" is already on line {seen[row.node]}: one line per '
                "node; import the results of each run separately"
            )
        rows[row.node], seen[row.node] = row, number
    if not rows:
        raise UsageError(f"{where}: no results in it, expected a JSON object per node")
    return tuple(rows.values())


def parse_baseline(text: str, where: str) -> dict[str, object]:
    baseline = _object(text, where)
    if "node" in baseline or not baseline:
        content = "one node's results" if baseline else "empty"
        raise UsageError(f"{where}: {content}, expected a baseline: metric names with their means")
    return baseline


def number(value: object) -> float | None:
    """Return a finite number, or None for anything else, true and false included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def comparable(value: object) -> float | None:
    """Return a finite number above 0, or None."""
    finite = number(value)
    return finite if finite is not None and finite > 0 else None


def describe_value(value: object) -> str:
    """Describe a foreign value in a sentence."""
    match value:
        case str():
            return f'the text "{cut(value)}"'
        case list():
            return "a list"
        case dict():
            return "a table"
        case float() | int() if not isinstance(value, bool):
            return f"{value:g}" if number(value) is not None else cut(str(value))
        case _:
            return json.dumps(value, default=str)


def cut(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST else f"{plain[:LONGEST]}..."


def _text(path: Path) -> str:
    if {".csv", ".tsv"} & set(path.suffixes):
        raise UsageError(
            f'"{path}" is a table, expected JSON as SuperBench writes it: anubis history import '
            "csv reads tables of any tool"
        )
    return read_text(path, UsageError)


def _object(text: str, where: str) -> dict[str, object]:
    try:
        document = json_value(text, _unique)
    except json.JSONDecodeError as error:
        at = f"{error.msg} at character {error.pos + 1}"
        raise UsageError(f"{where}: not a complete JSON object ({at}); was it cut off?") from None
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{where}: expected a JSON object, found {describe_value(document)}")
    return document


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" is written twice: keep the one you mean')
    return table


def _row(document: dict[str, object], here: str) -> NodeResults:
    node = document.pop("node", None)
    if not isinstance(node, str) or not node.strip():
        problem = "it is missing" if node is None else f"found {describe_value(node)}"
        raise UsageError(f'{here}: "node" must be the name of a node, {problem}')
    return NodeResults(node, document)
