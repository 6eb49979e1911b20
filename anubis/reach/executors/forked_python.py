"""A Python of a node that has loaded torch once: what programs start there are its children.

A program starts a process for each GPU, or several ranks and their launcher, or follows others on a
node without GPUs; each process would load torch. It travels to the nodes by value: the standard
library alone. Programs run without it too.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

STAND_IN = "forked_python"  # beside the server
AT_ITS_START = ("LD_", "PYTHON")  # variables that count at the start of a process only
END_PATIENCE_S = 2.0  # then the server is killed


class ForkedPython:
    """The server, from the first order that may use it to the end. One that cannot be started, or
    ended, is not asked: programs then load what they need."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._begun_as: tuple[str, dict[str, str]] = "", {}
        self._lock = threading.Lock()

    def lend(self, order: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the order, changed so that its processes are children of the server."""
        lent = self._lend(order, environment)
        if not (lent["forks"] and order.get("by_gpu")):
            self._free_gpus()
        return lent

    def _lend(self, order: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
        server, env = order.get("forks", ""), order["env"]
        stand_in = Path(server).parent / STAND_IN
        if not (server and os.access(stand_in, os.X_OK)):  # its folder may be mounted noexec
            return {**order, "forks": ""}
        python, *words = order["argv"]
        begun_as = python, {k: v for k, v in env.items() if k.startswith(AT_ITS_START)}
        with self._lock:
            if self._server is None:
                self._start(server, begun_as, environment)
        if self._begun_as != begun_as:
            return {**order, "forks": ""}
        forks = f"{self._address} {secrets.token_hex(8)}"
        own = {"ANUBIS_FORKS": forks, "ANUBIS_PYTHON": python, "PYTHON_EXEC": str(stand_in)}
        first = str(stand_in) if order.get("is_first_forked") else python
        return {**order, "argv": [first, *words], "env": {**env, **own}, "forks": forks}

    def _start(
        self, server: str, begun_as: tuple[str, dict[str, str]], environment: Mapping[str, str]
    ) -> None:
        python, env = begun_as
        self._address = f"@anubis-{secrets.token_hex(16)}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(f"\0{self._address[1:]}")
        listening.listen()  # or a program that asks too early loads torch by itself
        try:
            self._server = subprocess.Popen(
                [python, server, str(listening.fileno())],
                pass_fds=[listening.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**environment, **env},
                start_new_session=True,
            )
        except OSError:
            return
        finally:
            listening.close()
        self._begun_as = begun_as

    def _free_gpus(self) -> None:
        """End the processes that stay with GPUs: what begins now may want all of a GPU."""
        if self._server is None:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.settimeout(END_PATIENCE_S)
            server.connect(f"\0{self._address[1:]}")
            server.send(b'{"leave": ""}')
            server.recv(4096)

    def end(self) -> None:
        """End the server, and with it all that it still has."""
        if self._server is None or self._server.stdin is None:
            return
        self._server.stdin.close()
        try:
            self._server.wait(END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(self._server.pid, 9)
            self._server.wait()
