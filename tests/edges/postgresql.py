"""A real PostgreSQL of our own, which a test may stop and start. No asserts about Anubis."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.patience import LIMIT_S, eventually


def postgresql_binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class Server:
    """A PostgreSQL of our own on a unix socket in its folder."""

    def __init__(self, binaries: Path, user: dict[str, Any]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="anubis-pg-"))
        self.binaries = binaries
        self.options: dict[str, Any] = {"cwd": self.folder, **user}
        self._numbers = count()
        if user:
            os.chown(self.folder, user["user"], user["group"])
        data = self.folder / "data"
        subprocess.run(
            [binaries / "initdb", "-D", data, "-A", "trust", "-U", "anubis", "-E", "UTF8", "-N"],
            check=True, capture_output=True, timeout=LIMIT_S, **self.options,
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [self.binaries / "postgres", "-D", self.folder / "data", "-k", self.folder,
             "-c", "listen_addresses=",
             "-c", "fsync=off"],  # no test cuts its power, and stopping it would wait for the disk
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self.options,
        )  # fmt: skip
        ready = [self.binaries / "pg_isready", "-q", "-h", self.folder, "-U", "anubis",
                 "-d", "postgres"]  # fmt: skip
        up = eventually(lambda: subprocess.run(ready, check=False).returncode == 0)
        assert up, "PostgreSQL did not come up"

    def stop(self) -> None:
        """Stop at once, as in a crash: no connection is closed first."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(timeout=LIMIT_S)

    def new_database(self, like: str = "template1") -> str:
        """Its URL; it begins as a copy of the other, which must not be open."""
        name = f"history_{next(self._numbers)}"
        admin = engine_for(f"postgresql://anubis@/postgres?host={self.folder}")
        with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {like}")
        return f"postgresql://anubis@/{name}?host={self.folder}"


@contextmanager
def running() -> Iterator[Server]:
    binaries = postgresql_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed (initdb not found)")
    user: dict[str, Any] = {}
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip('root, and there is no user "postgres" to run PostgreSQL as')
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    server = Server(binaries, user)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder)


def engine_for(url: str) -> sa.Engine:
    driver = url.replace("postgresql://", "postgresql+psycopg://")
    return sa.create_engine(driver, poolclass=sa.NullPool)


def ask(url: str, question: str) -> Any:
    with closing(engine_for(url).raw_connection()) as connection:
        cursor = connection.cursor()
        cursor.execute(question)
        value = cursor.fetchone()[0] if cursor.description else None
        connection.commit()
    return value
