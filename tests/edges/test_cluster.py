"""The whole of Anubis on a real small cluster: hosts with real defects, crashes and cut links."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anubis.store.history import History
from tests.edges.bed import Bed, tried, why_not
from tests.edges.stream import STREAM

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.ray,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

ANUBIS = [sys.executable, "-m", "anubis"]
WITHIN_S = 30.0  # from the moment a node falls silent to its being called lost

CLUSTER = "{executor: ray, parallel_nodes: 1}"  # two cores serve all hosts: one at a time
# the cores are shared with whoever else uses the machine, so only what is far off is a defect
POLICY = "{alpha: 0.4, distance: {tail: 0.5}}"
COMPUTE = """
summary: one thread of compute alone
benchmarks:
  - {benchmark: checksum, repeats: 2, duration_s: 2}
"""
PAIRS = """
summary: every pair of hosts
benchmarks:
  - {benchmark: pair_stream, groups: pairs, duration_s: 3}
"""
REST = """
summary: nothing but waiting
benchmarks:
  - {benchmark: rest, repeats: 8, timeout_s: 20}
"""
REST_PROGRAM = """#!/bin/sh
if [ "$1" = --describe ]; then
  echo '{"schema": "anubis.describe/1", "name": "rest", "version": "1", "summary": "waits",
    "stresses": "nothing", "reveals": "a node that goes away", "level": "micro", "scope": "node",
    "duration_s": 1, "metrics": [{"name": "rate", "unit": "1/s", "direction": "higher"}]}'
else
  sleep 1
  echo '{"schema": "anubis.result/1", "benchmark": "rest", "version": "1", "parameters": {},
    "series": [{"metric": "rate", "device": "cpu", "samples": [1.0, 1.0]}]}'
fi
"""
# One thread, and nothing to load: a matrix product waits for its slowest thread, wherever else the
# processors are busy.
CHECKSUM_PROGRAM = """#!/usr/bin/env python3
import hashlib, json, sys, time

if "--describe" in sys.argv:
    print(json.dumps({
        "schema": "anubis.describe/1", "name": "checksum", "version": "1", "summary": "checksums",
        "stresses": "a processor", "reveals": "a processor that is shared", "level": "micro",
        "scope": "node", "duration_s": 2,
        "metrics": [{"name": "rate_gbps", "unit": "GB/s", "direction": "higher"}],
    }))
    sys.exit()

def rate():
    began = time.monotonic()
    hashlib.sha256(data)
    return len(data) / (time.monotonic() - began) / 1e9

data = bytes(40_000_000)
print(json.dumps({
    "schema": "anubis.result/1", "benchmark": "checksum", "version": "1", "parameters": {},
    "series": [{"metric": "rate_gbps", "device": "cpu", "samples": [rate() for _ in range(6)]}],
}))
"""
PROGRAMS = {"rest.sh": REST_PROGRAM, "checksum.py": CHECKSUM_PROGRAM, "pair_stream.py": STREAM}


class Site:
    """The files of one operator, and `anubis accept` as a command in the driver's host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        for name, text in {
            "cluster": CLUSTER,
            "everyone": "{executor: ray}",
            "policy": POLICY,
            "compute": COMPUTE,
            "pairs": PAIRS,
            "rest": REST,
        }.items():
            (folder / f"{name}.yaml").write_text(text)
        (folder / "programs").mkdir()
        for name, text in PROGRAMS.items():
            program = folder / "programs" / name
            program.write_text(text)
            program.chmod(0o755)

    def accept(self, suite: str, cluster: str = "cluster") -> list[str]:
        return [
            "env",
            f"ANUBIS_HOME={self.home}",
            *ANUBIS,
            "accept",
            "--json",
            f"--cluster={self.folder}/{cluster}.yaml",
            f"--suite={self.folder}/{suite}.yaml",
            f"--policy={self.folder}/policy.yaml",
            f"--benchmarks={self.folder}/programs",
        ]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed(4, "--link-rate", "200mbit") as bed:
        yield bed


def documents(stdout: str) -> tuple[list[dict], dict]:
    """The verdicts and the summary; every line must be JSON, and the summary the last."""
    *lines, summary = [json.loads(line) for line in stdout.splitlines()]
    assert summary["type"] == "summary"
    return [line for line in lines if line["type"] == "verdict"], summary


def measured(
    bed: Bed, command: list[str], plant: tuple[str, ...], undo: tuple[str, ...], defective: str
) -> tuple[list[dict], str]:
    """The verdicts of a campaign that finds this host defective and no other; its stderr."""

    def run() -> subprocess.CompletedProcess[str]:
        return bed.run_with_fault(command, plant, undo, timeout=300)

    done = tried(run, lambda done: documents(done.stdout)[1]["defective"] == [defective])
    verdicts, summary = documents(done.stdout)
    assert summary["defective"] == [defective], done.stderr
    assert done.returncode == 1
    return verdicts, done.stderr


def test_the_host_with_a_small_share_of_the_processor_is_found_and_no_other(site, bed):
    slow, mended = ("slow-cpu", "node3", "0.1"), ("slow-cpu", "node3", "1")
    verdicts, _ = measured(bed, site.accept("compute"), slow, mended, "node3")
    worst = next(v for v in verdicts if v["node"] == "node3" and v["verdict"] == "defective")
    assert (worst["benchmark"], worst["metric"]) == ("checksum", "rate_gbps")
    assert worst["similarity"] < worst["alpha"]


@pytest.fixture(scope="module")
def slow_link(tmp_path_factory, bed):
    """What a campaign with a slow link found, and all that runs on any host after it."""
    site = Site(tmp_path_factory.mktemp("slow-link"))
    slow, mended = ("slow-link", "node2", "60mbit"), ("mend", "node2")
    verdicts, stderr = measured(bed, site.accept("pairs"), slow, mended, "node2")
    left = bed.run("driver", ["ps", "-eo", "args"]).stdout
    return verdicts, stderr, left, str(site.folder / "programs")


def test_a_slow_link_shows_in_every_group_with_its_host_and_the_host_is_named(slow_link):
    verdicts, stderr, _, _ = slow_link
    slow_pairs = {
        tuple(sorted(v["participants"]))
        for v in verdicts
        if v["benchmark"] == "pair_stream" and v["verdict"] == "defective"
    }
    with_node2 = {("node1", "node2"), ("node2", "node3"), ("node2", "node4")}
    assert with_node2 <= slow_pairs, stderr


def test_nothing_of_a_campaign_is_left_running_on_any_host(slow_link):
    _, _, left, programs = slow_link
    assert "raylet" in left  # all hosts' processes are seen
    assert programs not in left


# The last tests here: what they take away does not come back.
@pytest.mark.parametrize(("how", "victim"), [("cut", "node4"), ("kill", "node2")])
def test_a_host_that_goes_away_is_lost_within_30_s_and_the_others_complete(site, bed, how, victim):
    gone = {}

    def take_away() -> None:
        bed.verb(how, victim)
        gone["at"] = time.time()

    driver = bed.start(
        "driver", [*site.accept("rest", cluster="everyone"), f"node1,node3,{victim}"]
    )
    saboteur = threading.Timer(2.5, take_away)
    next(line for line in driver.stderr if line.startswith("phase"))  # it is at work
    saboteur.start()
    stdout, stderr = driver.communicate(timeout=90)
    saboteur.join()
    verdicts, summary = documents(stdout)
    assert summary["unknown"] == [victim], stderr
    assert summary["healthy"] == ["node1", "node3"]
    assert driver.returncode == 2
    (lost,) = [v for v in verdicts if v["code"] == "NODE-LOST"]
    assert (lost["node"], lost["verdict"]) == (victim, "unknown")
    with History.open(str(site.home / "history.sqlite")) as history:
        executions = history.executions.of(summary["campaign"])
    ended_well = {e.step.id for e in executions if e.ended == "measured"}
    assert sum("node1" in step_id for step_id in ended_well) == 8
    assert sum("node3" in step_id for step_id in ended_well) == 8
    (cut_short,) = [e for e in executions if e.ended == "lost"]
    assert cut_short.started_at + cut_short.duration_s - gone["at"] < WITHIN_S
