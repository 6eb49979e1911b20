"""Of several services on one history one acts: does the periodic work. It has a lock that ends with
it, however it ends; the others try again every few seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable

from anubis.core.errors import AnubisError
from anubis.service.asker import LOG
from anubis.store.history import History

TRIES_EVERY_S = 3.0


class Actor:
    def __init__(self, history: History, tell: Callable[[bool], None]) -> None:
        self._lock = history.acting_lock()
        self._tell = tell
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acting", daemon=True)
        self.is_acting = False

    def start(self) -> None:
        self._look()
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(timeout=5)
        self._lock.give_back()
        self._become(False)

    def _run(self) -> None:
        while not self._ends.wait(TRIES_EVERY_S):
            self._look()

    def _look(self) -> None:
        try:
            self._become(self._lock.has())
        except AnubisError as error:
            LOG.warning("whether this service acts is not known: %s", error)
            self._become(False)

    def _become(self, is_acting: bool) -> None:
        if is_acting is not self.is_acting:
            LOG.info("this service acts" if is_acting else "another service acts, or none")
        self.is_acting = is_acting
        self._tell(is_acting)
