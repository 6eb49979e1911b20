"""Planted troubles of a simulated fleet, against conclusions that were made by hand."""

from __future__ import annotations

import pytest
from fleets import spec

from anubis.core.campaign.planning import plan
from anubis.core.fabric import Cable, Fabric, Link, Nic, Part, Switch
from anubis.core.records import (
    Assessment,
    Judgement,
    Needs,
    NodeVerdict,
    PartVerdict,
    Suite,
    SuiteEntry,
)
from anubis.lab.simulation.reckoning import network_of, plants_of, reckon
from anubis.lab.simulation.simulated_fleet import SimulatedFleet, members

ALONE = spec("alone")
TOGETHER = spec("together", scope="group", needs=Needs(min_nodes=2))
SPECS = {"alone": ALONE, "together": TOGETHER}
LEAVES = ("leaf1", "leaf2")
FABRIC = Fabric(
    switches=tuple(Switch(id=name, name=name) for name in (*LEAVES, "spine")),
    links=tuple(
        Link(a=leaf, b="spine", cables=(Cable(port_a="1", port_b=leaf, gbit_s=100.0),))
        for leaf in LEAVES
    ),
    nics=tuple(
        Nic(id=f"n{i}", node=f"n{i}", device="", rail="", switch=LEAVES[i > 4]) for i in range(1, 9)
    ),
)


def planned(fleet, nodes=None, fabric=None, benchmark="alone"):
    suite = Suite(name="s", summary="", benchmarks=(SuiteEntry(benchmark=benchmark),))
    chosen = nodes or members(fleet)
    return plan(suite, chosen, SPECS, fabric)


def verdicts(names, **special):
    """All healthy, but for those with another judgement and code."""
    healthy = (Judgement.HEALTHY, "OK")
    rows = {name: special.get(name, healthy) for name in names}
    nodes = tuple(
        NodeVerdict(node=name, judgement=judgement, code=code, reason="")
        for name, (judgement, code) in rows.items()
    )
    return Assessment(alone=(), nodes=nodes)


def part_verdict(judgement, *parts):
    return PartVerdict(parts=parts, subject="it", judgement=judgement, code="C", reason="")


DEFECTIVE, UNKNOWN = (Judgement.DEFECTIVE, "C"), (Judgement.UNKNOWN, "C")


def test_a_planted_node_is_found_unsure_or_missed_and_a_good_one_wrongly_blamed():
    fleet = SimulatedFleet(nodes="n[1-8]", slow_share=3 / 8)
    first, second, third = plants_of(fleet, [ALONE])
    good = next(name for name in ("n1", "n2", "n3", "n4") if name not in (first, second, third))
    names = [node.name for node in members(fleet)]
    concluded = verdicts(names, **{first: DEFECTIVE, second: UNKNOWN, good: DEFECTIVE})
    reckoned = reckon(fleet, planned(fleet), concluded)
    told = {trouble.subject: trouble.detected for trouble in reckoned.planted}
    assert told == {first: "found", second: "unsure", third: "missed"}
    assert [trouble.detected for trouble in reckoned.planted] == ["missed", "unsure", "found"]
    assert reckoned.wrongly_blamed == (good,)
    assert reckoned.headline == (
        "planted: 3, of which 1 found, 1 unsure, 1 missed. Sound nodes blamed: 1"
    )
    assert {trouble.trouble for trouble in reckoned.planted} == {"20% slow in alone"}


def test_a_node_that_vanished_is_found_when_it_is_called_lost_and_only_then():
    fleet = SimulatedFleet(nodes="n[1-8]", slow_share=0, lost_share=1 / 8)
    (lost,) = plants_of(fleet, [ALONE])
    names = [node.name for node in members(fleet)]
    for code, detected in (("NODE-LOST", "found"), ("NOT-MEASURED", "unsure")):
        concluded = verdicts(names, **{lost: (Judgement.UNKNOWN, code)})
        (trouble,) = reckon(fleet, planned(fleet), concluded).planted
        assert trouble.detected == detected


def test_trouble_on_nodes_that_took_no_part_is_not_counted():
    fleet = SimulatedFleet(nodes="n[1-8]", slow_share=1 / 8)
    (slow,) = plants_of(fleet, [ALONE])
    others = [node for node in members(fleet) if node.name != slow]
    reckoned = reckon(fleet, planned(fleet, others), verdicts(node.name for node in others))
    assert reckoned.headline == "planted: 0. Sound nodes blamed: none"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["slow node", "lossy uplink", "slow leaf"])
def test_a_planted_network_fault_counts_as_found_only_if_a_verdict_names_its_part(kind, seed):
    fleet = SimulatedFleet(nodes="n[1-8]", slow_share=0, faults=(kind,), seed=seed)
    together = planned(fleet, fabric=FABRIC, benchmark="together")
    names = [node.name for node in members(fleet)]
    (fault,) = network_of(fleet, FABRIC, names).faults
    for judgement, detected in ((Judgement.DEFECTIVE, "found"), (Judgement.UNKNOWN, "unsure")):
        concluded = Assessment(
            alone=(), nodes=verdicts(names).nodes, parts=(part_verdict(judgement, fault.part),)
        )
        reckoned = reckon(fleet, together, concluded)
        assert [trouble.detected for trouble in reckoned.planted] == [detected]
        assert reckoned.wrongly_blamed == ()
    silent = reckon(fleet, together, verdicts(names))
    assert [trouble.detected for trouble in silent.planted] == ["missed"]


def test_a_part_that_is_blamed_for_nothing_is_wrongly_blamed():
    fleet = SimulatedFleet(nodes="n[1-8]", slow_share=0)
    names = [node.name for node in members(fleet)]
    blamed = part_verdict(Judgement.DEFECTIVE, Part("switch", "leaf1"))
    concluded = Assessment(alone=(), nodes=verdicts(names).nodes, parts=(blamed,))
    together = planned(fleet, fabric=FABRIC, benchmark="together")
    assert reckon(fleet, together, concluded).wrongly_blamed == ("it",)


@pytest.mark.parametrize("kind", ["slow node", "bad cable", "slow NIC"])
def test_faults_are_planted_among_the_nodes_that_a_campaign_looks_at(kind):
    for seed in range(8):
        fleet = SimulatedFleet(nodes="n[1-8]", faults=(kind,), seed=seed)
        (fault,) = network_of(fleet, FABRIC, {"n2", "n7"}).faults
        assert fault.part.name in ("n2", "n7")
