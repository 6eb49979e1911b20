"""A refused request of any verb leaves no trace in the history. Its exit code is 64 if only other
words help, and 2 if a file cannot be read. Trouble after an answer changes no exit code."""

from __future__ import annotations

import re
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import typer

from anubis.cli import main
from anubis.cli.verb import FOLDERS
from anubis.core.errors import MISUSED, ExecutorError
from anubis.reach.executors.simulated import SimulatedExecutor

SILENT_OWNER = 2
WORDS = {  # requests by the exit code of their refusal
    MISUSED: [
        "gate gpu[01-04] --duration 24h --cluster fleet.yaml",
        "gate gpu[01-04] --duration 24h",
        "gate gpu[01-04] --duration 24h --no-tests --cluster fleet.yaml",
        "gate NODES --duration 24h --cluster nobody",
        "gate NODES --duration never --cluster fleet.yaml",
        "gate NODES[1 --duration 24h --cluster fleet.yaml",
        "gate NODES --duration 24h --cluster fleet.yaml --budget much",
        "gate NODES --duration 24h --cluster fleet.yaml --suite none",
        "gate NODES --duration 24h --cluster fleet.yaml --policy none",
        "gate NODES --duration 24h --cluster fleet.yaml --on-unknown perhaps",
        "gate NODES",
        "gate",
        "select NODES --event node-added --cluster fleet.yaml --suite none",
        "select NODES --event incident-reported --category gpu --cluster fleet.yaml --policy none",
        "select NODES --event incident-reported --cluster fleet.yaml",
        "select NODES --event fleet-upgraded --cluster nobody",
        "select NODES --event job-allocated --cluster fleet.yaml",
        "select NODES --event unheard-of",
        "select gpu[01-04] --event tick --cluster fleet.yaml",
        "select NODES,gpu01 --event incident-reported --category gpu --cluster fleet.yaml",
        "select NODES --event node-added --partners gpu01 --cluster fleet.yaml",
        "select NODES --event tick --partners NODES --cluster fleet.yaml",
        "gate NODES --duration 24h --partners gpu01 --cluster fleet.yaml",
        "gate NODES --duration 24h --partners n2,NODES --no-tests --cluster fleet.yaml",
        "sweep gpu[01-04] --cluster fleet.yaml",
        "sweep --budget much --cluster fleet.yaml",
        "sweep --suite none --cluster fleet.yaml",
        "sweep --cluster nobody",
        "accept gpu[01-04] --cluster fleet.yaml",
        "accept --cluster fleet.yaml --suite none",
        "accept --cluster nobody",
        "accept --resume --campaign accept-of-nobody",
        "validate gpu[01-04] --cluster fleet.yaml",
        "validate --resume",
        "scan gpu[01-04] --cluster fleet.yaml",
        "scan --cluster fleet.yaml --cover --full",
        "locate gpu[01-04] --cluster fleet.yaml",
        "tell unheard-of NODES",
        "tell incident-reported NODES --category gpu --cluster nobody",
        "tell incident-reported gpu[01-04] --category gpu --cluster fleet.yaml",
        "tell incident-reported NODES,gpu01 --category gpu",
        "tell node-added NODES --cluster nobody.yaml",
        "tell incident-reported NODES --cluster fleet.yaml",
        "tell incident-reported NODES --category gpu --at 2999-01-01 --cluster fleet.yaml",
        "tell job-ended --job 4711 --cluster fleet.yaml",
        "keep --cluster nobody",
        "keep --cluster fleet.yaml --keeping none",
        "keep --cluster fleet.yaml --do 4711",
        "actions --cluster nobody",
        "nodes gpu[01-04] --cluster fleet.yaml",
        "diagnose 4711 --cluster nobody",
        "diagnose 4711 --cluster fleet.yaml",
        "watch 4711 --cluster fleet.yaml",
        "import incidents good.csv --cluster fleet.yaml --mapping none",
        "import incidents broken.csv --cluster fleet.yaml",  # other columns than the mapping names
        "import nodes broken.csv --cluster fleet.yaml",
        "import incidents good.csv --cluster unheard-of",
        "import nodes nodes.csv --cluster unheard-of",
        "import csv speeds.csv --suite x --metric speed=higher --sku x --cluster unheard-of",
        "learn --campaign accept-of-nobody",
        "judge --campaign accept-of-nobody",
        "report --campaign accept-of-nobody",
        "report --unheard-of",
        "tune flow --campaign accept-of-nobody",
        "tune none",
        "history forget --import 4711",
        "history rename nobody somebody",
        "history forget-cluster nobody",
        "history show NODES --cluster nobody",
        "token make n/a",
        "token make fine --scope everything",
        "token revoke nobody",
        "keep --cluster fleet.yaml --do first",
        "risk train --cluster nobody",
        "simulate none",
        "bench run none",
        "bench run gemm x=1",
        "gate NODES --duration 24h --cluster fleet.yaml --suite broken.yaml",
        "select NODES --event node-added --cluster fleet.yaml --suite broken.yaml",
        "sweep --cluster fleet.yaml --suite broken.yaml",
        "accept --cluster broken.yaml",
        "tell node-added NODES --cluster broken.yaml",
        "keep --cluster fleet.yaml --keeping broken.yaml",
    ],
    SILENT_OWNER: [
        "keep --cluster silent.yaml",
        "keep --cluster silent.yaml --every 1h",
        "keep --cluster silent.yaml --periodic-tasks",
        "keep --cluster silent.yaml --watch --keeping watching.yaml",
        "keep --cluster silent.yaml --diagnose --keeping watching.yaml",
        "accept --cluster silent.yaml",
    ],
}
SILENT = """executor: ray
address: 127.0.0.1:1
nodes: n[1-8]
orchestrator: {kind: hosts, nodes: "n[1-8]", jobs: [./absent, "{node}"]}
"""  # the owner of its nodes does not answer
REFUSED = [(code, words) for code, listed in WORDS.items() for words in listed]


def kept(history):
    """Every row of every table."""
    if not history.exists():
        return []
    with closing(sqlite3.connect(history)) as connection:
        return [line for line in connection.iterdump() if line.startswith("INSERT")]


def ask(near, words, node):
    return near.run(*words.replace("NODES", node).split())


@pytest.fixture
def files(near):
    near.write("broken.yaml", "{")
    near.write("silent.yaml", SILENT)
    near.write("watching.yaml", "{summary: looks at jobs, watch: default, diagnose: default}")
    near.write("broken.csv", "node;;;\n1")
    near.write("nodes.csv", "node,rack\nn1,r1\n")
    near.write("speeds.csv", "node,speed\nn1,1\nn2,1\nn3,1\n")
    near.write("good.csv", "node,category,start,end\nn1,gpu,2026-11-01T08:00,\n")
    return near


def test_a_refused_request_leaves_no_trace_and_has_the_exit_code_of_its_reason(files, fleet):
    before, trouble = kept(fleet.history), []
    assert before
    for code, words in REFUSED:
        done = ask(fleet, words, "n1")
        if done.code != code or kept(fleet.history) != before:
            new = [line for line in kept(fleet.history) if line not in before]
            trouble.append(f"{words}: {done.code} instead of {code}, {done.err[-200:]} {new}")
            before = kept(fleet.history)
    assert not trouble, "\n".join(trouble)


def test_a_refused_request_creates_no_history(files):
    files.fleet()
    trouble = []
    for _, words in REFUSED:
        done = ask(files, words, "n1")
        rows = [row for row in kept(files.history) if "alembic_version" not in row]
        if rows or done.code in (0, 1):
            trouble.append(f"{words}: {done.code}, {done.err[-200:]}, {rows}")
            files.history.unlink()
    assert not trouble, "\n".join(trouble)


NAMED_FILES = {"FILE", "FILE...", "PATH", "A", "B", "SCENARIO", "MODEL"}  # as the help calls them
WRITES = re.compile(r"\b[Ww]rite\b|[Rr]eport\b|file of the trained model|is added")
MADE_UP = {"NODES": "n1", "EVENT": "node-added", "NAME=DIRECTION": "x=higher", "DURATION": "24h"}
NOT_ASKED = {"agent"}  # it becomes another program (tests/contract/test_agent.py)
NO_EVIDENCE = 2  # records of a job that are not there say nothing about its nodes


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Each verb with its options and arguments, as the parser has them."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            if name not in NOT_ASKED:
                yield from verbs(inner, (*path, name))
    else:
        yield path, [p for p in command.get_params(typer.Context(command)) if p.name != "help"]


def reads_a_file(parameter: Any) -> bool:
    named = parameter.metavar in NAMED_FILES or parameter.opts[0] in {*FOLDERS, "--model"}
    return named and not WRITES.search(parameter.help or "")


def given(parameter: Any, value: str) -> list[str]:
    return [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Port at which nothing can listen, so that what should have been refused ends."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_a_file_that_cannot_be_used_is_wrong_usage_of_every_verb_that_takes_one(near, taken_port):
    (near.folder / "garbage.yaml").write_bytes(bytes(range(256)))
    more = {("serve",): ["--port", str(taken_port)]}
    trouble, asked = [], 0
    for path, parameters in verbs(main.command()):
        for parameter in filter(reads_a_file, parameters):
            required = [p for p in parameters if p.required and p is not parameter]
            words = [w for p in required for w in given(p, MADE_UP.get(p.metavar, "./gone.yaml"))]
            file = ("./gone/gone.yaml", "./garbage.yaml")[asked % 2]
            done = near.run(*path, *words, *more.get(path, ()), *given(parameter, file))
            asked += 1
            is_evidence = path == ("diagnose",) and parameter.metavar == "PATH"
            if is_evidence:
                is_right = (done.code, done.err) == (NO_EVIDENCE, "") and "cannot say" in done.out
            else:
                is_right = (done.code, done.err.count("anubis: error: ")) == (MISUSED, 1)
            if not is_right:
                trouble.append(f"{path} {parameter.opts[0]} {file}: {done.code} {done.err[-200:]}")
    assert not trouble, "\n".join(trouble)
    assert asked > 60


STANDS = "the answer above is valid; what followed it failed"


def fail_at_the_end(monkeypatch, error: BaseException) -> None:
    def close(_executor: SimulatedExecutor) -> None:
        raise error

    monkeypatch.setattr(SimulatedExecutor, "close", close)


def accept(near, **changes):
    suite = near.suite({"benchmark": "gemm"})
    return near.run("accept", "--cluster", near.fleet(**changes), "--suite", suite, "--json")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ExecutorError("the head of ray is gone"), f"{STANDS}: the head of ray is gone"),
        (BrokenPipeError(32, "Broken pipe"), f"{STANDS}: [Errno 32] Broken pipe"),
        (KeyboardInterrupt(), ""),
    ],
)
def test_trouble_while_nodes_are_released_is_one_sentence_and_keeps_the_exit_code(
    near, monkeypatch, error, sentence
):
    fail_at_the_end(monkeypatch, error)
    done = accept(near)
    assert (done.code, len(done.summary["healthy"])) == (0, 8)
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_a_bug_after_the_answer_is_shown_and_the_answer_remains(near, monkeypatch):
    fail_at_the_end(monkeypatch, TypeError("an agent is no number"))
    done = accept(near, slow_share=0.2)
    assert (done.code, bool(done.summary["defective"])) == (1, True)
    assert "Traceback" in done.err
    assert f"{STANDS} by a bug in Anubis: please report the lines above" in done.err


def test_before_an_answer_a_bug_is_no_verdict(near, monkeypatch):
    def break_down(*_: object) -> None:
        raise TypeError("an agent is no number")

    monkeypatch.setattr(SimulatedExecutor, "wait", break_down)
    done = accept(near)
    assert (done.code, done.out) == (2, "")
    assert "this is a bug in Anubis, and no verdict" in done.err
