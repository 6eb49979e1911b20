"""A history that can only be read is read; verbs that have to write refuse in one sentence."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anubis.core.errors import StoreError
from anubis.store.history import History

pytestmark = pytest.mark.long


class Shelf:
    """A folder that can be sealed: for root a disk that is mounted again to be read only, for
    others by its permissions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_disk = os.geteuid() == 0
        folder.mkdir()
        if self.is_disk:
            self.mount("-t", "tmpfs", "-o", "size=16m", "tmpfs")

    def mount(self, *words: str) -> None:
        done = subprocess.run(
            ["mount", *words, str(self.folder)], check=False, capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"a disk cannot be mounted here: {done.stderr.strip()}")

    def seal(self) -> None:
        if self.is_disk:
            self.mount("-o", "remount,ro")
        else:
            self.folder.chmod(0o500)

    def clear(self) -> None:
        if self.is_disk:
            subprocess.run(["umount", "--lazy", self.folder], check=True)
        else:
            self.folder.chmod(0o700)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "shelf")
    yield shelf
    shelf.clear()


@pytest.fixture
def sealed(near, shelf, monkeypatch) -> Path:
    """The history of an accepted fleet, which no user can write any more."""
    done = near.run("accept", "--cluster", near.fleet(slow_share=0.2), "--suite", suite(near))
    assert done.code == 1, done.err
    file = shelf.folder / "history.sqlite"
    shutil.copy(near.history, file)
    shelf.seal()
    monkeypatch.setenv("ANUBIS_HISTORY", f"sqlite:///{file}")
    return file


def suite(near) -> str:
    return near.suite({"benchmark": "gemm"})


def test_reading_verbs_answer_the_same_on_a_read_only_history(near, sealed, monkeypatch):
    verbs = [
        ("report", "--json"),
        ("criteria", "judge", "--json"),
        ("history", "show", "--json"),
        ("history", "check"),
        ("history", "clusters"),
    ]
    answers = [near.run(*words) for words in verbs]
    assert [done.code for done in answers] == [1, 1, 0, 0, 0], [done.err for done in answers]
    monkeypatch.delenv("ANUBIS_HISTORY")
    assert [done.out for done in answers] == [near.run(*words).out for words in verbs]
    assert sorted(file.name for file in sealed.parent.iterdir()) == ["history.sqlite"]


def test_verbs_that_write_are_refused_in_one_sentence(near, sealed):
    incidents = near.write("day.csv", "node,category,start,end\nn1,gpu,2024-03-01T10:00,\n")
    for words in (
        ("accept", "--cluster", near.fleet(), "--suite", suite(near)),
        ("history", "import", "incidents", str(incidents)),
        ("history", "rename", "fleet", "prod"),
    ):
        done = near.run(*words)
        assert (done.code, done.out) == (2, "")
        (line,) = [text for text in done.err.splitlines() if "error" in text]
        assert f'history "{sealed}": attempt to write a readonly database' in line
        assert "make the file and its folder writable" in line


def test_rows_not_yet_in_the_file_are_reported_and_not_left_out(shelf, tmp_path):
    file = tmp_path / "history.db"
    with History.open(str(file)), closing(sqlite3.connect(file)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        with writer:
            writer.execute("INSERT INTO clusters VALUES ('late', '', '', 1.0)")
        for name in ("history.db", "history.db-wal"):  # as a process leaves them that was killed
            shutil.copy(tmp_path / name, shelf.folder)
    shelf.seal()
    with pytest.raises(StoreError, match=r'"history\.db-wal" beside it holds rows .* copy both'):
        History.open(str(shelf.folder / "history.db"))


def test_an_older_history_that_cannot_be_written_is_refused_with_the_way_out(shelf):
    file = shelf.folder / "history.db"
    History.open(str(file)).close()
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("UPDATE alembic_version SET version_num = '0035'")
    shelf.seal()
    with pytest.raises(StoreError, match=r"an older Anubis wrote it, .* copy it to a folder"):
        History.open(str(file))
