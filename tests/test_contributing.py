"""CONTRIBUTING.md names files, classes and options that there are."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATH = re.compile(r"`((?:\.venv/bin/python )?(?:\./)?(?:[a-z_]+/)+[\w.-]*)(?: [^`]*)?`")


def test_every_path_it_names_is_there():
    paths = set(PATH.findall(TEXT)) | set(re.findall(r"\]\(([^)]+)\)", TEXT))
    assert len(paths) > 30
    assert not {path for path in paths if not (ROOT / path.split()[-1]).exists()}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("class ExecutorError", "anubis/core/errors.py"),
        ("CLUSTERS", "anubis/config/configs.py"),
        ("class Draft", "anubis/readers/topology/draft.py"),
        ("class Survey", "anubis/readers/topology/draft.py"),
        ("class Policy", "anubis/core/records.py"),
        ("def near", "tests/edges/conftest.py"),
        ("def desk", "tests/edges/conftest.py"),
    ],
)
def test_every_name_it_uses_is_there(name, file):
    assert name.split()[-1] in TEXT
    assert name in (ROOT / file).read_text()


def test_every_option_it_gives_a_script_is_one():
    options = re.findall(r"\./(scripts/[a-z]+) (--[a-z]+)", TEXT)
    assert options
    assert all(option in (ROOT / script).read_text() for script, option in options)


def test_what_needs_real_data_names_a_test_that_always_runs_and_shows_the_same():
    tests = "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("tests/*/test_*.py"))
    twins = set(re.findall(r'\bmark\.twin\(\s*"(\w+)"', tests))
    assert len(twins) > 10
    for twin in twins:
        before, _ = tests.split(f"\ndef {twin}(")
        decorators = takewhile(lambda line: line[:1] in ("@", " ", ")"), before.split("\n")[::-1])
        assert "twin" not in "".join(decorators), twin
