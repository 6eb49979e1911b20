"""The caller of an operation: receives remarks and progress, and may stop it.

An operation prints nothing and exits nothing. The command line, a service and a notebook each hand
in a caller of their own; `NOBODY` hears nothing and never stops anything.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from anubis.core.clock import ClockReading
from anubis.text import places

if TYPE_CHECKING:
    from anubis.core.records import Campaign
    from anubis.core.select.decision import Decision
    from anubis.operations.results import GateResult, SweepResult
    from anubis.operations.validator import Observe
    from anubis.report.view import CampaignView
    from anubis.store.history import History


Uptime = Callable[[], tuple[str, float]]  # which start of which machine, and the seconds since
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def uptime() -> tuple[str, float]:
    """Of this machine, suspends included: nobody can set it."""
    return _boot(), time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def _boot() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def no_uptime() -> tuple[str, float]:
    """Of a machine of which it is not known."""
    return "", 0.0


class Caller:
    history_url: str | None = None  # $ANUBIS_HISTORY unless another is named
    clock: Callable[[], float] = staticmethod(time.time)  # seconds since the epoch
    uptime: Uptime = staticmethod(uptime)  # of the machine whose clock it is

    def __init__(
        self,
        *,
        history_url: str | None = None,
        clock: Callable[[], float] = time.time,
        uptime: Uptime | None = None,
    ) -> None:
        """A subclass with an `__init__` of its own need not call this one."""
        self.history_url = history_url
        self.clock = clock
        if uptime or clock is not time.time:  # what counts here says nothing of another clock
            self.uptime = uptime or no_uptime

    def reading(self) -> ClockReading:
        """Of the clock, and of what nobody can set beside it."""
        boot, steady_s = self.uptime()
        return ClockReading(at=self.clock(), boot=boot, steady_s=steady_s)

    def name(self) -> str:
        """Who asks, for the record: here whoever runs this process."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a container may give its user no name
            user = str(os.getuid())
        return f"{user}@{socket.gethostname()}"

    def history(self) -> History:
        from anubis.store.history import History

        return History.open(self.history_url or places.history_url())

    def remark(self, sentence: str) -> None:
        """Something worth knowing that is not part of the answer."""

    def doing(self, sentence: str) -> None:
        """What is being done now; the next one takes its place."""

    def decided(self, decision: Decision) -> None:
        """What was decided, before it is carried out."""

    def concluded(self, view: CampaignView) -> None:
        """A campaign is over, and its nodes not let go yet. Others may follow, or fail."""

    def handed_back(self, nodes: Sequence[str]) -> None:
        """These nodes of a campaign are well and let go, while it goes on with others."""

    def gated(self, result: GateResult) -> None:
        """The answer of a gate; nodes that it tested are not let go yet."""

    def swept(self, result: SweepResult) -> None:
        """The answer of a sweep; nodes that it tested are not let go yet."""

    def cut_short(self, so_far: Callable[[], CampaignView]) -> None:
        """A campaign could not go on. What is known so far is judged only if it is asked for."""

    @contextmanager
    def following(self, campaign: Campaign, parallel_nodes: int | None) -> Iterator[Observe]:
        """Around a campaign: the yielded function sees the machine and its events as they come."""
        yield lambda machine, events: None

    def wants_stop(self) -> bool:
        """Checked between events: a stopped campaign keeps what was measured."""
        return False


NOBODY = Caller()
