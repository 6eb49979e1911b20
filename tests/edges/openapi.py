"""Requests that a service's own OpenAPI document calls right, and such that it calls wrong, by
Schemathesis; and what of the answers is not as the document says. It asserts nothing.

`for trouble in troubles(document, there, send, examples=20, seed=7): ...`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    *(not_a_server_error, status_code_conformance, content_type_conformance),
    *(response_schema_conformance, negative_data_rejection),
]
Send = Callable[[requests.PreparedRequest], httpx.Response | requests.Response]


@dataclass(frozen=True, kw_only=True)
class There:
    """What there is at this service, so that some requests lead somewhere."""

    names: Mapping[str, str]  # for the parameters of paths
    bodies: Mapping[str, Mapping[str, Any]]  # right ones, by path


def troubles(
    document: Mapping[str, Any], there: There, send: Send, *, examples: int, seed: int
) -> Iterator[str]:
    """Troubles with so many right requests of each operation, so many wrong ones, and some that
    lead somewhere; the same ones for the same seed."""
    schema = schemathesis.openapi.from_dict(dict(document))
    for described in schema.get_all_operations():
        operation = described.ok()
        for way in _ways(operation, there):
            yield from _troubles_of(operation, way, send, examples, seed)


def _ways(operation: Any, there: There) -> Iterator[SearchStrategy[Any]]:
    yield operation.as_strategy(GenerationMode.POSITIVE)
    yield operation.as_strategy(GenerationMode.NEGATIVE)
    names = {name: value for name, value in there.names.items() if f"{{{name}}}" in operation.path}
    if names:
        yield operation.as_strategy(path_parameters=names)
    if operation.path in there.bodies and operation.method.upper() == "POST":
        yield operation.as_strategy(body=dict(there.bodies[operation.path]), query={})


def _troubles_of(
    operation: Any, way: SearchStrategy[Any], send: Send, examples: int, seed: int
) -> Iterator[str]:
    seen: dict[str, str] = {}

    @seeded(seed)
    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        deadline=None,
    )
    @given(way)
    def ask(case: Any) -> None:
        request = requests.Request(**case.as_transport_kwargs("http://localhost")).prepare()
        response = send(request)
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as group:
            for failure in group.exceptions:
                seen.setdefault(failure.title, _trouble(operation, request, response, failure))

    ask()
    yield from seen.values()


def _trouble(operation: Any, request: Any, response: Any, failure: Any) -> str:
    asked = f"{request.method} {request.url[:200]} {request.body or b''!r:.300}"
    answered = f"{response.status_code} {response.text[:300]}"
    return f"{operation.label}: {failure.title}: {failure.message:.300}; {asked}: {answered}"
