"""docs/reference/ is up to date with scripts/make-reference, and complete."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from anubis.cli.main import app
from anubis.core.watch.likelihood import FAULTS
from tests.patience import LIMIT_S

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference"
PAGES = ("benchmarks.md", "commands.md", "configuration.md", "json.md", "files.md")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def read(page: str) -> str:
    return (REFERENCE / page).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run(
        [sys.executable, str(ROOT / "scripts/make-reference"), str(folder)],
        check=True,
        timeout=LIMIT_S,
    )
    return folder


@pytest.mark.parametrize("page", [*PAGES, "lines.schema.json"])
def test_each_page_is_made_from_todays_code(made, page):
    current = (made / page).read_text(encoding="utf-8")
    assert read(page) == current, "run: .venv/bin/python scripts/make-reference"


def test_type_checkers_see_todays_functions_of_anubis(made):
    current = made.with_suffix(".pyi").read_text(encoding="utf-8")
    stub = (ROOT / "anubis/__init__.pyi").read_text(encoding="utf-8")
    assert stub == current, "run: .venv/bin/python scripts/make-reference"


def test_no_page_is_written_by_hand(made):
    assert {file.name for file in REFERENCE.iterdir()} == {file.name for file in made.iterdir()}


def test_every_program_has_its_section():
    programs = {file.stem for file in (ROOT / "benchmarks").glob("[!_]*.py")} - {"contract"}
    assert programs <= set(HEADING.findall(read("benchmarks.md")))


def test_every_verb_that_help_shows_has_its_section():
    shown = subprocess.run(
        [sys.executable, "-m", "anubis", "--help"], capture_output=True, text=True, check=True
    ).stdout
    verbs = re.findall(r"^│ ([a-z-]+) ", shown.partition("─ Test ")[2], re.MULTILINE)
    assert len(verbs) > 10
    sections = {title.split()[1] for title in HEADING.findall(read("commands.md")) if " " in title}
    assert {*verbs, "agent", "schema"} == sections  # those two are for programs
    assert len(verbs) <= 20


def test_no_help_shows_that_a_switch_has_a_type():
    def walk(command):
        yield command
        for below in getattr(command, "commands", {}).values():
            yield from walk(below)

    for command in walk(get_command(app)):
        context = command.make_context(command.name, [], resilient_parsing=True)
        types = {p.name: p.display_type_rich(context) for p in command.get_params(context)}
        assert "<bool>" not in types.values(), (command.name, types)


# tables whose keys are a program's, or those of a receiver
OPEN_TABLES = {"parameters", "body", "words", "escapes", "headers", "credentials", "env"}


def keys(document: object) -> Iterator[str]:
    if isinstance(document, list):
        for entry in document:
            yield from keys(entry)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from () if key in OPEN_TABLES else keys(value)


@pytest.mark.parametrize(
    "file",
    sorted(
        file
        for file in (ROOT / "configs").rglob("*.yaml")
        if file.parent.name not in ("kubernetes", "prometheus")  # what others read
    ),
    ids=lambda file: f"{file.parent.name}/{file.name}",
)
def test_every_key_of_a_shipped_file_is_explained(file):
    kind = str(file.parent.relative_to(ROOT / "configs"))
    section = read("configuration.md").partition(f"\n## configs/{kind}/\n")[2].partition("\n## ")[0]
    chosen = {"executor", "records", "kind", "notifier"} & set(
        re.findall(r"^### `([a-z]+):", section, re.MULTILINE)
    )
    explained = {*re.findall(r"^- `([a-z0-9_]+)`", section, re.MULTILINE), *chosen}
    if kind == "simulations":  # it says there that these keys are a policy's
        explained |= {"p0", "half_life_h"}
    if kind in ("watching", "diagnosis"):  # their `categories` say what these are called
        explained |= FAULTS.keys()
    assert set(keys(yaml.safe_load(file.read_text()))) <= explained


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_read_as_text_and_its_links_lead_somewhere(page):
    text = read(page)
    assert max(map(len, text.splitlines())) <= 150
    anchors = {
        re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")
        for title in HEADING.findall(text)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors
