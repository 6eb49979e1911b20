"""A part that comes and goes in one scan after the other: counted by the verbs, and suspected."""

from __future__ import annotations

import dataclasses

import pytest

from anubis.core.records import Judgement
from anubis.operations.caller import Caller
from anubis.operations.campaigns import run_campaign
from anubis.operations.links import links_at_a_glance
from anubis.operations.requests import ScanRequest
from anubis.reach.executors.simulated import SimulatedExecutor

FABRIC = """\
racks:
  - {nodes: "n[1-12]", leaves: l1}
  - {nodes: "n[13-24]", leaves: l2}
  - {nodes: "n[25-36]", leaves: l3}
  - {nodes: "n[37-48]", leaves: l4}
links:
  - {below: "l[1-4]", above: "s[1-2]"}
"""


@pytest.fixture
def vanishing(monkeypatch):
    """Faults that no pair sees when it measures again."""
    measure = SimulatedExecutor._measure

    def measure_once(self, step, spec):
        network = self.network
        if step.turn:
            self.network = dataclasses.replace(network, faults=())
        try:
            return measure(self, step, spec)
        finally:
            self.network = network

    monkeypatch.setattr(SimulatedExecutor, "_measure", measure_once)


@pytest.mark.parametrize(
    ("fault", "scans", "kind"), [("slow NIC", 2, "node"), ("lossy uplink", 3, "link")]
)
def test_a_part_that_comes_and_goes_in_each_scan_is_suspected(near, vanishing, fault, scans, kind):
    fabric = near.write("fabric.yaml", FABRIC)
    cluster = near.fleet(nodes="n[1-48]", faults=[fault], seed=5)
    caller, remarks = Caller(history_url=str(near.history)), list[str]()
    caller.remark = remarks.append
    request = ScanRequest(cluster=str(near.folder / cluster), topology=str(fabric))
    for number in range(1, scans + 1):
        result = run_campaign(request, caller)
        assert not result.view.assessment.named(Judgement.DEFECTIVE)
        said = [remark for remark in remarks if remark.startswith("suspected: ")]
        assert bool(said) == (number == scans)
    assert f"came and went in {scans} of the last {scans} campaigns across it" in said[0]
    assert said[0].startswith(f"suspected: {kind} ")
    (between,) = links_at_a_glance(caller)
    (suspect,) = (found for found in between.suspects if found.code == "COMES-AND-GOES")
    assert suspect.judgement is Judgement.UNKNOWN
    assert suspect.reason in said[0]
    assert not result.view.campaign.plan.suspected
    following = run_campaign(request, caller).view  # expects it
    assert kind in {part.kind for part in following.campaign.plan.suspected}
    assert not following.assessment.named(Judgement.DEFECTIVE)


def test_a_fabric_without_faults_has_nothing_that_returns(near, vanishing):
    fabric = near.write("fabric.yaml", FABRIC)
    cluster = near.fleet(nodes="n[1-48]", loaded_share=0.05, seed=5)
    caller = Caller(history_url=str(near.history))
    for _ in range(3):
        run_campaign(ScanRequest(cluster=str(near.folder / cluster), topology=str(fabric)), caller)
    (between,) = links_at_a_glance(caller)
    assert "COMES-AND-GOES" not in {suspect.code for suspect in between.suspects}
