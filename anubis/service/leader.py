"""Let one of several services on a history act, which means do the periodic work. It has a lock
that ends with it, however it ends, and on a database server also if it is suspended. The others try
again every few seconds."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from anubis.core.errors import AnubisError
from anubis.service.requester import LOG
from anubis.store.claims import FORGOTTEN_AFTER_S
from anubis.store.history import History

TRIES_EVERY_S = 2.0  # the longest that a standby adds to a change of leaders
SURE_FOR_S = 0.75 * FORGOTTEN_AFTER_S  # after the lock was last seen to be its own


class Actor:
    def __init__(
        self,
        history: History,
        tell: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = history.acting_lock()
        self._tell = tell
        self._clock = clock
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acting", daemon=True)
        self._had_lock_at = -math.inf

    @property
    def is_acting(self) -> bool:
        """True while the lock is sure. If this process was suspended, another may act by now."""
        return self._clock() - self._had_lock_at < SURE_FOR_S

    def start(self) -> None:
        self._look()
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(timeout=5)
        self._lock.give_back()
        self._become(-math.inf)

    def _run(self) -> None:
        while not self._ends.wait(TRIES_EVERY_S):
            self._look()

    def _look(self) -> None:
        asked_at = self._clock()
        try:
            self._become(asked_at if self._lock.has() else -math.inf)
        except AnubisError as error:
            LOG.warning("whether this service acts is not known: %s", error)
            self._become(-math.inf)

    def _become(self, had_lock_at: float) -> None:
        was_acting, self._had_lock_at = self._had_lock_at > -math.inf, had_lock_at
        is_acting = had_lock_at > -math.inf
        if is_acting is not was_acting:
            LOG.info("this service acts" if is_acting else "this service does not act")
        self._tell(is_acting)
