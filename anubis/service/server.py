"""Run the service: listen until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import ssl
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from anubis.core.errors import UsageError
from anubis.operations.caller import Caller
from anubis.operations.requests import KeepRequest, ServeRequest
from anubis.operations.verb_processes import begin, keep_words
from anubis.service.admission import MOST_HEADER_BYTES, STREAMS
from anubis.service.app import application
from anubis.service.connections import Connections
from anubis.service.fleet_cache import Board
from anubis.service.gate import Gates, StartedTests
from anubis.service.keeper_turns import Turns
from anubis.service.metrics import Gauges
from anubis.service.pages import STREAMED_S
from anubis.service.problems import MEDIA_TYPE, problem
from anubis.service.requester import LOG, OpenHistory, Requester
from anubis.service.service_settings import ServiceSettings
from anubis.service.service_state import AuditTrail, House
from anubis.service.slow_pages import Overviews, Question
from anubis.store.database import own_name
from anubis.text.open_files import allow_open_files

ENDS_WITHIN_S = 5  # for requests under way, when the service stops
BACKLOG = 500  # connections that wait to be accepted
OPEN_FILES = 4096  # simultaneous connections are open before it is decided which may stay
TURNED_AWAY = problem(503, "too many connections, of this address or of all: ask again later")
LOOKS_FOR_GARBAGE = (10_000, 20, 50)  # new objects between collections: long ones delay all
SWITCHES_EVERY_S = 0.001  # between threads: readers must not wait long for computations


class ImpatientProtocol(H11Protocol):
    """HTTP with deadlines. A peer that sends its request letter by letter, or does not take the
    answer, is cut off; a connection that asks for nothing makes room for others."""

    held: Connections[ImpatientProtocol]
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        is_let_in, goes = self.held.admit(self, self.client[0] if self.client else "")
        if goes is not None:
            goes.end()
        if is_let_in:
            self._wait(self.held.limits.first_head_s)
        else:
            transport.write(_refusal(TURNED_AWAY))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.held.leave(self)
        if self._deadline:
            self._deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self.held.begin(self)
            self._wait(self._longest_s)

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        if self.cycle is answered:
            self.held.rest(self)
            self._wait(self.held.limits.idle_s)
        else:  # the next request came with it
            self._wait(self._longest_s)

    @property
    def _longest_s(self) -> float:
        is_stream = self.scope["path"].endswith(STREAMS)
        return self.held.limits.taken_s + (STREAMED_S if is_stream else 0.0)

    def _wait(self, limit_s: float) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(limit_s, self.end)

    def end(self) -> None:
        """Close at once: an answer that the peer does not take is not waited for."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()


def _refusal(document: bytes) -> bytes:
    head = (
        "HTTP/1.1 503 Service Unavailable",
        f"content-type: {MEDIA_TYPE}",
        f"content-length: {len(document)}",
        "retry-after: 5",
        "connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + document


def protocol_in(held: Connections[ImpatientProtocol]) -> type[ImpatientProtocol]:
    """Make a protocol that counts its connections among these."""
    return type("CountedProtocol", (ImpatientProtocol,), {"held": held})


class TerminableServer(uvicorn.Server):
    """uvicorn's server. A signal that came before it took the process's signals ends it as well."""

    def __init__(self, config: uvicorn.Config, is_terminated: Callable[[], bool]) -> None:
        super().__init__(config)
        self._is_terminated = is_terminated

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.should_exit = self.should_exit or self._is_terminated()
        await super().startup(sockets)


def serve(
    request: ServeRequest, caller: Caller, is_terminated: Callable[[], bool] = lambda: False
) -> None:
    """Serve until the process is told to end; return after the last answer. `is_terminated`: true
    if it was told to end before it could listen for signals."""
    settings = ServiceSettings.from_request(request)
    url = caller.find_history()
    history = OpenHistory.open(url)
    if history.new_place:
        caller.remark(f'a new history begins in "{history.new_place}"')
    try:
        valid = [token for token in history.tokens.all() if token.revoked_at is None]
        settings.refuse_open(has_tokens=bool(valid))
        board = Board(Requester(history, "", ()))
        house = House(
            settings=settings,
            history=history,
            history_url=url,
            board=board,
            gauges=Gauges(board.read, settings.turns_every_s),
            trail=AuditTrail(history.audit.add),
            started=StartedTests(),
            gates=Gates(),
            overviews=Overviews(Question(history_url=url, settings=settings)),
            connections=Connections(settings.connections),
            turns=Turns(
                list(settings.files),
                settings.turn_every_s,
                lambda cluster: begin(turn_words(settings, cluster), url, f"keep-{cluster}"),
            ),
        )
        _listen(house, caller, is_terminated)
    finally:
        history.close_at_last()


def turn_words(settings: ServiceSettings, cluster: str) -> list[str]:
    """Words of a keeper's turn, with the name by which the acting service's lock knows this
    process."""
    request = KeepRequest(
        cluster=settings.files[cluster],
        keeping=settings.keeping,
        benchmarks=settings.benchmarks,
        service=own_name(),
    )
    return [*keep_words(request), "--apart"]


def _listen(house: House, caller: Caller, is_terminated: Callable[[], bool]) -> None:
    settings = house.settings
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    LOG.setLevel(logging.INFO)
    files = (settings.certificate, settings.private_key)
    certificate = Certificate(files[0], files[1]) if files[0] and files[1] else None
    listening = _bind(settings)
    config = uvicorn.Config(
        application(house),
        http=protocol_in(house.connections),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=2 * MOST_HEADER_BYTES,
        backlog=BACKLOG,
        timeout_keep_alive=int(settings.connections.idle_s),
        timeout_graceful_shutdown=ENDS_WITHIN_S,
    )
    host, port = listening.getsockname()[:2]
    scheme = "https" if certificate else "http"
    caller.remark(f"listening on {scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    allow_open_files(OPEN_FILES)
    sys.setswitchinterval(SWITCHES_EVERY_S)
    gc.set_threshold(*LOOKS_FOR_GARBAGE)
    server = TerminableServer(config, is_terminated)
    with listening:
        asyncio.run(_answer_until_stopped(server, certificate, listening, settings))


async def _answer_until_stopped(
    server: uvicorn.Server,
    certificate: Certificate | None,
    listening: socket.socket,
    settings: ServiceSettings,
) -> None:
    server.config.load()
    if certificate:
        server.config.ssl = certificate.context
        loop: Any = asyncio.get_running_loop()  # a handshake has as long as the head of a request
        limit_s = settings.connections.first_head_s
        loop.create_server = partial(loop.create_server, ssl_handshake_timeout=limit_s)
    await server.serve(sockets=[listening])


def _bind(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(BACKLOG)  # a reader of the printed address may ask at once
    except (OSError, OverflowError) as error:
        listening.close()
        raise UsageError(
            f"cannot listen on {settings.host}, port {settings.port}: {error}; is another service"
            " running? --port takes another one"
        ) from None
    return listening


# --- the certificate ---------------------------------------------------------------------------

FileVersions = tuple[tuple[int, int, int], ...]  # of files, as their file system tells them apart


class Certificate:
    """A certificate with its key, in PEM. What renews them replaces the files: the next handshake
    takes the new ones, and keeps the old ones while the new ones do not fit together."""

    def __init__(self, certificate: Path, private_key: Path) -> None:
        self._files = (certificate, private_key)
        try:
            self._versions = self._read_versions()
            self.context = self._load()
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise UsageError(
                f'--certificate "{certificate}" with --private-key "{private_key}": {reason};'
                " expected a certificate and its key, both in PEM and without a password"
            ) from None

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._files, password=_refuse_password)
        context.sni_callback = self._renew  # called in each handshake, whatever name it has
        return context

    def _renew(
        self, peer: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext
    ) -> None:
        try:
            versions = self._read_versions()
            if versions != self._versions:
                self.context, self._versions = self._load(), versions
                LOG.info("the certificate was renewed")
        except (OSError, ValueError) as error:
            LOG.warning("the new certificate cannot be used, the old one stays: %s", error)
        peer.context = self.context

    def _read_versions(self) -> FileVersions:
        states = map(os.stat, self._files)
        return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)


def _refuse_password() -> str:
    """Keep OpenSSL from asking at the terminal."""
    raise ValueError("the key has a password")
