"""Turn errors into one form of document (RFC 9457), never a traceback.

If the package was replaced while the service runs, an error says so: the service goes on with the
code that it loaded, and reads configurations that belong to other code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from anubis.core.errors import (
    AnubisError,
    CatalogError,
    ConfigError,
    StoreFailedError,
    StoreUnreachableError,
)
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
    """HTTP status of an error: 400, or 503 if the history cannot be reached or its database
    refuses. A report that is answered by 503 is sent again, and one by 400 is dropped."""
    is_ours = isinstance(error, StoreUnreachableError | StoreFailedError)
    return 503 if is_ours else 400


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


PACKAGE = Path(__file__).parents[1]
RESTART = (
    "the files of anubis were replaced since this service began, as an upgrade does: restart the"
    " service"
)


class OwnFiles:
    """The Python files of a package, as they were when this was made."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self._package = package
        self._at_first = frozenset(self._files())

    def answer_to(self, error: Exception) -> tuple[int, str]:
        """Status and sentence for an error; after an upgrade, what the error means then."""
        expected = error if isinstance(error, AnubisError) else None
        status, detail = (status_of(expected), str(expected)) if expected else (500, A_BUG)
        comes_of_files = expected is None or isinstance(expected, ConfigError | CatalogError)
        if comes_of_files and self._at_first != frozenset(self._files()):
            return 503, f"{RESTART}; until then: {detail}"
        return status, detail

    def _files(self) -> Iterator[tuple[str, int, int, int]]:
        for file in self._package.rglob("*.py"):
            now = file.stat()
            yield str(file), now.st_ino, now.st_size, now.st_mtime_ns
