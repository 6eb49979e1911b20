"""NVLink domains: how they are read, and how they are scanned and searched."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from statistics import median

import numpy as np
import pytest
from fleets import spec

from anubis.core.campaign.planning import plan, steps
from anubis.core.campaign.requested_plan import RequestedCampaign, fabric_between
from anubis.core.errors import TopologyError, UsageError
from anubis.core.fabric import Domain, DomainNode, Fabric, Part, RailNic, place
from anubis.core.judge.units import _size
from anubis.core.network.crossing import Flow
from anubis.core.network.group_search import Search
from anubis.core.network.inspection import Inspection
from anubis.core.network.localization import describe, locate
from anubis.core.network.pairing import PairTest, joined_nics, quick_rounds
from anubis.core.network.posterior import FaultPrior, Observation
from anubis.core.network.reproduction import DOMAIN, divide, first_groups, reproduce
from anubis.core.network.slow_domains import slow_domains
from anubis.core.records import (
    MNNVL,
    CampaignKind,
    Count,
    Counters,
    Needs,
    Node,
    Policy,
    Suite,
    SuiteEntry,
)
from anubis.lab.simulation.simulated_network import Fault, SimulatedNetwork
from anubis.readers.topology import fabric_sources, nvlink
from anubis.readers.topology.fabric_sources import parse
from tests.core.made_fabrics import FatTree

CLUSTER = "6f2a3c10-8d41-4f0e-9a55-0c1d2e3f4a5b"
PAIR = spec("pair", scope="pair", needs=Needs(min_nodes=2))


def told(host: str, clique: str, cluster: str = CLUSTER) -> str:
    """A GPU of a host, as pdsh shows what nvidia-smi -q says."""
    return (
        f"{host}:         CliqueId                          : {clique}\n"
        f"{host}:         ClusterUUID                       : {cluster}\n"
    )


def racks(count: int = 3, trays: int = 4, gpus: int = 4, per_leaf: int = 8) -> Fabric:
    fabric = FatTree(nodes=count * trays, nodes_per_leaf=per_leaf, spines=2).fabric()
    members = [fabric.nodes[trays * rack : trays * (rack + 1)] for rack in range(count)]
    return replace(
        fabric,
        domains=tuple(
            Domain(
                name=f"rack{rack}",
                nodes=tuple(DomainNode(node=node, gpus=tuple(range(gpus))) for node in own),
                switches=(f"rack{rack}-switch1", f"rack{rack}-switch2"),
            )
            for rack, own in enumerate(members, start=1)
        ),
    )


RACKS = racks()

# --- what other programs write ----------------------------------------------------------------


def test_gpus_of_one_cluster_and_clique_are_a_domain():
    text = "".join(told(f"tray{n}", clique) for n in range(4) for clique in "77")
    text += "".join(told("other", "7", CLUSTER[::-1]) for _ in range(2))
    text += told("alone", "0", "00000000-0000-0000-0000-000000000000") + told("none", "N/A", "N/A")
    domains, odd = nvlink.parse(text)
    assert {domain.name: [m.node for m in domain.nodes] for domain in domains} == {
        f"{CLUSTER}.7": ["tray0", "tray1", "tray2", "tray3"],
        f"{CLUSTER[::-1]}.7": ["other"],
    }
    assert not odd


def test_a_gpu_apart_and_a_divided_cluster_are_remarked_on():
    text = (
        told("tray0", "7") + told("tray0", "N/A", "N/A") + told("tray0", "7") + told("tray1", "9")
    )
    (first, second), (apart, divided) = nvlink.parse(text)
    assert first.nodes == (DomainNode(node="tray0", gpus=(0, 2)),)
    assert second.nodes == (DomainNode(node="tray1", gpus=(0,)),)
    assert "2 of its 3 GPUs" in apart.sentence
    assert "GPU 1 is in none" in apart.sentence
    assert "clique 7: 1 nodes, clique 9: 1 nodes" in divided.sentence


def test_output_of_nvidia_smi_after_a_topology_adds_domains_and_changes_nothing_else(tmp_path):
    whole = "tray1: ==============NVSMI LOG==============\ntray1: \ntray1: Attached GPUs   : 1\n"
    whole += "tray1: GPU 00000000:0A:00.0\ntray1:     Fabric\n"
    file = tmp_path / "fabric.txt"
    table = "tray1 leaf1\nTRAY2.site leaf1\ntray3 leaf2\n"
    file.write_text(table + whole + told("tray1", "7") + told("tray2", "7"))
    survey = fabric_sources.load(file)
    assert survey.fabric.nodes == ("tray1", "TRAY2.site", "tray3")
    (domain,) = survey.fabric.domains
    assert [member.node for member in domain.nodes] == ["tray1", "TRAY2.site"]
    file.write_text(table)
    assert replace(survey.fabric, domains=()) == fabric_sources.load(file).fabric


def test_two_hosts_that_are_one_node_of_the_topology_count_once(tmp_path):
    file = tmp_path / "fabric.txt"
    file.write_text("tray1 leaf1\n" + told("tray1", "7") + told("TRAY1.site", "8"))
    survey = fabric_sources.load(file)
    assert [len(domain.nodes) for domain in survey.fabric.domains] == [1]
    assert [f.kind for f in survey.findings] == ["nvlink-cliques", "node-twice"]


def test_domains_alone_are_a_fabric_with_one_switch(tmp_path):
    file = tmp_path / "domains.txt"
    file.write_text("".join(told(f"tray{n}", "7") for n in range(3)))
    survey = fabric_sources.load(file)
    assert survey.fabric.nodes == ("tray0", "tray1", "tray2")
    assert len(survey.fabric.switches) == 1
    assert [finding.kind for finding in survey.findings] == ["no-network"]


def test_kubernetes_names_the_domain_of_a_node_by_a_label():
    labels = {"nvidia.com/gpu.clique": f"{CLUSTER}.7", "nvidia.com/gpu.count": "4"}
    items = [{"metadata": {"name": f"n{n}", "labels": labels if n else {}}} for n in range(3)]
    (domain,) = parse(str({"items": items}).replace("'", '"'), "x").fabric.domains
    assert domain.nodes == tuple(DomainNode(node=f"n{n}", gpus=(0, 1, 2, 3)) for n in (1, 2))


def test_a_fabric_by_hand_has_domains_and_a_node_is_in_one():
    text = (
        "domains:\n- {name: a, nodes: 'n[1-3]', switches: 's[1-2]'}\n- {name: b, nodes: 'n[3-4]'}\n"
    )
    survey = parse(text, "x")
    assert [len(domain.nodes) for domain in survey.fabric.domains] == [3, 1]
    assert any("n3 is already in a" in finding.sentence for finding in survey.findings)
    with pytest.raises(TopologyError, match="racks, or domains"):
        parse("racks: []\n", "x")


def test_nodes_get_the_names_by_which_they_were_asked_for_in_domains_too():
    fabric = place(RACKS, [name.upper() for name in RACKS.nodes]).fabric
    assert set(fabric.domain_of) == {name.upper() for name in RACKS.nodes}


# --- scans ------------------------------------------------------------------------------------


def scan_plan(groups: str, fabric: Fabric = RACKS, mnnvl: str = "1"):
    entry = SuiteEntry(benchmark="pair", groups=groups, env={MNNVL: mnnvl})  # type: ignore[arg-type]
    suite = Suite(name="s", summary="", benchmarks=(entry,))
    nodes = [Node(name=name, sku="x") for name in fabric.nodes]
    requested = RequestedCampaign(
        kind=CampaignKind.SCAN,
        suite=suite,
        specs={"pair": PAIR},
        policy=Policy(),
        surveyed=fabric,
        crosses_fabric=True,
    )
    return plan(suite, nodes, {"pair": PAIR}, fabric_between(requested, nodes))


@pytest.mark.parametrize("groups", ["quick", "covering", "pairs"])
def test_over_nvlink_only_nodes_of_one_domain_meet_and_in_a_full_scan_all_of_them(groups):
    made = scan_plan(groups)
    met = {frozenset(step.participants) for step in steps(made, 0, set(RACKS.nodes))}
    within = {
        frozenset(pair)
        for domain in RACKS.domains
        for pair in combinations([member.node for member in domain.nodes], 2)
    }
    assert met <= within
    assert frozenset().union(*met) == set(RACKS.nodes)
    assert groups != "pairs" or met == within


def test_the_network_is_scanned_as_if_there_were_no_domains():
    made = scan_plan("quick", mnnvl="0")
    plain = scan_plan("quick", replace(RACKS, domains=()), mnnvl="0")
    every = set(RACKS.nodes)
    assert [s.id for s in steps(made, 0, every)] == [s.id for s in steps(plain, 0, every)]


def test_a_scan_over_nvlink_needs_domains_and_does_nothing_else():
    with pytest.raises(UsageError, match="no NVLink domain"):
        scan_plan("quick", replace(RACKS, domains=()))


def measured(fabric: Fabric, *faults: Fault, noise: float = 0.01, seed: int = 0):
    network = SimulatedNetwork(fabric=fabric, faults=faults, noise=noise, seed=seed)
    flows = []
    for turn in range(3):
        for round_ in quick_rounds(fabric, fabric.nodes, seed=turn):
            joined = (joined_nics(fabric, PairTest(*pair)) for pair in round_.pairs)
            ends = [(a.rail_nic, b.rail_nic) for nics in joined for a, b in nics]
            flows += network.measure(ends, turn)
    return locate(fabric, network.observations(flows), FaultPrior(noise=noise))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part("node", "node00006"), "node00006"),
        (Part("nic", "node00006", "nvlink2"), "NVLinks of GPU 2 of node00006"),
        (Part("switch", "rack2"), "one of the 2 NVLink switches of rack2"),
    ],
)
def test_trays_nvlinks_of_a_gpu_and_switches_of_a_domain_are_told_apart(part, words):
    fabric = racks(trays=6).nvlink
    (cause,) = measured(fabric, Fault(kind="", part=part, loss=0.2)).causes
    assert cause.parts == (part,)
    assert describe(fabric, part) == words
    assert not measured(fabric).causes


@pytest.mark.parametrize("seed", range(3))
def test_no_node_is_blamed_for_a_domain_that_is_slow_by_no_more_than_pairs_scatter(seed):
    """A pair falls short by what it is bad beyond, here 9 %, or is good: then by 5 % at most."""
    fabric = racks(count=4, trays=16, gpus=1).nvlink
    rng = np.random.default_rng(seed)
    seen = []
    for pair in quick_rounds(fabric, fabric.nodes)[0].pairs:
        lost = 0.11 * (fabric.domain_of[pair[0]].name == "rack2") + abs(rng.normal(0, 0.03))
        source, target = (RailNic(node, "nvlink0") for node in pair)
        for ends in ((source, target), (target, source)):
            seen.append(Observation(Flow(*ends), lost if lost > 0.09 else min(lost, 0.05)))
    (cause,) = locate(fabric, seen, FaultPrior(noise=0.03)).causes
    assert cause.parts == (Part("switch", "rack2"),)
    assert not slow_domains(fabric, [o for o in seen if o not in cause.bad], FaultPrior())


def test_three_slow_trays_are_no_slow_domain():
    fabric = racks(trays=12).nvlink
    faults = [Fault(kind="", part=Part("node", fabric.nodes[n]), loss=0.3) for n in (0, 3, 7)]
    causes = measured(fabric, *faults).causes
    assert {cause.parts for cause in causes} == {(fault.part,) for fault in faults}


def test_counters_name_the_switch_of_a_domain_and_those_of_the_network_do_not():
    counts = (
        Count(guid="", name="rack2-switch1", port="7", counter="symbol_error", value=9_000),
        Count(guid="", name="rack2-switch2", port="1", counter="symbol_error", value=10),
        Count(guid="", name="leaf-0-0", port="1", counter="symbol_error", value=50_000),
    )
    inspection = Inspection(fabric=RACKS.nvlink, counters=Counters(counts=counts))
    first, *rest = inspection.sentences_about(Part("switch", "rack2"))
    assert first.startswith("rack2-switch1 counts 9,000 of 9,010 errors")
    assert "symbol_error 9000 at rack2-switch1 port 7" in rest
    assert not inspection.sentences_about(Part("switch", "rack1"))


# --- searches ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("per_leaf", "kinds", "smallest"),
    [(8, ["leaf", DOMAIN], DOMAIN), (2, [DOMAIN, "leaf"], "leaf")],
)
def test_domains_are_a_level_below_leaves_or_above_those_that_are_smaller(
    per_leaf, kinds, smallest
):
    fabric = racks(count=4, per_leaf=per_leaf)
    all_nodes = divide(fabric.nodes, fabric)
    assert list(all_nodes.levels()) == kinds
    assert {part.kind for part in all_nodes.leaves()} == {smallest}
    own = {tuple(member.node for member in domain.nodes) for domain in fabric.domains}
    assert set(all_nodes.levels()[DOMAIN]) == own


def test_a_group_within_a_domain_is_not_compared_with_one_across_domains():
    near, far = RACKS.nodes[:4], RACKS.nodes[2:6]
    assert _size(near, RACKS) == _size(near, replace(RACKS, domains=())) != _size(far, RACKS)
    assert "across" in _size((RACKS.nodes[0], "a node in no domain"), RACKS)


def test_slow_groups_are_filled_up_within_their_domain_beside_good_groups_of_the_same_size():
    a, b, c = (tuple(f"{rack}{n}" for n in range(6)) for rack in "abc")
    search = Search(by_comparison=True, domains=(a, b, c))
    for good in (a[3:], b, c):
        search.add_known(good, failed=False)
    tests = search.carry_out(search.narrow(a[:2], 6))
    groups = next(tests).groups
    suspects = [group for group in groups if set(group) & set(a[:2])]
    assert [len(group) for group in groups] == [len(suspects[0])] * len(groups)
    assert all(set(group) <= set(a) for group in suspects)
    controls = [group for group in groups if group not in suspects]
    assert controls
    assert all(set(group) <= set(b) or set(group) <= set(c) for group in controls)


def test_a_domain_that_is_slow_as_a_whole_is_named_and_not_taken_as_normal():
    """A group is compared with the usual pace of all groups of its size so far."""
    fabric = racks(count=4, trays=18, per_leaf=36)
    slow = {member.node for member in fabric.domains[0].nodes}
    all_nodes, paces = divide(fabric.nodes, fabric), dict[tuple[str, ...], float]()
    groups = first_groups(all_nodes)
    while groups:
        paces |= {group: 0.5 if slow & set(group) else 1.0 for group in groups}
        usual = {
            size: median([pace for group, pace in paces.items() if len(group) == size])
            for size in {len(group) for group in paces}
        }
        assert set(usual.values()) <= {0.75, 1.0}  # of two halves the slower one is known
        results = {group: pace < 0.9 * usual[len(group)] for group, pace in paces.items()}
        progress = reproduce(all_nodes, results, lambda parts: False, by_comparison=True)
        groups = progress.groups
    assert set(progress.nodes) == slow
    assert not progress.links
