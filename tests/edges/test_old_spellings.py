"""Spellings of verbs and options that 1.0.0rc1 had: they go on working, and say what is new."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from typer.main import get_command

from anubis.cli.main import app

COMMAND = get_command(app)
# the examples of 1.0.0rc1 for what was moved since, and the same in today's words
MOVED = {
    "select node07 --event node-added": "gate node07 --plan --event node-added",
    "select n1 --event fleet-upgraded --criteria refused": "gate n1 --plan --event fleet-upgraded "
    "--upgrade refused",
    "learn --since 2026-11-01 --exclude node07 --from old --out criteria": "criteria learn "
    "--since 2026-11-01 --exclude node07 --criteria old --out criteria",
    "judge --criteria criteria": "criteria judge --criteria criteria",
    "tune gemm --write tuned.yaml": "bench tune gemm --write tuned.yaml",
    "simulate paper --model=x.npz": "risk simulate paper --risk-model x.npz",
    "actions --all --last 20 --json": "history actions --all --last 20 --json",
    "import csv a.csv --suite hpl -m node=host": "history import csv a.csv --suite hpl "
    "--map node=host",
    "import incidents e.json -m events": "history import incidents e.json --mapping events",
    "topology show --topology t.txt --nodes n1": "scan --draw --topology t.txt n1",
    "watch-model train a.csv --name ours": "criteria learn-watching a.csv --name ours",
    "watch-model show ours": "criteria show-watching ours",
    "risk train --model weibull --file w.npz": "risk train --kind weibull --risk-model w.npz",
    "risk show n1 --file w.npz": "risk show n1 --risk-model w.npz",
    "diagnose 4711 --policy prod -tfabric.txt": "diagnose 4711 --diagnosis prod "
    "--topology fabric.txt",
    "keep --cluster prod.yaml --test 7": "keep --cluster prod.yaml --carry-out 7",
    "bench new sums -b mine": "bench new sums --benchmarks mine",
}


def read(line: str) -> tuple[Any, dict[str, Any]]:
    """The verb that a command line means, and the values that it gives."""
    context, words = COMMAND.make_context("anubis", shlex.split(line)), None
    command = COMMAND
    while hasattr(command, "commands"):
        words = words if words is not None else [*context._protected_args, *context.args]
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, words, parent=context)
        words = [*getattr(context, "_protected_args", ()), *context.args]
    return command.name, context.params


@pytest.mark.parametrize(("old", "new"), MOVED.items(), ids=MOVED)
def test_an_old_spelling_means_the_new_one_and_names_it(old, new, capsys):
    meant = read(new)
    assert capsys.readouterr().err == ""
    assert read(old) == meant
    assert " is now " in capsys.readouterr().err


def test_an_old_verb_answers_as_ever_beside_a_remark(near):
    done = near.run("actions")
    assert (done.code, done.out) == (0, near.run("history", "actions").out)
    assert done.err.splitlines()[0] == "anubis actions is now anubis history actions"


@pytest.mark.parametrize("line", ["topology --help", "watch-model"])
def test_an_old_family_alone_shows_help_and_runs_nothing(near, line):
    done = near.run(*line.split())
    assert (done.code, "Usage:" in done.out) == (0, True)
