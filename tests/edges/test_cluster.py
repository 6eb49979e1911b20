"""The whole of Anubis on a real small cluster, six hosts below three switches and a spine: accept
and scan, with real traffic, real defects, crashes and cut links."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anubis.core.fabric import Part
from anubis.store.history import History
from tests.edges.bed import Bed, network_of, traces, tried, why_not
from tests.edges.stream import STREAM
from tests.patience import LIMIT_S

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.ray,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

ANUBIS = [sys.executable, "-m", "anubis"]
WITHIN_S = 30.0  # from the moment a node falls silent to its being called lost

FOUR = "node[1-4]"
CLUSTER = "{executor: ray, parallel_nodes: 1}"  # two cores serve all hosts: one at a time
# the cores are shared with other users of the machine, so only what is far off is a defect
POLICY = "{alpha: 0.4, distance: {tail: 0.5}}"
COMPUTE = """
summary: one thread of compute alone
benchmarks:
  - {benchmark: checksum, duration_s: 2, timeout_s: 120}
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
# processors are busy. The best of a dozen short blocks leaves out what other work costs, which lets
# a thread run for some milliseconds at a time. A block takes longer than the 4 ms after which the
# kernel looks at quotas, so no block escapes a quota. It waits for the fault, which takes a busy
# machine longer to plant than four hosts to measure.
CHECKSUM_PROGRAM = """#!/usr/bin/env python3
import hashlib, json, os, sys, time

if "--describe" in sys.argv:
    print(json.dumps({
        "schema": "anubis.describe/1", "name": "checksum", "version": "1", "summary": "checksums",
        "stresses": "a processor", "reveals": "a processor that is shared", "level": "micro",
        "scope": "node", "duration_s": 2,
        "metrics": [{"name": "rate_gbps", "unit": "GB/s", "direction": "higher"}],
    }))
    sys.exit()

def seconds():
    began = time.monotonic()
    hashlib.sha256(data)
    return time.monotonic() - began

def rate():
    return len(data) / min(seconds() for _ in range(12)) / 1e9

while not os.path.exists("PLANTED"):
    time.sleep(0.05)
data = bytes(8_000_000)
print(json.dumps({
    "schema": "anubis.result/1", "benchmark": "checksum", "version": "1", "parameters": {},
    "series": [{"metric": "rate_gbps", "device": "cpu", "samples": [rate() for _ in range(4)]}],
}))
"""
PROGRAMS = {"rest.sh": REST_PROGRAM, "checksum.py": CHECKSUM_PROGRAM, "pair_stream.py": STREAM}


SEEN_FROM_THE_DRIVER = """
import json, os, socket, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

ray.init(_node_ip_address=os.environ["ANUBIS_NODE_IP"], log_to_driver=False)

@ray.remote
def whereabouts():
    return {
        "host": socket.gethostname(),
        "address of its name": socket.gethostbyname(socket.gethostname()),
        "cgroup": open("/proc/self/cgroup").read(),
        "writes .pyc": "PYTHONDONTWRITEBYTECODE" not in os.environ,
    }

nodes = [node for node in ray.nodes() if "anubis_driver" not in node["Resources"]]
some = [node for node in nodes if node["NodeManagerHostname"] in ("node1", "node2", "node6")]
workers = [whereabouts.options(scheduling_strategy=On(node["NodeID"], soft=False)).remote()
           for node in some]
print("answer", json.dumps({
    "nodes": {node["NodeManagerHostname"]: node["NodeManagerAddress"] for node in nodes},
    "workers": ray.get(workers, timeout=60),
    "cpus of the head": [node["Resources"].get("CPU", 0) for node in ray.nodes()
                         if "anubis_driver" in node["Resources"]],
}))
"""

WHO_IS_ALIVE = """
import json, os, ray
ray.init(_node_ip_address=os.environ["ANUBIS_NODE_IP"], log_to_driver=False)
print("answer", json.dumps(sorted(n["NodeManagerHostname"] for n in ray.nodes() if n["Alive"])))
"""


class Site:
    """The files of one operator, and `anubis accept` as a command in the driver's host."""

    def __init__(self, folder: Path, bed: Bed) -> None:
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
            program.write_text(text.replace("PLANTED", str(bed.planted)))
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
def site(tmp_path: Path, bed: Bed) -> Site:
    return Site(tmp_path, bed)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """All tests here share it: a host with a Ray takes three seconds of processor to begin."""
    with Bed(6, "--leaves", "3", "--link-rate", "200mbit", "--uplink-rate", "400mbit") as bed:
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
    assert summary["defective"] == [defective], f"{done.stderr}{done.stdout}"
    assert done.returncode == 1
    return verdicts, done.stderr


def ask_ray(bed: Bed, program: str) -> Any:
    """The answer has a mark, because Ray itself writes to stdout when a node has died."""
    lines = bed.run("driver", [sys.executable, "-c", program]).stdout.splitlines()
    return json.loads(next(line for line in lines if line.startswith("answer "))[7:])


def test_ray_sees_every_host_by_its_name_and_none_of_the_driver(bed: Bed) -> None:
    seen = ask_ray(bed, SEEN_FROM_THE_DRIVER)
    prefix = bed.subnet.removesuffix("0/24")
    assert seen["nodes"] == {f"node{index}": f"{prefix}{index}" for index in range(1, 7)}
    assert seen["cpus of the head"] == [0]
    for worker in seen["workers"]:
        assert worker["address of its name"] == seen["nodes"][worker["host"]]
        assert f"/testbed-{bed.name}/{worker['host']}\n" in worker["cgroup"]
        assert worker["writes .pyc"]
    assert sorted(worker["host"] for worker in seen["workers"]) == ["node1", "node2", "node6"]


def test_the_host_with_a_small_share_of_the_processor_is_found_and_no_other(site, bed):
    slow, mended = ("slow-cpu", "node3", "0.05"), ("slow-cpu", "node3", "1")
    verdicts, _ = measured(bed, [*site.accept("compute"), FOUR], slow, mended, "node3")
    worst = next(v for v in verdicts if v["node"] == "node3" and v["verdict"] == "defective")
    assert (worst["benchmark"], worst["metric"]) == ("checksum", "rate_gbps")
    assert worst["similarity"] <= worst["alpha"]  # both are 0 if the others hardly repeat
    lost = re.match(r"rate_gbps (\d+)% slower than normal on cpu", worst["reason"])
    assert lost
    assert int(lost[1]) >= 50, "it has a twentieth of what the others have"


@pytest.fixture(scope="module")
def slow_link(tmp_path_factory, bed):
    """Findings of a campaign with a slow link, and all that runs on any host after it."""
    site = Site(tmp_path_factory.mktemp("slow-link"), bed)
    slow, mended = ("slow-link", "node2", "60mbit"), ("mend", "node2")
    verdicts, stderr = measured(bed, [*site.accept("pairs"), FOUR], slow, mended, "node2")
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


# --- scans -------------------------------------------------------------------------------

FILES = {
    "everyone.yaml": "{executor: ray}",
    # other work on the machine slows hosts as well: only what is far off is a defect
    "policy.yaml": "{alpha: 0.5, distance: {tail: 0.5}}",
    "torch.yaml": """
summary: bandwidth of pairs by torch over TCP
benchmarks:
  - benchmark: pair_torch
    parameters: {sizes: "1048576", samples: 5}
    groups: pairs
    duration_s: 5
    timeout_s: 120
""",
    "stream.yaml": """
summary: bandwidth of pairs by sockets
benchmarks:
  - {benchmark: pair_stream, groups: pairs, duration_s: 3, timeout_s: 120}
""",
}
LINK_GBPS = 0.025  # 200 Mbit/s


class ScanSite:
    """The files of one operator, and `anubis scan` in the driver's host."""

    def __init__(self, folder: Path, bed: Bed) -> None:
        self.folder, self.bed = folder, bed
        for name, text in FILES.items():
            (folder / name).write_text(text)
        (folder / "programs").mkdir()
        (folder / "programs" / "pair_stream.py").write_text(STREAM)
        (folder / "fabric.yaml").write_text(bed.verb("topology").stdout)

    def command(self, *words: str, suite: str = "stream", cluster: str = "everyone") -> list[str]:
        return [
            "env",
            f"ANUBIS_HOME={self.folder}/home",
            *(sys.executable, "-m", "anubis", "scan", "--json", *words),
            f"--cluster={self.folder}/{cluster}.yaml",
            f"--suite={self.folder}/{suite}.yaml",
            f"--policy={self.folder}/policy.yaml",
            f"--topology={self.folder}/fabric.yaml",
            f"--benchmarks={self.folder}/programs",
        ]

    def scan(
        self,
        *words: str,
        plant: tuple[str, ...],
        undo: tuple[str, ...],
        defective: Part,
        **files: str,
    ) -> Found:
        """A scan with this fault that names this part, and no other, defective."""

        def run() -> Found:
            command = self.command(*words, **files)
            return Found(self.bed.run_with_fault(command, plant, undo, timeout=600))

        found = tried(run, lambda found: found.defective == [(defective,)])
        assert found.defective == [(defective,)], found.stderr
        assert found.code == 1
        return found


class Found:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.code, self.stderr = done.returncode, done.stderr
        self.summary = lines[-1]
        self.verdicts = [line for line in lines if line["type"] == "verdict"]
        self.defective = [
            tuple(Part(p["kind"], p["name"], p["other"] or "") for p in line["parts"])
            for line in lines
            if line["type"] == "part" and line["verdict"] == "defective"
        ]


@pytest.fixture(scope="module")
def scans(tmp_path_factory, bed):
    return ScanSite(tmp_path_factory.mktemp("scan"), bed)


def test_torch_measures_between_two_hosts_no_more_than_their_link_carries(scans):
    command = scans.command("--quick", "node[1-2]", suite="torch")
    done = scans.bed.run("driver", command, timeout=300, check=False)
    with History.open(f"{scans.folder}/home/history.sqlite") as history:
        (campaign,) = history.campaigns.newest(1)
        executions = history.executions.read(campaign.id)
    series = [series for execution in executions for series in execution.result.series]
    rates = [s.samples for s in series if s.metric.startswith("bandwidth_gbps")]
    assert rates, done.stderr
    assert 0 < max(samples.max() for samples in rates) < 1.5 * LINK_GBPS  # with a first burst


def test_a_slow_uplink_is_named_and_no_host_is_blamed(scans):
    fault = {"plant": ("slow-uplink", "leaf2", "60mbit"), "undo": ("mend", "leaf2")}
    found = scans.scan("--full", defective=Part("link", "leaf2", "spine"), **fault)
    assert not found.summary["defective"]


# --- the last tests here: what they take away does not come back --------------------------


def test_a_host_that_dies_in_the_middle_is_unknown_and_its_partners_meet_others(scans):
    driver = scans.bed.start("driver", scans.command("--quick"))
    next(line for line in driver.stderr if line.startswith("phase"))  # it is at work
    saboteur = threading.Timer(2, scans.bed.verb, ["kill", "node6"])
    saboteur.start()
    stdout, stderr = driver.communicate(timeout=600)
    saboteur.join()
    done = subprocess.CompletedProcess(driver.args, driver.returncode, stdout, stderr)
    found = Found(done)
    assert found.summary["unknown"] == ["node6"], stderr
    assert found.summary["healthy"] == [f"node{i}" for i in range(1, 6)]
    assert not found.defective
    assert found.code == 2


def test_a_host_that_is_cut_off_is_lost_within_30_s_and_the_others_complete(site, bed):
    gone, victim = {}, "node4"

    def take_away() -> None:
        bed.verb("cut", victim)
        gone["at"] = time.time()

    driver = bed.start(
        "driver", [*site.accept("rest", cluster="everyone"), f"node1,node3,{victim}"]
    )
    saboteur = threading.Timer(2.5, take_away)
    next(line for line in driver.stderr if line.startswith("phase"))  # it is at work
    saboteur.start()
    stdout, stderr = driver.communicate(timeout=LIMIT_S)
    saboteur.join()
    verdicts, summary = documents(stdout)
    assert summary["unknown"] == [victim], stderr
    assert summary["healthy"] == ["node1", "node3"]
    assert driver.returncode == 2
    (lost,) = [v for v in verdicts if v["code"] == "NODE-LOST"]
    assert (lost["node"], lost["verdict"]) == (victim, "unknown")
    with History.open(str(site.home / "history.sqlite")) as history:
        executions = history.executions.read(summary["campaign"])
    ended_well = {e.step.id for e in executions if e.ended == "measured"}
    assert sum("node1" in step_id for step_id in ended_well) == 8
    assert sum("node3" in step_id for step_id in ended_well) == 8
    (cut_short,) = [e for e in executions if e.ended == "lost"]
    assert cut_short.started_at + cut_short.duration_s - gone["at"] < WITHIN_S
    assert victim not in ask_ray(bed, WHO_IS_ALIVE)
    assert bed.run(victim, ["hostname"]).stdout == f"{victim}\n"  # the host outlives its Ray


def test_down_leaves_no_ray_and_none_of_its_processes(bed: Bed) -> None:
    networks = {network_of(bed, host) for host in ("driver", *bed.nodes)}
    assert len(networks) == 7
    assert len(traces(bed, networks)) > 10  # the question finds something while it is up
    bed.verb("down")
    assert traces(bed, networks) == []
