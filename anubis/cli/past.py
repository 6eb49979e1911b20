"""Which campaign of the past a verb means."""

from __future__ import annotations

from anubis.core.errors import UsageError
from anubis.store.history import History


def chosen(history: History, campaign: str | None) -> str:
    """The one named, else the latest that ran to its end."""
    found = campaign or history.latest(finished=True)
    if found is None:
        raise UsageError("no campaign was carried out yet: begin with anubis accept")
    return found
