"""A server that takes messages over HTTP, as people's chats and ticket systems do. No asserts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.patience import LIMIT_S

Answer = int | str | tuple[int | tuple[str, str], ...]


class Receiver:
    """It answers as it is set to, and keeps all requests: one that it answers with 200, or one that
    it takes and does not answer (`lost`)."""

    def __init__(self, *answers: Answer, hear: Callable[[bytes], None] = lambda body: None) -> None:
        """`hear` gets each accepted body."""
        self.answers = list(answers)
        self.requests: list[tuple[dict[str, str], bytes]] = []  # headers and body of each
        self.taken: Counter[str] = Counter()  # by idempotency key: it knows a message again
        self.ends = threading.Event()
        self._hear = hear

    @contextmanager
    def listening(self, port: int = 0) -> Iterator[Receiver]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = receiver.answers.pop(0) if receiver.answers else 200
                receiver.requests.append((dict(self.headers), body))
                if answer == "hang":
                    receiver.ends.wait(LIMIT_S)
                    return
                if answer in (200, "lost"):
                    receiver.taken[self.headers["Idempotency-Key"]] += 1
                    receiver._hear(body)
                if answer == "lost":
                    return
                code, *headers = answer if isinstance(answer, tuple) else (answer,)
                self.send_response(code)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}/hook"
        try:
            yield self
        finally:
            self.ends.set()
            server.shutdown()
            server.server_close()
            thread.join()
