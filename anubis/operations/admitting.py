"""Who may ask the service: tokens made, listed and taken back; and what was asked."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Iterable
from typing import Literal, get_args

from anubis.core.errors import UsageError, did_you_mean
from anubis.operations.caller import NOBODY, Caller
from anubis.store.tokens import AuditEntry, Token

TokenScope = Literal["read", "report", "act"]
SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def make_token(name: str, scopes: Collection[str], caller: Caller = NOBODY) -> str:
    """Returns the secret, which nobody can ask for again: 256 random bits."""
    if not NAME.fullmatch(name):
        raise UsageError(f'token "{name}": expected letters, digits, dots and dashes, at most 64')
    for scope in scopes:
        if scope not in SCOPES:
            raise UsageError(f'--scope "{scope}" is not known; {did_you_mean(scope, SCOPES)}')
    secret = f"anubis_{secrets.token_urlsafe(32)}"
    with caller.history() as history:
        history.tokens.add(
            Token(
                name=name,
                digest=digest_of_secret(secret),
                scopes=tuple(scope for scope in SCOPES if scope in scopes),
                made_at=caller.clock(),
                made_by=caller.name(),
            )
        )
    return secret


def tokens(caller: Caller = NOBODY) -> list[Token]:
    """By name, also those that were taken back."""
    with caller.history() as history:
        return history.tokens.all()


def revoke_token(name: str, caller: Caller = NOBODY) -> None:
    """A service that runs notices within seconds."""
    with caller.history() as history:
        history.tokens.revoke(name, caller.clock())


def audit(last: int = 50, caller: Caller = NOBODY) -> list[AuditEntry]:
    """What the service was asked to do, and whom it turned away; the newest first."""
    with caller.history() as history:
        return history.audit.newest(last)


def digest_of_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def matching(secret: str, valid: Iterable[Token]) -> Token | None:
    """The token of a secret. Each is compared, in a time that tells nothing of it."""
    digest = digest_of_secret(secret)
    matches = [token for token in valid if hmac.compare_digest(token.digest, digest)]
    return matches[0] if matches else None
