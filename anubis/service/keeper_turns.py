"""Start the keeper's turns, each in its own process: for every cluster served, at intervals and
soon after an event. Only the service that acts starts turns."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from anubis.core.errors import AnubisError
from anubis.service.requester import LOG

LOOKS_EVERY_S = 1.0  # whether a turn is due or asked for
LONGEST_TURN_S = 600.0  # seconds, with ten thousand nodes: tests have processes of their own
SOON_S = 5.0  # after an event: more may follow


class Turns:
    def __init__(
        self,
        clusters: Sequence[str],
        every_s: float,
        start: Callable[[str], subprocess.Popen[bytes]],
    ) -> None:
        """`every_s`: 0 means no turns. `start`: starts the turn of a cluster."""
        self._every_s = every_s
        self._start = start
        self._due = dict.fromkeys(clusters if every_s else (), 0.0)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._began: dict[str, float] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turns", daemon=True)
        self.may_act: Callable[[], bool] = lambda: False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop starting turns; a turn that runs goes on without the service."""
        self._ends.set()
        self._thread.join(timeout=5)

    def hurry(self, cluster: str, *, at_once: bool = False) -> None:
        """Take a turn soon; `at_once`: without waiting for more events."""
        if cluster in self._due:
            soon = time.monotonic() + (0.0 if at_once else SOON_S)
            self._due[cluster] = min(self._due[cluster], soon)

    def _run(self) -> None:
        while not self._ends.wait(LOOKS_EVERY_S):
            if self.may_act():
                for cluster in self._due:
                    self._take(cluster, time.monotonic())

    def _take(self, cluster: str, now: float) -> None:
        running = self._running.get(cluster)
        if running and running.poll() is None:
            self._end_late(cluster, running, now)
            return
        if now < self._due[cluster]:
            return
        if running and running.returncode > 1:
            LOG.warning("the last turn of %s ended with status %d", cluster, running.returncode)
        self._due[cluster], self._began[cluster] = now + self._every_s, now
        try:
            self._running[cluster] = self._start(cluster)
        except (AnubisError, OSError) as error:
            LOG.warning("the turn of %s could not begin: %s", cluster, error)

    def _end_late(self, cluster: str, running: subprocess.Popen[bytes], now: float) -> None:
        """Kill a turn that takes too long. A turn is kept whole or not at all, so the next one does
        what this one did not."""
        if now - self._began[cluster] >= LONGEST_TURN_S:
            LOG.warning("the turn of %s had not ended after %g s: killed", cluster, LONGEST_TURN_S)
            running.kill()
