"""No bad measurement ends as healthy: a bad unit that no part of the fabric explains is named."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from zlib import crc32

import numpy as np
import pytest
from fleets import entry, small_fabric, small_plan
from hypothesis import given
from hypothesis import strategies as st

import tests.core.test_scan as test_scan
from anubis.core.fabric import Part, rail_nics_on, rail_of
from anubis.core.judge.unanswered import judge_silent_rails
from anubis.core.network.attribution import node_verdicts, part_verdicts
from anubis.core.network.rails import Rails
from anubis.core.network.traffic import observe_traffic
from anubis.core.records import (
    Assessment,
    BatchVerdict,
    Judgement,
    MetricSpec,
    NodeVerdict,
    Verdict,
    Workload,
)
from anubis.lab.simulation.simulated_network import Fault
from anubis.readers.topology.fabric_sources import parse
from tests.core.made_fabrics import FatTree
from tests.core.test_scan import RAILS, scanned, verdicts

DEAD_LEAF = Fault(kind="dead leaf", part=Part("switch", RAILS.leaves[1]), loss=0.9)
SLOW_NIC = Fault(kind="slow NIC", part=Part("nic", RAILS.nodes[5], RAILS.rails[0]), loss=0.5)
TWO_PODS = """
rails: [mlx5_0, mlx5_1]
gbit_s: 400
racks:
  - {nodes: "node[1-8]", leaves: "leaf-a[1-2]"}
  - {nodes: "node[9-16]", leaves: leaf-b}
links:
  - {below: "leaf-a[1-2]", above: "spine-a[1-2]", cables: 2}
  - {below: leaf-b, above: "spine-b[1-2]", cables: 4}
  - {below: "spine-a[1-2],spine-b[1-2]", above: "core[1-2]"}
"""
SCHEMES = {
    "HCAs": [f"mlx5_{i}" for i in range(4)],
    "HCAs of the older name": [f"HCA-{i + 1}" for i in range(4)],
    "interfaces": [f"eth{i}" for i in range(4)],
    "interfaces with dashes": [f"p-{i}-x" for i in range(4)],
    "GPUs": [f"cuda:{i}" for i in range(4)],
    "half the GPUs of a node": [f"cuda:{2 * i}" for i in range(4)],
    "processors": ["cpu"] * 4,
}


def with_devices(fabric, scheme):
    """The same fabric, its NICs called as this scheme calls them."""
    names = dict(zip(fabric.rails, SCHEMES[scheme], strict=False))
    return replace(
        fabric,
        nics=tuple(
            replace(nic, device=names[nic.rail], rail=rail_of(names[nic.rail]))
            for nic in fabric.nics
        ),
    )


@pytest.mark.parametrize("scheme", ["HCAs", "HCAs of the older name", "interfaces with dashes"])
def test_a_dead_leaf_is_named_under_any_names_of_adapters_and_leaves_its_nodes_unproven(scheme):
    fabric = with_devices(RAILS, scheme)
    view = scanned(fabric, [DEAD_LEAF])
    assert verdicts(view) == {(DEAD_LEAF.part,)}
    below = {nic.node for nic in fabric.nics_on[DEAD_LEAF.part.name]}
    assert {*view.assessment.named(Judgement.UNKNOWN)} == below  # their other rails are good
    assert {*view.assessment.named(Judgement.HEALTHY)} == {*fabric.nodes} - below


@pytest.mark.parametrize("measured_as", ["interfaces", "processors", "half the GPUs of a node"])
def test_bad_pairs_on_devices_that_the_topology_lacks_make_the_result_unknown(measured_as):
    view = scanned(
        with_devices(RAILS, "interfaces with dashes"),
        [replace(SLOW_NIC, part=replace(SLOW_NIC.part, other="p-0-x"))],
        measured_as=dict(zip(SCHEMES["interfaces with dashes"], SCHEMES[measured_as], strict=True)),
    )
    assert view.assessment.judgement is Judgement.UNKNOWN
    (unmapped,) = [part for part in view.assessment.parts if part.code == "NOT-MAPPED"]
    assert f'"{SCHEMES[measured_as][0]}-{SCHEMES[measured_as][0]}"' in unmapped.reason
    assert "bad" in unmapped.reason
    assert '"p-0-x"' in unmapped.reason


def test_pairs_that_no_criterion_could_judge_are_not_healthy():
    """Half of the pairs of a rail cross a dead leaf, so that nothing shows what is normal there."""
    view = scanned(
        with_devices(RAILS, "HCAs"),
        [DEAD_LEAF],
        measured_as=dict(zip(SCHEMES["HCAs"], SCHEMES["interfaces"], strict=True)),
    )
    assert view.assessment.judgement is Judgement.UNKNOWN
    assert "no trusted criterion" in view.assessment.parts[0].evidence[0]


@pytest.fixture
def agreeing(monkeypatch):
    """Pairs that also say whether what arrived was right: good, however little arrived."""
    agreement = MetricSpec(name="agreement", unit="1", direction="higher")
    spec = replace(test_scan.PAIR, metrics=(*test_scan.PAIR.metrics, agreement))
    monkeypatch.setattr(test_scan, "PAIR", spec)


@pytest.mark.long
@pytest.mark.parametrize("groups", ["quick", "pairs"])
@pytest.mark.parametrize("dead", [["leaf-a1"], ["leaf-b"], ["core1", "core2"]])
def test_a_dead_switch_is_never_normal_though_all_pairs_at_a_distance_cross_it(
    dead, groups, agreeing
):
    """All rails of half of the nodes are on leaf-b; flows between the halves pass a core."""
    fabric = parse(TWO_PODS, "two pods").fabric
    faults = [Fault(kind="dead", part=Part("switch", name), loss=1.0) for name in dead]
    view = scanned(fabric, faults, groups)
    assert view.assessment.judgement is not Judgement.HEALTHY
    assert view.assessment.parts
    if dead == ["leaf-b"]:
        assert not set(view.assessment.named(Judgement.HEALTHY)) & set(fabric.nodes[8:])


def test_gpus_belong_to_the_rails_in_order_if_there_are_as_many():
    fabric = with_devices(RAILS, "interfaces")
    rails = Rails.from_devices(fabric, [f"cuda:{i}-cuda:{i}" for i in range(len(fabric.rails))])
    for i, rail in enumerate(fabric.rails):
        ends = rails.rail_nics_between(fabric.nodes[:2], f"cuda:{i}-cuda:{i}")
        assert ends == rail_nics_on(*fabric.nodes[:2], rail)
    eight = Rails.from_devices(fabric, ["cuda:7-cuda:7"])
    assert eight.rail_nics_between(fabric.nodes[:2], "cuda:0-cuda:0") is None


def test_pairs_of_another_network_prove_no_part_of_this_one():
    view = scanned(
        with_devices(RAILS, "interfaces"),
        measured_as=dict(zip(SCHEMES["interfaces"], SCHEMES["processors"], strict=True)),
    )
    assert view.assessment.judgement is Judgement.UNKNOWN
    (unmapped,) = view.assessment.parts
    assert "good, which proves no part of the fabric" in unmapped.reason


def test_a_rail_that_is_missing_on_one_node_is_named_beside_rails_that_are_good():
    fabric = with_devices(RAILS, "HCAs")
    first, second = fabric.nodes[:2]
    wrong = verdict((first, second), "hcas", reason="agreement:rails on hcas is 0.5: expected 1")
    (part,) = concluded(fabric, [wrong], [batch_verdict([(first, second)], ["mlx5_0-mlx5_0"])])
    assert (part.judgement, part.code) == (Judgement.UNKNOWN, "NOT-MAPPED")
    assert part.evidence[0].endswith("agreement:rails on hcas is 0.5: expected 1")


@pytest.mark.parametrize("per_leaf", [1, 8])
def test_a_rail_without_any_result_proves_no_node(per_leaf):
    """A program measures what is up on both nodes, and says nothing of the rest."""
    fabric = small_fabric(8, per_leaf=per_leaf, rails=4)
    view = scanned(fabric, silent=lambda step, device: device.startswith("mlx5_2-"))
    assert view.assessment.judgement is Judgement.UNKNOWN
    assert view.assessment.named(Judgement.UNKNOWN) == fabric.nodes
    (part,) = view.assessment.parts
    assert part.reason.startswith("rail 2: no pair of 8 nodes brought a result on it")
    assert part.code == "NOT-MEASURED"
    assert "mlx5_2" in view.assessment.nodes[0].reason


@pytest.mark.parametrize("is_named", [False, True])
def test_a_nic_that_brought_no_result_is_named_and_its_partners_are_well(is_named):
    def is_silent(step, device):
        return device.startswith("mlx5_2-") and "n3" in step.participants

    view = scanned(small_fabric(8, rails=4), silent=is_silent, is_named=is_named)
    assert view.assessment.named(Judgement.UNKNOWN) == ("n3",)
    assert [part.parts for part in view.assessment.parts] == [(Part("nic", "n3", "2"),)]


@pytest.mark.parametrize("omitted", ["bandwidth_gbps:back", "latency_us"])
@pytest.mark.parametrize("groups", ["quick", "pairs"])
def test_pairs_of_a_node_that_leave_out_a_direction_or_a_metric_leave_it_owing_and_blame_nothing(
    omitted, groups
):
    def omits(step, series):
        return "n3" in step.participants and series.metric == omitted and series.device[5] == "2"

    view = scanned(small_fabric(8, rails=4), groups=groups, omits=omits)
    assert view.assessment.judgement is Judgement.UNKNOWN
    (owing,) = [node for node in view.assessment.nodes if node.node == "n3"]
    assert owing.judgement is Judgement.UNKNOWN
    assert owing.owes == ("pair",)


def test_pairs_that_all_measure_one_direction_prove_no_node():
    def omits(step, series):
        return series.metric == "bandwidth_gbps:back"

    view = scanned(small_fabric(8, rails=4), omits=omits)
    assert not view.assessment.named(Judgement.HEALTHY)
    assert not view.assessment.named(Judgement.DEFECTIVE)


@pytest.mark.parametrize("is_named", [False, True])
def test_a_dead_port_between_two_switches_is_among_the_parts_named_and_blames_no_node(is_named):
    """Half of the pairs across the two leaves of rail 2 bring no result on it, or name it as
    failed."""
    fabric = FatTree(nodes=8, nodes_per_leaf=4, spines=2, rails=4).fabric()
    leaf = {nic.node: nic.switch for nic in fabric.nics if nic.rail == "2"}

    def is_silent(step, device):
        a, b = step.participants
        by_hash = (fabric.nodes.index(a) + fabric.nodes.index(b) // 2) % 2
        return device.startswith("mlx5_2-") and leaf[a] != leaf[b] and by_hash

    view = scanned(fabric, groups="covering", silent=is_silent, is_named=is_named)
    assert view.assessment.judgement is Judgement.DEFECTIVE
    assert not view.assessment.named(Judgement.DEFECTIVE)
    (part,) = view.assessment.parts
    assert part.judgement is Judgement.DEFECTIVE
    assert {part.name for part in part.parts} & set(leaf.values())
    assert "nothing measured" in part.evidence[-1]


@pytest.mark.parametrize("seed", range(5))
def test_programs_that_bring_no_result_at_random_make_no_part_defective(seed):
    fabric = FatTree(nodes=16, nodes_per_leaf=4, spines=2).fabric()

    def is_silent(step, device):
        return crc32(f"{seed} {step.id}".encode()) % 20 == 0

    view = scanned(fabric, groups="pairs", silent=is_silent)
    assert view.assessment.judgement is not Judgement.DEFECTIVE


def test_an_hca_that_is_up_on_one_node_only_is_named_once_by_its_nic():
    """`pair_rdma` says that some HCA is down, and measures the others."""
    fabric = with_devices(RAILS, "HCAs")
    pairs = [fabric.nodes[:2], fabric.nodes[1:3], fabric.nodes[:3:2]]
    dead = [pair for pair in pairs if fabric.nodes[0] in pair]
    down = [replace(verdict(pair, "hcas"), metric="agreement:rails") for pair in dead]
    silent = [
        verdict(pair, "mlx5_1-mlx5_1", judgement=Judgement.UNKNOWN, code="NOT-MEASURED")
        for pair in dead
    ]
    good = [(pair, rail) for pair in pairs for rail in "0123" if pair not in dead or rail != "1"]
    well = batch_verdict(
        [pair for pair, _ in good], [f"mlx5_{rail}-mlx5_{rail}" for _, rail in good]
    )
    (part,) = concluded(fabric, [*down, *silent], [well])
    assert (part.parts[0], part.code) == (Part("nic", fabric.nodes[0], "1"), "NOT-MEASURED")
    (stray,) = concluded(fabric, down[:1], [well])
    assert stray.code == "NOT-MAPPED"


def test_a_program_limited_to_some_rails_owes_no_result_of_others():
    chosen = Workload(benchmark="pair", version="1", parameters='{"hcas":"mlx5_0,mlx5_1"}')
    fabric = small_fabric(8, rails=4)
    runs = scanned(fabric, silent=lambda step, device: device[5] in "23")
    told = [replace(run, step=replace(run.step, workload=chosen)) for run in runs.executions]
    plan = replace(
        runs.campaign.plan,
        phases=tuple(
            replace(
                phase, entries=tuple(replace(planned, workload=chosen) for planned in phase.entries)
            )
            for phase in runs.campaign.plan.phases
        ),
    )
    assert list(judge_silent_rails(runs.executions, runs.campaign.plan))
    assert not list(judge_silent_rails(told, plan))


def test_a_node_that_is_slow_in_each_pair_on_a_device_that_no_topology_shows_is_unknown():
    fabric = small_fabric(8, rails=2)
    pairs = list(combinations(fabric.nodes, 2))
    storage = [verdict(pair, "mlx5_9-mlx5_9") for pair in pairs if "n3" in pair]
    good = [
        batch_verdict(pairs, ["mlx5_0-mlx5_0"] * len(pairs)),
        batch_verdict(
            others := [p for p in pairs if "n3" not in p], ["mlx5_9-mlx5_9"] * len(others)
        ),
    ]
    traffic = observe_traffic(fabric, storage, good)
    plan = small_plan(8, [entry("pair")])
    about = list(node_verdicts(plan, fabric, traffic, part_verdicts(fabric, traffic)))
    assert [(v.participants, v.code) for v in about] == [(("n3",), "NO-GOOD-PAIR")]
    assert "mlx5_9" in about[0].reason


def test_one_bad_pair_of_nodes_that_do_well_with_all_others_is_unknown_and_not_chance():
    fabric = small_fabric(8)
    pairs = [pair for pair in combinations(fabric.nodes, 2) if set(pair) != {"n0", "n5"}]
    parts = concluded(
        fabric, [verdict(("n0", "n5"), "cpu-cpu")], [batch_verdict(pairs, ["cpu-cpu"] * len(pairs))]
    )
    assert [(part.code, part.judgement, part.nodes) for part in parts] == [
        ("UNEXPLAINED", Judgement.UNKNOWN, ("n0", "n5"))
    ]


def test_a_pair_that_was_bad_once_is_unknown_despite_its_good_results():
    fabric = small_fabric(8)
    pairs = list(combinations(fabric.nodes, 2))
    once = verdict(("n0", "n5"), "cpu-cpu", judgement=Judgement.UNKNOWN, code="UNSTABLE")
    (part,) = concluded(fabric, [once], [batch_verdict(pairs, ["cpu-cpu"] * len(pairs))])
    assert (part.code, part.judgement, part.nodes) == ("UNSTABLE", Judgement.UNKNOWN, ("n0", "n5"))


def test_a_bad_group_of_good_pairs_is_unknown():
    fabric = small_fabric(6)
    pairs = [fabric.nodes[i : i + 2] for i in range(5)]
    parts = concluded(
        fabric,
        [verdict(fabric.nodes[:4], "cpu", reason="busbw 40 % below normal")],
        [batch_verdict(pairs, ["cpu-cpu"] * len(pairs))],
    )
    assert [(part.code, part.judgement) for part in parts] == [("UNEXPLAINED", Judgement.UNKNOWN)]
    assert "busbw 40 % below normal" in parts[0].reason


def verdict(names, device, *, judgement=Judgement.DEFECTIVE, code="PAIR.BW", reason="slow"):
    return Verdict(
        participants=tuple(names),
        benchmark="pair",
        metric="" if code == "NOT-MEASURED" else "bandwidth_gbps",
        device=device,
        judgement=judgement,
        code=code,
        reason=reason,
        similarity=0.3 if judgement is Judgement.DEFECTIVE else None,
    )


def batch_verdict(pairs, devices):
    return BatchVerdict(
        benchmark="pair",
        parameters="",
        metric="bandwidth_gbps",
        judgement=Judgement.HEALTHY,
        code="OK",
        reason="like the fleet's",
        alpha=0.95,
        participants=tuple(map(tuple, pairs)),
        devices=tuple(devices),
        similarities=np.full(len(devices), 0.999),
    )


def concluded(fabric, alone, batch_verdicts):
    return part_verdicts(fabric, observe_traffic(fabric, alone, batch_verdicts))


@st.composite
def measurements(draw):
    """A fabric, and what pairs and groups of its nodes measured on devices of some name."""
    nodes, rails = draw(st.integers(3, 8)), draw(st.integers(1, 4))
    wired = with_devices(
        small_fabric(nodes, per_leaf=2, spines=draw(st.integers(1, 2)), rails=rails),
        draw(
            st.sampled_from(
                ["HCAs", "HCAs of the older name", "interfaces", "interfaces with dashes"]
            )
        ),
    )
    devices = SCHEMES[draw(st.sampled_from(list(SCHEMES)))][:rails]
    names = st.lists(st.sampled_from(wired.nodes), min_size=2, max_size=4, unique=True)
    units = draw(
        st.lists(
            st.tuples(names, st.sampled_from(devices), st.sampled_from(["good", "bad", "failed"])),
            min_size=1,
            max_size=30,
        )
    )
    return wired, units


@given(measurements())
def test_bad_units_never_end_as_healthy_under_any_device_names_and_wiring(case):
    fabric, units = case
    alone = []
    good = []
    for names, device, outcome in units:
        if outcome == "bad":
            alone.append(verdict(names, f"{device}-{device}"))
        elif outcome == "failed":
            alone.append(verdict(names, "", judgement=Judgement.UNKNOWN, code="NOT-MEASURED"))
        else:
            good.append((names, f"{device}-{device}"))
    batch_verdicts = [batch_verdict(*zip(*good, strict=True))] if good else []
    nodes = tuple(
        NodeVerdict(node=node, judgement=Judgement.HEALTHY, code="OK", reason="")
        for node in fabric.nodes
    )
    parts = concluded(fabric, alone, batch_verdicts)
    whole = Assessment(
        alone=tuple(alone), batch_verdicts=tuple(batch_verdicts), nodes=nodes, parts=parts
    )
    assert not alone or whole.judgement is not Judgement.HEALTHY
    assert all(part.reason and part.subject for part in parts)
