"""Promises to a program that reads our JSON.

`Done.lines`, by which all tests read lines, holds each against its schema; here is what the schemas
themselves have to do.
"""

from __future__ import annotations

import copy
import json
import math
from dataclasses import MISSING, fields
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from anubis.core.history.events import KEPT, EventRecord, Order
from anubis.report import history, schemas
from anubis.report.json import VERSIONS, json_line
from tests.edges.desk import check_line

LEFT_OUT = {"type": "left-out", "schema": "anubis.left-out/1", "reason": "one class only"}


@pytest.fixture(scope="module")
def made() -> dict[str, schemas.Schema]:
    return schemas.schemas()


def test_a_line_of_json_has_its_type_and_schema():
    assert json.loads(json_line("left-out", {"reason": "one class only"})) == LEFT_OUT
    check_line(LEFT_OUT)


def test_optional_keys_of_a_declaration_may_be_absent(made):
    plain = {"id": "node-added-1", "event": "node-added", "nodes": ["n1"], "at": 1.0}
    check_line({"type": "event", "schema": "anubis.event/1", "cluster": "prod", **plain})
    assert {"at", "cluster", "nodes"} <= set(made["event"]["required"])
    with pytest.raises(ValidationError, match="'nodes' is a required property"):
        check_line({"type": "event", "schema": "anubis.event/1", "id": "", "event": "", "at": 1.0})


NEEDED: dict[str, Any] = {
    "nodes": ("n1",),
    "duration_s": 3600.0,
    "job": "7",
    "category": "gpu",
    "source": "watch",
    "part": "link leaf2 - spine1",
    "begin": 1.0,
    "end": math.inf,
    "order": Order.RETIRE,
}


@pytest.mark.parametrize("kind", KEPT)
def test_every_event_that_is_kept_prints_fields_that_are_declared(kind):
    needed = {field.name for field in fields(KEPT[kind]) if field.default is MISSING} & {*NEEDED}
    event = KEPT[kind](**{name: NEEDED[name] for name in needed})
    happened = history.event_record_happening(EventRecord(id="a", at=1.0, event=event))
    line = json.loads(history.line(happened))
    check_line(line)
    shown = {field.name for field in fields(event)} - {"windows"}  # packed telemetry
    assert {"type", "schema", "id", "event", "at", "cluster"} | shown == {*line}


@pytest.mark.parametrize(
    "changes",
    [
        {"undeclared": 1},
        {"reason": None},
        {"schema": "anubis.left-out/2"},
    ],
)
def test_a_field_that_is_not_declared_or_of_another_kind_does_not_pass(changes):
    with pytest.raises(ValidationError):
        check_line({**LEFT_OUT, **changes})


def test_every_schema_is_one_is_closed_and_asks_for_its_name_and_version(made):
    for name, schema in made.items():
        Draft202012Validator.check_schema(schema)
        title = f"anubis.{name}/{VERSIONS.get(name, 1)}"
        assert schema["title"] == schema["properties"]["schema"]["const"] == title
        assert schema["additionalProperties"] is (name == "result")
        assert not references(schema)


def references(part: Any) -> list[Any]:
    if isinstance(part, list):
        return [place for inner in part for place in references(inner)]
    if isinstance(part, dict):
        inside = [place for inner in part.values() for place in references(inner)]
        return inside + ([part["$ref"]] if "$ref" in part else [])
    return []


def test_changes_that_break_readers_differ_from_harmless_ones(made):
    before = [made["left-out"], made["gate"]]
    more, less, other, newer = (copy.deepcopy(before) for _ in range(4))
    more[0]["properties"]["when"] = {"type": "number"}
    more[0]["properties"]["reason"]["description"] = "in other words"
    assert not list(schemas.broken_promises(before, more))
    del less[1]["properties"]["p0"]
    assert list(schemas.broken_promises(before, less)) == ["anubis.gate/1: p0"]
    other[1]["properties"]["links"]["items"]["properties"]["nodes"] = {"type": "string"}
    assert list(schemas.broken_promises(before, other)) == ["anubis.gate/1: links"]
    del newer[1]["properties"]["p0"]
    newer[1]["title"] = "anubis.gate/2"
    assert not list(schemas.broken_promises(before, newer))


@pytest.mark.long
def test_the_verb_lists_the_types_and_prints_the_schema_of_each(entry, made):
    listed = entry("schema").out
    assert all(name in listed for name in made)
    assert json.loads(entry("schema", "verdict").out) == made["verdict"]
    Draft202012Validator(json.loads(entry("schema", "lines").out)).validate(LEFT_OUT)
    unknown = entry("schema", "verdit")
    assert (unknown.code, unknown.out) == (64, "")
    assert unknown.err == 'anubis: error: no type "verdit"; did you mean "verdict"?\n'
