"""`anubis risk simulate` as an operator meets it: a table, records, a page, and errors."""

from __future__ import annotations

import re

import pytest

from anubis.core.history.status import Incident
from anubis.store.history import History
from tests.edges.desk import NO_VERDICT, Desk

SCENARIO = """
summary: a test
nodes: 8
spares: 1
days: 3
seeds: 2
jobs: {median_h: 4, spread: 1}
benchmarks: [{name: gemm, minutes: 3}, {name: train, minutes: 60}]
categories:
  - {name: gpu, mtbi_h: 30, causes: [{share: 1, found_by: [gemm, train]}]}
sweep: {catch: [1.0, 0.0], p0: [0.5, 1.0]}
"""
JOBS = """timestamp,duration,num_gpus
2017-10-09 07:00:00,7200,8
2017-10-09 08:00:00,3600,16
2017-10-09 08:30:00,3600,0
"""


@pytest.fixture
def here(near: Desk) -> Desk:
    near.write("small.yaml", SCENARIO)
    near.write("jobs.csv", JOBS)
    return near


def test_the_table_has_a_line_for_each_policy_and_explains_its_figures(here):
    done = here.run("risk", "simulate", "small.yaml")
    assert done.code == 0, done.err
    for policy in ("absence", "full set", "cron", "random", "selector", "ideal"):
        assert re.search(rf"^{policy} .* ± ", done.out, re.MULTILINE), policy
    assert "less time on validation than the full set" in done.out
    assert "± inf" not in done.out
    assert "MTBI h: node-hours in service per incident" in " ".join(done.out.split())


def test_the_same_scenario_gives_the_same_bytes(here):
    """In two processes, which hash words differently: this one, and one that was not forked."""
    words = ("risk", "simulate", "small.yaml", "--json")
    first, second = here.run(*words), Desk.run(here, *words)
    assert first.out == second.out
    assert first.out


def test_the_records_are_json_and_add_up(here):
    done = here.run("risk", "simulate", "small.yaml", "--json", "--seeds", "1")
    records = done.lines
    runs = [record for record in records if record["type"] == "run"]
    assert len(runs) == 6 * 2 + 2  # policies and catches, and two more p0
    for run in runs:
        hours = run["figures"]
        spent = hours["utilization"] * 72 + hours["idle_h"] + hours["spare_h"]
        assert spent + hours["validation_h"] + hours["repair_h"] == pytest.approx(72)
    assert records[-1]["type"] == "simulation"
    assert records[-1]["nodes"] == 8
    ideal = next(run for run in runs if run["policy"] == "ideal")
    assert (
        ideal["figures"]["mtbi_h"] is None
    )  # no incident at all: no number, and JSON has no infinity


def test_a_trace_is_replayed_and_lines_without_a_job_are_named(here):
    done = here.run("risk", "simulate", "small.yaml", "--trace", "jobs.csv", "--seeds", "1")
    assert done.code == 0
    assert "jobs.csv: 2 jobs, 4 node-hours" in done.err
    assert "line 4: asks for nothing" in done.err


def test_the_page_is_self_contained_and_escaped(here):
    text = SCENARIO.replace("summary: a test", "summary: <script>alert(1)</script>")
    here.write("odd.yaml", text)
    done = here.run("risk", "simulate", "odd.yaml", "--html", "page.html", "--seeds", "1")
    assert done.code == 0, done.err
    page = (here.folder / "page.html").read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r'(src|href)="https?:', page)


def test_table_records_and_page_state_that_the_selector_knows_the_true_risk(here):
    truth = "The Selector knows the true risk of every node."
    done = here.run("risk", "simulate", "small.yaml", "--seeds", "1", "--html", "page.html")
    assert truth in " ".join(done.out.split())
    assert truth in (here.folder / "page.html").read_text()
    records = here.run("risk", "simulate", "small.yaml", "--seeds", "1", "--json").lines
    assert truth in records[-1]["knowledge"]
    assert (records[-1]["risk"], records[-1]["known_defects"]) == ("truth", 500)


def test_a_model_that_learned_from_the_past_can_advise_the_selector(here):
    done = here.run("risk", "simulate", "small.yaml", "--seeds", "1", "--risk", "exponential")
    assert done.code == 0, done.err
    assert "the Selector asks exponential, learned from" in done.err
    assert "The Selector asks exponential, a model that learned from the past" in done.out
    assert "One seed does not show whether the Selector pays" in done.out


def test_recorded_incidents_happen_again(here):
    remember(here)
    here.write("quick.yaml", SCENARIO + "repair: {incident_h: 0.01}\n")
    done = here.run(
        *("risk", "simulate", "quick.yaml", "--incidents", "history", "--risk", "exponential"),
        *("--seeds", "1", "--json"),
    )
    assert done.code == 0, done.err
    assert "replayed from cluster unnamed: 120 incidents on 4 nodes" in done.err
    assert "the scenario has no causes for flood: no benchmark finds them" in done.err
    records = done.lines
    none = next(record for record in records if record.get("policy") == "absence")
    assert records[-1]["nodes"] == 4
    assert none["figures"]["incidents"] * 4 == 12  # one a day on each node, in three days


def test_incidents_are_drawn_from_a_trained_model(here):
    remember(here)
    assert here.run("risk", "train", "--kind", "weibull").code == 0
    done = here.run("risk", "simulate", "small.yaml", "--seeds", "1", "--incidents", "model")
    assert done.code == 0, done.err
    assert "incidents are drawn from weibull" in done.err


def remember(desk: Desk) -> None:
    """Thirty days of four nodes, each with an incident a day, at an hour of its own."""
    incidents = [
        Incident(node=f"n{node}", category="gpu" if day % 2 else "flood", start=at, end=at + 60)
        for day in range(30)
        for node in range(4)
        for at in [1.7e9 + 86_400 * day + 10_000 * node]
    ]
    with History.open(f"sqlite:///{desk.home / 'history.sqlite'}") as history:
        history.only().incidents.add(incidents)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["risk", "simulate", "small.yaml", "--risk", "cox-tim"], 'did you mean "cox-time"?'),
        (
            ["risk", "simulate", "small.yaml", "--incidents", "mode"],
            "expected rates or model or history",
        ),
        (["risk", "simulate", "small.yaml", "--incidents", "history"], "import some first"),
        (["risk", "simulate", "small.yaml", "--incidents", "model"], "anubis risk train"),
        (["risk", "simulate", "small.yaml", "--risk-model", "small.yaml"], '"small.yaml"'),
        (
            ["risk", "simulate", "small.yaml", "--risk-model", "x.npz", "--incidents", "rates"],
            "--incidents rates does not use a model",
        ),
        (["risk", "simulate", "exampel"], 'did you mean "example"?'),
        (["risk", "simulate", "nowhere.yaml"], 'there is no file "nowhere.yaml"'),
        (
            ["risk", "simulate", "small.yaml", "--trace", "none.csv"],
            'cannot read "none.csv": No such file',
        ),
        (["risk", "simulate", "small.yaml", "--trace", "small.yaml"], 'has no column "timestamp"'),
        (
            ["risk", "simulate", "small.yaml", "--html", "."],
            '--html "." is a folder: name a file in it',
        ),
        (
            ["risk", "simulate", "small.yaml", "--html", "jobs.csv/x"],
            "is not a folder that this user can",
        ),
        (
            ["risk", "simulate", "small.yaml", "--seeds", "0"],
            "--seeds: expected a number greater than or equal to 1",
        ),
    ],
)
def test_a_mistake_is_one_line(here, words, sentence):
    done = here.run(*words)
    assert done.code in NO_VERDICT
    assert done.out == ""
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (("nodes: 8", "nodes: none"), '"nodes": expected a whole number, found the text "none"'),
        (("found_by: [gemm, train]", "found_by: [gem]"), 'did you mean "gemm"?'),
        (("spares: 1", "spars: 1"), 'unknown key "spars"; did you mean "spares"?'),
        (("spares: 1", "spares: 8"), "spares is 8, expected 0 to 7 of the nodes"),
    ],
)
def test_a_mistake_in_a_scenario_is_named(here, wrong, sentence):
    here.write("small.yaml", SCENARIO.replace(*wrong))
    done = here.run("risk", "simulate", "small.yaml")
    assert done.code == 64
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1
