"""`anubis demo`: its commands, its planted faults, and the files that it does not touch."""

from __future__ import annotations

import pytest
import typer.main

from anubis.cli.main import app
from anubis.operations import demo

COMMAND = typer.main.get_command(app)


@pytest.mark.parametrize("step", demo.STEPS, ids=lambda step: step.words[0])
def test_each_step_is_a_command_that_its_verb_takes(step):
    verb, *words = step.words
    COMMAND.commands[verb].make_context(verb, words)


def test_the_watch_suspects_the_planted_node_and_the_kind_of_its_fault(near, tmp_path):
    home = tmp_path / "demo"
    demo.prepare_demo(home)
    done = near.run("watch", "--file", str(home / "slow-job.csv"), "--ended", "--json")
    (suspicion,) = [line for line in done.lines if line["type"] == "suspicion"]
    assert suspicion["node"] == "node0028"  # the row that seed 8 draws, by the name it has here
    assert max(suspicion["mix"], key=suspicion["mix"].get) == "link"


def test_the_diagnosis_names_the_rank_that_stopped_and_its_node(near, tmp_path):
    home = tmp_path / "demo"
    demo.prepare_demo(home)
    near.folder.joinpath("hanging-job").symlink_to(home / "hanging-job")
    (step,) = [step for step in demo.STEPS if step.words[0] == "diagnose"]
    done = near.run(*step.words, "--json")
    assert done.code == step.exit_code
    assert "rank 11 on node0044" in done.out


@pytest.mark.parametrize("name", ["full", "file"])
def test_demo_never_removes_a_folder_that_is_no_demonstration(near, name):
    (near.folder / "full").mkdir()
    near.write("full/mine.txt", "work")
    near.write("file", "work")
    done = near.run("demo", "--folder", name)
    assert done.code == 64
    assert "is no demonstration" in done.err
    assert (near.folder / "full/mine.txt").read_text() == (near.folder / "file").read_text()


def test_a_folder_that_cannot_be_made_is_one_sentence(near):
    done = near.run("demo", "--folder", "/proc/no-place")
    assert (done.code, "cannot make" in done.err, done.err.count("\n")) == (64, True, 1)


def test_an_earlier_one_makes_room_for_the_next(tmp_path):
    home = tmp_path / "a folder with spaces"
    demo.prepare_demo(home)
    (home / "history.sqlite").touch()
    demo.prepare_demo(home)
    assert not (home / "history.sqlite").exists()


def test_commands_of_the_demo_see_nothing_of_the_users_history(tmp_path):
    around = {"ANUBIS_HISTORY": "postgresql://site", "ANUBIS_HOME": "/mine", "PATH": "/bin"}
    assert demo.environment(around, tmp_path) == {"ANUBIS_HOME": str(tmp_path), "PATH": "/bin"}
