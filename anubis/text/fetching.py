"""One request over HTTP, with a deadline for all of it: no server can keep us waiting for ever.

Proxies of the environment are not used, redirections not followed: a token goes only to its server.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from anubis.core.errors import FetchError


@dataclass(frozen=True, kw_only=True)
class HttpQuestion:
    url: str
    deadline_s: float
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    trust: ssl.SSLContext | None = None
    most_bytes: int = 64 << 20


@dataclass(frozen=True, kw_only=True)
class HttpAnswer:
    status: int
    kind: str  # of the content
    body: bytes
    location: str = ""
    retry_after: str = ""


class UnreachableError(FetchError):
    """Nobody listens there; further requests to the same server are in vain."""


class TimeoutPassedError(FetchError):
    pass


def fetch(question: HttpQuestion) -> HttpAnswer:
    """Send a request and return its answer. Errors do not name the server: the caller knows it."""
    connection = _connection(question)
    late = threading.Event()

    def end() -> None:
        late.set()
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(question.deadline_s, end)
    watch.daemon = True
    watch.start()
    try:
        with closing(connection):
            answer = _ask(connection, question)
        if late.is_set():
            raise TimeoutError  # what was cut off may look whole
        return answer
    except (OSError, http.client.HTTPException, ValueError) as cause:
        if late.is_set() or isinstance(cause, TimeoutError):
            raise TimeoutPassedError(f"no answer within {question.deadline_s:g} s") from None
        raise _explain(cause) from None
    finally:
        watch.cancel()


def _connection(question: HttpQuestion) -> http.client.HTTPConnection:
    parts = urlsplit(question.url)
    host, limit_s = parts.hostname or "", question.deadline_s
    if parts.scheme == "https":
        return http.client.HTTPSConnection(
            host, parts.port, timeout=limit_s, context=question.trust
        )
    return http.client.HTTPConnection(host, parts.port, timeout=limit_s)


def _ask(connection: http.client.HTTPConnection, question: HttpQuestion) -> HttpAnswer:
    parts = urlsplit(question.url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    method = "GET" if question.body is None else "POST"
    connection.request(method, path, question.body, dict(question.headers))
    with connection.getresponse() as response:
        body = response.read(question.most_bytes + 1)
        if len(body) > question.most_bytes:
            raise FetchError(
                f"the answer is larger than {question.most_bytes >> 20} MiB, the most that is read"
            )
        if response.length:
            raise http.client.IncompleteRead(body, response.length)
        return HttpAnswer(
            status=response.status,
            kind=response.headers.get_content_type(),
            body=body,
            location=response.headers.get("Location", ""),
            retry_after=response.headers.get("Retry-After", ""),
        )


def _explain(cause: Exception) -> FetchError:
    match cause:
        case ssl.SSLCertVerificationError():
            return UnreachableError(f"its certificate is not trusted: {cause.verify_message}")
        case ssl.SSLError():
            return UnreachableError(f"it does not speak TLS as expected: {cause.reason or cause}")
        case http.client.IncompleteRead():
            return FetchError("the answer ended in the middle")
        case http.client.HTTPException() | ValueError():
            return FetchError(f"it does not speak HTTP as expected: {type(cause).__name__}")
        case ConnectionResetError() | BrokenPipeError():
            return FetchError("it ended the connection")
        case OSError():
            return UnreachableError(cause.strerror or str(cause))
    return FetchError(str(cause))
