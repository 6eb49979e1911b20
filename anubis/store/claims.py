"""One driver at a time for each campaign. A claim ends with its process, however that ends. If the
server that keeps the claim is restarted, its driver claims again before it writes anything."""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from anubis.core.errors import CampaignTakenError, StoreUnreachableError
from anubis.store.database import Database, own_name, this_process
from anubis.store.database_errors import explain
from anubis.store.holds import LASTS_S, holder_of, utc

NAMESPACE = 0x616E7562  # the first half of our advisory locks; the second is the campaign
OF_ACTIONS = 0x616E7563  # the same, where the second is an action of the keeper
OF_PERIODIC_TASKS = 0x616E7564  # or a cluster, by a checksum of its name
OF_WATCHES = 0x616E7565  # the lock of the process that watches its jobs
OF_DIAGNOSES = 0x616E7566  # the lock of the process that diagnoses them
OF_KEEPERS = 0x616E7567  # the lock of the process that goes on keeping it


TRY_LOCK = sa.text("SELECT pg_try_advisory_lock(:namespace, :key)")
UNLOCK = sa.text("SELECT pg_advisory_unlock(:namespace, :key)")
HOLDER = sa.text(
    "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE locktype = 'advisory' AND classid = :namespace AND objid = :key"
    " AND objsubid = 2 AND granted AND pg_locks.database ="
    " (SELECT oid FROM pg_database WHERE datname = current_database())"
)
# A restart frees all locks, and drivers live on: a holder of nodes may have them still.
PERHAPS_DRIVING = sa.text(
    "SELECT owner, until FROM holds WHERE holder = :holder AND owner <> :owner"
    " AND until > extract(epoch FROM now())"
    " AND until - :lasts < extract(epoch FROM pg_postmaster_start_time())"
)


@contextmanager
def claim(database: Database, campaign_id: str, key: int) -> Iterator[None]:
    """Hold the campaign while the block runs; a second driver gets a CampaignTakenError."""
    if database.dialect == "sqlite":
        claimed = _file_claim(database, campaign_id, key)
    else:
        claimed = _server_claim(database, campaign_id, key)
    with ExitStack() as stack:
        try:
            stack.enter_context(claimed)
        except (OSError, SQLAlchemyError) as error:
            raise explain(database.place, error) from error
        yield


def taken_error(campaign_id: str, holder: str) -> CampaignTakenError:
    return CampaignTakenError(
        f'campaign "{campaign_id}" is being driven by {holder}; wait until that ends,'
        " or end it there and resume the campaign here"
    )


@contextmanager
def _file_claim(database: Database, campaign_id: str, key: int) -> Iterator[None]:
    path = Path(f"{database.place}.campaign-{key}.lock")
    handle = _lock_file(path)
    if handle is None:
        raise taken_error(campaign_id, _read_note(path) or "another process")
    try:
        with suppress(OSError):  # the note is a courtesy: a full disk must not stop a resume
            os.ftruncate(handle, 0)
            os.pwrite(handle, this_process().encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)  # while locked: the file removed is surely our own
        os.close(handle)


def _lock_file(path: Path) -> int | None:
    """Lock the file and return its handle; None if another process has the lock."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                return None
            raise
        # The last holder may have removed the file between our open and our lock.
        if os.fstat(handle).st_nlink > 0:
            return handle
        os.close(handle)


def _read_note(path: Path) -> str:
    """Read the note in which the holder named itself."""
    with suppress(OSError):
        return path.read_text(errors="replace")[:200]
    return ""


class _Session:
    """A connection that has the lock of a campaign; the lock ends with the connection."""

    def __init__(self, database: Database, campaign_id: str, key: int) -> None:
        self._database = database
        self._campaign_id = campaign_id
        self._lock = {"namespace": NAMESPACE, "key": key}
        self._connection: sa.Connection | None = None
        self._had_lock = False

    def connection(self) -> sa.Connection:
        """The connection that has the lock; a new one with a new lock if the server has dropped the
        last."""
        if self._connection is None or self._connection.invalidated:
            self.close()
            self._connection = self._begin()
        return self._connection

    def _begin(self) -> sa.Connection:
        connection = self._database.engine.connect()
        try:
            connection.detach()  # the lock lives as long as the connection: no pool may keep it
            with connection.begin():
                self._take(connection)
            self._had_lock = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _take(self, connection: sa.Connection) -> None:
        if not connection.execute(TRY_LOCK, self._lock).scalar():
            holder = connection.execute(HOLDER, self._lock).scalar()
            if self._had_lock and holder == own_name():
                raise StoreUnreachableError(
                    f'history "{self._database.place}": the server has not noticed yet that it lost'
                    " this driver"
                )
            raise taken_error(self._campaign_id, holder or "another process")
        hold = {"holder": holder_of(self._campaign_id), "owner": this_process(), "lasts": LASTS_S}
        for owner, until in connection.execute(PERHAPS_DRIVING, hold):
            raise taken_error(
                self._campaign_id,
                f"{owner}, or was when the server was restarted: unknown before {utc(until)}",
            )

    def close(self) -> None:
        """Free the lock at once: a server may notice late that a connection is gone."""
        if self._connection is None:
            return
        with suppress(SQLAlchemyError):
            if not self._connection.invalidated:
                with self._connection.begin():
                    self._connection.execute(UNLOCK, self._lock)
        with suppress(SQLAlchemyError):
            self._connection.close()
        self._connection = None


@contextmanager
def _server_claim(database: Database, campaign_id: str, key: int) -> Iterator[None]:
    session = _Session(database, campaign_id, key)
    session.connection()
    database.claimed = session.connection
    try:
        yield
    finally:
        database.claimed = None
        session.close()


# --- of several processes, the one that acts ------------------------------------------------

ACTING = 0  # no campaign has this key
FORGOTTEN_AFTER_S = 8.0  # without a word from a service that stands still, or whose machine is gone


class ProcessLock:
    """A lock that one process has at a time; it ends with that process, however that ends."""

    def __init__(
        self,
        database: Database,
        name: str,
        key: int,
        namespace: int = NAMESPACE,
        silence_s: float = 0.0,
    ) -> None:
        """Prepare the lock. `silence_s`: after so long a server takes it from a process that does
        not ask for it again; 0: never."""
        self._database = database
        self._path = Path(f"{database.place}.{name}.lock")
        self._lock = {"namespace": namespace, "key": key}
        self._silence_s = silence_s
        self._connection: sa.Connection | None = None
        self._file: int | None = None

    def has(self) -> bool:
        """Return true if this process has the lock, still or from now on."""
        try:
            return self._has_file() if self._database.dialect == "sqlite" else self._has_session()
        except (OSError, SQLAlchemyError) as error:
            self.give_back()
            raise explain(self._database.place, error) from error

    def holder(self) -> str:
        """Name the process that has the lock; empty if none has it."""
        if self._database.dialect == "sqlite":
            return _read_note(self._path) if _is_locked(self._path) else ""
        with self._database.reading() as connection:
            return connection.execute(HOLDER, self._lock).scalar() or ""

    def give_back(self) -> None:
        if self._file is not None:
            self._path.unlink(missing_ok=True)  # while locked, as with a claim
            os.close(self._file)
        if self._connection is not None:
            with suppress(SQLAlchemyError):  # at once: a server may notice late that it is gone
                if not self._connection.invalidated:
                    with self._connection.begin():
                        self._connection.execute(UNLOCK, self._lock)
            with suppress(SQLAlchemyError):
                self._connection.close()
        self._file = self._connection = None

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Yield true if this process has the lock while the block runs."""
        try:
            yield self.has()
        finally:
            self.give_back()

    def _has_file(self) -> bool:
        if self._file is None:
            self._file = _lock_file(self._path)
            if self._file is not None:
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, own_name().encode(), 0)
        return self._file is not None

    def _has_session(self) -> bool:
        if self._connection is not None:
            with self._connection.begin():
                self._connection.execute(sa.text("SELECT 1"))
            return True
        connection = self._database.engine.connect()
        connection.detach()  # the lock lives as long as the connection: no pool may keep it
        with connection.begin():
            if self._silence_s:
                limit = f"SET idle_session_timeout = '{self._silence_s * 1000:.0f}ms'"
                connection.exec_driver_sql(limit)
            is_free = bool(connection.execute(TRY_LOCK, self._lock).scalar())
        if is_free:
            self._connection = connection
        else:
            connection.close()
        return is_free


def _is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def acting_lock(database: Database) -> ProcessLock:
    """Return the lock of the one service that acts, among several."""
    return ProcessLock(database, "acting", ACTING, silence_s=FORGOTTEN_AFTER_S)


def driving_lock(database: Database, action: int) -> ProcessLock:
    """Return the lock of the one process that carries out an action of the keeper."""
    return ProcessLock(database, f"action-{action}", action, OF_ACTIONS)


def periodic_tasks_lock(database: Database, cluster: str) -> ProcessLock:
    """Return the lock of the one process that does the periodic tasks of a cluster."""
    return _cluster_lock(database, "periodic-tasks", cluster, OF_PERIODIC_TASKS)


def watch_lock(database: Database, cluster: str) -> ProcessLock:
    """Return the lock of the one process that watches the running jobs of a cluster."""
    return _cluster_lock(database, "watch", cluster, OF_WATCHES)


def keeping_lock(database: Database, cluster: str) -> ProcessLock:
    """Return the lock of the one process that takes the turns of a cluster's keeper."""
    return _cluster_lock(database, "keeper", cluster, OF_KEEPERS)


def diagnosis_lock(database: Database, cluster: str) -> ProcessLock:
    """Return the lock of the one process that diagnoses the jobs of a cluster."""
    return _cluster_lock(database, "diagnose", cluster, OF_DIAGNOSES)


def _cluster_lock(database: Database, use: str, cluster: str, namespace: int) -> ProcessLock:
    key = zlib.crc32(cluster.encode()) & 0x7FFFFFFF
    return ProcessLock(database, f"{use}-{cluster}", key, namespace)
