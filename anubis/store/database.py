"""One open database: its place, its upgrade, its transactions. It knows no record and no verb."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, partial
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from anubis.core.errors import StoreError, UsageError
from anubis.store.checksums import Damage
from anubis.store.database_errors import explain
from anubis.store.row_mapping import metadata
from anubis.text.packages import require_package

PRAGMAS = (
    "busy_timeout = 30000",  # ms
    "journal_mode = WAL",
    "synchronous = FULL",  # in WAL mode, less than FULL may lose commits with the power
    "foreign_keys = ON",
)
READ_ONLY = (PRAGMAS[0], "query_only = ON")
MIGRATIONS = Path(__file__).parent / "migrations"
REVISIONS = tuple(sorted(file.name[:4] for file in (MIGRATIONS / "versions").glob("[0-9]*.py")))
HEAD = REVISIONS[-1]
PER_QUESTION = 1000  # values in one IN (…); SQLite takes up to 32,766
# How long a server may keep us waiting that does not answer, or is gone without a word, unless the
# URL says otherwise: in seconds, the last one in milliseconds.
GIVEN_UP = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}
# Settings of each connection: how long to wait for somebody's lock, and when to take a
# client for gone that says nothing.
FOR_EACH_CONNECTION = (
    "SET lock_timeout = '30s'",
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 4",
)
# How long a process may stand still with a whole table to itself before the server ends its
# transaction, and how often it shows that it does not: on a busy machine a turn of 50,000 nodes
# computes for longer.
STOOD_STILL = "30s"
SHOWS_LIFE_S = 10.0  # three times before PostgreSQL takes a connection for dead
UPGRADE_LOCK = 0x616E756269730000  # any number that no other lock of the same database has


class Database:
    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        level = {"isolation_level": "REPEATABLE READ"} if engine.name == "postgresql" else {}
        self._snapshots = engine.execution_options(**level)  # a file of SQLite has no other way
        self.dialect = engine.dialect.name
        self.place = _place(engine.url)
        self.is_new = False  # a history begins there
        # Values that many rows share and that are known to be on disk: table, digest.
        self.shared: set[tuple[str, str]] = set()
        # While a campaign is claimed on a server: the connection that has the claim. What a driver
        # writes goes through it, so that a claim that is lost takes the writing with it.
        self.claimed: Callable[[], sa.Connection] | None = None
        self._of_thread = threading.local()

    @classmethod
    def open(cls, url: str, *, begins: bool = True) -> Database:
        """Create what is absent and bring the schema up to date; refuse what is newer. `begins`: a
        history may begin there; otherwise an empty database is refused."""
        database = cls(_engine(_parse(url)))
        try:
            database._bring_up_to_date(begins=begins)
        except BaseException:
            database.close()
            raise
        return database

    def close(self) -> None:
        self.engine.dispose()

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction in which all is read as it was at one moment, whoever writes."""
        return self._current_transaction() or self._transaction(self._snapshots)

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction: all of it is on disk when the block is left, or none of it."""
        if joined := self._current_transaction():
            return joined
        if self.claimed is not None:
            return self._explain_errors(self._claimed_transaction)
        return self._transaction(self.engine.execution_options(writes=True))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make what this thread reads and writes in the block one transaction, or part of the one
        that it is in."""
        if self._current_transaction() is not None:
            yield
            return
        with self.writing() as connection:
            self._of_thread.connection = connection
            try:
                yield
            finally:
                self._of_thread.connection = None

    def _current_transaction(self) -> AbstractContextManager[sa.Connection] | None:
        connection = getattr(self._of_thread, "connection", None)
        return nullcontext(connection) if connection is not None else None

    def _transaction(self, engine: sa.Engine) -> AbstractContextManager[sa.Connection]:
        return self._explain_errors(engine.begin)

    @contextmanager
    def _claimed_transaction(self) -> Iterator[sa.Connection]:
        assert self.claimed is not None
        connection = self.claimed()
        with connection.begin():
            yield connection

    @contextmanager
    def _explain_errors(
        self, begin: Callable[[], AbstractContextManager[sa.Connection]]
    ) -> Iterator[sa.Connection]:
        try:
            with begin() as connection:
                yield connection
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            raise explain(self.place, error) from error
        except Damage as damage:
            raise StoreError(
                f'history "{self.place}": {damage}; nothing is judged by that: restore a backup of'
                " the history (anubis history check lists all that is damaged)"
            ) from damage

    def _bring_up_to_date(self, *, begins: bool) -> None:
        with self.reading() as connection:
            if (revision := self._revision(connection)) == HEAD:
                return
        self.is_new = revision is None
        if self.is_new and not begins:
            raise UsageError(
                f'ANUBIS_HISTORY names "{self.place}", which is empty: correct it, or begin a'
                " history there with anubis accept"
            )
        if is_read_only(self.engine.url):
            raise StoreError(
                f'history "{self.place}": an older Anubis wrote it, and nothing can be written'
                " there: copy it to a folder of yours, and name the copy"
            )
        with self.writing() as connection:
            # Two may open a new database at once: the second finds the work done.
            if self.dialect == "postgresql":
                connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({UPGRADE_LOCK})"))
            revision = self._revision(connection)
            if revision is None:
                _create_tables(connection)
            elif revision != HEAD:
                _upgrade(connection)

    def _revision(self, connection: sa.Connection) -> str | None:
        """Return the revision of the schema found; None in an empty database."""
        tables = sa.inspect(connection).get_table_names()
        if not tables:
            return None
        if "alembic_version" not in tables:
            raise StoreError(
                f'history "{self.place}": expected an empty database or one of Anubis, found the'
                f' table "{min(tables)}"; nothing was changed: name another database'
            )
        revision = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        if revision is not None and revision not in REVISIONS:
            readable = f'this Anubis knows revisions "{REVISIONS[0]}" to "{HEAD}"'
            way_out = "upgrade Anubis, or name" if revision > HEAD else "it is of before 1.0: name"
            raise StoreError(
                f'history "{self.place}": its schema has revision "{revision}", {readable}; nothing'
                f" was changed: {way_out} another database"
            )
        return revision


def upsert(
    connection: sa.Connection,
    table: sa.Table,
    rows: list[dict[str, Any]],
    *,
    keys: Sequence[str] = (),
    replace: bool = False,
) -> None:
    """Insert rows; a row that is there already by these columns, or by the primary key, stays or is
    replaced."""
    if not rows:
        return
    keys = keys or table.primary_key.columns.keys()
    # each dialect takes its time to load, and only one of them is spoken
    dialect = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")
    statement = dialect.insert(table)
    if replace:
        cells = {name: statement.excluded[name] for name in rows[0] if name not in keys}
        statement = statement.on_conflict_do_update(index_elements=keys, set_=cells)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=keys)
    # Sorted, so that two writers who share rows wait for each other in one order only.
    connection.execute(statement, sorted(rows, key=itemgetter(*keys)))


@contextmanager
def write_alone(connection: sa.Connection, table: sa.Table) -> Iterator[None]:
    """Make other writers to the table wait for this transaction while the block runs; a server ends
    the transaction if this process stands still."""
    if connection.dialect.name != "postgresql":  # SQLite has one writer anyway
        yield
        return
    limit = f"SET LOCAL idle_in_transaction_session_timeout = '{STOOD_STILL}'"
    connection.exec_driver_sql(limit)
    connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")
    is_over = threading.Event()
    # one connection serves two threads, one statement after another
    arguments = connection.connection.driver_connection, is_over
    alive = threading.Thread(target=_show_life, args=arguments, daemon=True)
    alive.start()
    try:
        yield
    finally:
        is_over.set()
        alive.join()  # a statement after the end would begin another transaction


def _show_life(connection: Any, is_over: threading.Event) -> None:
    """Ask a server for nothing, again and again: a process that was stopped asks no more."""
    while not is_over.wait(SHOWS_LIFE_S):
        with suppress(connection.Error):  # whoever uses the connection next meets the same trouble
            connection.execute("SELECT 1")


def add_new(
    connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]
) -> list[sa.Row[Any]]:
    """Insert rows that are new and return their primary keys; what is in the table stays."""
    keys = list(table.primary_key.columns)
    dialect = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")
    insert = dialect.insert(table).on_conflict_do_nothing(index_elements=keys).returning(*keys)
    ordered = sorted(rows, key=itemgetter(*(key.name for key in keys)))
    return list(connection.execute(insert, ordered)) if rows else []


def _create_tables(connection: sa.Connection) -> None:
    """Create all tables as the records of today need them; migrations are for older histories."""
    metadata.create_all(connection, checkfirst=False)
    revision = sa.Table(
        "alembic_version", sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True)
    )
    revision.create(connection)
    connection.execute(revision.insert().values(version_num=HEAD))


def _upgrade(connection: sa.Connection) -> None:
    # Alembic costs a quarter of a second that an up-to-date database need not pay.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "anubis.store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _parse(url: str) -> sa.URL:
    if "://" not in url:
        return sa.URL.create("sqlite", database=str(Path(url).expanduser().resolve()))
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(_unknown(_hide_secrets(url))) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed.set(drivername="sqlite", database=str(Path(parsed.database).resolve()))
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise StoreError(_unknown(_hide_secrets(url)))


def absent_file(url: str) -> str:
    """The file of an SQLite history if it does not exist yet; else empty."""
    parsed = _parse(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database == ":memory:":
        return ""
    try:
        Path(str(parsed.database)).stat()
    except FileNotFoundError:
        return str(parsed.database)
    except OSError:  # who opens it says why it cannot be read
        pass
    return ""


def _unknown(url: str) -> str:
    return (
        f'history "{url}": expected a file, "sqlite:///FILE" or'
        ' "postgresql://USER@HOST/DATABASE"; correct the URL'
    )


def _place(url: sa.URL) -> str:
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return _hide_secrets(url.set(drivername="postgresql").render_as_string(hide_password=False))


def _hide_secrets(url: str) -> str:
    """Hide secrets in a URL: before the host, and among the parameters."""
    hidden = re.sub(r"(://[^/:@]*):.*@", r"\1:***@", url)
    return re.sub(r"((?:password|passphrase|secret|token)=)[^&#]*", r"\1***", hidden, flags=re.I)


def _engine(url: sa.URL) -> sa.Engine:
    return _postgresql(url) if url.get_backend_name() == "postgresql" else _sqlite(url)


def this_process() -> str:
    """Name this process as errors and lists do: `process 123 on login1`."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def own_name() -> str:
    """Return the name under which a server lists this process."""
    return f"anubis {this_process()}"[:63]


def _postgresql(url: sa.URL) -> sa.Engine:
    require_package("psycopg", f'history "{_place(url)}"')
    limits = {name: limit for name, limit in GIVEN_UP.items() if name not in url.query}
    engine = sa.create_engine(
        url,
        # The name lets the claim of a campaign say who holds it.
        connect_args={"application_name": own_name(), **limits},
        pool_pre_ping=True,  # a server that was restarted must not end a campaign of hours
    )
    return _apply_settings(engine, FOR_EACH_CONNECTION)


def _apply_settings(engine: sa.Engine, settings: Sequence[str]) -> sa.Engine:
    @sa.event.listens_for(engine, "connect")
    def tell(connection: Any, _record: object) -> None:
        connection.autocommit = True  # the settings of a transaction that is rolled back are, too
        connection.execute("; ".join(settings))
        connection.autocommit = False

    return engine


def _sqlite(url: sa.URL) -> sa.Engine:
    file = Path(str(url.database))
    if is_read_only(url):
        return _prepare(sa.create_engine(url, creator=partial(_connect_to_read, file)), READ_ONLY)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise explain(_place(url), error) from error
    return _prepare(sa.create_engine(url), PRAGMAS)


def is_read_only(url: sa.URL) -> bool:
    """True if the history is a file that this user may not write to, or is in such a folder."""
    file = Path(str(url.database))
    of_sqlite = url.get_backend_name() == "sqlite"
    return (
        of_sqlite
        and file.is_file()
        and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))
    )


@cache
def _shared_dialect() -> tuple[sa.Dialect, sa.util.LRUCache[Any, Any]]:
    """Return a dialect that has met SQLite, and the statements compiled for it: half of what a
    query costs, and the same for each file that this process opens."""
    engine = sa.create_engine("sqlite://")
    with engine.connect():
        pass
    engine.dispose()
    return engine.dialect, sa.util.LRUCache(500)  # as many as an engine of its own would keep


def _connect_to_read(file: Path) -> sqlite3.Connection:
    """Open a file to read only: SQLite writes beside what it reads, unless it is told that nothing
    changes there."""
    journal = file.with_name(f"{file.name}-wal")
    has_more = journal.is_file() and journal.stat().st_size > 0
    address = f"file:{quote(str(file))}?mode=ro{'' if has_more else '&immutable=1'}"
    connection = sqlite3.connect(address, uri=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        if not has_more:
            raise
        raise StoreError(
            f'history "{file}": "{journal.name}" beside it holds rows that are not in it yet, and'
            " nothing can be written there: copy both to a folder of yours, and name the copy"
        ) from error
    return connection


def _prepare(engine: sa.Engine, pragmas: Sequence[str]) -> sa.Engine:
    engine.dialect, compiled = _shared_dialect()
    engine.update_execution_options(compiled_cache=compiled)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where `begin` says, not later
        try:
            for pragma in pragmas:
                connection.execute(f"PRAGMA {pragma}")
        except Exception:
            connection.close()
            raise

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A writer takes the lock at once: one that first reads may find it cannot write.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
