"""What was read of a GPU: values, what it does not support, and what could not be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Handle = Any  # a GPU, as its driver's module calls it
Reader = Callable[[Handle], Any]


class Unread(Exception):
    """It could not be read, for a reason that one line can tell."""


class Unsupported(Exception):
    """This GPU, or this version of its driver, has no such value."""


class NoDriver(Unread):
    """There is no driver to ask."""


@dataclass
class Reading:
    values: dict[str, Any] = field(default_factory=dict)
    unsupported: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)  # and why
    gone: bool = False  # the driver no longer reaches the GPU
