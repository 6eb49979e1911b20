"""Tokens of the service and what was asked with them: as tables and as JSON Lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anubis.report.tables import add_row, table
from anubis.report.wording import json_line, moment
from anubis.store.tokens import AuditEntry, Token

if TYPE_CHECKING:
    from rich.console import Console

    from anubis.report.documents import TokenLine


def line(token: Token) -> str:
    fields: TokenLine = {
        "name": token.name,
        "scopes": token.scopes,
        "made_at": token.made_at,
        "made_by": token.made_by,
        "revoked_at": token.revoked_at,
    }
    return json_line("token", fields)


def show(tokens: Sequence[Token], console: Console) -> None:
    rows = table("token", "scopes", "made", "by", "taken back")
    for token in tokens:
        gone = "" if token.revoked_at is None else moment(token.revoked_at)
        scopes = ", ".join(token.scopes)
        add_row(rows, token.name, scopes, moment(token.made_at), token.made_by, gone)
    console.print(rows)


def show_audit(entries: Sequence[AuditEntry], console: Console) -> None:
    rows = table("when", "token", "from", "what", figures=("answer",))
    for entry in entries:
        request = f"{entry.method} {entry.path}"
        add_row(rows, moment(entry.at), entry.who or "-", entry.address, request, str(entry.status))
    console.print(rows)
