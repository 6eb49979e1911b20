"""Lacks of nodes before Ray is brought up there: asked on real hosts by ssh, and judged."""

from __future__ import annotations

import platform
import re
import shutil
import socket
import sys
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import anubis
from anubis.core.keep.keeper_events import SeenNode
from anubis.operations import doctor_nodes
from anubis.operations.doctor_nodes import Lack, NodeCheck, NodeFacts
from anubis.reach.executors.callback import ConnectionCheck
from anubis.reach.executors.ray_node import ask_for_connection
from anubis.reach.executors.remote_commands import PipedCommand
from anubis.reach.executors.start_settings import RayStart
from anubis.reach.orchestrators.slurm import is_drained
from tests.edges.desk import Desk, Done
from tests.edges.ssh_hosts import SshBed, why_no_ssh
from tests.patience import eventually

GOOD = NodeFacts(
    python=platform.python_version(),
    executable="/opt/python",
    ray=version("ray"),
    free_ports=16,
    memlock_bytes=None,
    hcas=8,
    shm_bytes=64 << 30,
    shm_free_bytes=64 << 30,
    nofile=None,
    address="10.0.0.5",
    out_trouble="",
    back_trouble="",
    time=1000.0,
)
BY_SSH = RayStart(by="ssh", python="/opt/python", ports="20000-20999")
FIREWALL = """
nft add table inet wall
nft add chain inet wall in '{ type filter hook input priority 0; }'
nft add rule inet wall in tcp dport 22000-22099 reject with tcp reset
"""
BETWEEN = (999.0, 1001.0)


@pytest.mark.parametrize(
    ("change", "what", "found", "advice"),
    [
        ({"python": "3.9.2"}, "python", "/opt/python is Python 3.9.2, the driver's", "ray_python"),
        ({"ray": "2.40.0"}, "ray", "Ray 2.40.0 in /opt/python", f"ray=={version('ray')}"),
        ({"ray": ""}, "ray", "no Ray in /opt/python", "/opt/python -m pip install"),
        ({"free_ports": 3}, "ports", "3 of 20000-20999 are free, Ray takes 16", "ss -ltnp"),
        ({"out_trouble": "timed out"}, "driver", "not reach the driver: timed", "driver_address"),
        ({"back_trouble": "no way"}, "firewall", "no way", "`ports:` through its firewall"),
        ({"memlock_bytes": 8 << 20}, "memlock", "8 MiB may be locked", "memlock unlimited"),
        ({"shm_bytes": 64 << 20}, "/dev/shm", "has 64 MiB, NCCL wants 1 GiB", "--shm-size"),
        ({"shm_free_bytes": 1 << 20}, "/dev/shm", "1 MiB are free", "ended jobs"),
        ({"nofile": 1024}, "nofile", "1024 open files at most", "nofile 65536"),
        ({"time": 900.0}, "time", "its clock is 2 min behind the driver's", "set-ntp"),
        ({"time": 1010.0}, "time", "its clock is 9 s ahead of the driver's", "chronyc"),
    ],
)
def test_each_lack_has_a_sentence_and_a_cure(change, what, found, advice):
    assert not [*doctor_nodes.lacks(GOOD, BY_SSH, BETWEEN)]
    (lack,) = doctor_nodes.lacks(replace(GOOD, **change), BY_SSH, BETWEEN)
    assert lack.what == what
    assert found in lack.found
    assert advice in lack.advice


@pytest.mark.parametrize(
    "change",
    [
        {"memlock_bytes": 8 << 20, "hcas": 0},  # no RDMA asks for it
        {"time": 996.0},  # within what a clock may differ
        {"nofile": 8192},
    ],
)
def test_a_harmless_difference_of_a_host_is_no_lack(change):
    assert not [*doctor_nodes.lacks(replace(GOOD, **change), BY_SSH, BETWEEN)]


def test_a_node_that_slurm_keeps_from_jobs_has_a_cure_of_its_own(tmp_path):
    by_slurm = RayStart(by="slurm", python="python3")
    cures = {
        "srun: error: Unable to allocate resources: Requested nodes are busy": "wait until the job",
        "srun: Required node not available (down, drained or reserved)": "drained_by",
        "srun: error: invalid partition": "srun --exclusive --nodelist=n1 python3 --version",
    }
    for number, (words, advice) in enumerate(cures.items()):
        tell = ["sh", "-c", 'printf %s "$0" >&2; exit 1', words]
        remote_command = PipedCommand(tell, {}, tmp_path / str(number))
        assert eventually(lambda remote_command=remote_command: remote_command.has_ended)
        (lack,) = doctor_nodes.check(by_slurm, "n1", remote_command, BETWEEN).lacks
        assert lack.found == f'"{words}"'
        assert advice in lack.advice
        remote_command.close(0)


@pytest.mark.parametrize(
    ("node", "is_the_job_itself"),
    [
        (SeenNode(state="idle+drain", cordon="anubis[GEMM.SLOW]: slow"), True),
        (SeenNode(state="mixed+drain", cordon="fan", jobs=("7",)), False),
        (SeenNode(state="idle+drain+maint", cordon="fan"), False),
        (SeenNode(state="down+drain", cordon="fan", is_up=False), False),
        (SeenNode(state="idle"), False),
    ],
)
def test_ssh_is_allowed_past_slurm_only_on_drained_nodes(node, is_the_job_itself):
    assert is_drained(node) == is_the_job_itself


def test_without_a_range_no_ports_are_counted():
    without = replace(BY_SSH, ports="")
    assert not [*doctor_nodes.lacks(replace(GOOD, free_ports=0), without, BETWEEN)]


def test_a_ring_with_the_password_is_called_back_and_one_without_is_not(monkeypatch):
    with ConnectionCheck("127.0.0.1", "", "sesame") as bell, socket.create_server(("", 0)) as door:
        port = door.getsockname()[1]
        monkeypatch.setenv("ANUBIS_PASSWORD", "sesame")
        assert ask_for_connection(bell.address, bell.port, port) == ""
        door.accept()[0].close()
        assert "Connection refused" in ask_for_connection(bell.address, bell.port, 1)
        monkeypatch.setenv("ANUBIS_PASSWORD", "wrong")
        assert ask_for_connection(bell.address, bell.port, port) == ""
        door.settimeout(0.2)
        with pytest.raises(TimeoutError):
            door.accept()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["n1"], "nodes need --cluster"),
        (
            ["--cluster", "local"],
            'nodes of cluster "local" are not reached by ssh, Slurm or Kubernetes',
        ),
        (["--cluster", "ssh"], "which nodes? name them"),
        (["n1", "--cluster", "ssh", "--benchmarks", "."], "leave --cluster out"),
    ],
)
def test_an_impossible_request_of_doctor_is_one_sentence(near: Desk, words, sentence):
    done = near.run("doctor", *words)
    assert (done.code, done.out) == (64, "")
    assert sentence in done.err


def check_of(line: dict[str, Any]) -> NodeCheck:
    lacks = tuple(Lack(**lack) for lack in line["lacks"])
    return NodeCheck(node=line["node"], found=line["found"], lacks=lacks)


@pytest.mark.testbed
@pytest.mark.long
@pytest.mark.skipif(bool(why_no_ssh()), reason=why_no_ssh())
@pytest.mark.skipif(
    not shutil.which("nft"), reason="a firewall needs nft: apt-get install nftables"
)
def test_each_host_reports_the_planted_lack(near: Desk, monkeypatch):
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as keys,  # of tests may be below /dev/shm
        SshBed(Path(keys), 5, without=["node2", "node3"]) as bed,
    ):
        bed.serve("node2", "prlimit", "--nofile=1024:1024")
        bed.run("node1", ["mount", "-t", "tmpfs", "-o", "size=64m", "small", "/dev/shm"])
        bed.run("node4", ["sh", "-c", FIREWALL])
        way = {
            "executor": "ray",
            "start": "ssh",
            "start_options": ["-F", str(bed.ssh_config)],
            "ray_python": sys.executable,
            "nodes": "node[1-5]",
            "ports": "22000-22099",
        }
        words = ["doctor", f"--cluster={near.write('way.yaml', way)}"]
        argv = [sys.executable, "-m", "anubis", *words, "--json"]
        json = bed.run("driver", argv, check=False)
    done = Done(json.returncode, json.stdout, json.stderr)
    small, few, silent, walled, good = done.lines
    assert (good["node"], good["state"], good["lacks"]) == ("node5", "good", [])
    assert [lack["what"] for lack in small["lacks"]] == ["/dev/shm"]
    assert [lack["found"] for lack in few["lacks"]] == [
        "1024 open files at most, Ray recommends 8192"
    ]
    (lack,) = silent["lacks"]
    assert "ssh: connect to host node3 port 2222: Connection refused" in lack["found"]
    assert "ssh -F" in lack["advice"]
    (lack,) = walled["lacks"]
    assert lack["what"] == "firewall"
    assert re.search(r"no connection to \S+:220\d\d: Connection refused", lack["found"])
    monkeypatch.setattr(anubis, "examine_nodes", lambda *_: [check_of(line) for line in done.lines])
    monkeypatch.setenv("COLUMNS", "400")
    screen = near.run(*words)
    first, *rows = screen.out.splitlines()
    assert first == "1 of 5 nodes can be tested; mend first: node[1-4]"
    assert [row.split()[:2] for row in rows] == [
        ["✗", "node1"],
        ["✗", "node2"],
        ["✗", "node3"],
        ["✗", "node4"],
        ["✓", "node5"],
    ]
    assert (screen.code, done.code) == (2, 2)
