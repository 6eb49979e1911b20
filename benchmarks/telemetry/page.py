"""Telemetry over HTTP: `/metrics` for a Prometheus, `/samples?since=TIME` for `anubis watch`,
`/pings` and `/looks/JOB` for the keeper.

It is a server of its own, because the standard library's takes as much memory as all the rest.
"""

from __future__ import annotations

import hmac
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from telemetry.ring import number
from telemetry.sources import Line

PATIENCE_S = 2.0  # with a client, until it has asked, and each time that it takes something
AT_ONCE = 8  # clients; another is turned away
LONGEST_HEAD = 16 << 10  # bytes of a request
LONGEST_PLAN = 1 << 20  # bytes of a plan of pings
PINGS = "/pings"
LOOKS = "/looks/"
OPEN_METRICS = "application/openmetrics-text"
FORMS = {True: f"{OPEN_METRICS}; version=1.0.0; charset=utf-8", False: "text/plain; version=0.0.4"}
REASONS = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Not Allowed",
    409: "Conflict",
    500: "Internal Error",
}
WHERE = "there are /metrics, /samples?since=TIME, with --pings /pings, and with --live /looks/JOB\n"

Answer = tuple[int, str, str | bytes]  # status, kind of content, content


class Pings(Protocol):
    def take_plan(self, document: Any) -> None: ...
    def report(self) -> dict[str, Any]: ...


class Looks(Protocol):
    def answer(self, verb: str, name: str) -> Answer: ...


class AgentServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A server that listens as soon as it is made."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        address: tuple[str, int],
        lines: Callable[[], Iterable[Line]],
        rows: Callable[[float], Iterable[str]],
        token: str = "",
        pings: Pings | None = None,
        looks: Looks | None = None,
    ) -> None:
        self.lines, self.rows, self.token, self.pings = lines, rows, token, pings
        self.looks = looks if token else None  # never without one
        self._room = threading.BoundedSemaphore(AT_ONCE)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Visit)

    def verify_request(self, request: object, client_address: object) -> bool:
        return self._room.acquire(blocking=False)

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that leaves in the middle, or sends too slowly."""

    def answer(self, words: list[str], headers: dict[str, str], body: bytes = b"") -> Answer:
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, FORMS[False], "this is no request of HTTP\n"
        is_plan = words[:2] == ["POST", PINGS] and self.pings is not None
        is_look = words[1].startswith(LOOKS) and self.looks is not None
        if words[0] not in ("GET", "HEAD") and not is_plan and not (is_look and words[0] == "POST"):
            return 405, FORMS[False], f"{words[0]} is not answered: GET is\n"
        shown = headers.get("authorization", "").removeprefix("Bearer ")
        if self.token and not hmac.compare_digest(shown.encode(), self.token.encode()):
            return 401, FORMS[False], "a token is needed: Authorization: Bearer TOKEN\n"
        where = urlsplit(words[1])
        if where.path == "/metrics":
            is_open = OPEN_METRICS in headers.get("accept", "")
            return 200, FORMS[is_open], text_of(self.lines(), is_open)
        if where.path == PINGS and self.pings:
            return self._take_plan(self.pings, body) if is_plan else pings_of(self.pings)
        if is_look and self.looks:
            return self.looks.answer(words[0], where.path.removeprefix(LOOKS))
        if where.path == "/samples":
            return self._samples(parse_qs(where.query).get("since", ["0"])[-1])
        return 404, FORMS[False], WHERE

    def _take_plan(self, pings: Pings, body: bytes) -> Answer:
        try:
            pings.take_plan(json.loads(body))
        except (ValueError, RecursionError, OSError) as error:
            return 400, FORMS[False], f"no plan of pings: {error}\n"
        return pings_of(pings)

    def _samples(self, since: str) -> Answer:
        try:
            time = float(since)
        except ValueError:
            return 400, FORMS[False], f'since="{since}": expected seconds since 1970\n'
        return 200, "application/jsonl", "".join(f"{row}\n" for row in self.rows(time))


class Visit(socketserver.StreamRequestHandler):
    """One request, one answer."""

    server: AgentServer
    timeout = PATIENCE_S

    def handle(self) -> None:
        head, begun = self._head()
        first, *rest = head.split("\r\n")
        fields = (line.partition(":") for line in rest)
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        words = first.split()
        sent = self._body(headers, begun) if words[:1] == ["POST"] else b""
        status, kind, text = self.server.answer(words, headers, sent)
        body = text.encode() if isinstance(text, str) else text
        self.wfile.write(
            f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        )
        if words[:1] != ["HEAD"]:
            self.wfile.write(body)

    def _body(self, headers: dict[str, str], begun: bytes) -> bytes:
        """Read as much as the client announced, or until time or room is up."""
        length = headers.get("content-length", "0")
        size = min(int(length), LONGEST_PLAN) if length.isdecimal() else 0
        return self._read(begun, lambda body: len(body) >= size, LONGEST_PLAN)[:size]

    def _head(self) -> tuple[str, bytes]:
        """Read up to the first empty line, and return what came behind it."""
        text = self._read(b"", lambda head: b"\r\n\r\n" in head, LONGEST_HEAD)
        head, _, begun = text.partition(b"\r\n\r\n")
        return head.decode("latin-1"), begun

    def _read(self, text: bytes, is_whole: Callable[[bytes], bool], limit: int) -> bytes:
        """Read until it is whole, or until time or room is up."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_whole(text) and len(text) < limit:
            self.connection.settimeout(max(0.001, deadline - time.monotonic()))
            part = self.connection.recv(LONGEST_HEAD)
            if not part:
                break
            text += part
        self.connection.settimeout(PATIENCE_S)
        return text


def pings_of(pings: Pings) -> Answer:
    return 200, "application/json", f"{json.dumps(pings.report())}\n"


def text_of(lines: Iterable[Line], is_open: bool) -> str:
    """Format lines for Prometheus: for each family its kind, then its numbers together."""
    families: dict[str, list[Line]] = {}
    for line in lines:
        families.setdefault(line.name, []).append(line)
    return "".join(family_texts(families, is_open)) + ("# EOF\n" if is_open else "")


def family_texts(families: dict[str, list[Line]], is_open: bool) -> Iterator[str]:
    for name, lines in families.items():
        is_counter = name.endswith("_total") and not name.startswith("DCGM_")
        family = name.removesuffix("_total") if is_counter and is_open else name
        yield f"# HELP {family} {help_of(name)}\n"
        yield f"# TYPE {family} {'counter' if is_counter else 'gauge'}\n"
        for line in lines:
            where = f"{{{line.labels}}}" if line.labels else ""
            yield f"{name}{where} {number(line.value)}\n"


def help_of(name: str) -> str:
    if name.startswith("anubis_"):
        return HELP[name]
    return f"As {'dcgm-exporter' if name.startswith('DCGM_') else 'node_exporter'} has it."


HELP = {
    "anubis_agent_xids_total": "XIDs that the driver reported since the agent began.",
    "anubis_agent_source_answers": "Whether this source answered in time at the last sample.",
    "anubis_agent_samples_total": "Samples taken since the agent began.",
    "anubis_agent_samples_missed_total": "Seconds without a sample, because the machine was busy.",
    "anubis_agent_pings_sent_total": "Pings sent to other nodes.",
    "anubis_agent_pings_lost_total": "Pings without an answer within 5 s.",
    "anubis_agent_recording": "Whether what --record asks for is being written.",
    "anubis_agent_cpu_seconds_total": "CPU time of the agent itself.",
}
