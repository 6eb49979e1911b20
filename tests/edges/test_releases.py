"""What earlier releases wrote is read, and answered as they answered it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

import anubis
from anubis.operations.caller import Caller
from anubis.report import jsonl
from anubis.report import keep as keeping
from anubis.report import nodes as node_listing

RELEASES = sorted((Path(__file__).parents[1] / "releases").iterdir())
FOR_PEOPLE = {"reason", "action", "sentence", "note", "unproven"}  # words may change, facts may not


class Release:
    """The history that a release left, opened by the code of today."""

    def __init__(self, files: Path, folder: Path):
        history = folder / "history.sqlite"
        with sqlite3.connect(history) as database:
            database.executescript((files / "history.sql").read_text())
        self.files = files
        self.end = json.loads(self._lines("actions.jsonl")[0])["changed_at"] + 60
        self.caller = Caller(history_url=f"sqlite:///{history}", clock=lambda: self.end)

    def _lines(self, name):
        return (self.files / name).read_text().splitlines()

    def answered(self, name):
        return [_facts(line) for line in self._lines(name)]


def _facts(line):
    return {key: value for key, value in json.loads(line).items() if key not in FOR_PEOPLE}


def _are_kept(then, now):
    """True if the lines of today say all that those of the release said; fields may be new."""
    pairs = zip(then, map(_facts, now), strict=True)
    return all(old.items() <= new.items() for old, new in map(_comparable, pairs))


def _comparable(pair):
    return [{key: json.dumps(value) for key, value in facts.items()} for facts in pair]


@pytest.fixture(params=RELEASES, ids=lambda files: files.name)
def release(request, tmp_path):
    return Release(request.param, tmp_path)


def test_a_history_of_each_release_is_read_whole(release):
    assert not anubis.check_history(release.caller).damages
    nodes = anubis.nodes(cluster="prod", caller=release.caller)
    assert _are_kept(release.answered("nodes.jsonl"), node_listing.lines(nodes))
    actions = anubis.actions(only_open=False, cluster="prod", caller=release.caller)
    assert _are_kept(release.answered("actions.jsonl"), map(keeping.action_line, actions))


def test_criteria_of_each_release_judge_as_they_did(release):
    request = anubis.JudgeRequest(criteria=release.files / "criteria.json")
    judged = [*jsonl.lines(anubis.judge(request, release.caller))]
    verdicts = [line for line in judged if json.loads(line)["type"] == "verdict"]
    assert _are_kept(release.answered("verdicts.jsonl"), verdicts)
