"""Adding a benchmark is adding one file: dropped into a folder, every verb knows it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import pytest

from tests.edges.desk import FLOW, SPIN, Desk
from tests.patience import LIMIT_S


def furnished(desk: Desk) -> Desk:
    """The folder as an operator has it after copying two files there, and nothing else."""
    for file in desk.programs.iterdir():
        file.unlink()
    desk.program("brook.sh", FLOW.replace('"flow"', '"brook"'))
    desk.program("wheel.py", SPIN.replace('"spin"', '"wheel"'))
    return desk


@pytest.fixture
def newcomers(near: Desk) -> Desk:
    return furnished(near)


@pytest.fixture
def newcomers_apart(desk: Desk) -> Desk:
    """Run newcomers apart, for `bench run` becomes the program."""
    return furnished(desk)


def both(desk: Desk) -> str:
    brook = {**desk.flow(), "benchmark": "brook"}
    return desk.suite(brook, {**desk.spin(0), "benchmark": "wheel", "repeats": 3})


def test_the_programs_know_nothing_of_anubis():
    assert "import contract" not in SPIN
    assert FLOW.startswith("#!/bin/sh")


def test_bench_list_shows_a_new_shell_script_and_a_new_python_program(newcomers):
    before = {line["name"] for line in newcomers.run("bench", "list", "--json").lines}
    after = {line["name"] for line in newcomers.ask("bench", "list", "--json").lines}
    assert after - before == {"brook", "wheel"}
    assert "brook@1" in newcomers.ask("bench", "list").out


def test_bench_describe_shows_a_new_program(newcomers):
    done = newcomers.ask("bench", "describe", "brook")
    assert done.code == 0
    for word in ("brook@1", "speed", "m/s", "higher", "--pace"):
        assert word in done.out


def test_a_dry_run_plans_new_programs(newcomers):
    done = newcomers.ask("accept", "--dry-run", "--json", "--suite", both(newcomers))
    assert done.code == 0
    (phase,) = done.lines
    assert phase["benchmarks"] == ["brook@1", "wheel@1"]
    assert phase["steps"] == 6
    assert newcomers.began() == 0


def test_new_programs_are_run_learned_from_and_judged(newcomers):
    done = newcomers.ask("accept", "--json", "--suite", both(newcomers))
    assert done.code == 0, done.err
    assert {line["metric"] for line in done.verdicts} == {"speed", "turns"}
    assert newcomers.began() == 3

    again = newcomers.run("criteria", "judge", "--json")
    assert again.code == 0
    assert again.verdicts == done.verdicts


def test_bench_check_says_that_a_program_keeps_the_contract_or_names_the_field(near):
    program, spin = near.programs / "flow.sh", str(near.programs / "spin.py")
    good = near.run("bench", "check", str(program), f"--pace={near.pace}")
    assert (good.code, good.err) == (0, "")
    assert good.out == "flow@1 keeps the contract: 1 series, 4 samples\n"
    for before, after, sentence in (
        ('"direction": "higher"', '"direction": "up"', '"metrics", entry 1, "direction": expected'),
        ('"stresses": "nothing", ', "", 'the key "stresses" is missing'),
        ('"schema": "anubis.result/1"', '"schema": "mine"', '"schema" is "mine", expected'),
        ('"metric": "speed"', '"metric": "pace"', 'metric "pace" is not one that flow declares'),
        ('"device": "cpu"', '"device": 3', '"device" is "3": expected printable text'),
    ):
        assert before in FLOW
        near.program("flow.sh", FLOW.replace(before, after))
        bad = near.run("bench", "check", str(program), f"--pace={near.pace}")
        assert (bad.code, bad.out, bad.err.count("\n")) == (64, "", 1)
        assert sentence in bad.err
    near.pace.write_text("0\n")
    near.program("flow.sh", FLOW)
    bad = near.run("bench", "check", str(program), f"--pace={near.pace}")
    assert '"speed" of cpu has the sample "0": expected a positive number' in bad.err
    near.program("spin.py", "import json, sys\nsys.exit('no such thing')")
    assert "no such thing" in near.run("bench", "check", spin).err


def test_bench_run_is_the_program_itself_with_its_document_and_its_exit_code(newcomers_apart):
    done = newcomers_apart.ask("bench", "run", "brook", f"--pace={newcomers_apart.pace}")
    assert done.code == 0
    assert json.loads(done.out)["series"][0]["samples"] == [100, 101, 99, 100]

    newcomers_apart.program(
        "odd.sh", FLOW.replace('"flow"', '"odd"').replace("done\ncat", "done\nexit 7")
    )
    assert newcomers_apart.ask("bench", "run", "odd").code == 7


def test_the_folder_of_programs_may_be_the_current_one(newcomers_apart):
    """`--benchmarks .` makes a bare name of the script, which a shell would look for in $PATH."""
    for file in newcomers_apart.programs.iterdir():
        file.rename(newcomers_apart.folder / file.name)
    done = newcomers_apart.run("bench", "describe", "brook", "--json", "--benchmarks", ".")
    assert done.code == 0, done.err
    done = newcomers_apart.run(
        "bench", "run", "brook", f"--pace={newcomers_apart.pace}", "--benchmarks", "."
    )
    assert done.code == 0, done.err


def test_files_that_are_no_programs_are_ignored(newcomers):
    (newcomers.programs / "_shared.py").write_text("raise SystemExit(1)")
    (newcomers.programs / "README.md").write_text("no program")
    (newcomers.programs / "data.json").write_text("{}")
    assert newcomers.ask("bench", "list").code == 0


def test_a_program_of_bench_new_finds_the_modules_of_the_shipped_ones(
    near,
):
    folder = near.folder / "mine"
    done = near.run("bench", "new", "sums", "--benchmarks", str(folder))
    assert done.out == (
        f"{folder}/sums.py: change what it measures, then: anubis bench run sums --benchmarks"
        f" {folder}\n"
    )
    again = near.run("bench", "new", "sums", "--benchmarks", str(folder))
    assert (again.code, again.err.count("exists already")) == (64, 1)
    sums = {"benchmark": "sums", "parameters": {"samples": 3}, "repeats": 3}
    words = ("--suite", near.suite(sums), "--policy", "shared-machine", "--json")
    accepted = near.run("accept", *words, "--benchmarks", str(folder))
    assert {line["metric"] for line in accepted.verdicts} == {"sums_per_s"}


@pytest.mark.long
def test_a_new_benchmark_in_shell_works_from_a_folder_of_its_own_and_knows_nothing_of_anubis(near):
    folder = near.folder / "mine"
    done = near.run("bench", "new", "starts", "--benchmarks", str(folder), "--shell")
    assert done.out.startswith(f"{folder}/starts.sh: change what it measures, then: anubis bench")
    alone = subprocess.run([folder / "starts.sh", "--smoke"], capture_output=True, check=True)
    assert len(json.loads(alone.stdout)["series"][0]["samples"]) == 3
    starts = {"benchmark": "starts", "parameters": {"samples": 2}, "repeats": 3}
    words = ("--suite", near.suite(starts), "--policy", "shared-machine", "--json")
    accepted = near.run("accept", *words, "--benchmarks", str(folder))
    assert {line["metric"] for line in accepted.verdicts} == {"starts_per_s"}


def test_one_broken_program_is_named_and_hides_no_other(newcomers):
    newcomers.program("alone.py", "print('hello')")
    newcomers.program("wrong.sh", "#!/bin/sh\nexit 7\n")
    done = newcomers.ask("bench", "list", "--json")
    assert done.code == 2
    assert {"gemm", "brook", "wheel"} <= {line["name"] for line in done.lines}
    first, second = done.err.splitlines()
    assert 'alone.py" --describe: not a JSON document' in first + second
    assert 'wrong.sh" --describe ended with 7' in first + second


def test_on_a_terminal_bench_run_shows_a_table_and_keeps_the_exit_code(newcomers_apart, verbs):
    words = ("bench", "run", "brook", f"--pace={newcomers_apart.pace}")
    asked = [verbs.python, "-m", "anubis", *words]
    asked += ["--benchmarks", str(newcomers_apart.programs)]
    done = subprocess.run(
        ["script", "--quiet", "--return", "--command", shlex.join(asked), "/dev/null"],
        env=newcomers_apart.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0
    assert re.search(r"speed +\S+ +m/s +100\.0 +99\.00 +101\.0 +4\b", done.stdout)


MIXED = """#!/usr/bin/env python3
import json, sys, time
if "--describe" in sys.argv:
    print(json.dumps({
        "schema": "anubis.describe/1", "name": "mixed", "version": "1", "summary": "Copies.",
        "stresses": "memory", "reveals": "slow memory", "level": "micro", "scope": "node",
        "duration_s": 1, "parameters": [],
        "metrics": [{"name": "rate", "unit": "GB/s", "direction": "higher"}]}))
    sys.exit()
models = {f"cuda:{gpu}": "NVIDIA A100" if gpu == 5 else "NVIDIA H100" for gpu in range(8)}
print(json.dumps({
    "schema": "anubis.result/1", "benchmark": "mixed", "version": "1", "parameters": {},
    "environment": {"gpu_models": models}, "started_at": time.time(), "duration_s": 0.1,
    "not_applicable": None,
    "series": [
        {"metric": "rate", "device": device,
         "samples": [(20 if "A100" in model else 100) + sample / 99 for sample in range(8)]}
        for device, model in models.items()]}))
"""


def test_a_node_with_one_gpu_of_another_model_is_unknown_and_never_refused(near):
    near.program("mixed.py", MIXED)
    suite = near.suite({"benchmark": "mixed"})
    for verb in ("accept", "validate"):
        done = near.ask(verb, "--json", "--suite", suite)
        assert done.code == 2, done.err
        judged = {line["device"]: line["verdict"] for line in done.verdicts}
        assert judged.pop("cuda:5") == "unknown"
        assert set(judged.values()) == {"healthy"}
        assert "on cuda of model A100: learned from 1 of the 3 units it takes" in done.out
