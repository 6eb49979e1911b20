"""`anubis watch` as an operator meets it: answer, exit code, page, and errors for 3 a.m."""

import json
from pathlib import Path

import numpy as np
import pytest

from anubis.core.watch.model import Denoiser, Lstm, Thresholds, WatchModel, WatchOrigin
from anubis.models.watch import watch_model_files
from anubis.readers.telemetry.recorded import write_recording
from tests.core.watched import healthy
from tests.edges.desk import NO_VERDICT, Desk

SMALL = 0.01  # tanh(x) = x to a hundred millionth of this
METRICS = ("cpu_use", "gpu_duty")


def passes_on() -> Lstm:
    """A model with one unit each way. Only the first way speaks: its gates are open, and forget."""
    inputs = np.zeros((2, 1, 4), np.float32)
    inputs[0, 0, 2] = SMALL
    bias = np.tile(np.float32([20, -20, 0, 20]), (2, 1))
    return Lstm(inputs=inputs, hidden=np.zeros((2, 1, 4), np.float32), bias=bias)


def says_what_it_hears() -> Denoiser:
    out = np.float32([[1 / SMALL], [0]])
    nothing = np.zeros(1, np.float32)
    return Denoiser(
        encoder=passes_on(),
        mean=out,
        mean_bias=nothing,
        decoder=passes_on(),
        output=out,
        output_bias=nothing,
    )


def model() -> WatchModel:
    return WatchModel(
        denoisers={name: says_what_it_hears() for name in METRICS},
        thresholds={name: Thresholds(nodes=(4, 64), scores=(3.0, 3.0)) for name in METRICS},
        order=METRICS,
        origin=WatchOrigin(
            source="nothing: made for a test",
            is_synthetic=True,
            jobs=0,
            seed=0,
            versions={},
            fits={},
        ),
    )


@pytest.fixture
def here(near: Desk) -> Desk:
    watch_model_files.save(model(), near.folder / "model.json")
    return near


def record(desk: Desk, name: str = "job.csv", *, faulty: bool = True, **facts) -> str:
    telemetry = healthy(step_s=2.0, points=600, **facts)
    if faulty:
        telemetry.series("cpu_use")[3, 300:] = 2.0
    write_recording(telemetry, desk.folder / name)
    return name


def look(desk, *words):
    return desk.run("watch", "--model", "./model.json", *words)


def test_the_model_of_these_tests_returns_its_input():
    windows = np.random.default_rng(0).random((50, 8), dtype=np.float32)
    assert np.abs(says_what_it_hears().denoise(windows) - windows).max() < 1e-3


def test_a_suspicion_is_named_and_the_exit_code_is_1(here):
    done = look(here, "--file", record(here), "--html", "page.html")
    assert done.code == 1, done.err
    assert done.out.startswith("this job: n3 is unlike its 7 peers since 22:23:20 UTC")
    assert "n3, unlike its 7 peers" in (here.folder / "page.html").read_text()


def test_without_a_suspicion_the_exit_code_is_0(here):
    done = look(here, "--file", record(here, faulty=False))
    assert (done.code, done.out.splitlines()[0]) == (
        0,
        "this job: nothing unlike its peers in 15 min on 2 metrics of 8 nodes",
    )


def test_without_enough_evidence_the_exit_code_is_2(here):
    done = look(here, "--file", record(here, faulty=False, nodes=2))
    assert done.code == 2
    assert "cannot say: 2 nodes, too few to find one unlike the others" in done.out


def test_lines_for_programs_end_with_the_look(here):
    done = look(here, "17", "--file", record(here), "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["type"] for line in lines] == ["suspicion", "look"]
    assert (lines[-1]["job"], lines[-1]["suspects"]) == ("17", ["n3"])


def test_an_earlier_time_gives_the_answer_of_that_time(here):
    done = look(here, "--file", record(here), "--at", "2023-11-14T22:23:00+00:00")
    assert done.code == 0, done.out
    early = look(here, "--file", "job.csv", "--at", "2023-11-14T12:00:00+00:00")
    assert early.code == 64
    assert '"job.csv" begins at 2023-11-14 22:13 UTC' in early.err


def test_a_recorded_look_can_be_repeated(here):
    look(here, "--file", record(here), "--record", "again.csv")
    assert look(here, "--file", "again.csv").out == look(here, "--file", "job.csv").out


def test_a_suspicion_is_reported_to_the_keeper_once(here):
    words = ("17", "--file", record(here), "--tell")
    here.run("tell", "node-added", "n[0-7]", "--cluster", "lab", "--later")
    first, second = look(here, *words), look(here, *words)
    assert (first.code, second.code) == (1, 1)
    assert "reported to the keeper: n3" in first.err
    assert "knows of n3 already" in second.err
    kept = here.run("history", "show", "n3", "--json").out
    raised = [line for line in kept.splitlines() if '"suspicion-raised"' in line]
    assert len(raised) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "no source of telemetry is configured: give --prometheus URL"),
        (("--agents",), "no nodes to look at: give --cluster"),
        (("--agents", "--prometheus", "http://p"), "exclude each other"),
        (("17", "--agents", "--cluster", "simulated"), '"17"'),
        (("--file", "absent.csv"), '"absent.csv"'),
        (("--file", "job.csv", "--agents"), "--file replaces --prometheus and --agents"),
        (("--file", "job.csv", "--nodes", "x[1-8]"), "x1"),
        (("--file", "job.csv", "--follow"), "a recording has an end"),
        (("--file", "job.csv", "--every", "4m"), "--every is the interval of --follow"),
        (("--file", "model.json"), '"model.json"'),
        (("--file", "job.csv", "--watching", "deflt"), 'did you mean "default"?'),
        (("--nodes", "n[1-4]", "--prometheus", "http://127.0.0.1:9"), "127.0.0.1:9"),
        (("--nodes", "n[1-4]", "--prometheus", "p:9090"), 'expected one like "http://prometheus'),
        (("--nodes", "n[1-4]", "--agents", "--follow", "--every", "20m"), "can miss a fault"),
    ],
)
def test_a_wrong_request_of_watch_is_one_sentence_with_the_way_out(here, words, sentence):
    record(here)
    done = look(here, *words)
    assert done.code in NO_VERDICT
    assert sentence in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_recording_without_any_watched_metric_gives_no_all_clear(here):
    Path(here.folder, "odd.csv").write_text(
        "time,node,fan\n" + "".join(f"{t},n{n},5\n" for t in range(600) for n in range(5))
    )
    done = look(here, "--file", "odd.csv")
    assert done.code == 64
    assert "cpu_use" in done.out + done.err
