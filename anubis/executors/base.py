"""The one seam between Anubis and the nodes.

An executor carries out `Launch` and `Kill` and turns whatever happens into events. It decides
nothing: no retries, no verdicts. Trouble with a node is an event, never an exception; an
ExecutorError means that the way to all nodes is broken.
"""

from __future__ import annotations

from typing import Protocol

from anubis.core.campaign.machine import CampaignEvent, Kill, Launch
from anubis.core.records import Node


class Executor(Protocol):
    def nodes(self) -> tuple[Node, ...]:
        """The nodes within reach, in a stable order."""
        ...

    def now(self) -> float:
        """Seconds since the epoch, by the clock that this executor lives in."""
        ...

    def launch(self, launch: Launch) -> None:
        """Start a step on its participants; returns at once."""
        ...

    def kill(self, kill: Kill) -> None:
        """End a step early; returns at once, and the step need not be running any more."""
        ...

    def wait(self, until: float) -> list[CampaignEvent]:
        """What happened since the last call; returns at `until` at the latest, then a Tick."""
        ...

    def close(self) -> None:
        """Leave nothing running. Safe to call twice."""
        ...
