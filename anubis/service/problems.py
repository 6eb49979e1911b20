"""Turn errors into one form of document (RFC 9457), never a traceback."""

from __future__ import annotations

import json
from http import HTTPStatus

from anubis.core.errors import AnubisError, StoreUnreachableError
from anubis.core.text import escape_line

MEDIA_TYPE = "application/problem+json"
A_BUG = "a bug in Anubis: the log of the service has more"


class Refused(Exception):
    """A request that is refused, with the sentence for its sender."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


def problem(status: int, detail: str) -> bytes:
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": escape_line(detail),
    }
    return json.dumps(document).encode()


def status_of(error: AnubisError) -> int:
    """HTTP status of an error: 400, or 503 if the history cannot be reached."""
    return 503 if isinstance(error, StoreUnreachableError) else 400


SCHEMA = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
}
