"""Hosts that no scheduler has, with commands of their operator's: here files in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from anubis.core.errors import OrchestratorError
from anubis.core.keep.reasons import reason
from anubis.reach.orchestrators.hosts import HostsOrchestrator, HostsSettings, parse_jobs_of_host
from anubis.reach.orchestrators.orchestrator import NodeSkus
from tests.edges.desk import Desk
from tests.edges.orders import cordon, release
from tests.patience import eventually

HOSTILE = reason("GEMM.SLOW", "71 %; $(touch pwned) `touch pwned` \"quoted\" 'too' {node}")
CORDONS = """#!/bin/sh
case $1 in
jobs) [ "$2" = n3 ] && exit 7; cat "$2.jobs" 2>/dev/null || true ;;
cordoned) cat "$2.out" 2>/dev/null || true ;;
cordon) cat > "$2.out" ;;
word) printf '%s' "$3" > "$2.out" ;;
release) rm -f "$2.out" ;;
forgets) cat > /dev/null ;;
hangs) sleep 600 & echo $! > "$2.pid"; wait ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tool = tmp_path / "hosts"
    tool.write_text(CORDONS)
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(**changes: object) -> HostsSettings:
    commands = {
        name: ("./hosts", name, "{node}") for name in ("jobs", "cordoned", "cordon", "release")
    }
    return HostsSettings(**{"kind": "hosts", "nodes": "n[1-3]", **commands, **changes})


def test_a_host_is_seen_with_its_jobs_and_one_that_does_not_answer_is_at_work_for_all_we_know(
    folder,
):
    (folder / "n1.jobs").write_text("4711 alice\n\n4712\n")
    (folder / "n2.out").write_text("swap the fan\n")
    seen = HostsOrchestrator(
        settings(), NodeSkus(by_node={"n2": "b200"}, otherwise="h100")
    ).observe()
    assert {name: node.jobs for name, node in seen.nodes.items()} == {
        "n1": ("n1/4711", "n1/4712"),
        "n2": (),
        "n3": ("n3/unseen",),
    }
    assert [job.owner for job in seen.jobs.values()] == ["alice", "somebody", ""]
    assert [node.is_up for node in seen.nodes.values()] == [True, True, False]
    assert [node.sku for node in seen.nodes.values()] == ["h100", "b200", "h100"]
    assert (seen.nodes["n2"].cordon, seen.nodes["n2"].is_cordoned_by_anubis) == (
        "swap the fan",
        False,
    )


def test_with_ids_of_the_fleet_hosts_with_one_id_work_at_one_job(folder):
    (folder / "n1.jobs").write_text("training alice\n")
    (folder / "n2.jobs").write_text("training alice\nother\n")
    seen = HostsOrchestrator(settings(job_ids="fleet")).observe()
    assert {id: job.nodes for id, job in seen.jobs.items()} == {
        "training": ("n1", "n2"),
        "other": ("n2",),
        "n3/unseen": ("n3",),
    }
    assert seen.nodes["n1"].jobs == ("training",)


@pytest.mark.parametrize(
    "command", [("./hosts", "cordon", "{node}"), ("./hosts", "word", "{node}", "{reason}")]
)
def test_a_reason_reaches_the_host_as_it_is_and_is_taken_back(folder, command):
    hosts = HostsOrchestrator(settings(cordon=command))
    cordon(hosts, "n1", HOSTILE)
    cordon(hosts, "n1", HOSTILE)
    assert (folder / "n1.out").read_text() == HOSTILE
    assert hosts.observe().nodes["n1"].is_cordoned_by_anubis
    release(hosts, "n1")
    release(hosts, "n1")
    assert not (folder / "n1.out").exists()
    assert not (folder / "pwned").exists()


def test_somebodys_reason_stays_and_a_command_that_does_nothing_is_noticed(folder):
    (folder / "n2.out").write_text("swap the fan\n")
    hosts = HostsOrchestrator(settings(cordon=("./hosts", "forgets", "{node}")))
    for order in (lambda: cordon(hosts, "n2", HOSTILE), lambda: release(hosts, "n2")):
        with pytest.raises(OrchestratorError, match='"swap the fan": anubis leaves it as it is'):
            order()
    assert (folder / "n2.out").read_text() == "swap the fan\n"
    with pytest.raises(OrchestratorError, match=r'"n1" was cordoned with .* and shows ""'):
        cordon(hosts, "n1", HOSTILE)
    with pytest.raises(OrchestratorError, match='there is no host "n9"'):
        cordon(hosts, "n9", HOSTILE)


def test_a_command_past_its_deadline_is_ended_with_its_children(folder):
    hosts = HostsOrchestrator(settings(jobs=("./hosts", "hangs", "{node}"), deadline_s=0.3))
    with pytest.raises(
        OrchestratorError, match=r"none of 3 hosts answers: .*no answer within 0.3 s"
    ):
        hosts.observe()
    left = [int((folder / f"n{number}.pid").read_text()) for number in (1, 2, 3)]
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))
    with pytest.raises(OrchestratorError, match=r'"./absent" could not be started: No such file'):
        HostsOrchestrator(settings(jobs=("./absent", "{node}"))).observe()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"jobs": ("list-jobs",)}, '"jobs" has no word with {node}'),
        ({"release": ()}, '"release" is missing'),
        ({"cordon": ("/usr/bin/ssh", "{node}", "out", "{reason}")}, "a shell would read it"),
        ({"deadline_s": 0.0}, '"deadline_s" is 0'),
    ],
)
def test_commands_that_cannot_be_meant_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        settings(**changes)


def test_jobs_are_one_a_line():
    assert parse_jobs_of_host("") == {}
    assert parse_jobs_of_host(" 7  bob the builder\n8\n") == {
        "7": "bob the builder",
        "8": "somebody",
    }


def test_hosts_of_a_file_are_shown_with_their_jobs(folder, near: Desk):
    (folder / "n1.jobs").write_text("4711 alice\n")
    near.write("fleet.txt", "n1\nn[2-3]  # the new ones\n")
    tool = str(folder / "hosts")
    commands = {name: [tool, name, "{node}"] for name in ("jobs", "cordoned", "cordon", "release")}
    owner = {"kind": "hosts", "nodes": "@fleet.txt", **commands}
    cluster = str(near.write("lab.yaml", {"executor": "ray", "orchestrator": owner}))
    first, *rest = near.run("nodes", "--cluster", cluster).out.splitlines()
    assert first == "3 nodes of cluster lab: 1 down, 1 at work, 1 free"
    assert any("job n1/4711 of alice" in line for line in rest)


def test_the_sku_of_a_node_comes_from_the_cluster_file_before_its_owner():
    skus = NodeSkus(by_node={"n2": "b200"}, otherwise="h100")
    assert [skus.find("n2", "a100"), skus.find("n1", "a100"), skus.find("n1")] == [
        "b200",
        "a100",
        "h100",
    ]
