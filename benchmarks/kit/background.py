"""Calls that may never return, such as one into a sick driver: made in a thread beside the
caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def begin(call: Callable[[], Any]) -> Future[Any]:
    """Start a call and return its future answer or error. The process may end without it."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
