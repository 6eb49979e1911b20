"""Maintenance windows in words."""

from __future__ import annotations

from math import isinf

from anubis.core.history.maintenance import Window
from anubis.core.text import escape_line
from anubis.text.wording import moment


def sentence(window: Window, at: float) -> str:
    """Describe a maintenance window that is open or still to come."""
    if window.is_open(at):
        until = "until its owner ends it" if isinf(window.end) else f"until {moment(window.end)}"
        head = f"under maintenance {until}"
    else:
        head = f"a maintenance begins {moment(window.begin)}"
    return f"{head}: {escape_line(window.reason)}" if window.reason else head
