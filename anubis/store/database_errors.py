"""The error for trouble with the database, from a driver's words to one sentence that says what to
do; and patience with a history that cannot be reached for now."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import OperationalError, SQLAlchemyError

from anubis.core.errors import StoreError, StoreFailedError, StoreUnreachableError

T = TypeVar("T")

PATIENCE_S = 90.0  # shorter than a hold lasts after it was renewed
PAUSE_S = 0.5  # between two tries

DAMAGED = "the file is damaged: run a file system check, then restore a backup"

# The first words found in the driver's message decide.
ADVICE = (
    ("disk is full", "free some space, then repeat it: what was recorded before is intact"),
    ("no space left", "free some space, then repeat it: what was recorded before is intact"),
    ("not a database", "expected an SQLite file; it was left as it is: name another file"),
    ("readonly", "make the file and its folder writable for this user, or name another file"),
    ("read-only", "make the database writable for this user, or name another"),
    ("unable to open", "the folder must exist and file and folder be writable for this user"),
    ("locked", "another process has been writing for a while; find out which, then run again"),
    (
        "lock timeout",
        "another process has been writing for a while; find out which, then run again",
    ),
    ("malformed", DAMAGED),
    ("decode", DAMAGED),
    ("datatype mismatch", DAMAGED),
    ("disk i/o error", "see df and dmesg, then repeat it: what was recorded before is intact"),
    ("unique constraint", "another process wrote the same rows; run again"),
    ("does not exist", "create it (createdb, createuser) or correct the URL"),
    ("authentication", "correct user and password in the URL, or use ~/.pgpass"),
    ("permission denied", "grant this user the right to create and write tables"),
    (
        "idle-in-transaction",
        "it stood still too long, and nothing was changed: run again on a less busy machine",
    ),
    ("resolve host", "correct the host in the URL, or enter it into DNS or /etc/hosts"),
    ("connection", "expected a PostgreSQL server there: check that it runs and can be reached"),
    ("file exists", "expected a folder there: correct $ANUBIS_HOME"),
    ("not a directory", "expected a folder there: correct $ANUBIS_HOME"),
    ("no such file", "that folder cannot be made: correct $ANUBIS_HOME"),
)


def explain(place: str, error: SQLAlchemyError | OSError | UnicodeDecodeError) -> StoreError:
    """Return the error for a failed transaction; by then it has been rolled back."""
    line = _first_line(getattr(error, "orig", None) or error)
    advice = next((advice for words, advice in ADVICE if words in line.lower()), "")
    kind = StoreUnreachableError if _may_pass(error) else StoreFailedError
    return kind(f'history "{place}": {line}' + (f"; {advice}" if advice else ""))


def _may_pass(error: BaseException) -> bool:
    """True for a lock of somebody else, or a server that is being restarted."""
    if not isinstance(error, OperationalError):
        return getattr(error, "connection_invalidated", False) is True
    state = getattr(error.orig, "sqlstate", "of SQLite")
    if state == "of SQLite":
        return "locked" in str(error.orig)
    # no state: no answer; 57P: it is being stopped, or has only begun to start; 55P03: a lock
    passing = ("08", "57P", "55P03")
    return state is None or state.startswith(passing) or error.connection_invalidated


def insist(work: Callable[[], T], remark: Callable[[str], None]) -> T:
    """Do the work, and again while the history cannot be reached; what is done twice must count
    once."""
    begun, has_remarked = time.monotonic(), False
    while True:
        try:
            return work()
        except StoreUnreachableError as error:
            if time.monotonic() - begun >= PATIENCE_S:
                raise type(error)(f"{error}; that has lasted {PATIENCE_S:.0f} s") from error
            if not has_remarked:
                remark(f"{error}; trying again for {PATIENCE_S:.0f} s, what runs goes on")
                has_remarked = True
        time.sleep(PAUSE_S)


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f'"{error.filename}": {error.strerror}' if error.filename else error.strerror
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
