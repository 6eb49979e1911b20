"""Nodes with jobs of others are left alone."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from anubis.core.errors import BusyNodesError, OrchestratorError, UsageError
from anubis.core.keep.keeper_events import FleetSeen, SeenJob, SeenNode
from anubis.core.records import Node
from anubis.operations import owners
from anubis.operations.caller import Caller
from anubis.operations.campaign_files import Brief, read_request
from anubis.operations.campaigns import run_campaign
from anubis.operations.owners import OthersWork
from anubis.operations.requests import AcceptRequest
from anubis.store.history import History

SINCE = 1_795_361_734.0
JOBS = {
    "7": SeenJob(owner="alice", nodes=("n2", "n3"), started_at=SINCE),
    "8": SeenJob(owner="root", nodes=("n4",), started_at=SINCE),
    "unseen-n5": SeenJob(owner="", nodes=("n5",), started_at=SINCE),
}
NODES = ("n1", "n2", "n3", "n4", "n5")
SEEN = {
    name: SeenNode(jobs=tuple(id for id, job in JOBS.items() if name in job.nodes))
    for name in NODES
}
WORK = OthersWork(seen=FleetSeen(at=SINCE, nodes=SEEN, jobs=JOBS), own_job="8")
ALICE = "job 7 of alice runs there since 2026-11-22 15:35 UTC"


class Ear(Caller):
    def __init__(self) -> None:
        super().__init__()
        self.remarks: list[str] = []

    def remark(self, sentence: str) -> None:
        self.remarks.append(sentence)


@pytest.fixture
def ear() -> Ear:
    return Ear()


def brief(
    tmp_path, *named: str, partners: tuple[str, ...] = (), of_file: str = "", start: str = "null"
) -> Brief:
    file = tmp_path / "prod.yaml"
    about = f'"executor": "ray", "nodes": "{of_file}", "orchestrator": "slurm", "start": {start}'
    file.write_text(f"{{{about}}}")
    request = AcceptRequest(named or None, partners=partners, cluster=str(file))
    return read_request(request, Caller())


def test_others_have_the_nodes_on_which_their_jobs_are_and_ours_are_not_theirs():
    assert WORK.reasons_to_spare(NODES) == {
        "n2": ALICE,
        "n3": ALICE,
        "n5": "its orchestrator does not show the owner of the job there",
    }
    assert "does not show it" in WORK.reason_to_spare("n6")
    assert WORK.reason_to_spare("n2.cluster.example") == ALICE
    assert OthersWork().reasons_to_spare(NODES) == {}


def test_a_named_busy_node_is_refused_with_the_owner_of_its_job(tmp_path, ear):
    with pytest.raises(BusyNodesError) as error:
        owners.spare_busy(brief(tmp_path, *NODES), WORK, ear)
    assert str(error.value) == (
        f'node "n[2-3]" is left alone: {ALICE}; wait until that ends, or name other nodes'
    )
    free = brief(tmp_path, "n1", "n4")
    assert owners.spare_busy(free, WORK, ear) is free
    assert ear.remarks == []


def test_nodes_of_another_campaign_are_refused_before_anything_is_started(tmp_path):
    """A job of Slurm that brings Ray up there would wait in the queue until that campaign ends."""
    file = tmp_path / "prod.yaml"
    file.write_text("executor: ray\nstart: ssh\nnodes: n[1-2]\n")
    caller = Caller(history_url=str(tmp_path / "history.sqlite"))
    with (
        History.open(str(caller.history_url)) as history,
        history.cluster("prod").holds.hold(["n2"], "a campaign", time.time),
        pytest.raises(BusyNodesError, match='node "n2" of cluster "prod" is held by a campaign'),
    ):
        run_campaign(AcceptRequest(("n1", "n2"), cluster=str(file)), caller)


def test_a_keepers_test_of_many_nodes_goes_on_without_those_on_which_work_began(tmp_path, ear):
    asked = brief(tmp_path, *NODES)
    asked = replace(asked, request=replace(asked.request, leaves_out_busy=True))
    assert owners.spare_busy(asked, WORK, ear).request.nodes == ["n1", "n4"]
    assert f"n[2-3] left out: {ALICE}" in ear.remarks


def test_a_busy_node_that_was_not_named_is_left_out_with_a_remark(tmp_path, ear):
    of_file = owners.spare_busy(brief(tmp_path, of_file="n[1-3]"), WORK, ear)
    assert of_file.request.nodes == ["n1"]
    assert ear.remarks == [f"n[2-3] left out: {ALICE}"]
    all_of_ray = brief(tmp_path)
    assert owners.spare_busy(all_of_ray, WORK, ear) is all_of_ray
    here = [Node(name=name, sku="h100") for name in ("n1", "n2", "n4")]
    left = owners.free_nodes(all_of_ray, here, WORK, ear)
    assert [node.name for node in left] == ["n1", "n4"]
    with pytest.raises(BusyNodesError, match="every one of these nodes is left alone"):
        owners.drop_busy(["n2", "n5"], WORK, ear)


def test_without_named_nodes_ray_starts_on_free_nodes_of_the_orchestrator(tmp_path, ear):
    shown = {
        "n1": SeenNode(state="idle"),
        "n2": SeenNode(state="mixed", jobs=("7",)),
        "n3": SeenNode(state="down", meaning="not answering slurmctld", is_up=False),
        "n4": SeenNode(state="idle+drain", cordon="swap the fan"),
        "n5": SeenNode(state="idle+drain", cordon="anubis[GEMM.SLOW]: slow"),
        "n6": SeenNode(state="idle+reserved", meaning="reserved for others", is_free=False),
        "n7": SeenNode(state="idle"),
    }
    seen = FleetSeen(at=SINCE, nodes=shown, jobs=JOBS)
    maintained = {"n7": "under maintenance until its owner ends it"}
    work = OthersWork(seen=seen, owner="slurm", maintained=maintained)
    chosen = owners.spare_busy(brief(tmp_path, start='"ssh"'), work, ear)
    assert chosen.request.nodes == ["n1", "n5"]
    assert ear.remarks == [
        "n3 left out: slurm shows it as down (not answering slurmctld)",
        "n4 left out: it is kept from jobs: swap the fan",
        "n6 left out: it is reserved for others",
        "n7 left out: it is under maintenance until its owner ends it",
        "3 nodes, as slurm shows them",
        f"n2 left out: {ALICE}",
    ]
    named = brief(tmp_path, "n6", start='"ssh"')
    assert owners.spare_busy(named, work, ear) is named
    with pytest.raises(BusyNodesError, match='node "n7" is left alone: it is under maintenance'):
        owners.spare_busy(brief(tmp_path, "n7", start='"ssh"'), work, ear)
    own = replace(work.seen, nodes={**shown, "n7": SeenNode(state="mixed", jobs=("8",))})
    inside = brief(tmp_path, "n7", start='"ssh"')
    assert owners.spare_busy(inside, replace(work, seen=own, own_job="8"), ear) is inside
    with pytest.raises(UsageError, match=r'slurm has no node "n9": it has n\[1-7\]'):
        owners.spare_busy(brief(tmp_path, "n1", "n9", start='"slurm"'), work, ear)
    nobody = OthersWork(seen=FleetSeen(at=SINCE, nodes={}), owner="slurm")
    with pytest.raises(OrchestratorError, match="slurm shows 0 nodes, and none that can be tested"):
        owners.spare_busy(brief(tmp_path, start='"ssh"'), nobody, ear)


def test_a_busy_partner_is_left_out(tmp_path, ear):
    asked = brief(tmp_path, "n1", "n2", "n4", partners=("n2", "n4"))
    request = owners.spare_busy(asked, WORK, ear).request
    assert (request.nodes, request.partners) == (["n1", "n4"], ["n4"])
    assert ear.remarks == [f"n2 left out: {ALICE}"]


def test_nothing_is_started_while_the_owner_of_the_nodes_does_not_answer(tmp_path, monkeypatch):
    cluster = brief(tmp_path).setting.cluster
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OrchestratorError, match=r'nothing was started.*"squeue" could not be'):
        owners.others_work(cluster, {}, SINCE)
