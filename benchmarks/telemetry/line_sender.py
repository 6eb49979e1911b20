"""Sends lines of logs to the service, each once: what could not be sent waits, and is sent again
with the same id.

A service that is away, or too busy, is asked again after a pause. What it refuses for good is
dropped with one sentence, so that it does not delay the rest.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from telemetry.kernel_lines import LogLine
from telemetry.sources import Line

PATH = "/v1/lines"
AT_ONCE = 100  # lines of one request
MOST_WAITING = 2000  # about 1 MB
PATIENCE_S = 10.0  # with an answer
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0  # a service that restarts is back by then
LONGEST_ANSWER = 1 << 16  # bytes that are read of it
WORTH_ANOTHER_TRY = (401, 403, 404, 408, 421, 429)  # somebody may mend these, or time does
XID = "NVRM: Xid ("


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """The token goes to no other server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class LineSender:
    def __init__(
        self,
        address: str,
        token: str,
        about: dict[str, str],
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """`about`: the node, its boot id and, if stated, its cluster."""
        self._url, self._token = address.rstrip("/") + PATH, token
        self._about, self._say = about, say
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), _NoRedirection()
        )
        self._waiting: deque[LogLine] = deque()
        self._is_there = threading.Condition()
        self._sent = self._dropped = 0
        self._trouble = ""

    def add(self, line: LogLine) -> None:
        with self._is_there:
            if len(self._waiting) >= MOST_WAITING:
                self._drop_one()
            self._waiting.append(line)
            self._is_there.notify()

    def _drop_one(self) -> None:
        """Drop the oldest line; one of an XID only if all are."""
        places = (place for place, line in enumerate(self._waiting) if XID not in line.text)
        del self._waiting[next(places, 0)]
        self._dropped += 1

    def run(self) -> None:
        pause_s = 0.0
        while True:
            with self._is_there:
                self._is_there.wait_for(lambda: bool(self._waiting))
            if self.send():
                pause_s = 0.0
                continue
            pause_s = min(max(FIRST_PAUSE_S, 2 * pause_s), LONGEST_PAUSE_S)
            time.sleep(pause_s)

    def send(self) -> bool:
        """Send the oldest lines; return whether they are over and done with."""
        with self._is_there:
            batch = list(self._waiting)[:AT_ONCE]
        if not batch:
            return True
        try:
            self._post(batch)
        except urllib.error.HTTPError as error:
            with error:
                why = f"{error.code} {error.read(LONGEST_ANSWER).decode(errors='replace')[:200]}"
            if error.code in WORTH_ANOTHER_TRY or error.code >= 500:
                return self._wait_for(why)
            self._complain(f"lines are refused, and dropped: {why}")
            self._forget(batch)
            self._dropped += len(batch)
            return True
        except (OSError, ValueError) as error:  # no service, no name, no certificate
            return self._wait_for(str(getattr(error, "reason", error)))
        self._trouble = ""
        self._forget(batch)
        self._sent += len(batch)
        return True

    def _post(self, batch: list[LogLine]) -> None:
        lines = [asdict(line) for line in batch]
        body = json.dumps({**self._about, "sent_at": time.time(), "lines": lines}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(self._url, body, headers, method="POST")
        with self._opener.open(request, timeout=PATIENCE_S) as answer:
            answer.read(LONGEST_ANSWER)

    def _forget(self, batch: list[LogLine]) -> None:
        ids = {line.id for line in batch}
        with self._is_there:
            self._waiting = deque(line for line in self._waiting if line.id not in ids)

    def _wait_for(self, why: str) -> bool:
        self._complain(f"lines wait for {self._url}: {why}")
        return False

    def _complain(self, sentence: str) -> None:
        """Say it once, until something else happens."""
        if sentence != self._trouble:
            self._say(sentence)
        self._trouble = sentence

    def lines(self) -> Iterator[Line]:
        yield Line("anubis_agent_lines_sent_total", "", self._sent)
        yield Line("anubis_agent_lines_dropped_total", "", self._dropped)
        yield Line("anubis_agent_lines_waiting", "", len(self._waiting))
