"""The service, listening until it is told to end."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from anubis.core.errors import UsageError
from anubis.operations.caller import Caller
from anubis.operations.processes import begin, keep_words
from anubis.places import history_url
from anubis.service.app import application
from anubis.service.asker import LOG, Asker, OpenHistory
from anubis.service.audit import AuditTrail
from anubis.service.board import Board
from anubis.service.door import MOST_HEADER_BYTES
from anubis.service.gates import Gates
from anubis.service.gauges import Gauges
from anubis.service.house import House
from anubis.service.overviews import Overviews, Question
from anubis.service.settings import ServiceSettings
from anubis.service.starting import StartedTests
from anubis.service.turns import Turns
from anubis.store.database import own_name

IDLE_S = 10.0  # for the head of a request to arrive, and between two of them
ENDS_WITHIN_S = 5
MOST_CONNECTIONS = 500
LOOKS_FOR_GARBAGE = (10_000, 20, 50)  # after so many new objects: a long look keeps all waiting
SWITCHES_EVERY_S = 0.001  # between threads: who reads must not wait long for who computes


class ImpatientProtocol(H11Protocol):
    """Whoever sends the head of a request letter by letter is not waited for."""

    _watch: asyncio.TimerHandle | None = None
    _before: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch_again()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch:
            self._watch.cancel()
        super().connection_lost(exc)

    def _watch_again(self) -> None:
        self._before = self.cycle
        self._watch = self.loop.call_later(IDLE_S, self._look)

    def _look(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self.cycle is self._before:
            self.transport.close()
        else:
            self._watch_again()


def serve(settings: ServiceSettings, caller: Caller) -> None:
    """Returns when the process is told to end, after the last answer."""
    url = caller.history_url or history_url()
    history = OpenHistory.open(url)
    try:
        valid = [token for token in history.tokens.all() if token.revoked_at is None]
        settings.refuse_open(has_tokens=bool(valid))
        board = Board(Asker(history, "", ()))
        house = House(
            settings=settings,
            history=history,
            history_url=url,
            board=board,
            gauges=Gauges(board.read),
            trail=AuditTrail(history.audit.add),
            started=StartedTests(),
            gates=Gates(),
            overviews=Overviews(Question(history_url=url, settings=settings)),
            turns=Turns(
                list(settings.clusters),
                settings.turn_every_s,
                lambda cluster: begin(turn_words(settings, cluster), url, f"keep-{cluster}"),
            ),
        )
        _listen(house, caller)
    finally:
        history.close_at_last()


def turn_words(settings: ServiceSettings, cluster: str) -> list[str]:
    """In the name by which the lock of the acting service knows this process."""
    file = settings.clusters[cluster]
    words = keep_words(file, settings.keeping, settings.benchmarks, own_name())
    return [*words, "--apart"]


def _listen(house: House, caller: Caller) -> None:
    settings = house.settings
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    LOG.setLevel(logging.INFO)
    listening = _bound(settings)
    config = uvicorn.Config(
        application(house),
        http=ImpatientProtocol,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=2 * MOST_HEADER_BYTES,
        timeout_keep_alive=int(IDLE_S),
        timeout_graceful_shutdown=ENDS_WITHIN_S,
    )
    host, port = listening.getsockname()[:2]
    caller.remark(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
    sys.setswitchinterval(SWITCHES_EVERY_S)
    gc.set_threshold(*LOOKS_FOR_GARBAGE)
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _bound(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(MOST_CONNECTIONS)  # whoever reads where may ask at once
    except (OSError, OverflowError) as error:
        listening.close()
        raise UsageError(
            f"cannot listen on {settings.host}, port {settings.port}: {error}; is another service"
            " running? --port takes another one"
        ) from None
    return listening
