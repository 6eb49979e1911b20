"""`anubis bench tune`: from a stored campaign to the table, and into a suite that runs."""

from __future__ import annotations

import dataclasses

import pytest

from anubis.config import configs
from anubis.operations.yaml_edits import retune
from tests.edges.desk import Desk

pytestmark = pytest.mark.long

TRAIN = '''
"""Steps of a training that needs twelve of them to warm up; nothing here is measured."""
import json, sys

KNOBS = json.loads("""KNOBS_HERE""")
if "--describe" in sys.argv:
    print(json.dumps({
        "schema": "anubis.describe/1", "name": "train", "version": "1", "summary": "Trains.",
        "stresses": "nothing", "reveals": "how it is tuned", "level": "micro", "scope": "node",
        "duration_s": 2.0, "metrics": [
            {"name": "rate", "unit": "1/s", "direction": "higher"},
            {"name": "right", "unit": "1", "direction": "higher"},
        ],
        "parameters": [
            {"name": name, "type": type(value).__name__, "default": value, "summary": ""}
            for name, value in KNOBS.items()
        ],
    }))
    sys.exit()
given = {**KNOBS, **dict(word[2:].split("=", 1) for word in sys.argv[1:])}
given = {name: type(KNOBS[name])(value) for name, value in given.items()}
first, steps = given.get("warmup", 0), given["steps"]
rates = [(70 if i < 12 else 100) + i * 7919 % 13 / 13 for i in range(first, first + steps)]
if given.get("wild"):
    rates = [100 * 1.03 ** i for i in range(steps)]
print(json.dumps({
    "schema": "anubis.result/1", "benchmark": "train", "version": "1", "parameters": given,
    "environment": {}, "duration_s": 1.0, "not_applicable": None,
    "series": [
        {"metric": "right", "device": "cpu", "samples": [1.0]},
        {"metric": "rate", "device": "cpu", "samples": rates},
    ],
}))
'''
SUITE = """\
# Ours, and reviewed.
summary: for a test

benchmarks:
  # The first is not ours to change.
  - {benchmark: flow, repeats: 3, parameters: {pace: PACE}}

  - benchmark: train
    # Long, so that tune has something to look at.
    parameters: {steps: 240}  # a comment with steps: 5 in it
    repeats: 4
"""


def train(desk: Desk, knobs: str = '{"steps": 240, "warmup": 0}') -> None:
    desk.program("train.py", TRAIN.replace("KNOBS_HERE", knobs))


def measured(desk: Desk, suite: str = SUITE) -> str:
    """The suite, after a campaign has carried it out."""
    path = desk.write("ours.yaml", suite.replace("PACE", str(desk.pace)))
    done = desk.ask("accept", "--suite", str(path))
    assert "bug" not in done.err, done.err
    return str(path)


def test_table_and_json_have_the_measured_and_the_sufficient_steps(near):
    train(near)
    measured(near)
    done = near.run("bench", "tune", "train")
    assert done.code == 0, done.err
    row = done.out.splitlines()[-1].split()
    assert row[:2] == ["train@1", "rate"]
    saved = 1 - (12 / 70 + 91 / 100) / (12 / 70 + 228 / 100)
    assert row[2:] == ["240", "13", "12", "+", "91", "1.000", "→", "1.000", f"{saved:.0%}"]

    (line,) = near.run("bench", "tune", "train", "--json").lines
    assert line["type"] == "tuning"
    assert (line["metric"], line["series"], line["fixed_steps"]) == ("rate", 4, 240)
    assert line["parameters"] == {"warmup": line["warmup"], "steps": line["steps"]}
    assert line["warmup"] == 12


def test_steps_dropped_by_the_program_count_as_warm_up(near):
    train(near)
    measured(near, SUITE.replace("steps: 240}", "steps: 240, warmup: 5}"))
    (line,) = near.run("bench", "tune", "train", "--json").lines
    assert line["warmup"] == 7
    assert line["parameters"]["warmup"] == 12


def test_the_suite_that_it_writes_or_changes_keeps_every_other_line_and_measures_steady_steps(near):
    train(near)
    path = measured(near)
    done = near.run("bench", "tune", "train", "--suite", path, "--write", "tuned.yaml")
    assert done.code == 0, done.err
    before = (near.folder / "ours.yaml").read_text().splitlines()
    after = (near.folder / "tuned.yaml").read_text().splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == ["    parameters: {steps: 91, warmup: 12}  # a comment with steps: 5 in it"]
    assert near.run("bench", "tune", "train", "--write", path).code == 0
    assert configs.suite(path).benchmarks[1].parameters == {"steps": 91, "warmup": 12}
    assert not list(near.folder.glob(".*"))
    assert near.ask("accept", "--suite", "tuned.yaml", "--json").code == 0
    (line,) = near.run("bench", "tune", "train", "--json").lines
    assert line["fixed_steps"] == 91
    assert line["warmup"] == 0


def test_a_parameter_that_the_program_lacks_is_named_and_not_written(near):
    train(near, '{"steps": 240}')
    path = measured(near)
    done = near.run("bench", "tune", "train", "--suite", path, "--write", "tuned.yaml")
    assert done.code == 2
    assert 'the warm-up of 12 cannot be set: it declares no "warmup"' in done.err
    assert not (near.folder / "tuned.yaml").exists()


def test_an_unrepeatable_benchmark_is_no_success_and_is_not_written(near):
    train(near, '{"steps": 240, "warmup": 0, "wild": 1}')
    path = measured(near)
    done = near.run("bench", "tune", "train", "--suite", path, "--write", "tuned.yaml")
    assert done.code == 2
    assert "not repeatable enough" in " ".join(done.out.split())
    assert "nothing to write: not repeatable enough" in done.err
    assert not (near.folder / "tuned.yaml").exists()


def test_a_suite_that_cannot_be_changed_by_line_gives_the_line_to_paste(near):
    train(near)
    path = near.suite({"benchmark": "train", "repeats": 4})
    near.ask("accept", "--suite", path)
    done = near.run("bench", "tune", "train", "--suite", path, "--write", "tuned.yaml")
    assert done.code == 2
    assert "put this into it: parameters: {steps: 91, warmup: 12}" in done.err
    assert not (near.folder / "tuned.yaml").exists()


WRONG = {
    ("trian",): 'did not run "trian"; did you mean "train"?',
    ("train", "--campaign", "nosuch"): 'campaign "nosuch" is not in the history',
    ("train", "--suite", "quick", "--write", "new.yaml"): "has 0 entries of train",
    ("train", "--suite", "nosuch", "--write", "new.yaml"): "no configs/suites/nosuch.yaml",
    ("train", "--suite", "ours.yaml", "--write", "no/new.yaml"): "cannot write the suite",
    ("train", "--suite", "ours.yaml", "--write", "other.yaml"): "exists",
}


def test_impossible_requests_of_tune_are_one_line(near):
    train(near)
    measured(near)
    other = near.write("other.yaml", "precious: 1\n")
    for words, reason in WRONG.items():
        done = near.run("bench", "tune", *words)
        assert done.code == (2 if reason.startswith("cannot") else 64)
        assert reason in done.err
        assert done.err.count("\n") == 1
    assert other.read_text() == "precious: 1\n"


# --- the text of a suite -------------------------------------------------------------------

LAYOUTS = {
    "a flow with parameters": "  - {benchmark: b, parameters: {steps: 5, size: 3}, repeats: 2}",
    "a flow with no parameters": "  - {benchmark: b, repeats: 2}",
    "a flow with none of them": '  - {benchmark: b, parameters: {bytes: "1,2"}, repeats: 2}',
    "braces in a block": "  - benchmark: b\n    parameters: {size: 3, steps: 5} # why\n",
    "empty braces": "  - benchmark: b\n    parameters: {}\n    repeats: 2",
    "a block": "  - benchmark: b\n    parameters:  # why\n      # five\n      steps: 5  # s\n"
    "      size: 3\n    repeats: 2",
    "a block that comes first": "  - parameters:\n      size: 3\n    benchmark: b",
    "no parameters in a block": "  - benchmark: b\n    # parameters: {steps: 7}\n    repeats: 2",
    "dashes at the margin": "- benchmark: b\n  parameters:\n    steps: 5\n  repeats: 2",
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("position", [0, 1])
def test_only_the_tuned_values_of_a_suite_change(tmp_path, layout, position):
    other = "  - {benchmark: other, parameters: {steps: 99}}"
    if layout.startswith("-"):
        other = other.strip()
    entries = [other, other]
    entries.insert(position, layout)
    text = "# top\nsummary: s\n\nbenchmarks:\n" + "\n\n  # next\n".join(entries) + "\n# end\n"
    (tmp_path / "old.yaml").write_text(text)
    new = retune(text, position, {"warmup": 12, "steps": 80})
    (tmp_path / "new.yaml").write_text(new)

    old_entries = list(configs.suite(str(tmp_path / "old.yaml")).benchmarks)
    entry = old_entries[position]
    parameters = {**entry.parameters, "warmup": 12, "steps": 80}
    old_entries[position] = dataclasses.replace(entry, parameters=parameters)
    assert list(configs.suite(str(tmp_path / "new.yaml")).benchmarks) == old_entries
    comments = [part for line in text.splitlines() for part in line.split("#")[1:]]
    assert comments == [part for line in new.splitlines() for part in line.split("#")[1:]]
