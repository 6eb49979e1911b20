"""The one seam between Anubis and the nodes.

An executor carries out `Launch` and `Kill` and turns whatever happens into events. It decides
nothing: no retries, no verdicts. Trouble with a node is an event, never an exception; an
ExecutorError means that the way to all nodes is broken.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from anubis.core.campaign.state_machine import CampaignEvent, Kill, Launch
from anubis.core.records import Node


class Executor(Protocol):
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes within reach, in a stable order."""
        ...

    def absent(self) -> Mapping[str, str]:
        """Map nodes that were absent from the start to the reason."""
        ...

    def now(self) -> float:
        """Return seconds since the epoch, by a clock that is never set and never jumps."""
        ...

    def launch(self, launch: Launch) -> None:
        """Start a step on its participants; returns at once."""
        ...

    def kill(self, kill: Kill) -> None:
        """End a step early; returns at once, and the step need not be running any more."""
        ...

    def wait(self, until: float) -> list[CampaignEvent]:
        """Return what happened since the last call; nothing if nothing happens before `until`."""
        ...

    def close(self) -> None:
        """Leave nothing running. Safe to call twice."""
        ...


class SteadyClock:
    """Seconds since the epoch as they were at first, counted on whatever the wall clock does.

    It goes on while this machine is suspended, so that this is noticed.
    """

    def __init__(self) -> None:
        # wall clock: read once, and counted on by one that is never set
        self._began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> float:
        return self._began + time.clock_gettime(time.CLOCK_BOOTTIME)
