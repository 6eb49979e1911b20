"""The address at which nodes reach the driver, and a knock back at them, which shows whether
connections go both ways."""

from __future__ import annotations

import hmac
import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Self

from anubis.reach.executors.machine import free_port
from anubis.reach.executors.ray_link import call

RING_PATIENCE_S = 10.0  # a call is 200 bytes; a slower one occupies a thread
LONGEST_RING = 200  # bytes


class Entrance(ABC):
    """A listener, within `with entrance:`; `greet` handles each connection in a thread of its
    own."""

    def __init__(self, address: str, ports: str) -> None:
        self.address, self.port = address, free_port(address, ports)
        self._server = socket.create_server((address, self.port), backlog=512)

    def __enter__(self) -> Self:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes who listens
        self._server.close()

    @abstractmethod
    def greet(self, line: socket.socket, host: str, words: str) -> None:
        """Handle a connection; `words`: the first line that came. To keep the connection, keep
        `line`."""

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                line, (host, _) = self._server.accept()
                threading.Thread(target=self._hear, args=(line, host), daemon=True).start()

    def _hear(self, line: socket.socket, host: str) -> None:
        with line, suppress(OSError):
            line.settimeout(RING_PATIENCE_S)
            ring = bytearray()
            while not ring.endswith(b"\n") and len(ring) < LONGEST_RING:
                if not (data := line.recv(LONGEST_RING)):
                    return
                ring += data
            self.greet(line, host, ring.decode(errors="replace").strip())


class ConnectionCheck(Entrance):
    """A listener that answers callers who know the password."""

    def __init__(self, address: str, ports: str, password: str) -> None:
        super().__init__(address, ports)
        self._password = password

    def greet(self, line: socket.socket, host: str, words: str) -> None:
        password, _, port = words.partition(" ")
        if hmac.compare_digest(password.encode(), self._password.encode()) and port.isdecimal():
            line.sendall(trouble_on_the_way(host, int(port)).encode())


def trouble_on_the_way(host: str, port: int) -> str:
    try:
        call(host, port)
    except (OSError, OverflowError) as error:
        return f"no connection to {host}:{port}: {getattr(error, 'strerror', None) or error}"
    return ""
