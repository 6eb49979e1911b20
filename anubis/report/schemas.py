"""JSON Schemas of the documents, made from their declarations.

A schema is closed: it has every field that this release prints. Within a version fields are only
added; a schema that loses a field, or gives it another meaning, has a new version.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from anubis.report.documents import LINES, PROGRAMS, DocumentType
from anubis.report.json import ABSENT, json_name, schema_name

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
CONFIG = ConfigDict(
    extra="forbid",
    json_schema_serialization_defaults_required=True,  # what is printed has all fields
    alias_generator=json_name,
)


class Plain(GenerateJsonSchema):
    """A generator of schemas without a title for every field; a field that `may_be_absent` is not
    required.

    A field is described by the string below it. pydantic reads those as well, but reads the whole
    module again for each class, which took nine tenths of the time.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:
        if field["type"] == "typed-dict-field":
            return bool(field.get("required", total))
        if _may_be_absent(field["schema"]):
            return False
        return super().field_is_required(field, total)

    def default_schema(self, schema: Any) -> Schema:
        if _may_be_absent(schema):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def dataclass_schema(self, schema: Any) -> Schema:
        made, source = super().dataclass_schema(schema), schema["cls"]
        if source.__doc__ and not source.__doc__.startswith(f"{source.__name__}("):
            made["description"] = inspect.cleandoc(source.__doc__)
        return _describe(made, source)

    def typed_dict_schema(self, schema: Any) -> Schema:
        return _describe(super().typed_dict_schema(schema), schema["cls"])


def _may_be_absent(schema: Any) -> bool:
    return schema["type"] == "default" and schema.get("default") is ABSENT


def _describe(schema: Schema, source: type[Any]) -> Schema:
    for name, sentence in _sentences(source.__module__).get(source.__name__, {}).items():
        if described := schema["properties"].get(json_name(name)):
            described["description"] = sentence
    return schema


@cache
def _sentences(module: str) -> dict[str, dict[str, str]]:
    """Map each class of a module to the descriptions of its fields."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: dict(_field_sentences(node.body)) for node in classes}


def _field_sentences(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for pair in pairwise(body):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(sentence))),
            ):
                yield name, inspect.cleandoc(sentence)


@cache
def schemas() -> dict[str, Schema]:
    """Return the schema of each document by its name: lines, and what programs print. Made once:
    read only."""
    lines = _schemas(LINES, "serialization")
    for document in LINES:
        _begin(lines[document.name], "type", document.name)
    programs = _schemas(PROGRAMS, "validation")
    programs["result"]["additionalProperties"] = True  # nobody reads what else a program tells
    return lines | programs


def request_schema(record: type[Any]) -> Schema:
    """Return the schema of a request; fields with a default may be left out."""
    adapter: TypeAdapter[Any] = TypeAdapter(tuple[record], config=CONFIG)  # type: ignore[valid-type] # at run time
    definitions = adapter.json_schema(mode="validation", schema_generator=Plain)["$defs"]
    schema: Schema = _inline(definitions[record.__name__], definitions)
    return schema | {"additionalProperties": False}


def any_line_schema() -> Schema:
    """Return the schema that any line has to match."""
    made = schemas()
    return {"$schema": DIALECT, "oneOf": [made[document.name] for document in LINES]}


def broken_promises(before: Iterable[Schema], after: Iterable[Schema]) -> Iterator[str]:
    """Yield fields that a reader of `before` misses or misreads in `after`, though the version is
    the same."""
    now = {schema["title"]: schema for schema in after}
    for old in before:
        new = now.get(old["title"], old)
        for name, field in old["properties"].items():
            if _bare(new["properties"].get(name)) != _bare(field):
                yield f"{old['title']}: {name}"


def _bare(schema: Any) -> Any:
    """Return a schema without its sentences."""
    match schema:
        case dict():
            return {key: _bare(part) for key, part in schema.items() if key != "description"}
        case list():
            return [_bare(part) for part in schema]
    return schema


def _schemas(documents: Iterable[DocumentType], mode: JsonSchemaMode) -> dict[str, Schema]:
    sources = tuple(dict.fromkeys(source for document in documents for source in document.fields))
    adapter: TypeAdapter[Any] = TypeAdapter(tuple[sources], config=CONFIG)  # type: ignore[valid-type] # at run time
    definitions = adapter.json_schema(mode=mode, schema_generator=Plain)["$defs"]
    return {document.name: _join_fields(document, definitions) for document in documents}


def _join_fields(document: DocumentType, definitions: Mapping[str, Schema]) -> Schema:
    """Return one table with the fields of all sources."""
    parts = [_inline(definitions[source.__name__], definitions) for source in document.fields]
    joined: Schema = {
        "$schema": DIALECT,
        "title": schema_name(document.name),
        "description": document.summary,
        "type": "object",
        "properties": {name: field for part in parts for name, field in part["properties"].items()},
        "required": list(dict.fromkeys(name for part in parts for name in part["required"])),
        "additionalProperties": False,
    }
    _begin(joined, "schema", joined["title"])
    return joined


def _begin(schema: Schema, name: str, value: str) -> None:
    schema["properties"] = {name: {"const": value}, **schema["properties"]}
    schema["required"] = [name, *schema["required"]]


def _inline(schema: Any, definitions: Mapping[str, Schema]) -> Any:
    """Return a schema with its references replaced by what they refer to."""
    match schema:
        case {"$ref": str(place), **beside}:
            return _inline(definitions[place.rpartition("/")[2]], definitions) | beside
        case dict():
            return {
                key: _inline(part, definitions)
                for key, part in schema.items()
                if not (key == "title" and isinstance(part, str))
            }
        case list():
            return [_inline(part, definitions) for part in schema]
    return schema
