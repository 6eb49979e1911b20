"""When PostgreSQL is not there. With a server, tests/edges/test_store.py puts it to the test."""

from __future__ import annotations

import socket

import pytest

from anubis.core.errors import StoreError, StoreUnreachableError
from anubis.store import database
from anubis.store.history import History


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    url = "postgresql://anubis:secret@127.0.0.1:1/fleet?connect_timeout=5"
    with pytest.raises(StoreError, match="check that it runs and can be reached") as error:
        History.open(url)
    assert "127.0.0.1:1/fleet" in str(error.value)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    shortest = {**database.GIVEN_UP, "connect_timeout": "2"}
    monkeypatch.setattr(database, "GIVEN_UP", shortest)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(StoreUnreachableError, match="check that it runs and can be reached"):
            History.open(f"postgresql://anubis@127.0.0.1:{port}/fleet")
