"""What all routes share: the open history, what readers see of it, and who keeps count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

from anubis.core.errors import UnknownCampaignError
from anubis.service.asker import Asker, OpenHistory
from anubis.service.audit import AuditTrail
from anubis.service.board import Board, Snapshot
from anubis.service.connections import Connections
from anubis.service.gates import Gates
from anubis.service.gauges import Gauges
from anubis.service.letterbox import Letterbox
from anubis.service.overviews import Overviews
from anubis.service.problems import Refused
from anubis.service.settings import ServiceSettings
from anubis.service.starting import StartedTests
from anubis.service.turns import Turns
from anubis.store.tokens import AuditEntry

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
    connections: Connections[Any] = field(default_factory=Connections)
    writer: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))

    @cached_property
    def letterbox(self) -> Letterbox:
        return Letterbox(self.writer)

    async def read(self) -> Snapshot:
        """What there is needs no thread, and so waits for none."""
        if latest := self.board.latest:
            return latest
        return await self.in_thread(self.board.read)

    async def writing(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """One after the other, by a thread that no reader waits for: SQLite has one writer, and
        whoever finds it busy sleeps longer than it is."""
        return await to_thread.run_sync(lambda: call(*args, **kwargs), limiter=self.writer)

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What reads and writes the history keeps nobody else waiting."""
        return await to_thread.run_sync(lambda: call(*args, **kwargs))

    def audit_now(self, asker: Asker, deed: str) -> None:
        """On disk before it is done."""
        entry = AuditEntry(
            at=asker.clock(), who=asker.token, address="", method="act", path=deed[:200], status=0
        )
        self.history.audit.add([entry])

    def refuse_unknown(self, campaign: str) -> None:
        try:
            self.history.campaigns.at_a_glance(campaign)
        except UnknownCampaignError as error:
            raise Refused(404, str(error)) from None
