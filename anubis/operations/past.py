"""Which campaign of the past a request means: only one that ran to its end can be spoken of."""

from __future__ import annotations

from anubis.core.errors import UsageError
from anubis.core.records import Campaign
from anubis.store.history import History


def finished(history: History, campaign: str | None) -> Campaign:
    """The one named, else the latest."""
    name = campaign or history.latest(finished=True)
    if name is None:
        raise UsageError("no campaign was carried out yet: begin with anubis accept")
    found = history.campaign(name)
    if found.finished_at is None:
        raise UsageError(f'campaign "{name}" is not finished; {how_to_go_on(found)}')
    return found


def how_to_go_on(campaign: Campaign) -> str:
    if not campaign.kind.can_resume:
        return "import the file again"
    return f"go on with: anubis {campaign.kind} --resume --campaign {campaign.id}"
