"""Knocks back at whoever rings: whether connections between the driver and a node go both ways."""

from __future__ import annotations

import hmac
import socket
import threading
from contextlib import suppress

from anubis.executors.machine import free_port
from anubis.executors.ray_link import call

RING_PATIENCE_S = 10.0
LONGEST_RING = 200  # bytes


class Doorbell:
    """`with Doorbell(...) as bell`: it answers those who know the password, as long as it hangs."""

    def __init__(self, address: str, ports: str, password: str) -> None:
        self.address, self.port = address, free_port(address, ports)
        self._password = password
        self._server = socket.create_server((address, self.port), backlog=512)

    def __enter__(self) -> Doorbell:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes who listens
        self._server.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                line, (host, _) = self._server.accept()
                threading.Thread(target=self._answer, args=(line, host), daemon=True).start()

    def _answer(self, line: socket.socket, host: str) -> None:
        with line, suppress(OSError):
            line.settimeout(RING_PATIENCE_S)
            ring = bytearray()
            while not ring.endswith(b"\n") and len(ring) < LONGEST_RING:
                if not (data := line.recv(LONGEST_RING)):
                    return
                ring += data
            password, _, door = ring.decode(errors="replace").strip().partition(" ")
            if hmac.compare_digest(password.encode(), self._password.encode()) and door.isdecimal():
                line.sendall(trouble_on_the_way(host, int(door)).encode())


def trouble_on_the_way(host: str, port: int) -> str:
    try:
        call(host, port)
    except (OSError, OverflowError) as error:
        return f"no connection to {host}:{port}: {getattr(error, 'strerror', None) or error}"
    return ""
