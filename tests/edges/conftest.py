"""The operator's desks: `desk` starts the real command, `near` calls the same entry in here."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from anubis import catalog, places
from anubis.cli.main import run
from anubis.core.records import BenchmarkSpec
from tests.edges.desk import Desk, Done


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture(scope="session")
def told() -> Callable[[Path], BenchmarkSpec]:
    """What the shipped programs say of themselves; each is asked once for all tests in here."""
    describe = catalog.describe
    shipped, once = places.shipped("benchmarks"), cache(describe)
    return lambda file: (once if file.parent == shipped else describe)(file)


@pytest.fixture
def near(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    told: Callable[[Path], BenchmarkSpec],
) -> Desk:
    """Thirty times as fast, for the long tables of variants."""
    monkeypatch.setattr(catalog, "describe", told)

    class Near(Desk):
        def run(self, *words: str) -> Done:
            monkeypatch.setattr(sys, "argv", ["anubis", *words])
            before = signal.getsignal(signal.SIGTERM)
            code: object = None
            try:
                code = run()
            except SystemExit as end:
                code = end.code
            finally:
                signal.signal(signal.SIGTERM, before)
            return Done(int(str(code)), *capfd.readouterr())

    near = Near(tmp_path)
    monkeypatch.chdir(near.folder)
    for name, value in near.environment.items():
        monkeypatch.setenv(name, value)
    return near
