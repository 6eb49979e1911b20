"""Patterns of rules, matched in a time that grows with the length of a name and with nothing else.

Python's own engine tries one way after the other, and needs minutes for `(a+)+b`. Here all ways are
followed at once (Thompson 1968), and each set of ways is worked out once. Patterns that look around
or back in the text cannot be matched so, and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

parser: Any = import_module("re._parser")  # how Python itself reads them; it has no declared types
MOST_PLACES = 2_000  # in a pattern whose counted repeats are written out
REMEMBERED = 20_000  # steps between sets of places
MATCH = 0  # the first place, at which a pattern has matched

Test = Callable[[str], bool]
CATEGORIES: dict[str, Test] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda c: c.isalnum() or c == "_",
    "CATEGORY_NOT_DIGIT": lambda c: not c.isdecimal(),
    "CATEGORY_NOT_SPACE": lambda c: not c.isspace(),
    "CATEGORY_NOT_WORD": lambda c: not (c.isalnum() or c == "_"),
}
BEGINNINGS = {"AT_BEGINNING", "AT_BEGINNING_STRING"}
ENDS = {"AT_END", "AT_END_STRING"}


class Pattern:
    """A compiled pattern. `search` says whether `re.search` would match, but not where. A pattern
    that is refused is a ValueError."""

    def __init__(self, text: str) -> None:
        self.pattern = text
        try:
            tree = parser.parse(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"is not a pattern: {error}") from None
        if tree.state.flags & ~re.UNICODE:
            raise ValueError("has flags, which are not supported")
        # A place is a test and where it leads, or no test and where one may go without reading.
        self._tests: list[Test | None] = [None]
        self._next: list[tuple[int, ...]] = [()]
        self._at: dict[int, str] = {}  # a place that is passed at the beginning or end only
        self._start = self._sequence(tree, MATCH)
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._first = self._reachable([self._start], BEGINNINGS)
        self._again = self._reachable([self._start], set())

    def search(self, name: str) -> bool:
        places = self._first
        for character in name:
            if MATCH in places:
                return True
            places = self._step(places, character)
        here = ENDS if name else BEGINNINGS | ENDS
        return MATCH in self._reachable(places, here)

    def _step(self, places: frozenset[int], character: str) -> frozenset[int]:
        key = places, character
        if key not in self._steps:
            if len(self._steps) > REMEMBERED:
                self._steps.clear()
            led = [
                place
                for at in places
                if (test := self._tests[at]) and test(character)
                for place in self._next[at]
            ]
            self._steps[key] = self._reachable(led, set()) | self._again
        return self._steps[key]

    def _reachable(self, places: Iterable[int], here: set[str]) -> frozenset[int]:
        """Return the places and all that can be reached without reading, at the begin or at the
        end."""
        seen: set[int] = set()
        pending = list(places)
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            if self._tests[at] is None and (at not in self._at or self._at[at] in here):
                pending += self._next[at]
        return frozenset(seen)

    # --- from the tree to places -----------------------------------------------------------

    def _place(self, test: Test | None, *leads_to: int) -> int:
        if len(self._tests) >= MOST_PLACES:
            raise ValueError(f"is too large: expected at most {MOST_PLACES:,} characters")
        self._tests.append(test)
        self._next.append(leads_to)
        return len(self._tests) - 1

    def _sequence(self, items: Iterable[Any], then: int) -> int:
        for item in reversed(list(items)):
            then = self._item(item, then)
        return then

    def _item(self, item: Any, then: int) -> int:
        kind, value = str(item[0]), item[1]
        match kind:
            case "BRANCH":
                return self._place(None, *(self._sequence(way, then) for way in value[1]))
            case "SUBPATTERN" if not (value[1] or value[2]):
                return self._sequence(value[3], then)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(value, then)
            case "AT" if str(value) in BEGINNINGS | ENDS:
                place = self._place(None, then)
                self._at[place] = str(value)
                return place
        return self._place(_test(kind, value), then)

    def _repeat(self, counted: tuple[int, Any, Any], then: int) -> int:
        least, limit, items = counted
        if limit is parser.MAXREPEAT:
            start = self._place(None, then)
            self._next[start] = (self._sequence(items, start), then)
        else:
            start = then
            for _ in range(min(limit - least, MOST_PLACES)):
                start = self._place(None, self._sequence(items, start), then)
        for _ in range(min(least, MOST_PLACES)):
            start = self._sequence(items, start)
        return start


def _test(kind: str, value: Any) -> Test:
    match kind:
        case "LITERAL":
            return lambda character: ord(character) == value
        case "NOT_LITERAL":
            return lambda character: ord(character) != value
        case "ANY":
            return lambda character: character != "\n"
        case "RANGE":
            return lambda character: value[0] <= ord(character) <= value[1]
        case "CATEGORY":
            return CATEGORIES[str(value)]
        case "IN":
            negated = str(value[0][0]) == "NEGATE"
            tests = [_test(str(part), detail) for part, detail in value[negated:]]
            return lambda character: any(test(character) for test in tests) is not negated
    raise ValueError("looks around or back, which is not supported")
