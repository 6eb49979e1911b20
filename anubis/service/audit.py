"""Keep in the history who did what, in batches: a commit for each request would cost more than the
request."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from anubis.core.errors import AnubisError, StoreUnreachableError
from anubis.service.requester import LOG
from anubis.store.tokens import AuditEntry

EVERY_S = 0.5  # one commit for all requests of that time
MOST_WAITING = 10_000  # entries: under attack new ones are dropped, so that memory suffices


class AuditTrail:
    def __init__(self, keep: Callable[[list[AuditEntry]], None]) -> None:
        self._keep = keep
        self._waiting: deque[AuditEntry] = deque()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, entry: AuditEntry) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(entry)

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(timeout=5)
        self._flush()

    def _run(self) -> None:
        while not self._ends.wait(EVERY_S):
            self._flush()

    def _flush(self) -> None:
        entries = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            if entries:
                self._keep(entries)
        except StoreUnreachableError as error:  # it may be back soon
            self._waiting.extendleft(reversed(entries))
            LOG.warning("%d entries of the audit wait: %s", len(entries), error)
        except AnubisError as error:
            LOG.warning("%d entries of the audit were not kept: %s", len(entries), error)
