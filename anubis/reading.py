"""Documents from outside (YAML, JSON) into the frozen records of core: strict, and helpful."""

from __future__ import annotations

import dataclasses
import json
import typing
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from anubis.core.errors import AnubisError, did_you_mean

Record = TypeVar("Record")


def read(document: object, record: type[Record], where: str, error: type[AnubisError]) -> Record:
    """A document as `record`; the first thing that is wrong with it as one `error`."""
    from pydantic import ValidationError

    try:
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as cause:
        raise error(f"{where}: only plain numbers, texts, lists and tables: {cause}") from None
    try:
        found: Record = _adapter(record).validate_json(text)
    except ValidationError as cause:
        raise error(f"{where}: {_sentence(cause.errors(include_url=False)[0], record)}") from None
    return found


def load_yaml(path: Path, error: type[AnubisError]) -> dict[str, object]:
    """The table in a YAML file; nothing in it is ever executed."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise error(f'cannot read "{path}": {cause}') from None
    try:
        document = yaml.load(text, Loader=_unique_key_loader())
    except yaml.YAMLError as cause:
        raise error(f'"{path}" is not valid YAML: {" ".join(str(cause).split())}') from None
    if not isinstance(document, dict):
        raise error(f'"{path}": expected a table of "key: value" lines, found {_kind(document)}')
    return document


@cache
def _unique_key_loader() -> type[Any]:
    """A safe loader that refuses a key written twice, which YAML silently takes the last of."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[object] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f'the key "{key}" stands twice', key_node.start_mark
                    )
                seen.add(key)
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

    return Loader


def _adapter(record: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.dataclasses import dataclass as validated

    strict = ConfigDict(extra="forbid", strict=True)
    return TypeAdapter(validated(record, config=strict, frozen=True, kw_only=True))


def _sentence(problem: Any, record: type[Any]) -> str:
    """One of pydantic's findings in the house's words."""
    *path, last = problem["loc"] or ("",)
    place = ".".join(str(part) for part in problem["loc"])
    match problem["type"]:
        case "unexpected_keyword_argument":
            known = _field_names(record, path)
            inside = f' in "{".".join(map(str, path))}"' if path else ""
            return f'unknown key "{last}"{inside}; {did_you_mean(str(last), known)}'
        case "missing" | "missing_keyword_only_argument":
            return f'"{place}" is missing'
        case "value_error":
            return (
                f'"{place}": {problem["ctx"]["error"]}' if place else str(problem["ctx"]["error"])
            )
        case _:
            expected = problem["msg"].removeprefix("Input should be ").removeprefix("a valid ")
            return f'"{place}": expected {expected}, found {_kind(problem["input"])}'


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else f'{type(value).__name__} "{value}"'


def _field_names(record: type[Any], path: list[int | str]) -> list[str]:
    """The keys a record has at a place: follow field names and list positions down."""
    kind: Any = record
    for part in path:
        if isinstance(part, int):
            kind = typing.get_args(kind)[0]
        elif dataclasses.is_dataclass(kind):
            kind = typing.get_type_hints(kind)[part]
    return [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
