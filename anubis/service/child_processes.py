"""The processes that a service started; never more at once than its machine can carry."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence

from anubis.core.errors import UsageError
from anubis.operations.names import new_name
from anubis.operations.verb_processes import begin

MOST_AT_ONCE = 8  # each loads numpy and the history


class StartedTests:
    """The processes that this service started and that have not ended."""

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
