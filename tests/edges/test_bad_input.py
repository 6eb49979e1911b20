"""Bad input: one readable line on stderr that names the thing, exit code 2 or 64, no traceback.

Each kind once with the real command; the long tables of variants inside this process.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from anubis.config import catalog, configs
from anubis.core.errors import AnubisError, CatalogError
from anubis.lab.simulation.simulated_fleet import SimulatedFleet
from anubis.reach.executors.start_settings import PodSettings
from anubis.reach.orchestrators.orchestrator import settings_kinds
from tests.edges.desk import ANUBIS, FLOW, ROOT, Desk, assert_refused
from tests.patience import LIMIT_S, eventually

# --- files of the operator -----------------------------------------------------------------

HEAD = "summary: mine\nbenchmarks:\n"
SUITES = {
    "unknown key": (
        HEAD + "  - {benchmark: flow, repeat: 3}",
        'unknown key "repeat" in "benchmarks", entry 1; did you mean "repeats"?',
    ),
    "unknown key at the top": (
        HEAD + "  - {benchmark: flow}\nbenchmark: 1",
        'unknown key "benchmark"; did you mean "benchmarks"?',
    ),
    "missing key": ("summary: mine", 'the key "benchmarks" is missing'),
    "missing key inside": (
        HEAD + "  - {repeats: 3}",
        'the key "benchmark" is missing in "benchmarks", entry 1',
    ),
    "wrong type": (
        HEAD + "  - {benchmark: flow}\n  - {benchmark: flow, repeats: three}",
        '"benchmarks", entry 2, "repeats": expected a whole number, found the text "three"',
    ),
    "true is no number": (
        HEAD + "  - {benchmark: flow, repeats: true}",
        '"repeats": expected a whole number, found true',
    ),
    "text for a list": (
        "summary: mine\nbenchmarks: flow",
        '"benchmarks": expected a list, found the text "flow"',
    ),
    "out of range": (
        HEAD + "  - {benchmark: flow, repeats: 0}",
        "repeats is 0, expected at least 1",
    ),
    "no number": (HEAD + "  - {benchmark: flow, duration_s: .nan}", "plain numbers"),
    "bytes": (HEAD + "  - {benchmark: !!binary aGk=}", "the bytes"),
    "bytes at the top": ("!!binary aGk=", "expected a table"),
    "a date": ("summary: 2026-11-20\nbenchmarks: [{benchmark: flow}]", 'the date "2026-11-20"'),
    "nothing asked": ("summary: mine\nbenchmarks: []", "names no benchmark"),
    "absent benchmark": (
        HEAD + "  - {benchmark: flo}",
        'suite "mine" names benchmark "flo", which does not exist; did you mean "flow"?',
    ),
    "unknown parameter": (
        HEAD + "  - {benchmark: flow, parameters: {pase: x}}",
        'benchmark "flow": unknown parameter "pase"; did you mean "pace"?',
    ),
    "ill-typed parameter": (
        HEAD + "  - {benchmark: flow, parameters: {pace: 3}}",
        'parameter "pace" is of type str, found int "3"',
    ),
    "list as a parameter": (
        HEAD + "  - {benchmark: flow, parameters: {pace: [1]}}",
        '"pace": expected a number, a text or true or false, found a list',
    ),
    "the same key twice": (
        "summary: mine\nsummary: mine\n",
        'line 2: the key "summary" is written twice',
    ),
    "YAML that would execute": (
        'summary: !!python/object/apply:os.system ["touch pwned"]',
        "line 1: could not determine a constructor for the tag",
    ),
    "a list as a key": ("? [a]\n: b", "line 1: a key is a list or a table, expected a text"),
    "broken YAML": ("summary: [mine", "is not valid YAML: line 1: "),
    "a tab": (
        "summary: a\nbenchmarks:\n\t- flow",
        "line 3: found character '\\t' that cannot start any token; indent by spaces, not tabs",
    ),
    "a file of another kind": ("executor: local", 'unknown key "executor"; known: '),
    "an endless list": ("[" * 5000, "nest too deep"),
    "an empty file": ("", 'expected a table of "key: value" lines, found nothing'),
    "a list": ("- flow", 'expected a table of "key: value" lines, found a list'),
}


@pytest.mark.parametrize(("text", "sentence"), SUITES.values(), ids=SUITES.keys())
def test_a_suite_that_cannot_be_is_refused(near, text, sentence):
    suite = near.write("mine.yaml", text)
    programs = ("--benchmarks", str(near.programs))
    assert_refused(
        near.run("accept", "--dry-run", "--suite", str(suite), *programs), "mine", sentence
    )
    assert not (near.folder / "pwned").exists()
    assert {place.name for place in near.home.glob("*")} <= {"cache"}  # what programs say of them


def test_the_real_command_refuses_a_suite(desk):
    for name in ("unknown parameter", "YAML that would execute"):
        text, sentence = SUITES[name]
        suite = desk.write("mine.yaml", text)
        assert_refused(desk.ask("accept", "--suite", str(suite)), "mine", sentence)
    assert not (desk.folder / "pwned").exists()


CLUSTERS = {
    "unknown executor": ("executor: locl", '"executor" is "locl"; did you mean "local"?'),
    "no executor": ("nodes: n1", 'the key "executor" is missing; known: local, ray, simulated'),
    "unknown key inside": (
        "executor: simulated\nfleet: {sed: 1}",
        'unknown key "sed" in "fleet"; did you mean "seed"?',
    ),
    "unknown key of what may be left out": (
        "executor: ray\nstart: kubernetes\nstart_pod: {image: a, runtimeclass: nvidia}",
        'unknown key "runtimeclass" in "start_pod"; did you mean "runtime_class"?',
    ),
    "no nodes": ('executor: simulated\nfleet: {nodes: ""}', "names no node"),
    "a node twice": ('executor: simulated\nfleet: {nodes: "a,a"}', 'names "a" twice'),
    "backwards": ('executor: ray\nnodes: "n[3-1]"', 'range "3-1" runs backwards'),
    "no share": ("executor: simulated\nfleet: {slow_share: 3}", "expected a share from 0 to 1"),
    "no file of nodes": ('executor: ray\nnodes: "@gone"', "cannot read node file"),
}


@pytest.mark.parametrize(("text", "sentence"), CLUSTERS.values(), ids=CLUSTERS.keys())
def test_a_cluster_that_cannot_be_is_refused(near, text, sentence):
    cluster = near.write("mine.yaml", text)
    assert_refused(near.run("accept", "--cluster", str(cluster)), "mine.yaml", sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("alpha: 3", "alpha is 3, expected a similarity between 0 and 1"),
        ("distance: {tial: 0.1}", 'unknown key "tial" in "distance"; did you mean "tail"?'),
        ("min_units: 1", "fewer than 3 cannot outvote one"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_by_a_dry_run_too(near, text, sentence):
    policy = near.write("mine.yaml", text)
    assert_refused(near.run("accept", "--dry-run", "--policy", str(policy)), "mine.yaml", sentence)


@pytest.mark.parametrize("option", ["--suite", "--cluster", "--policy"])
def test_a_missing_file_is_named(near, option):
    near.write("prod.yaml", "")
    near.write("prod.txt", "")
    assert_refused(near.run("accept", option, "prod.txt"), 'file here is meant by "./prod.txt"')
    assert_refused(near.run("accept", option, "./none.yaml"), 'there is no file "none.yaml"')
    meant = 'did you mean "prod.yaml"?'
    assert_refused(near.run("accept", option, "prod.yml"), 'no file "prod.yml"', meant)
    assert_refused(near.run("accept", option, "prod"), 'the file here is meant by "./prod.yaml"')
    if option != "--cluster":  # which names one of the history as well
        assert_refused(near.run("accept", option, "none.txt"), 'there is no file "none.txt"')


@pytest.mark.parametrize(
    ("option", "name", "meant"),
    [
        ("--suite", "quik", "quick"),
        ("--cluster", "locla", "local"),
        ("--policy", "deflt", "default"),
    ],
)
def test_a_name_that_is_nearly_right_is_suggested(near, option, name, meant):
    assert_refused(near.run("accept", option, name), name, f'did you mean "{meant}"?')


# --- nodes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ("", "names no node"),  # what `anubis accept "$NODES"` says when NODES is not set
        (" , ", "names no node"),
        ("n1,n1", 'names "n1" twice'),
        ("n[1-3", "brackets do not match"),
        ("@none", 'cannot read node file "none"'),
        ("n[1-9]", 'node "n9" is not in the cluster, which has n[1-8]'),
    ],
)
def test_a_node_list_that_cannot_be_is_refused(near, nodes, sentence):
    fleet, suite = near.fleet(), near.suite(near.flow())
    assert_refused(near.ask("accept", nodes, "--cluster", fleet, "--suite", suite), sentence)


def test_ten_thousand_known_nodes_fit_into_the_error(near):
    names = ",".join(f"n{number}" for number in range(0, 20_000, 2))
    cluster = near.fleet(nodes=names)
    done = near.ask("accept", "other", "-c", cluster, "--suite", near.suite(near.flow()))
    assert_refused(done, 'node "other" is not in the cluster')
    assert len(done.err) < 300


# --- programs ------------------------------------------------------------------------------

BROKEN = {
    "crashes": ("#!/bin/sh\necho no torch here >&2\nexit 5\n", "ended with 5: no torch here"),
    "no document": ("#!/bin/sh\necho hello\n", "not a JSON document"),
    "nothing": ("#!/bin/sh\n", "not a JSON document"),
    "no text": ("#!/bin/sh\nprintf '\\377\\376'\n", "not a JSON document"),
    "too deep": (
        "#!/bin/sh\nawk 'BEGIN { for (i = 0; i < 90000; i++) printf \"[\" }'\n",
        "not a JSON document",
    ),
    "another schema": (
        FLOW.replace("describe/1", "describe/2"),
        'expected a table with "schema": "anubis.describe/1"',
    ),
    "another name": (FLOW, 'its name is "flow", its file "odd.sh"'),
    "unknown key": (
        FLOW.replace('"name": "flow"', '"name": "odd", "leval": "micro"'),
        'unknown key "leval"; did you mean "level"?',
    ),
    "missing key": (
        FLOW.replace('"flow"', '"odd"').replace('"scope": "node",', ""),
        'the key "scope" is missing',
    ),
    "wrong word": (
        FLOW.replace('"flow"', '"odd"').replace('"higher"', '"upwards"'),
        "\"direction\": expected 'higher', 'lower' or 'either', found the text \"upwards\"",
    ),
    "no interpreter": ("echo hello\n", "its first line must name its interpreter"),
}


@pytest.mark.parametrize(("text", "sentence"), BROKEN.values(), ids=BROKEN.keys())
def test_a_program_that_does_not_describe_itself_is_named(near, text, sentence):
    file = near.program("odd.sh", text)
    done = near.ask("bench", "describe", "gemm")
    assert_refused(done, f'"{file}" --describe', sentence)


def test_a_broken_program_counts_only_if_a_requested_one_is_missing(desk):
    desk.program("odd.sh", "#!/bin/sh\nexit 7\n")
    assert set(catalog.load([desk.programs], {"flow"}).specs) == {"flow"}
    for wanted in (None, {"flow", "nobody"}):
        with pytest.raises(CatalogError, match=r'odd.sh" --describe ended with 7'):
            catalog.load([desk.programs], wanted)


def test_a_program_that_never_describes_itself_is_ended_with_all_it_started(desk):
    begun = desk.folder / "begun"
    file = desk.program("odd.sh", f"#!/bin/sh\nsleep 600 &\necho $! > {begun}\nwait\n")
    with pytest.raises(CatalogError, match=r'odd.sh" --describe gave no answer within 0.5 s'):
        catalog.describe(file, limit_s=0.5)
    child = Path("/proc", begun.read_text().strip())
    assert eventually(lambda: not child.exists() or ") Z " in (child / "stat").read_text())


def test_two_programs_of_one_name_are_both_named(near):
    other = near.folder / "other"
    other.mkdir()
    (other / "flow.sh").write_text(FLOW)
    (other / "flow.sh").chmod(0o755)
    done = near.ask("bench", "describe", "gemm", "--benchmarks", str(other))
    assert_refused(done, '"flow"', str(near.programs / "flow.sh"), str(other / "flow.sh"))


def test_a_missing_folder_of_programs_is_named(near):
    assert_refused(near.run("bench", "list", "--benchmarks", "none"), "none", "does not exist")


def test_a_benchmark_that_is_nearly_right_is_suggested(desk):
    assert_refused(desk.run("bench", "describe", "gem"), 'no benchmark "gem"; did you mean "gemm"?')


# --- documents -----------------------------------------------------------------------------

SAMPLES = ('"fast"', "true", "0", "-1", "1e999", "1" + "0" * 400, "NaN", "", "[" * 5000)


def test_a_sample_that_is_no_positive_number_costs_one_step_and_not_the_campaign(near):
    paces = [near.write(f"pace{i}", f"100, {sample}") for i, sample in enumerate(SAMPLES)]
    entries = [near.flow(parameters={"pace": str(pace)}, repeats=1) for pace in paces]
    done = near.ask("accept", "--json", "--suite", near.suite(*entries, near.flow()))
    assert done.code == 2
    assert "Traceback" not in done.err
    bad = [verdict for verdict in done.verdicts if verdict["verdict"] != "healthy"]
    assert [verdict["code"] for verdict in bad] == ["NOT-MEASURED"] * len(SAMPLES)
    assert all("number" in v["reason"] or "not one JSON" in v["reason"] for v in bad)
    assert len(done.verdicts) == len(SAMPLES) + 1


def test_a_device_name_that_cannot_be_stored_costs_one_step_and_not_the_campaign(near):
    devices = (r"cpu\ud800", r"cpu\n", r"cpu\u0000")
    for number, device in enumerate(devices):
        text = FLOW.replace('"flow"', f'"flow{number}"')
        near.program(f"flow{number}.sh", text.replace('"device": "cpu"', f'"device": "{device}"'))
    entries = [near.flow(benchmark=f"flow{number}") for number in range(len(devices))]
    done = near.ask("accept", "--json", "--suite", near.suite(*entries))
    assert done.code == 2
    assert len(done.verdicts) == 3 * len(devices)
    assert all("expected printable text" in verdict["reason"] for verdict in done.verdicts)


# --- criteria ------------------------------------------------------------------------------


@pytest.fixture
def learned(near: Desk) -> Path:
    """The criteria file of an acceptance, and a suite that they fit, as `tiny.yaml`."""
    words = ("accept", "--suite", near.suite(near.flow()), "--benchmarks", str(near.programs))
    assert near.run(*words).code == 0
    (file,) = (near.home / "criteria" / "tiny").glob("*.json")
    return file


def edited(change: Callable[[dict[str, object]], None]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return edit


def entry(**changes: object) -> Callable[[str], str]:
    return edited(lambda document: document["criteria"][0].update(changes))  # type: ignore[index]


CRITERIA: dict[str, tuple[Callable[[str], str], str]] = {
    "another schema": (
        edited(lambda document: document.update(schema="anubis.criteria/4")),
        'its schema is "anubis.criteria/4", this Anubis reads "anubis.criteria/3"',
    ),
    "cut off": (lambda text: text[: len(text) // 2], "not a complete JSON document"),
    "empty": (lambda _: "", "not a complete JSON document"),
    "too deep": (lambda _: "[" * 90_000, "not a complete JSON document"),
    "no table": (lambda _: "[]", 'its schema is "None"'),
    "wrong type": (
        entry(alpha="high"),
        '"criteria", entry 1, "alpha": expected a number, found the text "high"',
    ),
    "alpha too high": (entry(alpha=1.5), "alpha 1.5"),
    "slow steps without places": (
        entry(
            slow_steps={"usual": [], "scatter": [], "shares": []}
            | {"lost": 0.0, "least": 0.0, "once": 0.1, "both": 0.1}
        ),
        "slow_steps needs as many numbers in usual as in scatter",
    ),
    "no reference": (entry(reference=[]), "must be a list of positive numbers"),
    "negative": (entry(reference=[1.0, -1.0]), "must be a list of positive numbers"),
    "one criterion twice": (
        edited(lambda document: document["criteria"].append(document["criteria"][0])),  # type: ignore[attr-defined,index]
        "flow@1 speed of",
    ),
    "another version": (entry(version="2"), "they are for flow@2; learn them again"),
    "another benchmark": (entry(benchmark="blow"), "they are for blow@1; learn them again"),
    "other parameters": (
        entry(parameters={"pace": "elsewhere"}),
        "the same benchmarks with other parameters; learn them again",
    ),
}


def test_criteria_that_cannot_be_used_are_refused_before_anything_runs(near, learned):
    """All in one test: learning them is what takes its time."""
    good = learned.read_text()
    suite, file = str(near.folder / "tiny.yaml"), near.folder / "mine.json"
    words = ("validate", "--suite", suite, "--criteria", str(file))
    for edit, sentence in CRITERIA.values():
        file.write_text(edit(good))
        named = "suite tiny" if "learn them again" in sentence else "mine.json"
        assert_refused(near.run(*words, "--benchmarks", str(near.programs)), named, sentence)
    assert_refused(near.ask(*words), "suite tiny", "other parameters")
    with sqlite3.connect(near.history) as connection:
        assert connection.execute("SELECT count(*) FROM campaigns").fetchone() == (1,)


def test_criteria_that_are_not_there_are_asked_for(near):
    suite = near.suite(near.flow())
    done = near.run("validate", "--suite", suite)
    assert_refused(done, "no criteria for suite", f"anubis accept --suite {suite}")
    done = near.run("validate", "--suite", suite, "--criteria", "none.json")
    assert_refused(done, 'cannot read criteria "none.json"')
    (near.folder / "empty").mkdir()
    done = near.run("validate", "--suite", suite, "--criteria", "empty")
    assert_refused(done, 'no criteria (*.json) in folder "empty"')


def test_criteria_that_cannot_be_written_are_an_error(near, learned):
    done = near.run("criteria", "learn", "--out", str(near.pace))
    assert_refused(done, "cannot write criteria", str(near.pace))


# --- the history ---------------------------------------------------------------------------


def test_a_history_of_a_newer_schema_is_left_as_it_is(near, learned):
    with sqlite3.connect(near.history) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        before = list(connection.iterdump())
    assert_refused(near.run("report"), str(near.history), 'revision "9999"', "upgrade Anubis")
    with sqlite3.connect(near.history) as connection:
        assert list(connection.iterdump()) == before


def test_a_history_that_is_no_database_is_left_as_it_is(desk):
    desk.home.mkdir()
    desk.history.write_text("a letter to my aunt\n" * 100)
    assert_refused(desk.run("report"), str(desk.history), "not a database")
    assert desk.history.read_text().startswith("a letter to my aunt")


def test_a_file_in_place_of_the_home_folder_is_named(desk):
    desk.home.write_text("")
    for words in (["report"], ["accept", "--suite", desk.suite(desk.flow())]):
        done = desk.ask(*words) if words[1:] else desk.run(*words)
        assert_refused(done, str(desk.home), "expected a folder there: correct $ANUBIS_HOME")
        assert "Errno" not in done.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("report", "no campaign has finished yet: begin with anubis accept"),
        ("criteria judge", "no campaign has finished yet: begin with anubis accept"),
        ("criteria learn", "no campaign has finished yet: begin with anubis accept"),
        ("report --campaign none", 'campaign "none" is not in the history'),
        ("accept --resume", "there is nothing to resume: no accept was interrupted"),
        ("validate --resume", "there is nothing to resume: no validate was interrupted"),
        ("accept --resume --campaign none", 'campaign "none" is not in the history'),
        ("accept --campaign none", "give --resume as well"),
        ("accept --resume --dry-run", "leave out --resume"),
        ("accept --html .", '--html "." is a folder'),
    ],
)
def test_a_campaign_that_never_began_cannot_be_resumed(near, words, sentence):
    assert_refused(near.run(*words.split()), sentence)


def test_a_campaign_that_is_over_or_another_verbs_is_not_resumed(near, learned):
    with sqlite3.connect(near.history) as connection:
        (name,) = connection.execute("SELECT id FROM campaigns").fetchone()
    done = near.run("accept", "--resume", "--campaign", name)
    assert_refused(done, name, "is finished: anubis report")
    done = near.run("validate", "--resume", "--campaign", name)
    assert_refused(done, name, "anubis accept --resume")
    assert_refused(near.run("report", "--campaign", name[:-1]), f'did you mean "{name}"?')


# --- the command line itself ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--zzz", "no such option: --zzz (see anubis --help)"),
        ("accept --zzz", "no such option: --zzz (see anubis accept --help)"),
        ("accpt", "Did you mean 'accept'?"),
        ("accept a b", "(b): several nodes are one word, with commas between them (see"),
        ("risk simulate a b", "unexpected extra argument(s) (b) (see"),
        ("accept --suite", "requires an argument"),
        ("bench describe", "missing argument"),
        ("bench lst", "Did you mean 'list'?"),
    ],
)
def test_a_slip_on_the_command_line_is_one_line_too(near, words, sentence):
    assert_refused(near.run(*words.split()), sentence)


@pytest.mark.parametrize(
    "words",
    [
        "accept --cluster X",
        "accept --suite X",
        "accept --policy X",
        "keep --keeping X",
        "risk simulate X",
        "history import incidents X",
        "history import csv X --suite s --metric ms=lower --sku x",
        "watch 4711 --file X",
    ],
)
def test_a_folder_in_the_place_of_a_file_is_called_one(near, words):
    (near.folder / "dir.yaml").mkdir()
    done = near.run(*words.replace("X", "./dir.yaml").split())
    assert done.code in (2, 64)
    (line,) = done.err.splitlines()
    assert line.endswith(
        ('dir.yaml" is a folder: name a file in it', "it is a folder: name a file in it")
    )


@pytest.mark.parametrize("words", ["", "bench"])
def test_no_verb_at_all_shows_the_help_and_is_no_success(near, words):
    done = near.run(*words.split())
    assert done.code == 64
    assert "Usage: anubis" in done.out
    assert "Traceback" not in done.err


def test_a_page_in_a_folder_that_is_not_there_is_refused_before_the_work(desk):
    page = desk.folder / "reprots" / "page.html"
    done = desk.ask("accept", "--suite", desk.suite(desk.flow()), "--html", str(page))
    assert_refused(done, f'there is no folder "{page.parent}"; make it first')
    assert desk.began() == 0


def test_an_answer_that_cannot_be_written_is_no_verdict(desk):
    """1 would mean "defective", and 0 that all is well: a full disk may say neither."""
    with Path("/dev/full").open("w") as full:
        code, err = exit_of(desk, full.fileno(), "bench", "list", "--json")
    assert (code, err) == (
        2,
        "anubis: error: cannot write the answer to stdout: No space left on device\n",
    )


def test_a_place_that_the_machine_refuses_is_one_line_and_no_bug(near, monkeypatch):
    done = near.run("demo", "--folder", str(near.pace / "demo"))
    assert_refused(done, "a part of it is a file", str(near.pace))
    done = near.run("demo", "--folder", str(near.folder / ("x" * 300)))
    assert_refused(done, "name it shorter")
    (near.folder / "gone").mkdir()
    monkeypatch.chdir(near.folder / "gone")
    Path("../gone").rmdir()
    done = near.run("accept", "--cluster", "simulated", "--html", "page.html")
    assert_refused(done, "the folder in which this was started is gone")


@pytest.mark.parametrize(
    ("trouble", "code"), [("KeyboardInterrupt", 130), ("MemoryError", 2), ("ImportError", 2)]
)
def test_trouble_while_the_command_loads_is_no_verdict(trouble, code):
    """Python would end with 1, which says "defective" here."""
    script = (
        "import sys, importlib.abc as abc\n"
        "class Trouble(abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == 'anubis.cli': raise {trouble}\n"
        "sys.meta_path.insert(0, Trouble())\n"
        "from anubis.__main__ import main; main()"
    )
    around = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=around,
    )
    assert (done.returncode, done.stderr.splitlines()[-1][:15]) == (code, "anubis: error: ")


def test_closed_standard_streams_cost_no_answer(desk):
    closed = 'exec "$@" >&- 2>&- <&-'
    words = ["sh", "-c", closed, "sh", *ANUBIS, "token", "list"]
    done = subprocess.run(words, env=desk.environment, timeout=LIMIT_S, check=False)
    assert done.returncode == 0
    assert desk.history.read_bytes()[:6] == b"SQLite"


def test_a_terminal_of_no_columns_gets_the_answer_all_the_same(near, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert "flow" in near.ask("bench", "list").out


def test_a_reader_that_leaves_costs_neither_campaign_nor_page_nor_verdict(desk, tmp_path):
    fleet = desk.fleet(slow_share=0.25)
    page, table = tmp_path / "page.html", tmp_path / "table.html"
    asked = ("accept", "--cluster", fleet, "--suite", desk.suite(desk.flow()), "--html")
    ours = desk.start(*asked, str(page), "--json")
    with ours.stdin, ours.stderr:
        ours.stdout.close()
        assert "Traceback" not in ours.stderr.read()
        assert ours.wait() == 1
    assert "defective" in page.read_text()
    reading, writing = os.pipe()
    os.close(reading)  # rich writes the table; this process is begun and ends as a user's does
    words = (*asked, str(table), "--benchmarks", str(desk.programs))
    code, err = exit_of(desk, writing, *words)
    os.close(writing)
    assert (code, "Traceback" in err) == (1, False)
    assert "defective" in table.read_text()


def exit_of(desk: Desk, stdout: int, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [*ANUBIS, *words],
        env=desk.environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_bug_of_ours_is_no_verdict_either(near, monkeypatch):
    def broken() -> str:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("anubis.text.places.history_url", broken)
    done = near.run("report")
    assert (done.code, done.out) == (2, "")
    assert "ZeroDivisionError: ours" in done.err
    assert "anubis: error: this is a bug in Anubis, and no verdict" in done.err


ODD = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        1e400,
        float("nan"),
        10**30,
        "",
        " ",
        "a\nb",
        "\0",
        "x" * 9000,
    ),
    *([], [1], [None], [[]], ["a"], {}, {"a": 1}, {1: 2}, {"a": {"b": None}}, {"kind": {"a": 1}}),
)
WHOLE = {
    "local": {"executor": "local"},
    "ray": {"executor": "ray", "start": "kubernetes", "start_pod": {"image": "i"}},
    "simulated": {"executor": "simulated"},
}


def keys_of(record: type[Any]) -> Iterator[tuple[str, ...]]:
    """Keys that a file may have, and those of the tables in it."""
    for key in fields(record):
        yield (key.name,)
        for inner in (SimulatedFleet, PodSettings, *settings_kinds().values()):
            if inner.__name__ in str(key.type) or (
                key.name == "orchestrator" and inner in settings_kinds().values()
            ):
                yield from ((key.name, *path) for path in keys_of(inner))


@pytest.mark.parametrize("kind", sorted(configs.CLUSTERS))
def test_any_content_of_a_cluster_file_is_a_cluster_or_one_sentence(kind, tmp_path):
    file = tmp_path / "mine.yaml"
    for path in sorted(set(keys_of(configs.CLUSTERS[kind]))):
        if path[0] == "orchestrator" and len(path) > 1 and kind != "local":
            continue  # it is the same in each
        owners = (
            ({"kind": name} for name in settings_kinds()) if path[0] == "orchestrator" else ({},)
        )
        for owner in owners:
            for value in ODD if len(path) == 1 else ODD[::5]:
                document: Any = {**WHOLE[kind], **({"orchestrator": owner} if owner else {})}
                if len(path) == 1:
                    document[path[0]] = value
                else:
                    document[path[0]] = {**(document.get(path[0]) or {}), path[1]: value}
                file.write_text(yaml.safe_dump(document))
                sentence = outcome_of(file)
                assert "\n" not in sentence, (path, value)
                assert len(sentence) < 1000, (path, value)


def outcome_of(file: Path) -> str:
    """The error in a cluster's file; empty if there is none."""
    try:
        described = configs.cluster(str(file))
        if isinstance(described, configs.RayCluster):
            assert described.way or not described.start
    except AnubisError as error:
        return str(error)
    return ""
