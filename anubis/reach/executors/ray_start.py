"""The start of Ray where there is none: a head beside the driver, a node on each node under test.

It is closed by a token of its own, and ends with the driver, however that ended: each part runs
under a guardian that watches its way to here. A node that does not come up is absent, with its last
words, and the others go on.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anubis.core.errors import ExecutorError
from anubis.reach.executors import guardian, ray_node
from anubis.reach.executors.machine import free_port, port_range
from anubis.reach.executors.ray_link import HEALTH_CHECKS, LONGEST_PARENT, OWN_CLUSTER, safe_place
from anubis.reach.executors.remote_commands import (
    PipedCommand,
    RemoteCommand,
    Sender,
    address_for,
    argv_here,
)
from anubis.reach.executors.start_settings import RayStart, start_ways
from anubis.text.open_files import allow_open_files

HEAD_TRIES = 3  # another may take the port that was free a moment ago
HEAD_DEADLINE_S = 60.0  # on a machine whose cores are free
MOST_CROWDED = 10.0  # times the usual deadline: ten minutes at most
ADDRESS_FILE = "ray_current_cluster"  # Ray's
JOIN_DEADLINE_S = 120.0  # a scheduler may take a minute to find the node free, a cold disk another
STARTING_AT_ONCE = 64  # processes of ssh or srun
CLOSE_PATIENCE_S = guardian.KILL_PATIENCE_S + 5
DRIVER = "(driver)"  # no node's name
FOR_EVER_S = 1e8  # three years: Ray runs as long as the campaign
FILES_BESIDE = 200  # open files, besides one for each node


def crowding() -> float:
    """Return how many times longer a process takes here because others wait for the same cores."""
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(max(waiting, 1.0), MOST_CROWDED)


class StartedRay:
    """One Ray, from the start of its head to its end on all nodes."""

    def __init__(self, start: RayStart, ways: Mapping[str, RayStart]) -> None:
        """Start the head. `ways`: to each node, if some are reached otherwise than the file
        says."""
        self.absent: dict[str, str] = {}
        self.own_address = address_for(start, [*ways])
        self._start = start
        self._ways = ways
        self._queue = [*ways][::-1]
        self._coming: dict[str, RemoteCommand] = {}
        self._asked_again: set[str] = set()
        self._remote_commands: list[RemoteCommand] = []
        self._secret = secrets.token_hex(32)
        self._folder = Path(tempfile.mkdtemp(prefix="anubis-start-", dir=safe_place()))
        allow_open_files(FILES_BESIDE + len(ways))
        self._sender: Sender | None = None
        try:
            self._sender = Sender(start, self.own_address)
            self._start_head()
        except BaseException:
            self.close()
            raise

    @property
    def is_gathering(self) -> bool:
        return bool(self._queue or self._coming)

    def tend(self, joined: Collection[str]) -> None:
        """Start more of them, and note which have come or will not come any more."""
        for name, remote_command in list(self._coming.items()):
            waited_s = time.monotonic() - remote_command.sent_at
            if name in joined:
                del self._coming[name]
            elif self._may_answer_later(name, remote_command):
                del self._coming[name]
                self._asked_again.add(name)
                self._queue.insert(0, name)  # after all others
            elif remote_command.has_ended or waited_s > JOIN_DEADLINE_S:
                self._give_up(name, self._coming.pop(name))
        while self._queue and len(self._coming) < STARTING_AT_ONCE:
            self._start_node(self._queue.pop())

    def close(self) -> None:
        """End all remote commands first, and then wait for them."""
        for remote_command in self._remote_commands:
            remote_command.let_go()
        until = time.monotonic() + CLOSE_PATIENCE_S
        for remote_command in self._remote_commands:
            remote_command.close(until)
        self._remote_commands.clear()
        if self._sender:
            self._sender.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- its parts -------------------------------------------------------------------------

    def _start_head(self) -> None:
        for _ in range(HEAD_TRIES):
            port = free_port("", self._start.ports)
            self.address = f"{self.own_address}:{port}"
            scratch = scratch_in(Path(safe_place(LONGEST_PARENT)))
            self.token = scratch / "token"
            request = {"is_head": True, "name": DRIVER, "address": self.own_address}
            request["health"] = HEALTH_CHECKS
            order = self._order(sys.executable, scratch, request)
            head = PipedCommand(argv_here(sys.executable), order, self._files)
            self._remote_commands.append(head)
            if self._is_up(head, scratch):
                return
        raise ExecutorError(f'no head of Ray started beside the driver: "{head.last_words()}"')

    def _is_up(self, head: RemoteCommand, scratch: Path) -> bool:
        """Return true once Ray has written that it has started: at its port another may answer by
        now."""
        started = scratch / ray_node.OWN_FOLDER / ADDRESS_FILE
        limit_s = HEAD_DEADLINE_S * crowding()
        while not head.has_ended:
            with suppress(OSError):
                written = started.read_text().strip()
                if written == self.address:
                    return True
                if not self.address.startswith(written):  # as it does with 127.0.0.1
                    raise ExecutorError(
                        f"Ray listens at {written} instead of {self.address}: write an address of"
                        " this machine that the nodes reach as `driver_address:` into the cluster's"
                        " file"
                    )
            if time.monotonic() - head.sent_at > limit_s:
                return False
            time.sleep(0.1)
        return False

    def _start_node(self, name: str) -> None:
        scratch = scratch_in(Path("/tmp"))
        request = {"is_head": False, "name": name}
        order = self._order(self._start.python, scratch, request)
        assert self._sender is not None
        try:
            remote_command = self._sender.send(self._ways[name], name, order, self._files)
        except OSError as error:
            self.absent[name] = f"Ray did not start on it: {error}"
            return
        self._coming[name] = remote_command
        self._remote_commands.append(remote_command)

    def _may_answer_later(self, name: str, remote_command: RemoteCommand) -> bool:
        if name in self._asked_again or not remote_command.has_ended:
            return False
        too_busy = start_ways()[self._ways[name].by].too_busy
        return too_busy.search(remote_command.last_words()) is not None

    def _give_up(self, name: str, remote_command: RemoteCommand) -> None:
        why = "Ray did not start on it"
        if not remote_command.has_ended:
            remote_command.let_go()
            why = f"its Ray did not start within {JOIN_DEADLINE_S:g} s"
        self.absent[name] = f'{why}: "{remote_command.last_words()}"'

    @property
    def _files(self) -> Path:
        """Return the begin of the names of the next remote command's files."""
        return self._folder / str(len(self._remote_commands))

    def _order(self, python: str, scratch: Path, request: Mapping[str, Any]) -> dict[str, Any]:
        settings = {
            **self._start.env,
            **OWN_CLUSTER,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_TOKEN": self._secret,
            "RAY_gcs_rpc_server_reconnect_timeout_s": "30",  # a node that is cut off ends its Ray
        }
        return order_for(
            python,
            {"task": "start", "head": self.address, **request},
            ports=self._start.ports,
            env=settings,
            timeout_s=FOR_EVER_S,
            scratch=str(scratch),
        )


def order_for(
    python: str, request: Mapping[str, Any], *, ports: str, **more: object
) -> dict[str, Any]:
    """Return the order for a guardian on a node: a request to `ray_node` there."""
    bounds = port_range(ports) if ports else None
    complete = {
        "python": platform.python_version(),
        "ray": version("ray"),
        "ports": bounds and (bounds[0], bounds[-1]),
        **request,
    }
    source = Path(ray_node.__file__).read_text()
    return {"argv": [python, "-c", source, json.dumps(complete)], **more}


def scratch_in(parent: Path) -> Path:
    return parent / f"anubis-node-{secrets.token_hex(4)}"
