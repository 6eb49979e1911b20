"""The limit of all waits: until a fact is true. A busy machine is slow, and only a hang fails. The
one limit is long, and costs nothing if all is well. tests/test_pace.py allows no shorter one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 300.0
Found = TypeVar("Found")


def eventually(fact: Callable[[], Found], limit_s: float = LIMIT_S) -> Found:
    """The fact once it is true, or at last. It is asked more seldom the longer it takes."""
    began = time.monotonic()
    while not (found := fact()):
        waited_s = time.monotonic() - began
        if waited_s > limit_s:
            break
        time.sleep(min(0.01 + waited_s / 10, 0.2))
    return found
