"""The person at the terminal, as the caller of operations. SIGTERM stops one as Ctrl-C does."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from anubis.cli.streams import say, show_status
from anubis.core.errors import AnubisError
from anubis.operations.caller import Caller

if TYPE_CHECKING:
    from anubis.core.records import Campaign
    from anubis.core.select.decision import Decision
    from anubis.operations.validator import Observe


LINE_EVERY_S = 30.0  # likewise, for work without steps
STANDS = "the answer above is valid; what followed it failed"


class Terminal(Caller):
    """Writes remarks and progress to stderr, and the answer's JSON Lines to stdout as they are
    made.

    A person stops anything with Ctrl-C.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._line_due = time.monotonic() + LINE_EVERY_S

    def remark(self, sentence: str) -> None:
        show_status("")
        say(sentence)

    def doing(self, sentence: str) -> None:
        """Show progress; in a pipe or a log one line now and then, so that the work seems alive."""
        if sys.stderr.isatty():
            show_status(sentence)
        elif time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + LINE_EVERY_S
            say(sentence)

    def decided(self, decision: Decision) -> None:
        from anubis.report import decision as reports

        if self.as_json:
            print(reports.line(decision), flush=True)  # its tests may take minutes

    @contextmanager
    def following(self, campaign: Campaign, parallel_nodes: int | None) -> Iterator[Observe]:
        from anubis.cli.progress import Progress

        with Progress(campaign, parallel_nodes) as progress:
            yield progress.observe


class Answerer(Terminal):
    """Gives the answer, its files and its exit code as soon as they are known, before the nodes are
    released: a later hang or failure changes none of them."""

    exit_code: int | None = None

    def set_exit_code(self, exit_code: int) -> None:
        sys.stdout.flush()
        self.exit_code = exit_code

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Run an operation and exit with the answer's code. If the release of nodes fails, write a
        sentence; a bug is shown whole, and does not take the answer back."""
        try:
            yield
        except (AnubisError, OSError, KeyboardInterrupt) as error:
            if self.exit_code is None:
                raise
            if not isinstance(error, KeyboardInterrupt):
                say(f"{STANDS}: {error}")
        except Exception:
            if self.exit_code is None:
                raise
            traceback.print_exc()
            say(f"{STANDS} by a bug in Anubis: please report the lines above")
        assert self.exit_code is not None
        sys.exit(self.exit_code)


def turn_termination_into_interrupt() -> None:
    """Let SIGTERM from a scheduler, or a closing terminal, end a campaign as Ctrl-C does: nothing
    keeps running, and it can be resumed. Under nohup, a closing terminal changes nothing."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, interrupt)
