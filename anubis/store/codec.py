"""Records to JSON documents and back, samples to bytes and back; both ways lose no bit.

It follows the type annotations of the records, so a new field is kept without a change here. If an
older document lacks a field, its default is filled in. It knows no SQL.
"""

from __future__ import annotations

import json
import math
import types
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from anubis.core.records import Samples, canonical

T = TypeVar("T")
Packing = Literal["raw", "zlib"]

WORTH_TRYING_BYTES = 1024  # what is shorter hardly shrinks
WORTH_KEEPING = 0.75  # a reader pays for unpacking, so a few percent are no gain


def dump(value: object) -> str:
    return canonical(document(value))


def load(kind: type[T], text: str) -> T:
    """Return the record in a text, as the inverse of `dump`; a text that does not fit `kind` is a
    ValueError or TypeError."""
    return restore(kind, json.loads(text))


def restore(kind: type[T], document: object) -> T:
    """Return the value of a document, as the inverse of `document`."""
    restored: T = _reader(cast(Any, kind))(document)
    return restored


def document(value: object) -> object:
    """Return plain JSON values. JSON has no NaN and no infinity, so these become words."""
    if isinstance(value, str):  # most of them are
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, np.ndarray):
        return [document(number) for number in value.tolist()]
    if isinstance(value, tuple | list):
        return [document(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {key: document(item) for key, item in value.items()}
    if is_dataclass(value):
        return {field.name: document(getattr(value, field.name)) for field in fields(value)}
    return value


def identity(value: Any) -> Any:
    return value


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Build the way from a document back to a value of that kind, once for each kind."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _record_reader(kind)
    if kind is float:
        return float
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind
    if origin is np.ndarray:
        return lambda numbers: np.array([float(number) for number in numbers], dtype=np.float64)
    if origin is frozenset:
        return frozenset
    if origin is tuple:
        read = _reader(arguments[0])
        return lambda items: tuple(read(item) for item in items)
    if origin is Mapping:
        read_value = _reader(arguments[1])
        return lambda table: {key: read_value(value) for key, value in table.items()}
    if origin in (Union, types.UnionType) and type(None) in arguments and len(arguments) == 2:
        read_some = _reader(next(item for item in arguments if item is not type(None)))
        return lambda item: None if item is None else read_some(item)
    return identity


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}

    def read(values: Any) -> Any:
        unknown = values.keys() - readers.keys()
        if unknown:
            raise ValueError(f'{kind.__name__} has no field "{min(unknown)}"')
        return kind(**{name: readers[name](item) for name, item in values.items()})

    return read


def pack(samples: Samples) -> tuple[Packing, bytes]:
    """Encode samples as little-endian float64, compressed only if that pays."""
    raw = np.ascontiguousarray(samples, dtype="<f8").tobytes()
    if len(raw) >= WORTH_TRYING_BYTES:
        squeezed = zlib.compress(raw, level=1)
        if len(squeezed) < WORTH_KEEPING * len(raw):
            return "zlib", squeezed
    return "raw", raw


def unpack(packing: str, data: bytes) -> Samples:
    raw = zlib.decompress(data) if packing == "zlib" else data
    return np.frombuffer(raw, dtype="<f8").astype(np.float64)
