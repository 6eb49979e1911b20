"""Tokens of the service, and the requests made with them. Only the digest of a secret is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from anubis.core.errors import TakenNameError, UnknownRecordError, did_you_mean
from anubis.store.database import Database
from anubis.store.row_mapping import Prose, RecordTable


@dataclass(frozen=True, kw_only=True)
class Token:
    """A key to the service. A name is used once, so that the audit stays true."""

    name: str
    digest: str  # SHA-256 of the secret, in hex
    scopes: tuple[str, ...]
    made_at: float
    made_by: str
    revoked_at: float | None = None
    expires_at: float | None = None  # None: it does not end by itself

    def has_ended(self, at: float) -> bool:
        return self.expires_at is not None and at >= self.expires_at


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """A request that changed something or was refused, or an order that a person typed."""

    at: float
    who: str  # a token by its name, or a user at a machine; empty: unknown
    address: str
    method: str
    path: str
    status: int


TOKENS = RecordTable("tokens", Token, keys=("name",))
AUDIT = RecordTable("audit", AuditEntry, sa.Column("key", sa.Integer, primary_key=True), path=Prose)


class Tokens:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: Token) -> None:
        with self._database.writing() as connection:
            if any(token.name == taken.name for taken in _all(connection)):
                raise TakenNameError(
                    f'a token "{token.name}" is there, or was: take another name, so that the'
                    " audit stays clear"
                )
            connection.execute(sa.insert(TOKENS.table), TOKENS.row(token))

    def all(self) -> list[Token]:
        """Return tokens by name, including revoked ones."""
        with self._database.reading() as connection:
            return _all(connection)

    def revoke(self, name: str, at: float) -> None:
        with self._database.writing() as connection:
            valid = [token.name for token in _all(connection) if token.revoked_at is None]
            if name not in valid:
                raise UnknownRecordError(f'no token "{name}" is valid; {did_you_mean(name, valid)}')
            revoked = sa.update(TOKENS.table).where(TOKENS.c.name == name)
            connection.execute(revoked.values(revoked_at=at))


def _all(connection: sa.Connection) -> list[Token]:
    return list(TOKENS.records(connection, TOKENS.select().order_by(TOKENS.c.name)))


class Audit:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, entries: Iterable[AuditEntry]) -> None:
        if rows := [AUDIT.row(entry) for entry in entries]:
            with self._database.writing() as connection:
                connection.execute(sa.insert(AUDIT.table), rows)

    def newest(self, limit: int) -> list[AuditEntry]:
        query = AUDIT.select().order_by(AUDIT.c.key.desc()).limit(limit)
        with self._database.reading() as connection:
            return list(AUDIT.records(connection, query))
