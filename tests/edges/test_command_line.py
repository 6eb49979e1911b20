"""The verbs as an operator meets them: exit codes, JSON Lines, criteria, reports."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from itertools import chain
from pathlib import Path

import pytest

from anubis.config import configs
from anubis.config.criteria_files import file_name
from anubis.core.records import CriteriaSet, Provenance
from anubis.operations import doctor
from anubis.reach.executors.simulated import SimulatedExecutor
from tests.edges.desk import ANUBIS, FLOW, Desk, Done
from tests.patience import LIMIT_S


def accept_fleet(desk: Desk, *words: str, **fleet: object) -> Done:
    cluster, suite = desk.fleet(**fleet), desk.suite(desk.flow(repeats=1))
    return desk.ask("accept", "--cluster", cluster, "--suite", suite, *words)


# --- exit codes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "code", "group"),
    [
        ({}, 0, "healthy"),
        ({"slow_share": 0.125}, 1, "defective"),
        ({"lost_share": 0.125}, 2, "unknown"),
        ({"hang_share": 0.125}, 1, "defective"),
        ({"crash_share": 0.125}, 1, "defective"),
        ({"crash_share": 1.0}, 2, "unknown"),
    ],
)
def test_the_exit_code_is_the_worst_that_was_found(near, trouble, code, group):
    done = accept_fleet(near, "--json", **trouble)
    assert done.code == code, done.err
    summary = done.summary
    assert len(summary[group]) == (1 if 0.125 in trouble.values() else 8)
    assert sum(len(summary[key]) for key in ("healthy", "defective", "unknown")) == 8


def test_a_defect_counts_for_more_than_an_unknown(near):
    done = accept_fleet(near, "--json", slow_share=0.125, lost_share=0.125)
    assert done.code == 1
    assert len(done.summary["unknown"]) == 1


def test_a_policy_that_stops_early_names_the_benchmarks_that_are_not_learned(near):
    train = FLOW.replace('"flow"', '"train"').replace('"micro"', '"end-to-end"')
    near.program("train.sh", train)
    suite = near.suite(near.flow(repeats=1), near.flow(benchmark="train", repeats=1))
    policy = str(near.write("hasty.yaml", {"summary": "hasty", "stop_early": True}))
    words = ("--cluster", near.fleet(slow_share=0.25), "--suite", suite, "--policy", policy)
    done = near.ask("accept", *words, "--json")
    trained = {verdict["node"] for verdict in done.verdicts if verdict["benchmark"] == "train"}
    spared = {f"n{i}" for i in range(1, 9)} - trained
    assert spared
    assert spared <= set(done.summary["defective"])
    assert "the policy stops early: not every defective node ran train, so" in done.err


@pytest.mark.long
@pytest.mark.parametrize("ending", ["exit 3", "exit 1", "kill -SEGV $$"])
def test_there_is_no_success_without_data(near, ending):
    near.program("flow.sh", FLOW.replace("done\ncat", f"done\n{ending}\ncat"))
    done = near.ask("accept", "--json", "--suite", near.suite(near.flow(repeats=1)))
    assert done.code == 2
    assert len(done.summary["unknown"]) == 1


def test_a_benchmark_that_does_not_apply_is_neither_healthy_nor_unknown(near):
    """Exit code 3 and a reason, as the contract has it."""
    said = FLOW.replace('"not_applicable": null', '"not_applicable": "no water"')
    said = re.sub(r'"series": \[.*\]', '"series": []', said).replace(
        "done\ncat <<", "done\ntrap 'exit 3' EXIT\ncat <<"
    )
    near.program("flow.sh", said)
    done = near.ask("accept", "--json", "--suite", near.suite(near.flow(repeats=1)))
    assert done.code == 2
    assert len(done.summary["not_applicable"]) == 1
    assert done.verdicts[0]["reason"] == "no water"


# --- JSON ----------------------------------------------------------------------------------


def test_json_has_a_line_for_each_verdict_and_the_summary_last(near):
    done = accept_fleet(near, "--json", slow_share=0.125, lost_share=0.125)
    *verdicts, _, _, reckoning, summary = done.lines  # and two planted nodes
    assert {line["type"] for line in verdicts} == {"verdict"}
    assert reckoning["type"] == "reckoning"
    assert summary["type"] == "summary"
    words = {line["verdict"] for line in verdicts}
    assert words == {"healthy", "defective", "unknown"}
    (defective,) = [line for line in verdicts if line["verdict"] == "defective"]
    assert [defective["node"]] == summary["defective"]
    assert (defective["benchmark"], defective["metric"]) == ("flow", "speed")
    assert defective["similarity"] < defective["alpha"] == 0.95
    assert "phase" in done.err
    assert "campaign" in done.err


@pytest.mark.long
@pytest.mark.smoke
def test_a_report_repeats_the_output_of_its_campaign(desk):
    done = accept_fleet(desk, "--json", slow_share=0.125, lost_share=0.125)
    again = desk.run("report", "--json")
    assert (again.code, again.out) == (done.code, done.out)
    table = desk.run("report")
    assert table.code == 1
    assert "6 healthy · 1 defective · 1 unknown" in table.out
    assert max(len(line) for line in table.out.splitlines()) <= 80


@pytest.mark.long
def test_the_same_seed_gives_the_same_bytes_but_for_the_campaigns_name(desk, tmp_path):
    """Nothing else in the JSON is of this world's clock: the simulated one gives `duration_s`. The
    second is not forked, so that it draws other hashes."""
    outs, criteria = [], []
    (tmp_path / "two").mkdir()
    for place in (desk, Desk(tmp_path / "two")):
        done = accept_fleet(
            place, "--json", slow_share=0.125, hang_share=0.125, lost_share=0.125, seed=7
        )
        assert done.summary["campaign"] in done.out
        # the programs' parameters hold the paths of the desk
        outs.append(done.out.replace(done.summary["campaign"], "").replace(str(place.folder), ""))
        (file,) = (place.home / "criteria").rglob("*.json")
        criteria.append(file.read_text().replace(str(place.folder), ""))
    assert outs[0] == outs[1]
    documents = [json.loads(text) for text in criteria]
    for document in documents:
        document.pop("digest")  # of the parameters as well
    assert documents[0] == documents[1]


# --- criteria ------------------------------------------------------------------------------


@pytest.fixture
def accepted(near: Desk) -> Desk:
    """A desk whose own machine was accepted with the suite `tiny.yaml`."""
    done = near.ask("accept", "--suite", near.suite(near.flow(), near.spin(0, repeats=3)))
    assert done.code == 0, done.err
    assert "describe it alone" in " ".join(done.out.split())
    return near


def validation(desk: Desk) -> tuple[str, ...]:
    suite, programs = str(desk.folder / "tiny.yaml"), str(desk.programs)
    return ("validate", "--json", "--suite", suite, "--benchmarks", programs)


@pytest.mark.long
def test_a_node_that_became_slower_fails_the_earlier_criteria(accepted):
    assert accepted.run(*validation(accepted)).code == 0

    accepted.pace.write_text("80, 81, 79, 80")
    slower = accepted.run(*validation(accepted))
    assert slower.code == 1
    (verdict,) = [line for line in slower.verdicts if line["verdict"] == "defective"]
    assert [verdict["node"]] == slower.summary["defective"]
    assert (verdict["benchmark"], verdict["metric"]) == ("flow", "speed")
    assert verdict["code"] == "FLOW.SPEED"
    assert "20% slower than normal" in verdict["reason"]
    assert len(verdict["reason"]) <= 200

    accepted.pace.write_text("120, 121, 119, 120")
    assert accepted.run(*validation(accepted)).code == 0, "a faster node is no defect"


def test_learning_writes_the_same_bytes_again_and_those_that_accept_wrote(accepted):
    (file,) = (accepted.home / "criteria" / "tiny").glob("*.json")
    for folder in ("once", "twice"):
        done = accepted.run("criteria", "learn", "--out", folder)
        assert (done.code, done.out) == (0, "")
        assert (accepted.folder / folder / "tiny" / file.name).read_bytes() == file.read_bytes()


def test_learning_again_keeps_to_the_policy_of_the_campaign(near):
    policy = near.write("mine.yaml", {"alpha": 0.5})
    words = ("accept", "--suite", near.suite(near.flow()), "--benchmarks", str(near.programs))
    assert near.run(*words, "--policy", str(policy)).code == 0
    assert near.run("criteria", "learn", "--out", "own").code == 0
    assert near.run("criteria", "learn", "--out", "default", "--policy", "default").code == 0
    for folder, alpha in (("own", 0.5), ("default", 0.95)):
        (file,) = (near.folder / folder).rglob("*.json")
        assert [each["alpha"] for each in json.loads(file.read_text())["criteria"]] == [alpha]


def test_judging_again_by_other_criteria_runs_nothing(accepted):
    begun = accepted.began()
    (file,) = (accepted.home / "criteria" / "tiny").glob("*.json")
    assert accepted.run("criteria", "judge", "--criteria", str(file)).code == 0

    document = json.loads(file.read_text())
    for each in document["criteria"]:
        each["reference"] = [2 * value for value in each["reference"]]
    stricter = accepted.write("stricter.json", document)
    done = accepted.run("criteria", "judge", "--json", "--criteria", str(stricter))
    assert done.code == 1
    assert all("50% slower than normal" in line["reason"] for line in done.verdicts)

    document["sku"] = "another kind"
    other = accepted.write("other.json", document)
    done = accepted.run("criteria", "judge", "--json", "--criteria", str(other))
    assert done.code == 2
    assert {line["code"] for line in done.verdicts} == {"NO-CRITERION"}
    assert accepted.began() == begun


def test_two_kinds_of_hardware_never_share_a_file():
    """`a b`, `a-b` and `A-B` look alike once a file system can bear them."""
    given = Provenance(suite="any", anubis="any", digest="any", created_at="any")
    skus = ("a-b", "a b", "A-B", "a/b", "../a-b", "-", ".", "漢")
    names = {file_name(CriteriaSet(sku=sku, criteria=(), provenance=given)) for sku in skus}
    assert "a-b.json" in names
    assert len(names) == len(skus)
    assert all(re.fullmatch(r"[a-z0-9+][a-z0-9.+-]*\.json", name) for name in names)


# --- reports, plans, doctor ----------------------------------------------------------------


def test_the_html_report_names_the_defect_and_needs_no_network(near):
    page = near.folder / "report.html"
    done = accept_fleet(near, "--json", "--html", str(page), slow_share=0.125)
    assert f"report: {page}" in done.err
    text = page.read_text()
    assert done.summary["defective"][0] in text
    assert not re.search(r"""<(script|link|img)[^>]+(src|href)=["']?(https?:)?//""", text)

    again = near.folder / "again.html"
    assert near.run("report", "--html", str(again)).code == 1
    assert again.exists()


def test_on_a_terminal_without_unicode_no_verdict_looks_like_unknown(desk):
    cluster, suite = desk.fleet(slow_share=0.125), desk.suite(desk.flow(repeats=1))
    assert desk.ask("accept", "--cluster", cluster, "--suite", suite).code == 1
    environment = {**desk.environment, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*ANUBIS, "report"], env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 1
    assert "7 healthy | 1 defective | 0 unknown" in done.stdout
    assert re.search(r"\| x defective +\|", done.stdout)
    assert "?" not in done.stdout


def test_a_dry_run_shows_the_variables_of_a_suite(near):
    done = near.ask("accept", "--dry-run", "--suite", near.suite(near.flow(env={"COLOUR": "red"})))
    assert (done.code, "env.COLOUR=red" in done.out) == (0, True)


def test_a_dry_run_adds_up_to_a_sum_by_hand(near):
    """Five nodes. flow: 3 repeats of 10 s, spin: 2 of 30 s, one after the other on each node.
    meet: 10 pairs of 6 s, at most two of them at once among five nodes."""
    meet = FLOW.replace('"flow"', '"meet"').replace('"scope": "node"', '"scope": "group"')
    near.program("meet.sh", meet)
    suite = near.suite(
        near.flow(),
        near.spin(0, repeats=2, duration_s=30),
        near.flow(benchmark="meet", repeats=1, duration_s=6, groups="pairs"),
    )
    words = ("accept", "--dry-run", "--cluster", near.fleet(nodes="n[1-5]"), "--suite", suite)
    done = near.ask(*words, "--json")
    assert done.code == 0
    single, multi = done.lines
    assert single["steps"] == 5 * (3 + 2)
    assert single["duration_s"] == 3 * 10 + 2 * 30
    assert single["node_hours"] == pytest.approx(5 * 90 / 3600, abs=1e-4)
    assert multi["steps"] == 10
    assert multi["duration_s"] == 10 / 2 * 6
    assert multi["node_hours"] == pytest.approx(10 * 2 * 6 / 3600, abs=1e-4)

    table = near.ask(*words)
    assert table.code == 0
    total = 5 * 90 / 3600 + 10 * 2 * 6 / 3600
    assert f"suite tiny on 5 nodes: about 2 min, {total:.2f} node-hours" in table.out
    assert "meet@1, pairs" in table.out
    assert max(len(line) for line in table.out.splitlines()) <= 80
    assert not near.home.exists()


@pytest.mark.parametrize("executor", ["ray", "simulated"])
def test_a_cluster_file_may_name_a_file_of_nodes_beside_it(near, executor):
    folder = near.folder / "site"
    folder.mkdir()
    (folder / "nodes.txt").write_text("n[1-2]  # rack 1\nn7\n")
    nodes = {"nodes": "@nodes.txt"}
    cluster = {"executor": executor, **(nodes if executor == "ray" else {"fleet": nodes})}
    (folder / "mine.yaml").write_text(json.dumps(cluster))
    read = configs.cluster(str(folder / "mine.yaml"))
    assert (read.nodes if executor == "ray" else read.fleet.nodes) == "n[1-2,7]"


def test_planted_trouble_shows_even_in_a_small_suite(near):
    """The shipped programs are there as well, and not run: a fleet is not troubled in those."""
    done = accept_fleet(near, "--json", nodes="n[01-40]", slow_share=0.1)
    assert len(done.summary["defective"]) == 4


def test_terminal_records_and_page_list_planted_troubles_and_which_were_found(near):
    page = near.folder / "page.html"
    fleet = {"nodes": "n[01-40]", "slow_share": 0.05, "lost_share": 0.025, "slow_by": 0.3}
    done = accept_fleet(near, "--json", "--html", str(page), **fleet)
    planted = [line for line in done.lines if line["type"] == "planted"]
    assert {line["subject"] for line in planted if line["trouble"] == "30% slow in flow"} == set(
        done.summary["defective"]
    )
    assert [line["detected"] for line in planted] == ["found"] * 3
    assert done.lines[-2] == {
        "type": "reckoning",
        "schema": "anubis.reckoning/1",
        "planted": 3,
        "missed": 0,
        "unsure": 0,
        "found": 3,
        "wrongly_blamed": [],
    }
    headline = "planted: 3, of which 3 found. Sound nodes blamed: none"
    assert headline in page.read_text()
    table = near.run("report").out
    assert f"This fleet is simulated. {headline}" in table
    for line in planted:
        assert re.search(rf"^{line['subject']} +{line['trouble']} +found$", table, re.MULTILINE)


def test_results_of_real_nodes_list_nothing_as_planted(near):
    done = near.ask("accept", "--json", "--suite", near.suite(near.flow()))
    assert not {"planted", "reckoning"} & {line["type"] for line in done.lines}
    assert "simulated" not in near.run("report").out


def test_doctor_finds_this_machine_able(desk):
    done = desk.run("doctor", "--json")
    assert done.code == 0, done.out
    assert {line["state"] for line in done.lines} <= {"good", "missing"}
    found = {line["what"] for line in done.lines}
    assert {"python", "torch", "ray", "history", "benchmark gemm"} <= found
    assert desk.run("doctor").code == 0


def test_doctor_names_the_broken_part_and_exits_with_2(near):
    near.home.write_text("")
    done = near.run("doctor", "--json")
    assert done.code == 2
    (bad,) = [line for line in done.lines if line["state"] == "bad"]
    assert bad["what"] == "history"
    first = near.run("doctor").out.splitlines()[0]
    assert re.fullmatch(r"this node can run \d+ of \d+ benchmarks; mend first: history", first)


def test_doctor_knows_the_way_to_every_tool_and_package_of_the_shipped_programs(near, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda tool: None)
    monkeypatch.setattr(doctor, "PACKAGES", {"no-such-package": "nothing", **doctor.PACKAGES})
    lines = near.run("doctor", "--json").lines
    missing = [line for line in lines if line["found"].startswith("needs ") and line["advice"]]
    assert len(missing) >= 6
    for line in missing:
        tools = line["found"].removeprefix("needs ").split(", ")
        assert all(tool in doctor.TOOLS for tool in tools), line
        assert "perftest, apt install perftest" not in line["advice"]
    (bad,) = [line["advice"] for line in lines if line["what"] == "no-such-package"]
    assert bad in ("pip install no-such-package", "./scripts/setup")


def test_a_ray_cluster_without_an_address_is_refused_and_not_taken_for_this_machine(
    near, monkeypatch
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for verb in (["accept"], ["gate", "n1", "--duration", "1h"]):
        done = near.ask(*verb, "--cluster", "ray")
        assert (done.code, done.out) == (64, "")
        assert "which ray cluster? RAY_ADDRESS is not set" in done.err
    assert near.run("history", "show", "--json").out == ""
    token = str(near.folder / "no-such-token")
    way = near.write("way.yaml", {"executor": "ray", "address": "local", "token": token})
    done = near.ask("accept", "--cluster", str(way))
    assert done.code == 64
    assert f'there is no token in "{token}"' in done.err


def test_doctor_counts_the_gpus_that_a_benchmark_needs(near, monkeypatch):
    models = ["NVIDIA H200", "NVIDIA A30"]
    monkeypatch.setattr(doctor, "gpu_models", lambda: (models, True))
    monkeypatch.setattr(doctor, "_cuda", lambda model: doctor.Check("torch and cuda", "good", ""))
    found = {line["what"]: line["found"] for line in near.run("doctor", "--json").lines}
    assert found["gpus"] == "1 x NVIDIA H200, 1 x NVIDIA A30"
    models.pop()
    found = {line["what"]: line for line in near.run("doctor", "--json").lines}
    alone, group = found["benchmark overlap"], found["benchmark collective"]
    assert (alone["state"], alone["found"]) == ("missing", "needs 2 GPUs")
    assert (group["state"], group["found"]) == ("good", "can run, with 2 nodes or more")
    assert found["benchmark gemm"]["found"] == "can run"


def test_doctor_counts_no_program_that_needs_a_torch_that_is_not_there(near, monkeypatch):
    installed_version = importlib.metadata.version

    def version(package):
        if package == "torch":
            raise importlib.metadata.PackageNotFoundError(package)
        return installed_version(package)

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    found = {line["what"]: line for line in near.run("doctor", "--json").lines}
    gemm, health = found["benchmark gemm"], found["benchmark node_health"]
    assert (gemm["state"], gemm["found"], health["found"]) == ("missing", "needs torch", "can run")


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["accept", "-h"], ["bench", "-h"]])
def test_asking_for_help_is_a_success(desk, words):
    done = desk.run(*words)
    assert done.code == 0
    assert "anubis" in done.out
    assert done.err == ""


def test_tables_fit_eighty_columns(near):
    for words in (["bench", "list"], ["bench", "describe", "gemm"], ["doctor"], ["--help"]):
        lines = near.run(*words).out.splitlines()
        assert max(map(len, lines)) <= 80, words


def test_the_operators_own_configs_come_first(near):
    mine = near.home / "configs" / "suites" / "quick.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(Path(near.suite(near.flow())).read_text())
    done = near.ask("accept", "--dry-run", "--json")
    assert list(chain(*(line["benchmarks"] for line in done.lines))) == ["flow@1"]


@pytest.fixture
def slow_node(near):
    """A slow node, not accepted yet, so that a gate and a sweep test it; no form of an answer about
    it is 0."""
    near.words = ("--cluster", near.fleet(), "--suite", near.suite(near.flow()))
    assert near.ask("accept", "n[1-7]", *near.words).code == 0
    near.fleet(slow_share=1.0)
    return "n8"


GONE, CTRL_C = OSError("the nodes are gone"), KeyboardInterrupt()
ANSWERS = [
    (("validate", "NODE", "--html", "page.html", "--json"), 1, GONE),
    (("validate", "NODE", "--junit", "junit.xml", "--nagios"), 2, CTRL_C),
    (("gate", "NODE", "--duration", "24h", "--why"), 1, CTRL_C),
    (("gate", "NODE", "--duration", "24h", "--junit", "junit.xml", "--json"), 1, GONE),
    (("gate", "NODE", "--duration", "24h", "--nagios"), 2, GONE),
    (("sweep", "NODE", "--budget", "8nh", "--why"), 1, GONE),
    (("sweep", "NODE", "--budget", "8nh", "--json"), 1, CTRL_C),
]


@pytest.mark.parametrize(("words", "code", "error"), ANSWERS)
def test_an_answer_is_whole_before_the_nodes_are_let_go_and_no_trouble_with_that_changes_it(
    near, slow_node, monkeypatch, capfd, words, code, error
):
    early = []

    def look(_executor: SimulatedExecutor) -> None:
        files = [near.folder / word for word in words if "." in word]
        early.append((capfd.readouterr().out, [file.read_text()[-8:] for file in files]))
        raise error

    monkeypatch.setattr(SimulatedExecutor, "close", look)
    asked = (slow_node if word == "NODE" else word for word in words)
    done = near.ask(*asked, *near.words)
    ((out, ends),) = early
    assert slow_node in out
    assert all(end.strip().endswith(">") for end in ends)
    assert (done.out, done.code) == ("", code)
    assert "Traceback" not in done.err
