"""One driver at a time per campaign. A claim ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from anubis.core.errors import StoreError
from anubis.store.database import Database, this_process
from anubis.store.trouble import explain

NAMESPACE = 0x616E7562  # the first half of our advisory locks; the second is the campaign


class _Taken(Exception):
    """Its text is who holds the lock."""


@contextmanager
def claim(database: Database, campaign_id: str, key: int) -> Iterator[None]:
    """Hold the campaign while the block runs; whoever comes second gets a StoreError."""
    if database.dialect == "sqlite":
        lock = _file_lock(Path(f"{database.place}.campaign-{key}.lock"))
    else:
        lock = _advisory_lock(database, key)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock)
        except _Taken as holder:
            raise StoreError(
                f'campaign "{campaign_id}" is being driven by {holder}; wait until that ends,'
                " or end it there and resume the campaign here"
            ) from None
        except (OSError, SQLAlchemyError) as error:
            raise explain(database.place, error) from error
        yield


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    handle = _locked(path)
    try:
        with suppress(OSError):  # the note is a courtesy: a full disk must not stop a resume
            os.ftruncate(handle, 0)
            os.pwrite(handle, this_process().encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)  # while locked: nobody else's file can be the one removed
        os.close(handle)


def _locked(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(handle, 200, 0).decode(errors="replace")
            os.close(handle)
            if isinstance(error, BlockingIOError):
                raise _Taken(holder or "another process") from None
            raise
        # The last holder may have removed the file between our open and our lock.
        if os.fstat(handle).st_nlink > 0:
            return handle
        os.close(handle)


@contextmanager
def _advisory_lock(database: Database, key: int) -> Iterator[None]:
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as session:
        session.detach()  # the lock lives as long as this connection, so no pool may keep it
        lock = {"namespace": NAMESPACE, "key": key}
        if not session.execute(
            text("SELECT pg_try_advisory_lock(:namespace, :key)"), lock
        ).scalar():
            holder = text(
                "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)"
                " WHERE locktype = 'advisory' AND classid = :namespace AND objid = :key"
                " AND objsubid = 2 AND granted AND pg_locks.database ="
                " (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            raise _Taken(session.execute(holder, lock).scalar() or "another process")
        try:
            yield
        finally:  # the server frees it only some time after the connection is gone
            with suppress(SQLAlchemyError):
                session.execute(text("SELECT pg_advisory_unlock(:namespace, :key)"), lock)
