"""What was made once and is still so: made again only when what it is made of has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Memory:
    """One result of each function: the last."""

    def __init__(self) -> None:
        self._made: dict[Callable[..., Any], tuple[tuple[Any, ...], Any]] = {}

    def recall(self, make: Callable[P, T], *parts: P.args, **_: P.kwargs) -> T:
        """`make(*parts)`. Parts are the same where they are the same objects, or equal tuples."""
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
