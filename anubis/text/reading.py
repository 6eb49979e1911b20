"""Read documents from outside (YAML, JSON) strictly into the frozen records of core."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from anubis.core.errors import AnubisError, did_you_mean
from anubis.core.text import escape_line
from anubis.text.files import MOST_YAML, parse_yaml, read_text

Shape = TypeVar("Shape")
SHOWN = 200  # letters of a text that was found
LONGEST = 800  # of a sentence
REMEMBERED = 1 << 16  # letters of a file, as of policies


def read(document: object, record: type[Shape], where: str, error: type[AnubisError]) -> Shape:
    """A document as `record`; raises `error` about the first thing that is wrong."""
    from pydantic import ValidationError

    try:
        text = json.dumps(document, allow_nan=False, default=_refuse)
    except (TypeError, ValueError, RecursionError) as cause:
        raise error(f"{where}: {cause}; expected plain numbers, texts, lists and tables") from None
    try:
        validated = _adapter(cast(Any, record)).validate_json(text)
    except ValidationError as cause:
        sentence = escape_line(_sentence(_first(cause.errors(include_url=False)), record))
        raise error(f"{where}: {sentence[:LONGEST]}") from None
    # pydantic makes a subclass, which never equals a record that was made without pydantic
    fields = [field.name for field in dataclasses.fields(record)]  # type: ignore[arg-type]
    return record(**{name: getattr(validated, name) for name in fields})


def _refuse(value: object) -> None:
    """Refuse values that JSON lacks, such as the date that YAML makes of `2026-11-20`."""
    raise TypeError(f'found the {type(value).__name__} "{value}" (a text needs quotes)')


def load_record(path: Path, record: type[Shape], error: type[AnubisError]) -> Shape:
    """The record in a YAML file."""
    text = read_text(path, error, limit=MOST_YAML)
    parse = _parse_once if len(text) < REMEMBERED else _parse_once.__wrapped__
    kinds: Any = record, error
    loaded: Shape = parse(text, f'"{path}"', *kinds)
    return loaded


@lru_cache(maxsize=64)
def _parse_once(text: str, where: str, record: Any, error: Any) -> Any:
    """Parse a short text. Each verb and each turn of the keeper reads the same policies again."""
    return read(_parse_table(text, where, error), record, where, error)


def load_yaml(path: Path, error: type[AnubisError]) -> dict[str, object]:
    """The table in a YAML file; nothing in it is ever executed."""
    return _parse_table(read_text(path, error, limit=MOST_YAML), f'"{path}"', error)


def _parse_table(text: str, where: str, error: type[AnubisError]) -> dict[str, object]:
    document = parse_yaml(text, where, error)
    if not isinstance(document, dict):
        raise error(f'{where}: expected a table of "key: value" lines, found {kind_of(document)}')
    return document


@cache
def _adapter(record: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.dataclasses import dataclass as validated

    strict = ConfigDict(extra="forbid", strict=True)
    return TypeAdapter(validated(record, config=strict, frozen=True, kw_only=True))


def _first(problems: Sequence[Any]) -> Any:
    """An unknown key before a missing one: it shows a mistyped name, or a file of another kind."""
    return min(problems, key=lambda problem: problem["type"] != "unexpected_keyword_argument")


def _sentence(problem: Any, record: type[Any]) -> str:
    """Say one of pydantic's findings in the words that Anubis uses."""
    *path, last = problem["loc"] or ("",)
    if last in SCALARS:  # which of a parameter's possible types pydantic tried first
        return f"{_place(path)}: expected a number, a text or true or false, found " + kind_of(
            problem["input"]
        )
    place = _place(problem["loc"])
    match problem["type"]:
        case "unexpected_keyword_argument":
            inside = f" in {_place(path)}" if path else ""
            return f'unknown key "{last}"{inside}; {did_you_mean(str(last), _keys(record, path))}'
        case "missing" | "missing_keyword_only_argument":
            return f'the key "{last}" is missing' + (f" in {_place(path)}" if path else "")
        case "value_error":
            reason = problem["ctx"]["error"]
            return f"{place}: {reason}" if place else str(reason)
        case _:
            expected = problem["msg"].removeprefix("Input should be ")
            expected = EXPECTED.get(expected, expected)
            return f"{place}: expected {expected}, found {kind_of(problem['input'])}"


SCALARS = {"int", "float", "str", "bool"}
EXPECTED = {
    "a valid array": "a list",
    "an object": "a table",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a text",
    "a valid boolean": "true or false",
}


def _place(path: Sequence[int | str]) -> str:
    """Place in a document, as `"benchmarks", entry 1, "repeats"`: people count from one."""
    return ", ".join(f"entry {p + 1}" if isinstance(p, int) else f'"{p}"' for p in path)


def kind_of(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "a table"
        case list():
            return "a list"
        case str():
            shown = escape_line(value)
            return f'the text "{shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"}"'
        case _:
            return json.dumps(value, default=repr)


def _keys(record: type[Any], path: list[int | str]) -> list[str]:
    """Keys that a record allows at a place; follows field names, keys of tables and list positions
    down."""
    kind: Any = record
    for part in path:
        if isinstance(part, str) and dataclasses.is_dataclass(kind):
            kind = typing.get_type_hints(kind).get(part)
        else:
            kind = next(iter(typing.get_args(kind)[-1 if isinstance(part, str) else 0 :]), None)
        kind = _record_in(kind)
    return [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def _record_in(kind: Any) -> Any:
    """Return the record among the types of a value that may be left out."""
    if not isinstance(kind, types.UnionType):
        return kind
    return next(filter(dataclasses.is_dataclass, typing.get_args(kind)), kind)
