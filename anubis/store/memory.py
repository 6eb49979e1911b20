"""Results that are computed again only if their inputs have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Memory:
    """The last result of each function."""

    def __init__(self) -> None:
        self._made: dict[Callable[..., Any], tuple[tuple[Any, ...], Any]] = {}

    def recall(self, make: Callable[P, T], *parts: P.args, **_: P.kwargs) -> T:
        """Return `make(*parts)`. Parts are the same if they are the same objects, or equal
        tuples."""
        before = self._made.get(make)
        if before is None or not _same(before[0], parts):
            before = self._made[make] = (parts, make(*parts))  # type: ignore[call-arg] # no keywords
        result: T = before[1]
        return result


def _same(before: tuple[Any, ...], parts: tuple[Any, ...]) -> bool:
    return len(before) == len(parts) and all(
        old is new or (isinstance(new, tuple) and old == new)
        for old, new in zip(before, parts, strict=True)
    )
