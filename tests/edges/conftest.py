"""The operator's desks: `desk` is the command in a process of its own, `near` calls the same entry
in here."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anubis.cli.main import run
from anubis.config import catalog
from anubis.config.catalog import describe_all
from anubis.text import places
from tests.edges import postgresql
from tests.edges.desk import Describe, Desk, Done, described_once
from tests.forked import ForkServer, Started, common_folder, torch_server


@pytest.fixture(scope="session")
def verbs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """The command as a child of a process that has loaded it: a second less for each."""
    folder = common_folder(tmp_path_factory, "verbs")
    with ForkServer(folder, "tests.warm_verbs", is_shared=True) as verbs:
        yield verbs


@pytest.fixture(scope="session")
def torch_forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A process that has loaded torch, and programs as its children: that of tests/contract."""
    with torch_server(tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a home in which the descriptions of the shipped programs are cached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANUBIS_HOME", str(tmp_path_factory.mktemp("described")))
        describe_all(catalog.programs_in(places.shipped_folder("benchmarks")))
        return places.descriptions()


@pytest.fixture
def desk(tmp_path: Path, verbs: ForkServer, described: Path) -> Desk:
    """A desk whose commands are forked; `Desk.start` starts one from its first line."""

    class Forked(Desk):
        def run(self, *words: str) -> Done:
            know_descriptions(self, described)
            return Done(*verbs.ask(["-m", "anubis", *words], self.environment, self.folder))

        def start(self, *words: str) -> Started:
            know_descriptions(self, described)
            return start(verbs, self, words)

    return Forked(tmp_path)


def know_descriptions(desk: Desk, described: Path) -> None:
    """Cache them in the desk's home as well, or its first command runs all shipped programs."""
    if not desk.home.exists():
        for folder in (desk.home, desk.home / "cache"):
            folder.mkdir(mode=0o700)
        Path(shutil.copy(described, desk.home / "cache")).chmod(0o600)


def start(verbs: ForkServer, desk: Desk, words: Sequence[str]) -> Started:
    asked = ["-m", "anubis", *words, "--benchmarks", str(desk.programs)]
    return verbs.start(asked, desk.environment, desk.folder)


if TYPE_CHECKING:
    from tests.edges.visitor import Visitor


@pytest.fixture(scope="session")
def told() -> Describe:
    """Descriptions of programs; each shipped one, and each that every desk has, is asked once for
    all tests in here."""
    return described_once()


@pytest.fixture
def entry(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    told: Describe,
) -> Callable[..., Done]:
    """Run the command in this process, in which all is loaded: thirty times as fast."""
    monkeypatch.setattr(catalog, "describe_all", told)

    def entry(*words: str) -> Done:
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

    return entry


@pytest.fixture
def near(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entry: Callable[..., Done],
) -> Desk:
    """A desk in this process, for the long tables of variants."""

    class Near(Desk):
        def run(self, *words: str) -> Done:
            return entry(*words)

        def start(self, *words: str) -> Started:
            know_descriptions(self, request.getfixturevalue("described"))
            return start(request.getfixturevalue("verbs"), self, words)

    near = Near(tmp_path)
    monkeypatch.chdir(near.folder)
    for name, value in near.environment.items():
        monkeypatch.setenv(name, value)
    return near


@pytest.fixture(scope="session")
def server() -> Iterator[postgresql.Server]:
    with postgresql.running() as server:
        yield server


# --- the service: its parts are loaded where it is asked ---------------------------------------


@pytest.fixture
def fleet(near: Desk) -> Desk:
    """A desk whose simulated fleet of eight was accepted."""
    suite, cluster = near.suite(near.flow(repeats=1)), near.fleet()
    done = near.ask("accept", "--cluster", cluster, "--suite", suite)
    assert done.code == 0, done.err
    near.where = {"suite": suite, "benchmarks": (near.programs,)}
    return near


@pytest.fixture
def visitor(fleet: Desk) -> Iterator[Visitor]:
    from tests.edges.visitor import Visitor, house_of

    house = house_of(str(fleet.history), **fleet.where)
    yield Visitor(house)
    house.history.close_at_last()


@pytest.fixture
def empty(near: Desk) -> Iterator[Visitor]:
    from tests.edges.visitor import Visitor, house_of

    house = house_of(str(near.history))
    yield Visitor(house)
    house.history.close_at_last()
