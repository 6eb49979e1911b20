"""Another user than the writer of a history reads all of it, and writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edges.desk import Desk, Done

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]

NOBODY = 65534
READS = (
    ("report", "--json"),
    ("criteria", "judge", "--json"),
    ("criteria", "learn", "--out", "{out}"),
    ("bench", "tune", "gemm"),
    ("history", "show", "--json"),
    ("history", "decisions"),
    ("history", "standing"),
    ("history", "campaigns"),
    ("history", "clusters"),
    ("history", "benchmarks"),
    ("history", "check"),
    ("history", "imports"),
    ("criteria", "show"),
    ("criteria", "diff", "{home}/criteria/tiny", "{home}/criteria/tiny"),
    ("risk", "show"),
    ("risk", "evaluate"),
    ("history", "actions"),
    ("token", "list"),
)


@pytest.fixture
def shelf() -> Iterator[Path]:
    """A folder that every user can enter, unlike those of a test."""
    folder = Path(tempfile.mkdtemp(prefix="anubis-shelf-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(near: Desk, *words: str) -> Done:
    """Run as the user "nobody" in a child of this process, which has loaded all that this user may
    not read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            done = near.run(*words)
            with os.fdopen(writing, "w") as answer:
                json.dump([done.code, done.out, done.err], answer)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    assert text, "the verb did not end as verbs do"
    return Done(*json.loads(text))


@pytest.fixture
def shared(near, shelf, monkeypatch) -> Path:
    """The home of an accepted fleet that has a past, which its owner lets others read."""
    suite = near.suite({"benchmark": "gemm", "repeats": 2})
    done = near.run("accept", "--cluster", near.fleet(slow_share=0.2), "--suite", suite)
    assert done.code == 1, done.err
    day = near.write("day.csv", "node,category,start,end\nn1,gpu,2024-03-01T10:00,\n")
    assert near.run("history", "import", "incidents", str(day)).code == 0
    assert near.run("gate", "--plan", "--event", "tick", "n[1-4]").code in (0, 1)
    home = shutil.copytree(near.home, shelf / "home")
    for path in (home, *home.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.setenv("ANUBIS_HOME", str(home))
    monkeypatch.chdir(shelf)
    return home


def contents(home: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_another_user_gets_the_same_answers_and_changes_nothing(near, shared, shelf):
    before = contents(shared)
    (shelf / "out").mkdir()
    (shelf / "out").chmod(0o777)
    for number, words in enumerate(READS):
        places = {"home": shared, "out": shelf / "out" / str(number)}
        verb = [word.format(**places) for word in words]
        owners = near.run(*verb)
        shutil.rmtree(places["out"], ignore_errors=True)
        others = as_nobody(near, *verb)
        assert others == owners, words
        assert "Traceback" not in others.err
    assert [path.stat().st_uid for path in (shelf / "out").rglob("*.json")] == [NOBODY]
    assert contents(shared) == before


def test_writes_by_another_user_are_refused_in_one_sentence(near, shared, shelf):
    cluster, suite = (
        shutil.copy(file, shelf) for file in (near.fleet(), near.suite({"benchmark": "gemm"}))
    )
    for words in (
        ("accept", "--cluster", cluster, "--suite", suite),
        ("history", "rename", "fleet", "prod"),
        ("gate", "--plan", "--event", "tick", "n[1-4]"),
    ):
        done = as_nobody(near, *words)
        assert (done.code, done.out) == (2, ""), words
        assert "attempt to write a readonly database" in done.err
        assert "Traceback" not in done.err


def test_a_folder_that_another_user_may_not_enter_is_one_sentence(near, shared, monkeypatch):
    monkeypatch.setenv("ANUBIS_HISTORY", str(near.history))
    for words, place in (
        (("accept", "--cluster", near.fleet()), near.folder / "fleet.yaml"),
        (("report",), near.history),
    ):
        done = as_nobody(near, *words)
        assert (done.code, done.out) == (2, "")
        assert done.err == (
            f'anubis: error: "{place}": permission denied: this user may not look there; name'
            " another place, or ask its owner\n"
        )
