"""Fields of Kubernetes' documents, which come from outside and may be of any shape.

What is absent or null is empty, as in Kubernetes itself. A value of another type than Kubernetes
says is an OrchestratorError, one sentence that names the object and the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from anubis.core.errors import OrchestratorError
from anubis.core.text import escape_line

Document = Mapping[str, Any]

LONGEST_S = 1e12  # that anything may last
LONGEST_SHOWN = 60  # characters of a value, in a sentence


class Fields:
    """A document, or a table inside it."""

    def __init__(
        self, raw: Document, whose: str = "", path: str = "", root: Document | None = None
    ) -> None:
        """Wrap a document. `whose`: in place of the kind and name in the document."""
        self.raw = raw
        self._whose = whose
        self._path = path
        self._root = raw if root is None else root

    def table(self, *names: str) -> Fields:
        value = self._value(names)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self._odd(names, value, "a table")
        return Fields(value, self._whose, self._path_to(names), self._root)

    def rows(self, *names: str) -> list[Fields]:
        """Return a list of tables."""
        values = self._value(names)
        if values is None:
            return []
        if not isinstance(values, list | tuple):
            raise self._odd(names, values, "a list")
        path = self._path_to(names)
        rows = []
        for place, value in enumerate(values):
            if not isinstance(value, Mapping):
                raise self._odd((*names[:-1], f"{names[-1]}[{place}]"), value, "a table")
            rows.append(Fields(value, self._whose, f"{path}[{place}]", self._root))
        return rows

    def text(self, *names: str) -> str:
        value = self._value(names)
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        raise self._odd(names, value, "a text")

    def require(self, *names: str) -> str:
        """Return a text that must be there."""
        text = self.text(*names)
        if not text:
            raise self._odd(names, self._value(names), "a text")
        return text

    def amount(self, *names: str) -> str:
        """Return the amount of a resource: Kubernetes writes it as a text, people as a number as
        well."""
        value = self._value(names)
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._odd(names, value, "an amount")
        return str(value)

    def flag(self, *names: str) -> bool:
        value = self._value(names)
        if not isinstance(value, bool | None):
            raise self._odd(names, value, "true or false")
        return bool(value)

    def seconds(self, *names: str) -> float | None:
        """Return a span of time; None if there is none."""
        value = self._value(names)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < LONGEST_S:  # NaN is neither
            raise self._odd(names, value, "a number of seconds")
        return float(value)

    def moment(self, *names: str) -> float:
        """Return a time as seconds since 1970; 0 if there is none."""
        text = self.text(*names)
        if not text:
            return 0.0
        try:
            return instant(text)
        except (ValueError, OverflowError):
            raise self._odd(names, text, "a time such as 2026-11-22T00:00:00Z") from None

    def _value(self, names: Sequence[str]) -> Any:
        """Return the value at a path; None if there is none."""
        raw: Any = self.raw
        for place, name in enumerate(names):
            if not isinstance(raw, dict) and not isinstance(raw, Mapping):
                raise self._odd(names[:place], raw, "a table")
            raw = raw.get(name)
            if raw is None:
                return None
        return raw

    def _path_to(self, names: Sequence[str]) -> str:
        return ".".join([self._path, *names] if self._path else names)

    def _odd(self, names: Sequence[str], value: object, expected: str) -> OrchestratorError:
        shown = "not there" if value is None else _show(value)
        whose, path = self._whose or name_object(self._root), escape_line(self._path_to(names))
        return OrchestratorError(f"kubernetes: {whose}: {path} is {shown}, expected {expected}")


def name_object(document: Document) -> str:
    """Return kind and name of a document, as far as it has them."""
    metadata = document.get("metadata")
    about: Document = metadata if isinstance(metadata, Mapping) else {}
    names = [about.get("namespace"), about.get("name")]
    name = "/".join(escape_line(word) for word in names if isinstance(word, str) and word)
    kind = document.get("kind")
    word = escape_line(kind).lower() if isinstance(kind, str) and kind else "object"
    return f'{word} "{name[:LONGEST_SHOWN]}"' if name else f"{word} without a name"


def instant(text: str) -> float:
    """Parse a time; a ValueError if it is none. Kubernetes writes times with their zone; without
    one, UTC."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _show(value: object) -> str:
    text = escape_line(repr(value) if isinstance(value, str) else str(value))
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
