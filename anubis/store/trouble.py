"""From a driver's words to one StoreError that says what to do."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from anubis.core.errors import StoreError

DAMAGED = "the file is damaged: run a file system check, then restore a backup"

# The first words found in the driver's message decide.
ADVICE = (
    ("disk is full", "free some space; what was recorded before is intact, so resume then"),
    ("no space left", "free some space; what was recorded before is intact, so resume then"),
    ("not a database", "expected an SQLite file; it was left as it is: name another file"),
    ("readonly", "make the file and its folder writable for this user, or name another file"),
    ("read-only", "make the database writable for this user, or name another"),
    ("unable to open", "the folder must exist and file and folder be writable for this user"),
    ("locked", "another process has been writing for a while; find out which, then run again"),
    ("malformed", DAMAGED),
    ("decode", DAMAGED),
    ("datatype mismatch", DAMAGED),
    ("disk i/o error", "see df and dmesg; what was recorded before is intact, so resume then"),
    ("unique constraint", "another process wrote the same rows; run again"),
    ("does not exist", "create it (createdb, createuser) or correct the URL"),
    ("authentication", "correct user and password in the URL, or use ~/.pgpass"),
    ("permission denied", "grant this user the right to create and write tables"),
    ("connection", "expected a PostgreSQL server there: check that it runs and can be reached"),
    ("file exists", "expected a folder there: correct $ANUBIS_HOME"),
    ("not a directory", "expected a folder there: correct $ANUBIS_HOME"),
    ("no such file", "that folder cannot be made: correct $ANUBIS_HOME"),
)


def explain(place: str, error: SQLAlchemyError | OSError | UnicodeDecodeError) -> StoreError:
    """The error for a failed transaction; by then it has been rolled back."""
    line = _first_line(getattr(error, "orig", None) or error)
    advice = next((advice for words, advice in ADVICE if words in line.lower()), "")
    return StoreError(f'history "{place}": {line}' + (f"; {advice}" if advice else ""))


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f'"{error.filename}": {error.strerror}' if error.filename else error.strerror
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
