"""The descriptions of benchmark programs: of shipped ones from one process, of each other one
alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anubis.config import catalog
from anubis.core.errors import CatalogError
from anubis.text import places

SHIPPED = catalog.programs_in(places.shipped_folder("benchmarks"))

PROGRAM = """
import json, sys

BROKEN
print(json.dumps({
    "schema": "anubis.describe/1", "name": "NAME", "version": "1", "summary": "Keeps still.",
    "stresses": "nothing", "reveals": "nothing", "level": "micro", "scope": "node",
    "duration_s": 1.0, "metrics": [{"name": "calm", "unit": "1", "direction": "higher"}],
    "parameters": [],
}))
"""


def write(folder: Path, name: str, broken: str = "") -> Path:
    file = folder / f"{name}.py"
    file.write_text(PROGRAM.replace("NAME", name).replace("BROKEN", broken))
    return file


@pytest.fixture(autouse=True)
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home in which nothing is known of any program."""
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path / "home"))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of all processes that are started."""
    commands = []

    class Noted(subprocess.Popen):
        def __init__(self, command, **options):
            commands.append(command)
            super().__init__(command, **options)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return commands


def test_the_shipped_programs_take_one_process_and_are_asked_again_only_if_they_changed(processes):
    first = catalog.describe_all(SHIPPED)
    assert catalog.describe_all(SHIPPED) == first
    assert len(processes) == 1


def test_programs_are_described_anew_after_any_change_in_their_folder(tmp_path, monkeypatch):
    """A program may take its metrics from a neighbour."""
    monkeypatch.setattr(places, "shipped_folder", lambda folder: tmp_path)
    unit = tmp_path / "_unit.py"
    unit.write_text('UNIT = "m"')
    for name in ("a", "b"):
        file = write(tmp_path, name, "from _unit import UNIT")
        file.write_text(file.read_text().replace('"unit": "1"', '"unit": UNIT'))
    files = catalog.programs_in(tmp_path)
    assert {spec.metrics[0].unit for spec in catalog.describe_all(files)} == {"m"}
    unit.write_text('UNIT = "s"')  # of the same length
    os.utime(unit, (0, 0))  # or Python takes what it compiled within the same second
    assert {spec.metrics[0].unit for spec in catalog.describe_all(files)} == {"s"}


def test_an_unreadable_cache_of_descriptions_is_made_anew():
    first = catalog.describe_all(SHIPPED[:2])
    for content in ("", "[]", '{"by": 1}', "\0", '{"by": "x", "texts": {"a": "b"}}'):
        places.descriptions().write_text(content)
        assert catalog.describe_all(SHIPPED[:2]) == first, content


def test_a_home_that_cannot_be_written_costs_no_answer(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path / "file"))
    assert len(catalog.describe_all(SHIPPED[:2])) == 2


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("sys.exit(4)", 'b.py" --describe ended with 4: nothing on stderr'),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("import os; os._exit(5)", 'b.py" --describe ended with 5'),
        ("print(1)", 'b.py" --describe: not a JSON document'),
    ],
)
def test_one_that_breaks_is_named_among_those_that_answer(tmp_path, monkeypatch, broken, sentence):
    monkeypatch.setattr(places, "shipped_folder", lambda folder: tmp_path)
    files = [write(tmp_path, "a"), write(tmp_path, "b", broken), write(tmp_path, "c")]
    first, error, last = catalog.describe_all(files)
    assert (first.name, last.name) == ("a", "c")
    assert isinstance(error, CatalogError)
    assert sentence in str(error)
    assert [spec.name for spec in catalog.describe_all(files[::2])] == ["a", "c"]


def test_a_users_program_has_a_process_of_its_own(tmp_path, processes):
    files = [write(tmp_path, "a"), write(tmp_path, "b")]
    catalog.describe_all([*SHIPPED[:2], *files])
    alone = sorted(command[1] for command in processes if command[1] != "-c")
    assert alone == [str(file) for file in files]
    assert {command[0] for command in processes} == {sys.executable}
