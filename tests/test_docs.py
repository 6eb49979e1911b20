"""README.md and docs/: their links, their commands, their examples."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import typer.main
import yaml
from typer.testing import CliRunner

from anubis.cli import examples
from anubis.cli.main import app
from anubis.config import configs
from anubis.report.schemas import LINES
from tests.studies.test_studies import STUDIES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
BLOCK = re.compile(r"^```(\w+)(?: \w+)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = typer.main.get_command(app)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in BLOCK.findall(page.read_text()) if name == language]


def commands() -> list[str]:
    lines = {line for page in PAGES for body in blocks(page, "sh") for line in body.splitlines()}
    own = {re.sub(r"^kubectl .* -- ", "", line) for line in lines}  # in a pod
    of_others = ("kubectl ", "helm ")
    own = {line for line in own if not line.startswith(of_others)}
    return sorted(line for line in own if re.search(r"(?<![/\w])anubis ", line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()):
        assert heading in anchors(page.parent / target if target else page), f"{target}#{heading}"


def anchors(page: Path) -> set[str]:
    """Anchors of a page: its headings, without marks and capitals."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_page_of_a_package_leads_to_the_files_of_its_version():
    absolute_links = run_path(str(ROOT / "hatch_build.py"))["absolute_links"]
    text = (ROOT / "README.md").read_text()
    made = absolute_links(text, "https://forge.example.org/us/it", "1.0")
    targets = re.findall(r"\]\(https://forge.example.org/us/it/(blob|raw)/v1.0/([^)#]+)", made)
    assert {way for way, target in targets if target.endswith((".md", "/"))} == {"blob"}
    assert [target for _, target in targets] == LINK.findall(text)
    assert all((ROOT / target).exists() for _, target in targets)
    assert LINK.findall(made) == []


def test_the_site_shows_each_page_once_and_leads_to_files_of_the_repository(tmp_path):
    run_path(str(ROOT / "scripts/make-site"))["prepare"](
        tmp_path, "https://forge.example.org/us/it"
    )
    copies = sorted((tmp_path / "docs").rglob("*.md"))
    index, *groups = json.loads((tmp_path / "mkdocs.yml").read_text())["nav"]
    shown = [index, *(page for group in groups for pages in group.values() for page in pages)]
    assert sorted(shown) == sorted(str(page.relative_to(tmp_path / "docs")) for page in copies)
    outside = 0
    for page in copies:
        text = page.read_text()
        assert all((page.parent / target).is_file() for target in LINK.findall(text)), page
        for kind, target in re.findall(r"forge.example.org/us/it/(\w+)/main/([^)#]+)", text):
            outside += 1
            assert (ROOT / target).is_dir() if kind == "tree" else (ROOT / target).is_file()
    assert outside >= 5


def test_the_index_leads_to_every_page_and_the_readme_to_the_index_and_each_start():
    folder = ROOT / "docs"
    index = (folder / "README.md").read_text()
    for page in [*folder.glob("*.md"), folder / "results/README.md"]:
        if page.name != "README.md" or page.parent != folder:
            assert f"({page.relative_to(folder)})" in index, page.name
    readme = (ROOT / "README.md").read_text()
    for page in [folder / "README.md", *folder.glob("start-*.md")]:
        assert f"({page.relative_to(ROOT)})" in readme, page.name
        assert len(page.read_text().splitlines()) <= 80


def test_the_index_of_results_has_each_page_and_the_script_that_makes_it():
    folder = ROOT / "docs/results"
    rows = re.findall(
        r"^\| \[[\w.-]+\]\(([\w.-]+)\) .*\| `([\w/-]+)` \|$",
        (folder / "README.md").read_text(),
        re.MULTILINE,
    )
    assert {page for page, _ in rows} == {page.name for page in folder.glob("*.md")} - {"README.md"}
    assert len(rows) == len(dict(rows))
    for page, script in rows:
        assert (ROOT / script).is_file(), script
        assert f"{script} " in re.sub("[`\n;:,]", " ", (folder / page).read_text()), page


def test_every_script_that_a_page_names_is_there_and_a_page_names_every_study():
    text = "".join(page.read_text() for page in [*PAGES, ROOT / "DESIGN.md"])
    named = set(re.findall(r"\bscripts/(?:studies/)?[a-z][a-z-]*[a-z]", text))
    assert not {name for name in named if not (ROOT / name).exists()}
    studies = {f"scripts/studies/{file.name}" for file in STUDIES}
    assert not studies - named


def test_a_module_that_a_page_or_a_study_names_by_its_folder_exists():
    folders = ("anubis", "benchmarks", "scripts", "tests")
    files = [f"{file}" for folder in folders for file in (ROOT / folder).rglob("*.py")]
    for page in (*PAGES, ROOT / "DESIGN.md", *STUDIES):
        named = re.findall(r"[`\"]([a-z_]+/[a-z_/]+\.py)\b", page.read_text())
        ghosts = [name for name in named if not any(file.endswith(f"/{name}") for file in files)]
        assert not ghosts, page.name


CLAIMS = yaml.safe_load((ROOT / "docs/results/claims.yaml").read_text())


def test_the_page_of_claims_is_made_from_its_file_and_the_results(tmp_path):
    """All but the ages, which are those of the last commits."""
    page = tmp_path / "claims.md"
    run_path(str(ROOT / "scripts/make-claims"))["main"](page)
    made, kept = (
        re.sub(r"\| [\d-]+(, \d+ since)? \|$", "|", file.read_text(), flags=re.MULTILINE)
        for file in (page, ROOT / "docs/results/claims.md")
    )
    assert made == kept, "run scripts/make-claims"


@pytest.mark.parametrize("row", CLAIMS["claims"], ids=lambda row: row["claim"][:40])
def test_a_claim_names_a_file_and_a_command_that_exist(row):
    command = row["command"].split()
    if command[0] == "anubis":
        assert command[1] in COMMAND.commands
    else:
        assert os.access(ROOT / command[0], os.X_OK)
    page = ROOT / row["file"] if "/" in row["file"] else ROOT / "docs/results" / row["file"]
    assert page.is_file()


def test_the_files_behind_a_figure_are_its_command_and_all_imports():
    measured = run_path(str(ROOT / "scripts/make-claims"))["measured_by"]
    files = {
        str(Path(file).relative_to(ROOT)) for file in measured(STUDIES[0].with_name("show-loop"))
    }
    shown = {"scripts/studies/show-loop", "scripts/studies/loop_site.py"}
    assert shown | {"anubis/core/keep/reasons.py", "anubis/readers/jobs/live.py"} <= files
    assert all((ROOT / file).is_file() for file in files)


def test_a_page_whose_words_alone_changed_was_not_run_again(tmp_path):
    last_run = run_path(str(ROOT / "scripts/make-claims"))["last_run"]
    last_run.__globals__["ROOT"] = tmp_path

    def git(*words, day=1):
        author = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        at = os.environ | {"GIT_COMMITTER_DATE": f"2026-01-{day:02}T00:00Z"}
        subprocess.run(["git", *author, *words], cwd=tmp_path, env=at, check=True)

    git("init", "--quiet")
    for day, text in enumerate(("found: 7; all", "found: 8; all", "found: 8. All"), 1):
        (tmp_path / "page.md").write_text(text)
        git("add", "page.md")
        git("commit", "--quiet", "--message", text, day=day)
    assert last_run("page.md")[1] == "2026-01-02"


def test_a_figure_that_its_page_does_not_show_is_refused():
    whole = run_path(str(ROOT / "scripts/make-claims"))["whole"]
    with pytest.raises(SystemExit, match="does not say"):
        whole({**CLAIMS["claims"][0], "file": "watch.md", "figure": "recall 1.000"})


def test_each_sentence_of_the_readme_is_a_claim_with_its_outcome_or_claims_nothing():
    claims = [row["claim"] for row in CLAIMS["claims"] if row["of"] == "README"]
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    blocks = [re.sub(r"^> ?", "", block, flags=re.MULTILINE) for block in text.split("\n\n")]
    prose = [" ".join(block.split()) for block in blocks if not block.startswith(("#", "|", "!"))]
    sentences = [line for block in prose for line in re.split(r"(?<=[.:?!]) (?=[A-Z`\[(*])", block)]
    assert all(any(claim in sentence for sentence in sentences) for claim in claims)
    for sentence in filter(None, sentences):
        assert any(claim in sentence for claim in claims) or sentence.startswith(
            tuple(CLAIMS["no_claims"])
        ), sentence


def test_design_is_a_plan_and_no_inventory():
    design = (ROOT / "DESIGN.md").read_text()
    assert len(design.encode()) <= 25_000
    for page in (ROOT / "docs/design").glob("*.md"):
        assert f"design/{page.name}" in design, page.name


@pytest.mark.parametrize("line", commands())
def test_every_command_of_a_page_is_one_that_its_verb_takes(line):
    words = shlex.split(re.sub(r"[<>|].*", "", line[line.index("anubis ") :]))[1:]
    command = COMMAND
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context("anubis", words)


def test_the_small_benchmark_of_the_page_is_the_template_of_bench_new():
    (code,) = blocks(ROOT / "docs" / "write-a-benchmark.md", "python")
    template = (ROOT / "benchmarks" / "_template.py").read_text()
    assert code.strip() == template.replace("NAME", "sums").strip()


def test_the_suite_of_the_page_is_one(tmp_path):
    (text,) = blocks(ROOT / "docs" / "configuration.md", "yaml")
    (tmp_path / "mine.yaml").write_text(text)
    suite = configs.suite(str(tmp_path / "mine.yaml"))
    assert [entry.benchmark for entry in suite.benchmarks] == ["gemm", "memory_bandwidth"]


def syntax(*folders: str) -> list[ast.AST]:
    files = [file for folder in folders for file in (ROOT / "anubis" / folder).rglob("*.py")]
    return [node for file in files for node in ast.walk(ast.parse(file.read_text()))]


def test_every_code_of_a_verdict_is_explained():
    texts = {str(node.value) for node in syntax("core") if isinstance(node, ast.Constant)}
    codes = {text for text in texts if re.fullmatch(r"[A-Z]{2,}-[A-Z-]+|OK|UNSTABLE", text)}
    assert {"NODE-LOST", "NO-CRITERION"} <= codes
    assert codes <= set(re.findall(r"`([A-Z-]+)`", (ROOT / "docs/output.md").read_text()))


def test_every_line_of_json_is_declared_and_each_declared_one_is_printed():
    doors = [
        node.args[0]
        for node in syntax("report", "cli")
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("json_line", "write_json"))
    ]
    kinds = {"incident", "repair", "validation", "event", "hold"}  # that `history show` looks up
    kinds |= {str(kind.value) for kind in doors if isinstance(kind, ast.Constant)}
    assert {line.name for line in LINES} == kinds


# --- examples ------------------------------------------------------------------------------


def verbs(node: Any, path: str = "") -> dict[str, Any]:
    if not hasattr(node, "commands"):
        return {path: node}
    below = (verbs(child, f"{path} {name}".strip()) for name, child in node.commands.items())
    return {path: verb for paths in below for path, verb in paths.items()}


VERBS = verbs(COMMAND)


def test_every_verb_has_examples_and_no_other():
    assert VERBS.keys() == examples.EXAMPLES.keys()
    assert all(examples.EXAMPLES.values())


@pytest.mark.parametrize("path", VERBS)
def test_an_example_is_of_its_verb(path):  # that the verb takes it, as every command of a page
    assert all(
        f"{example} ".startswith(f"anubis {path} ") for example in examples.commands_of(path)
    )


def test_the_help_of_a_verb_ends_with_its_examples():
    shown = CliRunner().invoke(app, ["history", "show", "--help"]).stdout
    assert " ".join(shown.split()).endswith(
        "Examples: anubis history show node07 anubis history show --last 200 --json"
    )
