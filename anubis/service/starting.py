"""Campaigns in processes of their own: what happens to the service costs none of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence

from anubis import places
from anubis.core.errors import UsageError
from anubis.operations.naming import new_name

MOST_AT_ONCE = 8


class StartedTests:
    """The processes that this service began and that have not ended."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def start(self, words: Sequence[str], history_url: str, now: float) -> None:
        with self._lock:
            self._running = [process for process in self._running if process.poll() is None]
            if len(self._running) >= MOST_AT_ONCE:
                raise UsageError(
                    f"{MOST_AT_ONCE} gates of this service run tests now: wait until one ends"
                )
            self._running.append(begin(words, history_url, new_name(words[0], now)))


def begin(words: Sequence[str], history_url: str, name: str) -> subprocess.Popen[bytes]:
    """`anubis` with these words. Its answer and its remarks go to files of this name."""
    folder = places.home() / "service"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / f"{name}.jsonl").open("wb") as out, (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "anubis", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            env={**os.environ, "ANUBIS_HISTORY": history_url},
            start_new_session=True,  # it goes on when the service ends
        )
