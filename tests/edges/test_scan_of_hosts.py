"""Scans of six hosts below three switches and a spine, with real traffic and real defects."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from anubis.core.fabric import Part
from anubis.store.history import History
from tests.edges.bed import Bed, tried, why_not
from tests.edges.stream import STREAM

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.ray,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

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
    # A host that is short of CPU shows where the CPU is what bounds: on fast links, with data that
    # is checked. One pair at a time: hosts share two cores.
    "one_by_one.yaml": "{executor: ray, parallel_nodes: 2}",
    "checked.yaml": """
summary: bandwidth of pairs by sockets, each end with a checksum of all data
benchmarks:
  - {benchmark: pair_checked, groups: pairs, duration_s: 3, timeout_s: 120}
""",
}
FAST = "4gbit"
LINK_GBPS = 0.025  # 200 Mbit/s

CHECKED = STREAM.replace("pair_stream", "pair_checked").replace("2_000_000, 0", "2_000_000, 10")


class Site:
    """The files of one operator, and `anubis scan` in the driver's host."""

    def __init__(self, folder: Path, bed: Bed) -> None:
        self.folder, self.bed = folder, bed
        for name, text in FILES.items():
            (folder / name).write_text(text)
        (folder / "programs").mkdir()
        (folder / "programs" / "pair_stream.py").write_text(STREAM)
        (folder / "programs" / "pair_checked.py").write_text(CHECKED)
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
def site(tmp_path_factory):
    with Bed(6, "--leaves", "3", "--link-rate", "200mbit", "--uplink-rate", "400mbit") as bed:
        yield Site(tmp_path_factory.mktemp("scan"), bed)


def test_torch_measures_between_two_hosts_no_more_than_their_link_carries(site):
    command = site.command("--quick", "node[1-2]", suite="torch")
    done = site.bed.run("driver", command, timeout=300, check=False)
    with History.open(f"{site.folder}/home/history.sqlite") as history:
        (campaign,) = history.campaigns.newest(1)
        executions = history.executions.of(campaign.id)
    series = [series for execution in executions for series in execution.result.series]
    rates = [s.samples for s in series if s.metric.startswith("bandwidth_gbps")]
    assert rates, done.stderr
    assert 0 < max(samples.max() for samples in rates) < 1.5 * LINK_GBPS  # with a first burst


def test_a_slow_link_is_named_as_its_host(site):
    fault = {"plant": ("slow-link", "node3", "60mbit"), "undo": ("mend", "node3")}
    node = Part("node", "node3")
    found = site.scan("--quick", "node[1-4]", defective=node, **fault)
    assert found.summary["defective"] == ["node3"]


def test_a_slow_uplink_is_named_and_no_host_is_blamed(site):
    fault = {"plant": ("slow-uplink", "leaf2", "60mbit"), "undo": ("mend", "leaf2")}
    found = site.scan("--full", defective=Part("link", "leaf2", "spine"), **fault)
    assert not found.summary["defective"]


def test_a_host_short_of_cpu_is_named(site):
    hosts, leaves = ["node1", "node2", "node5", "node6"], ["leaf1", "leaf3"]
    with ExitStack() as wires:
        for verb, parts in (("slow-link", hosts), ("slow-uplink", leaves)):
            for part in parts:
                wires.enter_context(site.bed.fault((verb, part, FAST), ("mend", part)))
        fault = {"plant": ("slow-cpu", "node5", "0.08"), "undo": ("slow-cpu", "node5", "1")}
        files = {"suite": "checked", "cluster": "one_by_one"}
        node = Part("node", "node5")
        found = site.scan("--quick", ",".join(hosts), defective=node, **fault, **files)
    assert found.summary["defective"] == ["node5"]


def test_a_host_that_dies_in_the_middle_is_unknown_and_its_partners_meet_others(site):
    driver = site.bed.start("driver", site.command("--quick"))
    next(line for line in driver.stderr if line.startswith("phase"))  # it is at work
    saboteur = threading.Timer(2, site.bed.verb, ["kill", "node6"])
    saboteur.start()
    stdout, stderr = driver.communicate(timeout=600)
    saboteur.join()
    done = subprocess.CompletedProcess(driver.args, driver.returncode, stdout, stderr)
    found = Found(done)
    assert found.summary["unknown"] == ["node6"], stderr
    assert found.summary["healthy"] == [f"node{i}" for i in range(1, 6)]
    assert not found.defective
    assert found.code == 2
