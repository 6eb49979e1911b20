"""Scans of six hosts below three switches and a spine, with real traffic and real defects."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from anubis.core.fabric import Part
from tests.edges.bed import Bed, why_not

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.ray,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

FILES = {
    "everyone.yaml": "{executor: ray}",
    "policy.yaml": "{alpha: 0.75, distance: {tail: 0.5}}",
    "torch.yaml": """
summary: bandwidth of pairs by torch over TCP
benchmarks:
  - benchmark: pair_torch
    parameters: {sizes: "1048576", samples: 5}
    groups: pairs
    duration_s: 5
    timeout_s: 120
""",
    # A host that is short of CPU shows where the CPU is what bounds: on fast links, and with UCX,
    # which turns round and round while it waits. One pair at a time: hosts share two cores.
    "one_by_one.yaml": "{executor: ray, parallel_nodes: 2}",
    "ucx.yaml": """
summary: bandwidth of pairs by UCX over TCP
benchmarks:
  - benchmark: pair_ucx
    parameters: {transport: tcp, sizes: "1048576", sample_s: 0.3, samples: 3}
    groups: pairs
    duration_s: 5
    timeout_s: 120
""",
}
FAST = "4gbit"


class Site:
    """The files of one operator, and `anubis scan` in the driver's host."""

    def __init__(self, folder: Path, bed: Bed) -> None:
        self.folder, self.bed = folder, bed
        for name, text in FILES.items():
            (folder / name).write_text(text)
        (folder / "fabric.yaml").write_text(bed.verb("topology").stdout)

    def command(self, *words: str, suite: str = "torch", cluster: str = "everyone") -> list[str]:
        return [
            "env",
            f"ANUBIS_HOME={self.folder}/home",
            *(sys.executable, "-m", "anubis", "scan", "--json", *words),
            f"--cluster={self.folder}/{cluster}.yaml",
            f"--suite={self.folder}/{suite}.yaml",
            f"--policy={self.folder}/policy.yaml",
            f"--topology={self.folder}/fabric.yaml",
        ]

    def scan(self, *words: str, **files: str) -> Found:
        done = self.bed.run("driver", self.command(*words, **files), timeout=600, check=False)
        return Found(done)


class Found:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.code, self.said = done.returncode, done.stderr
        self.summary = lines[-1]
        self.verdicts = [line for line in lines if line["type"] == "verdict"]
        self.defective = [
            tuple(Part(p["kind"], p["name"], p["other"] or "") for p in line["parts"])
            for line in lines
            if line["type"] == "part" and line["verdict"] == "defective"
        ]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Bed(6, "--leaves", "3", "--link-rate", "200mbit", "--uplink-rate", "400mbit") as bed:
        yield Site(tmp_path_factory.mktemp("scan"), bed)


def test_a_slow_link_is_named_as_its_host(site):
    site.bed.verb("slow-link", "node3", "60mbit")
    found = site.scan("--quick")
    site.bed.verb("mend", "node3")
    assert found.defective == [(Part("node", "node3"),)], found.said
    assert found.summary["defective"] == ["node3"]
    assert found.code == 1


@pytest.mark.parametrize("way", ["--quick", "--full"])
def test_a_slow_uplink_is_named_and_no_host_is_blamed(site, way):
    site.bed.verb("slow-uplink", "leaf2", "60mbit")
    found = site.scan(way)
    site.bed.verb("mend", "leaf2")
    assert found.defective == [(Part("link", "leaf2", "spine"),)], found.said
    assert len(found.summary["healthy"]) == 6
    assert found.code == 1


def test_a_host_short_of_cpu_is_named(site):
    hosts, leaves = ["node1", "node2", "node5", "node6"], ["leaf1", "leaf3"]
    for host in hosts:
        site.bed.verb("slow-link", host, FAST)
    for leaf in leaves:
        site.bed.verb("slow-uplink", leaf, FAST)
    site.bed.verb("slow-cpu", "node5", "0.1")
    found = site.scan("--quick", ",".join(hosts), suite="ucx", cluster="one_by_one")
    site.bed.verb("slow-cpu", "node5", "1")
    for part in (*hosts, *leaves):
        site.bed.verb("mend", part)
    assert found.defective == [(Part("node", "node5"),)], found.said
    assert found.summary["defective"] == ["node5"]


def test_a_host_that_dies_in_the_middle_is_unknown_and_its_partners_meet_others(site):
    driver = site.bed.start("driver", site.command("--quick"))
    next(line for line in driver.stderr if line.startswith("phase"))  # it is at work
    saboteur = threading.Timer(8, site.bed.verb, ["kill", "node6"])
    saboteur.start()
    stdout, stderr = driver.communicate(timeout=600)
    saboteur.join()
    done = subprocess.CompletedProcess(driver.args, driver.returncode, stdout, stderr)
    found = Found(done)
    assert found.summary["unknown"] == ["node6"], stderr
    assert found.summary["healthy"] == [f"node{i}" for i in range(1, 6)]
    assert not found.defective
    assert found.code == 2
