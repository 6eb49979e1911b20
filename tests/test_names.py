"""One word, one meaning: what the public names of the product say."""

from __future__ import annotations

import ast
import re
import subprocess
import symtable
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = (ROOT / "scripts", ROOT / "scripts/studies")
# the options of the command line are named after what they choose: `Cluster`, `Suite`, `Policy`
NAMED_AFTER = {"anubis/cli/options.py"}


TYPE = re.compile(r"^(?:class ([A-Z]\w*)|([A-Z]\w*) = )", re.MULTILINE)


def public_types(file: Path) -> set[str]:
    """The classes and the aliases of types that a module defines for others."""
    names = {first or second for first, second in TYPE.findall(file.read_text())}
    return {name for name in names if not name.isupper()}


def test_no_public_name_of_a_type_has_two_meanings():
    homes = defaultdict(list)
    for file in sorted((ROOT / "anubis").rglob("*.py")):
        where = str(file.relative_to(ROOT))
        if where not in NAMED_AFTER:
            for name in public_types(file):
                homes[name].append(where)
    assert not {name: files for name, files in homes.items() if len(files) > 1}


UNITS = "anubis/core/amounts.py"
TRAVELS = "anubis/reach/executors/guardian.py"  # as text, without the rest of Anubis


SECONDS = re.compile(r"3_?600|86_?400|3\.6e3|8\.64e4")  # a cheap look that saves parsing files


def lone_units(file: Path) -> list[str]:
    """Numbers of seconds in an hour or a day, however they are written."""
    if not SECONDS.search(file.read_text()):
        return []
    return [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and node.value in (3600, 24 * 3600)
    ]


def test_units_of_time_are_declared_once():
    files = sorted((ROOT / "anubis").rglob("*.py"))
    found = [place for file in files for place in lone_units(file)]
    assert any(place.startswith(UNITS) for place in found)
    assert not [place for place in found if not place.startswith((UNITS, TRAVELS))]


def is_number(value: ast.expr | None) -> bool:
    parts = list(ast.walk(value)) if value else []
    numbers = [part for part in parts if isinstance(part, ast.Constant)]
    kinds = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.Name, ast.operator, ast.unaryop)
    return (
        all(isinstance(part, (*kinds, ast.expr_context)) for part in parts)
        and any(isinstance(number.value, int | float) for number in numbers)
        and not any(isinstance(number.value, str | bool) for number in numbers)
    )


def bare_constants(source: str) -> list[str]:
    """Numbers of a module that have no comment on their lines or on the line above."""
    lines = source.splitlines()
    named = [
        (node, ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target))
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_number(node.value)
    ]
    return [
        name
        for node, name in named
        if name.isupper()
        and "#" not in "".join(lines[node.lineno - 1 : node.end_lineno])
        and not lines[node.lineno - 2].lstrip().startswith("#")
    ]


def test_a_number_has_its_reason_beside_it():
    assert bare_constants("A = 1\nB, C = -2, 1 / 3  # why\n# why\nD = (4, 5)\nE = '6'") == ["A"]
    bare = {
        str(file.relative_to(ROOT)): names
        for room in ("anubis", "benchmarks")
        for file in (ROOT / room).rglob("*.py")
        if (names := bare_constants(file.read_text()))
    }
    assert not bare


# one question in several layers: the decision, its texts, what is kept of it
SAME_CONCEPT = {
    *("adoption", "amounts", "clusters", "coverage"),
    *("criteria", "decision", "drift", "fleet", "history", "imports"),
    *("kubernetes", "links", "maintenance", "nodes", "periodic_tasks"),
    *("slurm", "sweep", "tickets", "tokens"),
    *("watch_rounds", "campaigns", "messages"),
}


def test_a_file_name_means_one_thing():
    """A use case has the same word in each layer; other files have names of their own."""
    rooms = defaultdict(set)
    for file in (ROOT / "anubis").rglob("*.py"):
        rooms[file.stem].add(file.parent)
    shared = {stem for stem, folders in rooms.items() if len(folders) > 1} - {"__init__"}
    use_cases = {file.stem for file in (ROOT / "anubis/operations").glob("*.py")}
    assert not shared - use_cases - SAME_CONCEPT
    assert shared >= SAME_CONCEPT


def names_of_kinds(file: Path) -> list[str]:
    """Comparisons with the name of a kind of campaign, and with the word that a history keeps."""
    source = file.read_text()
    if "CampaignKind." not in source and ".verb" not in source:
        return []
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if ast.unparse(side).startswith("CampaignKind.") or ast.unparse(side).endswith(".verb")
    ]


def test_campaigns_are_asked_for_facts_and_never_for_the_name_of_their_kind():
    for file in (ROOT / "anubis").rglob("*.py"):
        if file != ROOT / "anubis/core/records.py":  # where the facts are
            assert not names_of_kinds(file), file


# Indexes, mirrors and registries of packages: the tools' own configuration says where to look.
SOURCES_OF_PACKAGES = re.compile(
    r"(pypi|pythonhosted)[.]org|download[.]pytorch[.]org|(deb|ftp|archive)[.](debian|ubuntu)[.](org|com)"
    r"|registry[.](npmjs|yarnpkg)[.]|proxy[.]golang[.]|(docker|quay|ghcr|gcr|nvcr)[.]io\b|crates[.]io"
)


def test_no_file_names_a_host_from_which_packages_come():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    named = [
        f"{name}: {found[0]}"
        for name in filter(None, listed.stdout.split("\0"))
        if (file := ROOT / name).is_file()
        and (found := SOURCES_OF_PACKAGES.search(file.read_text(errors="replace")))
    ]
    assert not named


# What says nothing of the thing that it holds.
PRONOUNS = {
    *("each", "one", "other", "others", "many", "most", "whole", "which", "what", "who"),
    *("it", "this", "that", "these", "those", "them", "mine", "ours", "theirs"),
    *("everybody", "nobody", "somebody", "whoever"),
    *("found", "said", "told", "heard", "asked", "given", "wanted", "known", "done"),
}


def may_have_pronouns(table: symtable.SymbolTable) -> bool:
    """Take a cheap look that saves parsing most files."""
    is_here = not PRONOUNS.isdisjoint(table.get_identifiers())
    return is_here or any(map(may_have_pronouns, table.get_children()))


def pronouns_in(source: str) -> set[str]:
    """Variables and parameters called by a pronoun; not fields, which may be stored by name."""
    if not may_have_pronouns(symtable.symtable(source, "", "exec")):
        return set()
    fields: set[int] = set()
    names: dict[int, str] = {}  # of the node that gives it
    tree = ast.parse(source)  # kept, so that no other node gets the number of one that is gone
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields.update(id(line.target) for line in node.body if isinstance(line, ast.AnnAssign))
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                names[id(node)] = node.id
        elif isinstance(node, ast.arg):
            names[id(node)] = node.arg
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            names[id(node)] = node.name
    return PRONOUNS.intersection(name for node, name in names.items() if node not in fields)


def python_files() -> list[Path]:
    """Modules, programs, and scripts, whose first line says that they are Python."""
    modules = [
        file for folder in ("anubis", "benchmarks") for file in (ROOT / folder).rglob("*.py")
    ]
    scripts = [
        script
        for folder in SCRIPTS
        for script in folder.glob("[a-z]*")
        if script.is_file()
        and (script.suffix == ".py" or script.read_text().startswith("#!/usr/bin/env python3\n"))
    ]
    return sorted(modules) + sorted(scripts)


@pytest.mark.parametrize(("tool", "key"), [("ruff", "extend-include"), ("mypy", "files")])
def test_every_script_of_python_is_read_by_the_tools_of_scripts_check(tool, key):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    listed = {file for pattern in settings[tool][key] for file in ROOT.glob(pattern)}
    assert not {file for file in python_files() if file.parent in SCRIPTS} - listed


def test_no_variable_or_parameter_is_called_by_a_pronoun():
    called = {str(file.relative_to(ROOT)): pronouns_in(file.read_text()) for file in python_files()}
    assert any(where.startswith("scripts/") for where in called)
    assert not {where: sorted(names) for where, names in called.items() if names}


def test_a_pronoun_is_seen_in_every_kind_of_name():
    for source in (
        "found = 1",
        "for each in (): pass",
        "[one for one in ()]",
        "def f(*, told): pass",
        "lambda said: 0",
        "with f() as those: pass",
        "(other := 1)",
        "match 1:\n    case which: pass",
        "try: pass\nexcept E as heard: pass",
    ):
        assert len(pronouns_in(source)) == 1, source
    assert not pronouns_in("class Part:\n    other: str\nx = part.other")
