"""Tokens of the service and the requests made with them: as tables, sentences and JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anubis.core.amounts import DAY_S
from anubis.report.json import json_line
from anubis.report.screen_tables import add_row, table
from anubis.store.tokens import AuditEntry, Token
from anubis.text.wording import moment, time_span

if TYPE_CHECKING:
    from rich.console import Console


ENDS_SOON_S = 7 * DAY_S  # a week's notice


@dataclass(frozen=True, kw_only=True)
class TokenLine:
    name: str
    scopes: Sequence[str]
    """What it allows: read, report, operate, act."""
    made_at: float
    made_by: str
    revoked_at: float | None
    """null: it was not taken back."""
    expires_at: float | None
    """When it ends by itself; null: never."""


def line(token: Token) -> str:
    fields = TokenLine(
        name=token.name,
        scopes=token.scopes,
        made_at=token.made_at,
        made_by=token.made_by,
        revoked_at=token.revoked_at,
        expires_at=token.expires_at,
    )
    return json_line("token", fields)


def endings(tokens: Sequence[Token], now: float) -> Iterator[str]:
    """Yield a sentence for each token that ends soon, while there is time to make another one."""
    for token in tokens:
        if token.revoked_at is None and token.expires_at is not None:
            left_s = token.expires_at - now
            if 0 < left_s < ENDS_SOON_S:
                yield f'token "{token.name}" ends in {time_span(left_s)}: make another one in time'


def show(tokens: Sequence[Token], now: float, console: Console) -> None:
    rows = table("token", "scopes", "made", "by", "ends", "taken back")
    for token in tokens:
        made = moment(token.made_at)
        add_row(rows, token.name, ", ".join(token.scopes), made, token.made_by, *_ends(token, now))
    console.print(rows)


def _ends(token: Token, now: float) -> tuple[str, str]:
    end = "never" if token.expires_at is None else moment(token.expires_at)
    has_ended = " (it has ended)" if token.has_ended(now) else ""
    return f"{end}{has_ended}", "" if token.revoked_at is None else moment(token.revoked_at)


def show_audit(entries: Sequence[AuditEntry], console: Console) -> None:
    rows = table("when", "who", "from", "what", figures=("answer",))
    for entry in entries:
        request = f"{entry.method} {entry.path}"
        answered = str(entry.status) if entry.status else ""
        add_row(rows, moment(entry.at), entry.who or "-", entry.address, request, answered)
    console.print(rows)
