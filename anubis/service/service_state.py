"""State that all routes share: the open history, the readers' snapshot, the limits, and the audit,
which keeps in the history who did what, in batches: a commit for each request would cost more than
the request."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

from anubis.core.errors import (
    AnubisError,
    StoreError,
    StoreUnreachableError,
    UnknownCampaignError,
    UsageError,
)
from anubis.core.history.events import NodeAdded
from anubis.operations.clusters import resolve
from anubis.operations.tell import Receipt, Telling, tell_all
from anubis.service.connections import Connections
from anubis.service.fleet_cache import Board, Snapshot
from anubis.service.gate import Gangs, Gates, StartedTests
from anubis.service.keeper_turns import Turns
from anubis.service.metrics import Gauges
from anubis.service.problems import OwnFiles, Refused
from anubis.service.requester import LOG, OpenHistory, Requester
from anubis.service.service_settings import ServiceSettings
from anubis.service.slow_pages import Overviews
from anubis.store.clusters import unknown
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


EventAnswer = Receipt | AnubisError


@dataclass
class QueuedEvent:
    telling: Telling
    requester: Requester
    answer: EventAnswer | None = field(default=None)


class EventQueue:
    """Keeps waiting events together: a commit takes longer than an event. `find` returns the name
    of the cluster that a reporter means; true: the event may begin it."""

    def __init__(
        self, writer: CapacityLimiter, find: Callable[[str | None, bool], str | None]
    ) -> None:
        self._writer = writer
        self._find = find
        self._waiting: list[QueuedEvent] = []

    async def tell(self, telling: Telling, requester: Requester) -> Receipt:
        """Keep an event and return its receipt; the first to get the writer keeps all that wait."""
        letter = QueuedEvent(telling, requester)
        self._waiting.append(letter)
        async with self._writer:
            if letter.answer is None:
                letters, self._waiting = self._waiting, []
                await to_thread.run_sync(self._keep, letters)
        if isinstance(letter.answer, Receipt):
            return letter.answer
        assert letter.answer is not None
        raise letter.answer

    def _keep(self, letters: Sequence[QueuedEvent]) -> None:
        try:
            self._keep_together(letters)
        except StoreError as error:
            if len(letters) == 1:
                letters[0].answer = error
                return
            for letter in letters:  # one of them may be at fault
                self._keep([letter])

    def _keep_together(self, letters: Sequence[QueuedEvent]) -> None:
        find, addressed, requester = cache(self._find), [], letters[0].requester
        for letter in letters:
            telling = letter.telling
            try:
                name = find(telling.cluster, isinstance(telling.event, NodeAdded))
                addressed.append((letter, replace(telling, cluster=name)))
            except StoreError:
                raise
            except AnubisError as error:
                letter.answer = error
        tellings = [telling for _, telling in addressed]
        answers = tell_all(tellings, requester.history(), requester)
        for (letter, _), answer in zip(addressed, answers, strict=True):
            letter.answer = answer


P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class House:
    settings: ServiceSettings
    history: OpenHistory
    history_url: str
    board: Board
    gauges: Gauges
    trail: AuditTrail
    started: StartedTests
    turns: Turns
    gates: Gates
    overviews: Overviews
    gangs: Gangs = field(default_factory=Gangs)
    connections: Connections[Any] = field(default_factory=Connections)
    own_files: OwnFiles = field(default_factory=OwnFiles)
    writer: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))

    @cached_property
    def event_queue(self) -> EventQueue:
        return EventQueue(self.writer, self._find)

    async def read(self) -> Snapshot:
        """The snapshot; no thread is needed unless it is the first."""
        if latest := self.board.latest:
            return latest
        return await self.run_in_thread(self.board.read)

    async def write(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run calls one after the other in one thread that no reader waits for: SQLite has one
        writer, and a caller that finds it busy sleeps longer than needed."""
        return await to_thread.run_sync(lambda: call(*args, **kwargs), limiter=self.writer)

    async def run_in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that reads or writes the history without keeping others waiting."""
        return await to_thread.run_sync(lambda: call(*args, **kwargs))

    async def cluster_name(self, cluster: str | None) -> str | None:
        """Name of the cluster in the history. If none is given: the one that is served, or the only
        one; None if the history has none."""
        return await self.run_in_thread(self._find, cluster)

    def _find(self, cluster: str | None, may_begin: bool = False) -> str | None:
        """Name of the cluster in the history. `may_begin`: an unknown name is accepted."""
        served = self.settings.files
        name = next(iter(served)) if cluster is None and len(served) == 1 else cluster
        latest = self.board.latest
        if name is not None and latest and name in latest.clusters:
            return name  # without reading the history
        names = self.history.clusters.names()
        if name is None and len(names) > 1:
            listed = '", "'.join(names)
            raise UsageError(
                f'the history knows clusters "{listed}": name one, by "cluster" in the body of a'
                " gate or an event, by ?cluster= in the address of anything else"
            )
        if name is None:
            return next(iter(names), None)
        if name not in names and name in served:
            return resolve(self.history, served[name], Requester(self.history, "", ())).cluster
        if name not in names and not may_begin:
            raise UsageError(unknown(name, names))
        return name

    async def refuse_unknown_cluster(self, cluster: str | None) -> None:
        """Refuse an unknown cluster to readers, which need not name one and enter none."""
        if cluster is not None and cluster not in self.settings.files:
            await self.cluster_name(cluster)

    def audit_now(self, requester: Requester, deed: str) -> None:
        """Write a deed to the audit before it is done."""
        entry = AuditEntry(
            at=requester.clock(),
            who=requester.token,
            address="",
            method="act",
            path=deed[:200],
            status=0,
        )
        self.history.audit.add([entry])

    def refuse_unknown(self, campaign: str) -> None:
        try:
            self.history.campaigns.glance(campaign)
        except UnknownCampaignError as error:
            raise Refused(404, str(error)) from None
