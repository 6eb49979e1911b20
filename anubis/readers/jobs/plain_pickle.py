"""Pickles that hold plain values: tables, lists, texts, numbers. Nothing in one is ever executed.

Python's own reader is not used: it allocates whatever a file asks it to, and hashing a tuple that
is nested deeply enough ends the process. Here a pickle is a list of instructions: those that build
plain containers are carried out, and any others are refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

MOST_INSTRUCTIONS = 8_000_000  # a dump of 100,000 calls has fewer
DEEPEST = 100  # levels; a dump has a handful

_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset(
    [
        "BININT",
        "BININT1",
        "BININT2",
        "INT",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
    ]
)
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))
_IGNORED = frozenset(("PROTO", "FRAME"))


def plain_values(data: bytes) -> Any:
    """Return the values in a pickle; a ValueError if it holds anything else, or is broken."""
    builder = _Builder()
    try:
        for count, (code, argument, _) in enumerate(pickletools.genops(data)):
            if count > MOST_INSTRUCTIONS:
                raise ValueError(f"it has more than {MOST_INSTRUCTIONS:,} instructions")
            if code.name == "STOP":
                return builder.only()
            builder.follow(code.name, argument)
    except (IndexError, KeyError, AttributeError, TypeError, OverflowError, MemoryError):
        pass
    except ValueError as cause:
        if isinstance(cause, _Refused):
            raise ValueError(str(cause)) from None
    raise ValueError("it is not a complete pickle")


class _Refused(ValueError):
    pass


class _Mark:
    pass


class _Builder:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def only(self) -> Any:
        (value,) = self.stack
        return value

    def follow(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _PUTS:
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in _GETS:
            stack.append(self.memo[argument])
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "MARK":
            stack.append(_Mark)
        elif name not in _IGNORED:
            self._gather(name)

    def _gather(self, name: str) -> None:
        """Carry out an instruction that puts the top of the stack into a container."""
        stack = self.stack
        if name == "APPEND":
            value = stack.pop()
            _list(stack[-1]).append(value)
        elif name == "SETITEM":
            value = stack.pop()
            key = stack.pop()
            _table(stack[-1])[_key(key)] = value
        elif name == "APPENDS":
            values = self._pop_to_mark()
            _list(stack[-1]).extend(values)
        elif name == "SETITEMS":
            values = self._pop_to_mark()
            _table(stack[-1]).update(zip(map(_key, values[::2]), values[1::2], strict=True))
        elif name == "TUPLE":
            stack.append(tuple(self._pop_to_mark()))
        elif name == "LIST":
            stack.append(self._pop_to_mark())
        elif name == "DICT":
            values = self._pop_to_mark()
            stack.append(dict(zip(map(_key, values[::2]), values[1::2], strict=True)))
        elif name == "POP":
            stack.pop()
        else:
            raise _Refused(f'it holds more than plain values: the instruction "{name}"')

    def _pop_to_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self.stack.pop()) is not _Mark:
            values.append(value)
        return values[::-1]


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError
    return value


def _table(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise TypeError
    return value


def _key(value: Any) -> str | int:
    """Return a key that is a text or a number: others could be nested without end."""
    if not isinstance(value, str | int):
        raise TypeError
    return value
