"""Make, list and revoke the tokens of the service; and read the audit of requests and orders."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Iterable
from typing import Literal, get_args

from anubis.core.amounts import DAY_S
from anubis.core.errors import UsageError, did_you_mean
from anubis.core.history.events import KeptEvent
from anubis.operations.caller import NO_CALLER, Caller
from anubis.store.tokens import AuditEntry, Token

TokenScope = Literal["read", "report", "operate", "act"]
SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)
LONGEST_S = 3650 * DAY_S  # longer is a slip of the pen
LONGEST_DEED = 200  # characters
SHORTEST_SECRET, LONGEST_SECRET = 32, 500  # 32 hexadecimal digits are 128 bits
SECRET = re.compile(rf"[!-~]{{{SHORTEST_SECRET},{LONGEST_SECRET}}}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def make_token(
    name: str,
    scopes: Collection[str],
    caller: Caller = NO_CALLER,
    *,
    lasts_s: float | None = None,
    secret: str = "",
) -> str:
    """Make a token and return its secret, which cannot be read again: 256 random bits, unless one
    is given; then a valid token of that name, secret and scopes is left as it is. `lasts_s`: how
    long it is valid; None: until it is revoked."""
    if not NAME.fullmatch(name):
        raise UsageError(f'token "{name}": expected letters, digits, dots and dashes, at most 64')
    for scope in scopes:
        if scope not in SCOPES:
            raise UsageError(f'--scope "{scope}" is not known; {did_you_mean(scope, SCOPES)}')
    if lasts_s is not None and not 0 < lasts_s <= LONGEST_S:
        raise UsageError(f"a token for {lasts_s:g} s, expected a time of 10 years at most")
    if secret and not SECRET.fullmatch(secret):
        raise UsageError(
            f'the secret of token "{name}" is not {SHORTEST_SECRET} to {LONGEST_SECRET} letters,'
            " digits and marks without spaces: openssl rand -hex 32 makes one"
        )
    made = secret or f"anubis_{secrets.token_urlsafe(32)}"
    now = caller.clock()  # wall clock: tokens are of no cluster
    token = Token(
        name=name,
        digest=digest_of_secret(made),
        scopes=tuple(scope for scope in SCOPES if scope in scopes),
        made_at=now,
        made_by=caller.name(),
        expires_at=None if lasts_s is None else now + lasts_s,
    )
    with caller.history(begins=True) as history:
        if not (secret and any(is_same(token, kept, now) for kept in history.tokens.all())):
            history.tokens.add(token)
    return made


def is_same(token: Token, kept: Token, at: float) -> bool:
    """True if the kept token is valid and allows the same by the same name and secret."""
    is_equal = (token.name, token.digest, token.scopes) == (kept.name, kept.digest, kept.scopes)
    return is_equal and kept.revoked_at is None and not kept.has_ended(at)


def is_order(event: KeptEvent) -> bool:
    """True if the audit records who reported the event."""
    return event.token_scope in ("operate", "act")


def order_entry(order: str, cluster: str, by: str, at: float) -> AuditEntry:
    """Audit entry of an order by a person or a program of the site, in the words of a terminal."""
    deed = f"{order} of {cluster}"
    return AuditEntry(at=at, who=by, address="", method="order", path=deed[:LONGEST_DEED], status=0)


def tokens(caller: Caller = NO_CALLER) -> list[Token]:
    """Tokens by name, including those that were revoked."""
    with caller.history() as history:
        return history.tokens.all()


def revoke_token(name: str, caller: Caller = NO_CALLER) -> None:
    """Revoke a token. A running service notices within seconds."""
    with caller.history() as history:
        history.tokens.revoke(name, caller.clock())  # wall clock: tokens are of no cluster


def audit(last: int = 50, caller: Caller = NO_CALLER) -> list[AuditEntry]:
    """Requests to the service, including refused ones, and orders; the newest first."""
    with caller.history() as history:
        return history.audit.newest(last)


def digest_of_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def find_token(secret: str, valid: Iterable[Token]) -> Token | None:
    """The token of a secret. Each token is compared, in a time that reveals nothing about it."""
    digest = digest_of_secret(secret)
    matches = [token for token in valid if hmac.compare_digest(token.digest, digest)]
    return matches[0] if matches else None
