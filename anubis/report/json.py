"""Write answers as lines of JSON. An answer is a dataclass, or several whose fields stand side by
side; `schemas` makes the JSON Schema of a line from the same classes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

# of lines whose changes a reader must know about; of all others 1
VERSIONS: dict[str, int] = {
    "benchmark": 4,
    "choice": 2,
    "criterion": 2,
    "diagnosed": 2,
    "diagnosis": 5,
    "fact": 5,
    "history": 2,
    "periodic-task": 2,
    "risk": 2,
    "run": 2,
    "score": 2,
    "suspicion": 2,
    "watch": 2,
}
PLAIN = {str, int, bool, type(None)}  # what JSON has as well
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class NoField(Enum):
    """The value of a field that a line does not have."""

    ABSENT = "absent"


ABSENT = NoField.ABSENT


def may_be_absent() -> Any:
    """Return the default of a field that only some lines of a type have."""
    return field(default=ABSENT)


def schema_name(kind: str) -> str:
    return f"anubis.{kind}/{VERSIONS.get(kind, 1)}"


def json_line(kind: str, *parts: object) -> str:
    """Return a line of JSON Lines with its type, its schema and the fields of all parts."""
    document = {"type": kind, "schema": schema_name(kind)}
    for part in parts:
        document |= json_fields(part)
    return ENCODER.encode(document)


def json_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record as values of JSON."""
    if isinstance(record, Mapping):
        return {name: json_value(value) for name, value in record.items()}
    return {
        name: value if type(value) in PLAIN else json_value(value)
        for attribute, name in _names(record.__class__)
        if (value := getattr(record, attribute)) is not ABSENT
    }


def json_value(value: Any) -> Any:
    """Return `null` for what JSON cannot write: infinite, and not a number."""
    match value:
        case str() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [json_value(inner) for inner in value]
        case Mapping():
            return {name: json_value(inner) for name, inner in value.items()}
    return json_fields(value) if is_dataclass(value) else value


@cache
def _names(record: type[Any]) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a record with their names in JSON."""
    return tuple((field.name, json_name(field.name)) for field in fields(record))


def json_name(attribute: str) -> str:
    """Return `from` for `from_`, which Python does not take for a name."""
    return attribute.removesuffix("_")
