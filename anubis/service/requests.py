"""What may be asked, as records: read strictly, with one sentence for what is wrong."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TypeVar

from anubis import hostlist
from anubis.core.errors import UsageError
from anubis.files import json_value
from anubis.reading import read
from anubis.service.problems import Refused

Wish = TypeVar("Wish")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")  # never the path of a file
LONGEST_JOB_S = 3650 * 86_400.0
MOST_NODES = 100_000


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    nodes: tuple[str, ...]
    """Names, or node lists such as node[01-16]."""
    duration_s: float
    """How long the job runs."""
    cluster: str | None = None
    """As the history calls it; null: the only one that there is."""
    unknown_passes: bool = False
    """Whether a node may pass that no test could judge."""
    start_tests: bool = False
    """Start the tests that are missing, in a process of their own. Needs the scope act."""

    def __post_init__(self) -> None:
        if not 0 < self.duration_s <= LONGEST_JOB_S or math.isnan(self.duration_s):
            raise ValueError(f"a job of {self.duration_s:g} s, expected 1 s to 10 years")
        check_name(self.cluster)

    def names(self) -> tuple[str, ...]:
        names = dict.fromkeys(name for text in self.nodes for name in hostlist.expand(text))
        if not names:
            raise UsageError('"nodes" names no node: expected names or node lists')
        if len(names) > MOST_NODES:
            raise UsageError(f'"nodes" names more than {MOST_NODES:,} nodes')
        return tuple(names)


def check_name(name: str | None, kind: str = "cluster") -> None:
    if name is not None and not NAME.fullmatch(name):
        raise UsageError(f'{kind} "{name[:100]}": expected letters, digits, dots and dashes')


def text_of(body: bytes, kind: str) -> str:
    """JSON only: a form of another page cannot send it."""
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "expected Content-Type: application/json")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None


def read_request(body: bytes, kind: str, record: type[Wish]) -> Wish:
    text = text_of(body, kind)
    try:
        document = json_value(text)
    except ValueError as error:
        raise UsageError(f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError("the body is no table: expected a JSON object")
    return read(document, record, "the body", UsageError)
