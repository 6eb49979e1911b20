"""docs/python.md: its code runs, its table is complete, and its results are true."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anubis
from anubis.core.records import Judgement
from anubis.operations.judge import judge

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """A folder in which all code of the page was run, from the top down, and what it printed."""
    folder = tmp_path_factory.mktemp("notebook")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CODE],
        cwd=folder,
        env={**os.environ, "ANUBIS_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return folder, done.stdout.splitlines()


@pytest.fixture
def history(notebook, monkeypatch):
    monkeypatch.setenv("ANUBIS_HOME", str(notebook[0] / "home"))


@pytest.mark.long
def test_the_output_on_the_page_agrees_with_the_history(history, notebook):
    """Two campaigns were accepted; those of the gate, if any, are between them."""
    _, printed = notebook
    *_, first = (row for row in anubis.campaigns() if row.kind == "accept")
    accepted = anubis.recall(first.id)
    assert printed[0] == f"{accepted.assessment.judgement} {accepted.headline}"
    bad = [v for v in accepted.assessment.nodes if v.judgement is not Judgement.HEALTHY]
    assert [line.split()[0] for line in printed[1 : 1 + len(bad)]] == [v.node for v in bad]
    assert anubis.decisions()[0].action in printed
    assert len(anubis.campaigns()) >= 2


@pytest.mark.long
def test_criteria_learned_on_the_page_judge_the_campaign_again(history, notebook):
    folder, printed = notebook
    first = [row for row in anubis.campaigns() if row.kind == "accept"][-1]
    again = anubis.judge(anubis.JudgeRequest(first.id, criteria=folder / "criteria"))
    assert again.headline in printed
    learned = {criterion.key for each in again.criteria for criterion in each.criteria}
    own = {c.key for each in anubis.recall(first.id).criteria for c in each.criteria}
    assert learned == own


def test_every_operation_is_offered_by_anubis_under_its_name_and_is_on_the_page():
    table = PAGE.split("## All functions")[1]
    for name in anubis.OPERATIONS:
        assert inspect.isfunction(getattr(anubis, name)) or inspect.isclass(getattr(anubis, name))
        assert f"`{name}`" in table, name
        assert name in dir(anubis)
    assert anubis.judge is judge


def test_the_table_of_the_page_promises_nothing_that_is_not_there():
    table = PAGE.split("|---|---|")[1].split("\n\n")[0]
    first_columns = [line.split("|")[1] for line in table.strip().splitlines()]
    promised = {name for cell in first_columns for name in re.findall(r"`(\w+)`", cell)}
    assert promised <= anubis.OPERATIONS.keys()


def test_a_name_that_anubis_does_not_have_is_no_operation():
    with pytest.raises(AttributeError, match='no attribute "juge"'):
        anubis.juge  # noqa: B018 - asking is the test


CAMPAIGNS = (
    anubis.AcceptRequest,
    anubis.ValidateRequest,
    anubis.ScanRequest,
    anubis.LocateRequest,
)


def test_defaults_of_campaigns_are_the_same_for_every_verb():
    """Only the suite differs: that of a scan depends on the network, and locate has its own."""
    said = [
        {field.name: field.default for field in dataclasses.fields(record) if field.name != "suite"}
        for record in CAMPAIGNS
    ]
    for name in {name for defaults in said for name in defaults}:
        assert len({defaults[name] for defaults in said if name in defaults}) == 1, name


@pytest.mark.parametrize("record", CAMPAIGNS)
def test_a_word_that_no_campaign_knows_is_refused_by_name(record):
    with pytest.raises(TypeError, match="unexpected keyword argument 'clutser'"):
        record(["a"], clutser="simulated")


def test_a_type_checker_sees_every_argument_of_every_operation():
    for name, home in anubis.OPERATIONS.items():
        operation = getattr(anubis, name)
        assert operation.__module__ == home, name
        for parameter in inspect.signature(operation).parameters.values():
            assert parameter.kind is not parameter.VAR_KEYWORD, name
            assert parameter.annotation not in {parameter.empty, "Any"}, name
