"""The short form of `scripts/studies/show-watch`, which takes the figures on 300 jobs."""

from __future__ import annotations

import runpy

import pytest

from anubis.lab.simulation.jobs import HEALTHY, generate
from anubis.readers.telemetry.config import shipped_settings
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "scripts/studies/show-watch"))


def outcome(script, fault: str, way: str = "ours"):
    called = script["way_called"](way)
    answers = called.answers()
    job = generate(
        5, shipped_settings().watched_metrics(answers.order[:4]), fault=fault, nodes=8, minutes=10
    )
    return script["outcome_of"](way, job, answers, called.settings)


def test_a_node_that_drops_out_is_named_and_a_sound_job_has_no_suspicion(script):
    dropped, sound = outcome(script, "nic-dropout"), outcome(script, HEALTHY)
    assert dropped.named
    assert (dropped.wrong, dropped.early, sound.early, sound.after_s) == (0, (), (), None)


def test_thresholds_that_no_score_exceeds_name_no_node(script):
    assert not outcome(script, "nic-dropout", "seven*1e9").named


def test_jobs_are_counted_as_the_paper_does(script):
    """Four outcomes: named; none named; another named; named, after another before the fault."""
    life = script["Outcome"]
    jobs = [
        life(way="", seed=0, nodes=9, faults=1, kind="", hours=1, **seen)
        for seen in (
            {"early": (), "named": True, "wrong": 0, "after_s": 60},
            {"early": (), "named": False, "wrong": 0, "after_s": None},
            {"early": (), "named": False, "wrong": 1, "after_s": 60},
            {"early": ("gpu_duty",), "named": True, "wrong": 0, "after_s": 60},
        )
    ]
    got = script["figures"](jobs)
    assert (got["recall"], got["precision"]) == (2 / 4, 2 / 3)
    assert got["strict precision"] == 2 / 4
    assert got["f1"] == pytest.approx(4 / 7)


@pytest.mark.parametrize("name", ["sevn", "seven*", "seven*x", "seven*-1", "seven*inf"])
def test_a_way_that_is_none_is_refused(script, name):
    assert not script["is_way"](name)
    assert script["is_way"]("seven*0.5")
