"""The caller of an operation: receives remarks and progress, and may stop it.

An operation prints nothing and exits nothing. The command line, a service and a notebook each pass
a caller of their own. `NO_CALLER` ignores everything and never stops an operation.
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
from anubis.core.errors import UsageError
from anubis.text import places

if TYPE_CHECKING:
    from anubis.core.records import Campaign
    from anubis.core.select.decision import Decision
    from anubis.operations.validator import Observe
    from anubis.report.gate import GateResult
    from anubis.report.sweep import SweepResult
    from anubis.report.view import CampaignView
    from anubis.store.history import History


Uptime = Callable[[], tuple[str, float]]  # id of the machine's boot, and the seconds since
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def uptime() -> tuple[str, float]:
    """This machine's boot and the seconds since then, suspends included; it cannot be set."""
    return _boot(), time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def _boot() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def no_uptime() -> tuple[str, float]:
    """An empty uptime, for a machine whose boot is unknown."""
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
        if uptime or clock is not time.time:  # this uptime says nothing about another clock
            self.uptime = uptime or no_uptime

    def reading(self) -> ClockReading:
        """The clock's time and the uptime, which cannot be set."""
        boot, steady_s = self.uptime()
        return ClockReading(at=self.clock(), boot=boot, steady_s=steady_s)

    def name(self) -> str:
        """Name of the requester for the record: by default the user of this process."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a container may give its user no name
            user = str(os.getuid())
        return f"{user}@{socket.gethostname()}"

    def history(self, *, begins: bool = False) -> History:
        """Open the history. `begins`: the operation may be the first on a new one."""
        from anubis.store.history import History

        url, is_chosen = self.find_history(begins=begins), self._is_history_chosen
        history = History.open(url, begins=begins or not is_chosen)
        if is_chosen and history.new_place:
            self.remark(
                f'a new history begins in "{history.new_place}", which ANUBIS_HISTORY names'
            )
        return history

    @property
    def _is_history_chosen(self) -> bool:
        return self.history_url is None and places.is_history_chosen()

    def find_history(self, *, begins: bool = False) -> str:
        """URL of the history. Nothing is decided by a file that $ANUBIS_HISTORY names and that does
        not exist: an empty history has nothing against any node."""
        from anubis.store.database import absent_file

        url = self.history_url or places.history_url()
        if self._is_history_chosen and not begins and (absent := absent_file(url)):
            raise UsageError(
                f'ANUBIS_HISTORY names "{absent}", which does not exist: correct the path, or'
                " begin a history there with anubis accept"
            )
        return url

    def remark(self, sentence: str) -> None:
        """Receive a sentence worth knowing that is not part of the answer."""

    def doing(self, sentence: str) -> None:
        """Receive what is being done now, until the next call."""

    def decided(self, decision: Decision) -> None:
        """Receive a decision before it is carried out."""

    def concluded(self, view: CampaignView) -> None:
        """Receive a campaign's result before its nodes are released. More campaigns may follow, or
        fail."""

    def handed_back(self, nodes: Sequence[str]) -> None:
        """Receive healthy nodes that a campaign releases while it goes on with others."""

    def gated(self, result: GateResult) -> None:
        """Receive the answer of a gate before the nodes that it tested are released."""

    def swept(self, result: SweepResult) -> None:
        """Receive the answer of a sweep before the nodes that it tested are released."""

    def cut_short(self, so_far: Callable[[], CampaignView]) -> None:
        """Receive a function that judges what an interrupted campaign measured so far."""

    @contextmanager
    def following(self, campaign: Campaign, parallel_nodes: int | None) -> Iterator[Observe]:
        """Follow a campaign: the yielded function gets the machine and its events as they
        happen."""
        yield lambda machine, events: None

    def wants_stop(self) -> bool:
        """True to stop; asked between events. A stopped campaign keeps what was measured."""
        return False


NO_CALLER = Caller()
