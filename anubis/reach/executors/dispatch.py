"""Remote commands on nodes, in whichever way their cluster's file says."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from anubis.core.errors import UsageError
from anubis.reach.executors.remote_commands import (
    Courier,
    PipedCommand,
    RemoteCommand,
    argv_to,
)
from anubis.reach.executors.start_settings import RayStart
from anubis.reach.executors.start_ways import start_ways
from anubis.text.hostlist import shorten


class Sender:
    def __init__(self, start: RayStart, own_address: str) -> None:
        way = start_ways()[start.by]
        self._courier: Courier | None = way.open(start, own_address) if way.open else None

    def send(
        self, way: RayStart, node: str, order: Mapping[str, Any], files: Path
    ) -> RemoteCommand:
        """Send an order to a node. `way`: to this node, if it is reached otherwise than most.
        `files`: the begin of the names of files for its output."""
        if self._courier is not None:
            return self._courier.send(node, order, files)
        return PipedCommand(argv_to(way, node), order, files, start_ways()[way.by])

    def close(self) -> None:
        """Close after the last remote command was closed."""
        if self._courier is not None:
            self._courier.close()


def address_for(start: RayStart, nodes: Sequence[str]) -> str:
    """Return the address of this machine by which packets leave for the first of these nodes whose
    name resolves."""
    if start.driver_address:
        return start.driver_address
    for node in nodes:
        with (
            suppress(OSError, subprocess.SubprocessError),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
        ):
            probe.connect((start_ways()[start.by].host(start, node), 9))
            address: str = probe.getsockname()[0]
            return address
    raise UsageError(
        f'the address at which the nodes reach this machine is unknown: "{shorten(nodes)}" is not'
        " known by name; write `driver_address:` into the cluster's file"
    )
