"""The application: its routes, the state that they share, and the right of one service to act.

Of several services on a history one does the periodic work. It has a lock that ends with it,
however it ends, and on a database server also if it is suspended. The others try again every few
seconds.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

from anyio import to_thread
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from anubis import __version__
from anubis.core.errors import AnubisError
from anubis.report.service_pages import refusal_page
from anubis.service import api, pages
from anubis.service.admission import Admission
from anubis.service.problems import MEDIA_TYPE, OwnFiles, Refused, problem
from anubis.service.requester import LOG
from anubis.service.service_state import House
from anubis.store.claims import FORGOTTEN_AFTER_S
from anubis.store.history import History

PAGE_AGAIN_S = 20  # until a page that was not ready is asked for again
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


THREADS = 10  # each may have a connection to the history; a pool has 15


def application(house: House) -> Admission:
    actor = Actor(house.history, lambda is_acting: house.gauges.acting.set(is_acting))
    house.turns.may_act = lambda: actor.is_acting

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        parts = (house.trail, house.board, house.overviews, actor, house.turns)
        for part in parts:
            part.start()
        try:
            yield
        finally:
            for part in reversed(parts):
                part.stop()
            house.gates.stop()

    house.gauges.watch(house.connections)
    app = FastAPI(
        title="Anubis",
        version=__version__,
        summary="Keeps GPU clusters fit for work.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    _answer_errors(app, house.own_files)
    _watch_over(app, house, actor)
    app.include_router(api.router(house))
    app.include_router(pages.router(house))
    return Admission(
        app,
        settings=house.settings,
        history=house.history,
        audit=house.trail,
        observe=house.gauges.observe_request,
        know=house.connections.know,
        scripts=pages.script_digests(),
    )


def _watch_over(app: FastAPI, house: House, actor: Actor) -> None:
    @app.get("/healthz", include_in_schema=False)
    def healthz() -> Response:
        """Answer that the process runs."""
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz", include_in_schema=False)
    def readyz() -> Response:
        """Answer that the history can be read, too."""
        house.history.clusters.names()
        role = "acting" if actor.is_acting else "not acting"
        return Response(f"ready, {role}\n", media_type="text/plain")

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return Response(house.gauges.text(), media_type="text/plain; version=1.0.0; charset=utf-8")


def _answer_errors(app: FastAPI, own_files: OwnFiles) -> None:
    def answer(
        request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Answer a program by a document, and a browser by a page that is asked for again if it may
        be ready then."""
        if not _is_for_browser(request):
            return Response(problem(status, detail), status, headers, MEDIA_TYPE)
        again = {"refresh": f"{PAGE_AGAIN_S}"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
        now = time.time()  # wall clock: the page states when it was asked for
        page = refusal_page(HTTPStatus(status).phrase, detail, now)
        return Response(page, status, {**(headers or {}), **again}, pages.HTML)

    @app.exception_handler(Refused)
    async def answer_refusal(request: Request, error: Refused) -> Response:
        return answer(request, error.status, error.detail)

    @app.exception_handler(AnubisError)
    async def answer_error(request: Request, error: AnubisError) -> Response:
        return answer(request, *own_files.answer_to(error))

    @app.exception_handler(HTTPException)
    async def answer_unrouted(request: Request, error: HTTPException) -> Response:
        detail = {404: "there is nothing here: see / or /v1/openapi.json"}
        sentence = detail.get(error.status_code, error.detail)
        return answer(request, error.status_code, sentence, error.headers)

    @app.exception_handler(Exception)
    async def answer_bug(request: Request, error: Exception) -> Response:
        return answer(request, *own_files.answer_to(error))

    @app.exception_handler(RequestValidationError)
    async def answer_unreadable(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return answer(request, 422, f"{place}: {first['msg']}")


def _is_for_browser(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return "text/html" in accepted and not request.url.path.startswith("/v1/")
