"""Keep what a library in C prints out of the answer on stdout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

STDOUT = 1  # the descriptor: a library in C writes there
_ONE_AT_A_TIME = Lock()  # the descriptor belongs to the whole process


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Discard what libraries write to file descriptor 1 meanwhile. HiGHS writes debug lines there,
    and no option of it prevents that."""
    with _ONE_AT_A_TIME:
        try:
            kept = os.dup(STDOUT)
        except OSError:  # closed: nothing can be written
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, STDOUT)
            yield
        finally:
            os.dup2(kept, STDOUT)
            os.close(nowhere)
            os.close(kept)
