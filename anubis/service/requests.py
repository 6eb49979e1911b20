"""Records of what may be asked: read strictly, with one sentence for what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from anubis.core.amounts import DAY_S
from anubis.core.errors import UsageError, did_you_mean
from anubis.core.history.events import KEPT, KeptEvent
from anubis.operations.requests import JobQuestion
from anubis.service.problems import Refused
from anubis.text import hostlist
from anubis.text.files import json_value
from anubis.text.reading import read

Wish = TypeVar("Wish")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")  # never the path of a file
LONGEST_JOB_S = 3650 * DAY_S  # longer is a slip of the pen
MOST_NODES = 100_000  # more than any cluster has
LONGEST_ID = 200  # characters


@dataclass(frozen=True, kw_only=True)
class GateBody(JobQuestion):
    cluster: str | None = None
    """The name in the history; null: the only one that there is."""
    start_tests: bool = False
    """Start the tests that are missing, in a process of their own. Needs the scope act."""
    job: str = ""
    """The job that the nodes are for: if it was reported to run there, they are tested all the
    same."""
    gang: str = ""
    """The pods of one job that ask one by one: the answer is for all nodes of the gang that asked
    in the last ten minutes."""

    def __post_init__(self) -> None:
        if not 0 < self.duration_s <= LONGEST_JOB_S or math.isnan(self.duration_s):
            raise ValueError(f"a job of {self.duration_s:g} s, expected 1 s to 10 years")
        check_name(self.cluster)
        if len(self.gang) > LONGEST_ID:
            raise ValueError(f"a gang of {len(self.gang)} characters, expected {LONGEST_ID}")

    def names(self) -> tuple[str, ...]:
        names = expand_nodes(self.nodes)
        if not names:
            raise UsageError('"nodes" names no node: expected names or node lists')
        return names


@dataclass(frozen=True, kw_only=True)
class EventEnvelope:
    """What a report of an event has beside the event's own fields."""

    event: str
    """Its kind: node-added, job-ended and so on."""
    id: str = ""
    """Told twice under one id, it is done once."""
    at: float | None = None
    """When it happened, in seconds since 1970; null: now."""
    cluster: str | None = None
    """The name in the history; null: the only one that there is."""

    def __post_init__(self) -> None:
        check_name(self.cluster)
        if len(self.id) > LONGEST_ID:
            raise ValueError(f"an id of {len(self.id)} characters, expected at most {LONGEST_ID}")


ENVELOPE = {field.name for field in fields(EventEnvelope)}


def read_event(body: bytes, media_type: str) -> tuple[EventEnvelope, KeptEvent]:
    document = read_document(body, media_type)
    envelope = read(
        {key: value for key, value in document.items() if key in ENVELOPE},
        EventEnvelope,
        "the body",
        UsageError,
    )
    if envelope.event not in KEPT:
        hint = did_you_mean(envelope.event[:100], KEPT)
        raise UsageError(f'event "{envelope.event[:100]}" is not known; {hint}')
    own = {key: value for key, value in document.items() if key not in ENVELOPE}
    event: KeptEvent = read(own, KEPT[envelope.event], "the body", UsageError)
    return envelope, replace(event, nodes=expand_nodes(event.nodes))


def expand_nodes(lists: Iterable[str]) -> tuple[str, ...]:
    names = dict.fromkeys(name for text in lists for name in hostlist.expand(text))
    if len(names) > MOST_NODES:
        raise UsageError(f'"nodes" names more than {MOST_NODES:,} nodes')
    return tuple(names)


def check_name(name: str | None, kind: str = "cluster") -> None:
    if name is not None and not NAME.fullmatch(name):
        raise UsageError(f'{kind} "{name[:100]}": expected letters, digits, dots and dashes')


def text_of(body: bytes, media_type: str) -> str:
    """Text of a JSON body. No other type is accepted: a form of another page could send it."""
    if media_type.partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "expected Content-Type: application/json")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None


def read_request(body: bytes, media_type: str, record: type[Wish]) -> Wish:
    return read(read_document(body, media_type), record, "the body", UsageError)


def read_document(body: bytes, media_type: str) -> dict[str, object]:
    text = text_of(body, media_type)
    try:
        document = json_value(text)
    except ValueError as error:
        raise UsageError(f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError("the body is no table: expected a JSON object")
    return document
