"""Campaigns in processes of their own: what happens to the service costs none of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from anubis import places
from anubis.core.errors import UsageError
from anubis.operations.naming import new_name

MOST_AT_ONCE = 8


class StartedTests:
    """The processes that this service began and that have not ended."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(self, words: Sequence[str], history_url: str, now: float) -> Path:
        """`anubis` with these words; returns the file that its answer goes to."""
        with self._lock:
            self._running = {n: p for n, p in self._running.items() if p.poll() is None}
            if len(self._running) >= MOST_AT_ONCE:
                raise UsageError(
                    f"{MOST_AT_ONCE} gates of this service run tests now: wait until one ends"
                )
            name = new_name(words[0], now)
            folder = places.home() / "service"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            answer = folder / f"{name}.jsonl"
            with answer.open("wb") as out, answer.with_suffix(".log").open("wb") as remarks:
                self._running[name] = subprocess.Popen(
                    [sys.executable, "-m", "anubis", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=remarks,
                    env={**os.environ, "ANUBIS_HISTORY": history_url},
                    start_new_session=True,  # it goes on when the service ends
                )
        return answer
