"""Notice that the package was replaced while the service runs: it goes on with the code that it
loaded, and reads configurations that belong to other code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anubis.core.errors import AnubisError, CatalogError, ConfigError
from anubis.service.problems import A_BUG, status_of

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
