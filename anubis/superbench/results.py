"""results-summary.jsonl and baseline.json into plain values: strict, nothing interpreted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anubis.core.errors import UsageError

LONGEST = 60  # characters of a foreign value or name in a sentence


@dataclass(frozen=True)
class NodeResults:
    """One node's line: its metrics as they stand there, numbers or not."""

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
                "baseline.json is read by anubis import superbench-baseline"
            )
        row = _row(_object(line, here), here)
        if row.node in rows:
            raise UsageError(
                f'{here}: node "{row.node}" stands on line {seen[row.node]} already: one line per '
                "node; import the results of another run by themselves"
            )
        rows[row.node], seen[row.node] = row, number
    if not rows:
        raise UsageError(f"{where}: no results in it, expected a JSON object per node")
    return tuple(rows.values())


def parse_baseline(text: str, where: str) -> dict[str, object]:
    found = _object(text, where)
    if "node" in found or not found:
        what = "one node's results" if found else "empty"
        raise UsageError(f"{where}: {what}, expected a baseline: metric names with their means")
    return found


def number(value: object) -> float | None:
    """A finite number, or None for anything else. true is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def comparable(value: object) -> float | None:
    """What can be compared is a finite number above 0."""
    found = number(value)
    return found if found is not None and found > 0 else None


def shown(value: object) -> str:
    """A foreign value in a sentence."""
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
            return json.dumps(value)


def cut(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST else f"{plain[:LONGEST]}..."


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f'cannot read "{path}": {error.strerror}') from None
    except UnicodeDecodeError:
        raise UsageError(f'cannot read "{path}": it is no UTF-8 text; save it as UTF-8') from None


def _object(text: str, where: str) -> dict[str, object]:
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        at = f"{error.msg} at character {error.pos + 1}"
        raise UsageError(f"{where}: no whole JSON object ({at}); was it cut off?") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{where}: expected a JSON object, found {shown(found)}")
    return found


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" stands twice, and which one is meant cannot be told')
    return found


def _row(document: dict[str, object], here: str) -> NodeResults:
    node = document.pop("node", None)
    if not isinstance(node, str) or not node.strip():
        found = "it is missing" if node is None else f"found {shown(node)}"
        raise UsageError(f'{here}: "node" must be the name of a node, {found}')
    return NodeResults(node, document)
