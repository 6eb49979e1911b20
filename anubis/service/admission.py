"""Admit requests: who asks, with which scopes and how often; and end every answer in time.

A layer around the application. It lets a request through, whole and within the size limit, with its
token's name and scopes, or refuses it with a problem document before anything reads it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from anubis.core.errors import AnubisError
from anubis.operations.tokens import TokenScope, find_token
from anubis.service.problems import A_BUG, MEDIA_TYPE, Refused, problem, status_of
from anubis.service.requester import LOG, OpenHistory, Requester
from anubis.service.service_settings import ServiceSettings
from anubis.service.service_state import AuditTrail
from anubis.store.tokens import AuditEntry, Token
from anubis.text.wording import moment

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
CountRequest = Callable[[str, str, int, float], None]  # method, route, status, seconds

TOKENS_KEPT_S = 2.0  # in memory: a token that is taken back is valid this much longer
MOST_HEADERS, MOST_HEADER_BYTES = 64, 16_000  # browsers and proxies send less
FAILURES_PER_S, FAILURES_AT_ONCE = 5.0, 30.0  # of one address, with no valid token
WITHOUT_TOKEN: tuple[TokenScope, ...] = ("read",)
POD_GATE = "/v1/pod-gate"  # Kubernetes asks without a token; the answer tells nothing of nodes
OPEN = {"/healthz", "/readyz", POD_GATE}
REPORTS = {"/v1/incidents", "/v1/alerts", "/v1/lines"}
TELLS = {"/v1/events"}  # the scope that an event needs is known once it is read
READS = {"/v1/gate"}
STREAMS = "/stream"  # the end of a path whose answer goes on
SAFE = {"GET", "HEAD"}
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self' {scripts}; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


MOST_BUCKETS = 10_000  # of addresses; beyond that all start full again


@dataclass
class Bucket:
    left: float
    at: float


class Rates:
    def __init__(self, per_s: float, at_once: float) -> None:
        self._per_s = per_s
        self._at_once = at_once
        self._buckets: dict[str, Bucket] = {}

    def allows(self, name: str, now: float) -> bool:
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.clear()
        bucket = self._buckets.setdefault(name, Bucket(left=self._at_once, at=now))
        filled = bucket.left + (now - bucket.at) * self._per_s
        bucket.left, bucket.at = min(self._at_once, filled), now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """A request before anybody has read its body."""

    method: str
    path: str
    scheme: str
    address: str
    headers: Mapping[str, str]

    @classmethod
    def from_scope(cls, scope: Message) -> Incoming:
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        if len(raw) > MOST_HEADERS or sum(len(k) + len(v) for k, v in raw) > MOST_HEADER_BYTES:
            raise Refused(431, f"more than {MOST_HEADER_BYTES:,} bytes of headers: send fewer")
        names = [name for name, _ in raw]
        if names.count(b"host") != 1:
            raise Refused(400, "expected one Host header")
        client = scope.get("client")
        return cls(
            method=scope["method"],
            path=scope["path"],
            scheme=scope["scheme"],
            address=client[0] if client else "",
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in raw},
        )

    @property
    def required_scopes(self) -> tuple[TokenScope, ...]:
        """Scopes of which the requester needs one; empty if the path is open to all."""
        if self.path in OPEN:
            return ()
        if self.method in SAFE or self.path in READS:
            return ("read",)
        if self.path in TELLS:
            return ("report", "operate", "act")
        return ("report",) if self.path in REPORTS else ("act",)

    @property
    def secret(self) -> str:
        """The token's secret: a bearer's, or the password that a browser asked its reader for."""
        kind, _, value = self.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return value.strip()
        if kind.lower() == "basic":
            with suppress(binascii.Error, ValueError):
                return base64.b64decode(value, validate=True).decode().partition(":")[2]
        return ""


class Admission:
    def __init__(
        self,
        app: App,
        *,
        settings: ServiceSettings,
        history: OpenHistory,
        audit: AuditTrail,
        observe: CountRequest,
        know: Callable[[str], None],
        scripts: Iterable[str],
    ) -> None:
        self._app = app
        self._settings = settings
        self._history = history
        self._audit = audit
        self._observe = observe
        self._know = know  # an address that presented a token
        self._policy = PAGE_POLICY.format(scripts=" ".join(f"'{name}'" for name in scripts))
        self._rates = Rates(settings.rate_per_s, 2 * settings.rate_per_s)
        self._failures = Rates(FAILURES_PER_S, FAILURES_AT_ONCE)
        self._tokens: list[Token] = []
        self._read_at = float("-inf")
        self._unfinished: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        began, answer = time.monotonic(), Reply(send, self._policy)
        requester = Requester(self._history, "", ())
        try:
            incoming = Incoming.from_scope(scope)
            requester = await self._identify(incoming)
            self._admit(requester, incoming)
            body = await self._body(incoming, receive)
            scope.setdefault("state", {})["requester"] = requester
            await self._let_through(scope, body, receive, answer)
        except Refused as refusal:
            await answer.refuse(refusal)
        except AnubisError as error:
            await answer.refuse(Refused(status_of(error), str(error)))
        route = getattr(scope.get("route"), "path", "unknown")
        self._observe(scope["method"], route, answer.status, time.monotonic() - began)
        if scope["method"] not in SAFE or answer.status in (401, 403, 429):
            client = scope.get("client")
            self._audit.add(
                AuditEntry(
                    at=time.time(),  # wall clock: the audit has what the clock showed
                    who=requester.token,
                    address=client[0] if client else "",
                    method=scope["method"][:20],
                    path=scope["path"][:200],
                    status=answer.status,
                )
            )

    # --- who ----------------------------------------------------------------------------------

    async def _identify(self, incoming: Incoming) -> Requester:
        self._check_names(incoming)
        now, kept = time.monotonic(), await self._kept_tokens()
        token = find_token(incoming.secret, kept) if incoming.secret else None
        if token and not token.has_ended(time.time()):  # wall clock: tokens are of no cluster
            self._know(incoming.address)
            return Requester(self._history, token.name, token.scopes)
        # an ended token still closes the service: it was not taken back
        open_to_all = not kept and self._settings.is_loopback and not incoming.secret
        if incoming.required_scopes and not open_to_all:
            if not self._failures.allows(incoming.address, now):
                raise Refused(429, "too many requests without a valid token: wait", retry_after="1")
            why = _ended_token_reason(token) if token else _no_token_reason(incoming)
            raise Refused(401, why, www_authenticate=_challenge(incoming))
        return Requester(self._history, "", WITHOUT_TOKEN)

    def _admit(self, requester: Requester, incoming: Incoming) -> None:
        if not self._rates.allows(requester.token or incoming.address, time.monotonic()):
            raise Refused(
                429,
                f"more than {self._settings.rate_per_s:g} requests a second: wait, or ask for a"
                " higher anubis serve --rate",
                retry_after="1",
            )
        if incoming.required_scopes:
            requester.require(*incoming.required_scopes)

    def _check_names(self, incoming: Incoming) -> None:
        """Refuse requests that a page elsewhere makes a reader's browser send in the reader's
        name."""
        host = incoming.headers["host"]
        name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host
        name = name if name.startswith("[") else name.partition(":")[0]
        if not self._settings.is_own(name):
            raise Refused(421, f'"{host[:100]}" is no name of this service: see --name')
        if incoming.method in SAFE:
            return
        origin = incoming.headers.get("origin")
        site = incoming.headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none") or origin not in (
            None,
            f"{incoming.scheme}://{host}",
        ):
            raise Refused(403, "a page of another origin may not ask this service for anything")

    async def _kept_tokens(self) -> list[Token]:
        """Tokens that were not taken back."""
        now = time.monotonic()
        if now - self._read_at > TOKENS_KEPT_S:
            limit_s = self._settings.answer_s
            try:
                reading = asyncio.to_thread(self._history.tokens.all)
                made = await asyncio.wait_for(reading, limit_s)
            except TimeoutError:
                sentence = f"the history does not answer within {limit_s:g} s: ask again later"
                raise Refused(503, sentence) from None
            self._tokens = [token for token in made if token.revoked_at is None]
            self._read_at = now
        return self._tokens

    # --- with what ----------------------------------------------------------------------------

    async def _body(self, incoming: Incoming, receive: Receive) -> bytes:
        most_bytes = self._settings.most_bytes
        length = incoming.headers.get("content-length", "0")
        too_large = Refused(413, f"a body of more than {most_bytes:,} bytes: send less at once")
        if not length.isdecimal() or len(length) > 12 or int(length) > most_bytes:
            raise too_large
        is_chunked = "transfer-encoding" in incoming.headers
        if incoming.method in SAFE and length == "0" and not is_chunked:
            return b""
        try:
            async with asyncio.timeout(self._settings.body_s):
                return await _whole(receive, most_bytes, too_large)
        except TimeoutError:
            raise Refused(
                408, f"not all of it arrived within {self._settings.body_s:g} s"
            ) from None

    async def _let_through(
        self, scope: Message, body: bytes, receive: Receive, answer: Reply
    ) -> None:
        """Give up an answer that takes too long; the work on it continues to its end."""
        task = asyncio.ensure_future(self._app(scope, _replay_body(body, receive), answer))
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        limit = None if scope["path"].endswith(STREAMS) else self._settings.answer_s
        try:
            finished, _ = await asyncio.wait({task}, timeout=limit)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not finished:
            task.add_done_callback(_log_trouble)
            raise Refused(503, f"no answer within {limit:g} s: ask again later")
        if error := task.exception():
            LOG.error("%s %s", scope["method"], scope["path"], exc_info=error)
            raise Refused(500, A_BUG) from error


def _no_token_reason(incoming: Incoming) -> str:
    if incoming.secret:
        return "the token is not valid, or was taken back"
    return "a token is needed: Authorization: Bearer TOKEN, or as the password in a browser"


def _ended_token_reason(token: Token) -> str:
    assert token.expires_at is not None
    scopes = ",".join(token.scopes)
    return (
        f'token "{token.name}" ended {moment(token.expires_at)}: make another one (anubis token'
        f" make NAME --scope {scopes})"
    )


def _challenge(incoming: Incoming) -> str:
    """The challenge that makes a browser ask its reader for a password."""
    kind = "Bearer" if incoming.path.startswith("/v1/") else "Basic"
    return f'{kind} realm="Anubis"'


async def _whole(receive: Receive, most_bytes: int, too_large: Refused) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the connection ended before the request did")
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > most_bytes:
            raise too_large
        if not message.get("more_body"):
            return b"".join(parts)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        message: Message = waiting.pop() if waiting else await receive()
        return message

    return replay


def _log_trouble(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()):
        LOG.error("after its time", exc_info=error)


class Reply:
    """Sends the answer with the headers that every answer has, and nothing after its end."""

    def __init__(self, send: Send, page_policy: str) -> None:
        self._send = send
        self._page_policy = page_policy
        self._is_over = False
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if self._is_over:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": self._headers(message.get("headers", ()))}
        await self._send(message)

    def _headers(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        own = list(headers)
        kind = dict(own).get(b"content-type", b"")
        policy = self._page_policy if kind.startswith(b"text/html") else "default-src 'none'"
        always = {**ALWAYS, "content-security-policy": policy}
        taken = {name.lower() for name, _ in own}
        return [
            *own,
            *((k.encode(), v.encode()) for k, v in always.items() if k.encode() not in taken),
        ]

    async def refuse(self, refusal: Refused) -> None:
        if self.status:  # half an answer cannot be taken back
            self._is_over = True
            return
        body = problem(refusal.status, refusal.detail)
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
        headers += [
            (name.replace("_", "-").encode(), value.encode())
            for name, value in refusal.headers.items()
        ]
        await self({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
        self._is_over = True
