"""Scans of simulated networks from the plan to the verdict: the planted part is named, and no
other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from fleets import small_fabric, spec

from anubis.core.campaign.planning import plan, steps
from anubis.core.campaign.state_machine import Failed, NodeLost
from anubis.core.errors import ExecutorError
from anubis.core.fabric import Cable, Fabric, Link, Part, Switch, rail_nics_on, single_switch
from anubis.core.judge.units import units
from anubis.core.network import attribution, confirmation, coverage, crossing, posterior
from anubis.core.network.attribution import part_verdicts
from anubis.core.network.crossing import Flow, link_part, nic_part
from anubis.core.network.localization import hops_of
from anubis.core.network.pairing import pair_test_of
from anubis.core.network.posterior import FaultPrior, Observation
from anubis.core.network.sharing import CableUse
from anubis.core.network.traffic import Traffic, observe_traffic
from anubis.core.records import (
    Campaign,
    CampaignKind,
    Count,
    Counters,
    Judgement,
    MetricSpec,
    Needs,
    Node,
    ParameterSpec,
    Policy,
    Readings,
    Suite,
    SuiteEntry,
)
from anubis.lab.simulation.simulated_fleet import SimulatedFleet
from anubis.lab.simulation.simulated_network import (
    Fault,
    SimulatedNetwork,
)
from anubis.operations.validator import carry_out
from anubis.reach.executors.programs import measured_in_part
from anubis.reach.executors.simulated import SimulatedExecutor
from anubis.report.view import CampaignView
from tests.core.made_fabrics import FatTree, statically_routed

PAIR = spec(
    "pair",
    scope="pair",
    needs=Needs(min_nodes=2),
    metrics=(
        MetricSpec(name="bandwidth_gbps", unit="GB/s", direction="higher"),
        MetricSpec(name="latency_us", unit="us", direction="lower"),
    ),
)
TWO_TIERS = FatTree(nodes=20, nodes_per_leaf=4, spines=2).fabric()
RAILS = FatTree(nodes=12, nodes_per_leaf=6, rails=2, spines=2).fabric()
BED = small_fabric(6)  # three leaves with two nodes each under one spine


class Network(SimulatedExecutor):
    """Its faults are the test's own, and so is what else goes wrong."""

    def __init__(
        self,
        fabric,
        faults=(),
        lost=(),
        broken=(),
        absent=(),
        away=(),
        noise=0.01,
        measured_as=None,
        silent=lambda step, device: False,
        is_named=False,
        omits=lambda step, series: False,
        spec=PAIR,
    ):
        names = ",".join([*fabric.nodes, *absent])
        super().__init__(SimulatedFleet(nodes=names, slow_share=0, samples=8), {"pair": spec})
        self.network = SimulatedNetwork(fabric=fabric, faults=tuple(faults), noise=noise, seed=3)
        self.away = dict.fromkeys(away, "no agent started on it")
        self.losing = dict(lost)  # node -> when
        self.broken = set(broken)
        self.measured_as = measured_as or {}  # device -> what the program calls it
        self.silent = silent  # of which devices a step measures nothing
        self.is_named = is_named  # it says so
        self.omits = omits  # which of its series a step leaves out, and ends well

    def absent(self):
        return self.away

    def launch(self, launch):
        if self.broken & set(launch.step.participants):
            step = launch.step
            self._schedule(1.0, step, launch.attempt, Failed, {"reason": "no route to host"})
        else:
            super().launch(launch)

    def _measurement(self, step, spec, **about):
        event = super()._measurement(step, spec, **about)
        devices = {series.device for series in super()._measure(step, spec)}
        failed = {device: "no answer" for device in devices if self.silent(step, device)}
        if not (self.is_named and failed):
            return event
        noted = {**event.result.environment, "failed_devices": failed}
        return measured_in_part(replace(event, result=replace(event.result, environment=noted)))

    def _measure(self, step, spec):
        return Readings.pack(
            replace(series, device="-".join(self.measured_as.get(end, end) for end in ends(series)))
            for series in super()._measure(step, spec)
            if not self.silent(step, series.device) and not self.omits(step, series)
        )

    def wait(self, until):
        events = super().wait(until)
        for node, at in list(self.losing.items()):
            if at <= self.now():
                del self.losing[node]
                events.insert(0, NodeLost(node=node, at=self.now(), reason="silent"))
        return events


def ends(series):
    """Both ends have names of one length here."""
    half = len(series.device) // 2
    return series.device[:half], series.device[half + 1 :]


def scanned(
    fabric,
    faults=(),
    groups="quick",
    criteria=(),
    history=(),
    counters=None,
    resumed=False,
    believed=None,
    **trouble,
):
    """`believed`: the fabric of the plan, if it is not that of the network."""
    executor = Network(fabric, faults, **trouble)
    specs = executor._specs
    suite = Suite(name="s", summary="", benchmarks=(SuiteEntry(benchmark="pair", groups=groups),))
    campaign = Campaign(
        id="c",
        kind=CampaignKind.SCAN,
        plan=replace(
            plan(suite, executor.nodes(), specs, believed or fabric),
            counters=counters or Counters(),
        ),
        policy=Policy(),
        executor="simulated",
        criteria=criteria,
        created_at=0.0,
    )
    outcome = carry_out(
        campaign,
        executor,
        keep=lambda batch: None,
        observe=lambda machine, events: None,
        history=history,
        resumed=resumed,
    )
    return CampaignView(
        campaign=replace(campaign, criteria=outcome.criteria),
        executions=outcome.executions,
        assessment=outcome.assessment,
        criteria=outcome.criteria,
    )


def test_a_simulated_pair_is_either_right_or_wrong():
    """Rates scatter; how many answers are right does not."""
    agreement = MetricSpec(name="agreement", unit="1", direction="higher")
    checked = replace(PAIR, metrics=(*PAIR.metrics, agreement))
    outcome = scanned(BED, spec=checked)
    samples = {
        series.metric: series.samples
        for execution in outcome.executions
        for series in execution.result.series
    }
    assert set(samples["agreement"].tolist()) == {1.0}
    assert len(set(samples["latency_us"].tolist())) == 8


def test_an_operation_with_most_nodes_unreachable_stops_until_a_person_resumes_it():
    away = BED.nodes[:4]
    sentence = r'4 of 6 nodes cannot be reached: until shown otherwise.* "no agent started on it"'
    with pytest.raises(ExecutorError, match=sentence):
        scanned(BED, away=away)
    view = scanned(BED, away=away, resumed=True)
    assert {node.node for node in view.assessment.nodes if node.code == "NODE-LOST"} == set(away)
    with pytest.raises(ExecutorError, match="6 of 6 nodes cannot be reached"):
        scanned(BED, away=BED.nodes, resumed=True)


def verdicts(view, judgement=Judgement.DEFECTIVE):
    return {part.parts for part in view.assessment.parts if part.judgement is judgement}


def uplink(fabric, leaf):
    return link_part(next(link for link in fabric.links if leaf in (link.a, link.b)))


FAULTS = {
    "node": lambda fabric: Fault(kind="", part=Part("node", fabric.nodes[5])),
    "NIC": lambda fabric: Fault(kind="", part=nic_part(fabric, fabric.nodes[5], fabric.rails[-1])),
    "cable": lambda fabric: Fault(
        kind="", part=nic_part(fabric, fabric.nodes[5], fabric.rails[0]), way="out"
    ),
    "leaf": lambda fabric: Fault(kind="", part=Part("switch", fabric.leaves[1])),
}


@pytest.mark.long
@pytest.mark.parametrize("groups", ["quick", "pairs"])
@pytest.mark.parametrize("fabric", [TWO_TIERS, RAILS, BED], ids=["tiers", "rails", "bed"])
@pytest.mark.parametrize("kind", FAULTS)
def test_the_planted_part_is_named_and_nothing_else(fabric, kind, groups):
    fault = FAULTS[kind](fabric)
    view = scanned(fabric, [fault], groups)
    assert verdicts(view) == {(fault.part,)}
    sick = {fault.part.name} if fault.part.kind in ("node", "nic") else set()
    assert set(view.assessment.named(Judgement.DEFECTIVE)) == sick


@pytest.mark.parametrize("groups", ["quick", "covering", "pairs"])
def test_a_slow_uplink_of_one_of_three_leaves_is_named_though_most_pairs_cross_it(groups):
    fault = Fault(kind="", part=uplink(BED, "leaf-0-1"), loss=0.6)
    view = scanned(BED, [fault], groups)
    assert verdicts(view) == {(fault.part,)}
    assert len(view.assessment.named(Judgement.HEALTHY)) == 6
    (part,) = view.assessment.parts
    assert part.code == "NETWORK.LINK"
    assert any("4 hops: leaf-0-1, spine-0-0, leaf-0-" in line for line in part.evidence)


def test_uplinks_that_a_slow_leaf_lacks_are_part_of_its_evidence():
    lost = ("leaf-0-1", "spine-0-0")
    links = tuple(link for link in TWO_TIERS.links if (link.a, link.b) != lost)
    fault = Fault(kind="", part=Part("switch", "leaf-0-1"))
    (part,) = scanned(replace(TWO_TIERS, links=links), [fault]).assessment.parts
    assert any("leaf-0-1 has 1 of the 2 uplinks" in line for line in part.evidence)
    (whole,) = scanned(TWO_TIERS, [fault]).assessment.parts
    assert not any("uplinks" in line for line in whole.evidence)


@pytest.mark.parametrize(
    "fabric", [TWO_TIERS, RAILS, BED, single_switch([f"n{i}" for i in range(9)])]
)
def test_a_healthy_network_has_no_causes(fabric):
    view = scanned(fabric)
    assert not view.assessment.parts
    assert view.assessment.named(Judgement.HEALTHY) == fabric.nodes


@pytest.mark.long
@pytest.mark.parametrize(
    ("fabric", "noise", "groups"),
    [
        (TWO_TIERS, 0.02, "quick"),
        (TWO_TIERS, 0.05, "pairs"),
        (RAILS, 0.03, "quick"),
        (RAILS, 0.5, "pairs"),
        (BED, 0.02, "pairs"),
        (BED, 0.05, "quick"),
    ],
)
def test_noise_alone_puts_nothing_in_the_network_at_fault(fabric, noise, groups):
    view = scanned(fabric, groups=groups, noise=noise)
    assert not verdicts(view)
    assert not view.assessment.named(Judgement.DEFECTIVE)


CROWDED = FatTree(nodes=128, nodes_per_leaf=16, spines=16).fabric()
PODS = FatTree(nodes=128, nodes_per_leaf=8, leaves_per_pod=4, spines=8, cores=4).fabric()


@cache
def scanned_while_well(fabric):
    return scanned(fabric)


def test_tables_that_are_older_than_the_cables_let_no_pairs_blame_the_cable_that_they_share():
    """By the tables these pairs never meet, so they run at once, and some share a cable."""
    fabric = FatTree(nodes=12, nodes_per_leaf=6, spines=2).fabric()
    view = scanned(fabric, groups="covering", believed=statically_routed(fabric))
    assert not verdicts(view)
    assert not view.assessment.named(Judgement.DEFECTIVE)


@pytest.mark.parametrize(("node", "uplink"), [("node00001", 0), ("node00006", 3)])
def test_a_node_that_the_topology_takes_for_another_is_not_blamed_for_a_slow_uplink(node, uplink):
    """The same pairs are slow each time, as a node that comes and goes does not make them; or they
    lose as much as those of the uplink."""
    fabric = FatTree(nodes=24, nodes_per_leaf=6, spines=4).fabric()
    exchanged = {node: "node00014", "node00014": node}
    nics = (replace(nic, node=exchanged.get(nic.node, nic.node)) for nic in fabric.nics)
    slow = [link for link in fabric.links if link.a == fabric.leaves[0]][uplink]
    fault = Fault(kind="lossy uplink", part=link_part(slow), loss=0.45)
    view = scanned(fabric, [fault], believed=replace(fabric, nics=tuple(nics)))
    assert not view.assessment.named(Judgement.DEFECTIVE)
    assert any(link_part(slow) in parts for parts in verdicts(view))


class Disturbed:
    """NumPy on another processor: logarithms and exponentials differ in their last bit."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        for name in ("exp", "expm1", "log", "log1p", "sqrt"):
            setattr(self, name, self._disturb(getattr(np, name)))

    def __getattr__(self, name):
        return getattr(np, name)

    def _disturb(self, function):
        def disturbed(*values):
            exact = function(*values)
            return exact * (1 + self._rng.integers(-1, 2, np.shape(exact)) * np.finfo(float).eps)

        return disturbed


def test_the_last_bits_of_a_processor_decide_nothing(monkeypatch):
    """The next pairs follow from the likeliest causes of a slow uplink, and many are as likely."""
    fabric = FatTree(nodes=24, nodes_per_leaf=6, spines=4).fabric()
    slow = next(link for link in fabric.links if link.a == fabric.leaves[0])
    fault = Fault(kind="lossy uplink", part=link_part(slow), loss=0.45)
    exact = scanned(fabric, [fault])
    assert any(link_part(slow) in parts for parts in verdicts(exact))
    for module in (posterior, confirmation, crossing, coverage, attribution):
        monkeypatch.setattr(module, "np", Disturbed(seed=1))
    disturbed = scanned(fabric, [fault])
    assert disturbed.assessment.parts == exact.assessment.parts
    assert {e.step.id for e in disturbed.executions} == {e.step.id for e in exact.executions}


@pytest.mark.parametrize("losses", [(0.5, 0.5), (0.5, 0.2)])
def test_a_spine_is_blamed_for_its_flows_only_if_they_lose_the_same_share(losses):
    """Every flow across the spine begins at one of two leaves."""
    fabric = FatTree(nodes=12, nodes_per_leaf=2, spines=2).fabric()
    seen = []
    for spine, (place, loss) in product(("spine-0-0", "spine-0-1"), enumerate(losses)):
        for target in range(4, 12):
            a, b = (fabric.nic(fabric.nodes[n], "0") for n in (2 * place + target % 2, target))
            via = (a.switch, spine, b.switch)
            back = tuple(reversed(via))
            flow = Flow(a.rail_nic, b.rail_nic, via, back=back, mutual=True)
            seen.append(Observation(flow, loss if spine == "spine-0-0" else 0.0))
    (verdict,) = part_verdicts(fabric, Traffic(observations=tuple(seen), unmeasured=frozenset()))
    is_same = len(set(losses)) == 1
    assert verdict.judgement is (Judgement.DEFECTIVE if is_same else Judgement.UNKNOWN)


def outline(fabric):
    """A tree of leaves and one switch above, as Slurm has it."""
    switches = [switch for switch in fabric.switches if switch.id in fabric.leaves]
    links = (Link(a=leaf, b="top", cables=(Cable(),)) for leaf in fabric.leaves)
    return Fabric(
        switches=(
            *(replace(leaf, tier=1) for leaf in switches),
            Switch(id="top", name="top", tier=2),
        ),
        links=tuple(links),
        nics=tuple(replace(nic, device="", rail="", port="") for nic in fabric.nics),
        is_outline=True,
    )


def test_a_tree_that_hides_the_spines_proves_a_slow_node_and_no_link():
    """One way of one of four uplinks is slow; in the tree all of them are one link."""
    fabric = FatTree(nodes=24, nodes_per_leaf=6, spines=4).fabric()
    slow = next(link for link in fabric.links if link.a == fabric.leaves[1])
    uplink = Fault(kind="lossy uplink", part=link_part(slow), loss=0.45, way="out")
    view = scanned(fabric, [uplink], "covering", believed=outline(fabric))
    assert not view.assessment.named(Judgement.DEFECTIVE)
    of_parts = view.assessment.parts
    assert {part.judgement for part in of_parts} == {Judgement.UNKNOWN}
    assert any("ibnetdiscover" in part.reason for part in of_parts)
    node = Fault(kind="slow node", part=Part("node", "node00010"), loss=0.45)
    view = scanned(fabric, [node], "covering", believed=outline(fabric))
    assert view.assessment.named(Judgement.DEFECTIVE) == ("node00010",)


@pytest.mark.parametrize("fabric", [CROWDED, PODS], ids=["tree", "pods"])
def test_pairs_that_could_share_cables_put_nothing_at_fault(fabric):
    """At once 62 % of the flows of the tree fall short, and nothing can be judged. Some pairs of
    different pods share a cable."""
    view = scanned_while_well(fabric)
    assert not view.assessment.parts
    assert view.assessment.named(Judgement.HEALTHY) == fabric.nodes


def undisturbed(view):
    """Measurements that met no others, by what cables they may have taken and when they ran."""
    use = CableUse(view.campaign.plan.fabric)
    for run in view.executions:
        if run.step.turn:
            cables = {
                cable
                for way in use.find_ways(pair_test_of(run.step))
                for cable in way.cable.tolist()
            }
            yield cables, run.started_at, run.started_at + run.duration_s


def test_follow_up_pairs_share_no_cable_at_the_same_time():
    """On a fabric on which some pairs shared a cable before, which is why they are measured
    again, and no others, as all are good then."""
    view = scanned_while_well(PODS)
    planned = {run.step.participants for run in view.executions if not run.step.turn}
    assert {run.step.participants for run in view.executions if run.step.turn} < planned
    after = list(undisturbed(view))
    assert len(after) > 4
    for (first, begin, end), (second, other_begin, other_end) in combinations(after, 2):
        assert first.isdisjoint(second) or end <= other_begin or other_end <= begin


ACROSS = replace(
    PAIR,
    parameters=tuple(
        ParameterSpec(name=name, type=kind, default=default, of_pair_test=True)
        for name, kind, default in (("shift", "int", 0), ("rails", "str", ""))
    ),
)
UPPER = FatTree(
    nodes=32, nodes_per_leaf=8, spines=4, cores=4, rails=4, rail_spines=True
).fabric()  # 16 cables above the spines of each rail


def test_a_bad_cable_above_the_spines_is_found_in_its_class_despite_shared_cables():
    """Each pair that crossed it may have met another one there, and misses it the second time."""
    fault = Fault(kind="", part=link_part(next(k for k in UPPER.links if "core" in k.b)), loss=0.4)
    view = scanned(UPPER, [fault], "covering", spec=ACROSS)
    (blamed,) = (part for part in view.assessment.parts if part.judgement is Judgement.DEFECTIVE)
    assert fault.part in blamed.parts
    assert {part.name for part in blamed.parts} == {f"spine-0-0-{n}" for n in range(4)}
    assert len(blamed.parts) == 16
    assert "16 links between spine-0-0-0 to spine-0-0-3, core-0 to core-3" in blamed.reason
    assert view.assessment.named(Judgement.HEALTHY) == UPPER.nodes


def test_without_a_topology_a_slow_node_is_still_found():
    fabric = single_switch([f"n{i}" for i in range(9)])
    assert verdicts(scanned(fabric, [FAULTS["node"](fabric)])) == {(Part("node", "n5"),)}


def test_a_slow_leaf_that_carries_a_whole_rail_is_not_taken_as_normal():
    fabric = FatTree(nodes=16, nodes_per_leaf=16, rails=4).fabric()
    fault = Fault(kind="", part=Part("switch", "leaf-2-0"))
    assert verdicts(scanned(fabric, [fault])) == {(fault.part,)}


def test_port_counters_are_listed_as_evidence_of_their_part():
    def count(leaf, port):
        return Count(guid=leaf, name=leaf, port=port, counter="symbol_error", value=1523)

    told = Counters(counts=(count("leaf-0-1", "1"), count("leaf-0-2", "2")))  # n2's, and n5's
    (part,) = scanned(BED, [FAULTS["node"](BED)], counters=told).assessment.parts
    (counted,) = [line for line in part.evidence if "symbol_error" in line]
    assert "1523" in counted
    assert "leaf-0-2" in counted


def test_a_node_that_is_lost_in_the_middle_is_unknown_and_its_partners_are_not_blamed():
    view = scanned(TWO_TIERS, lost={TWO_TIERS.nodes[3]: 1_700_000_012.0})
    assert view.assessment.named(Judgement.UNKNOWN) == (TWO_TIERS.nodes[3],)
    assert len(view.assessment.named(Judgement.HEALTHY)) == 19
    assert not view.assessment.parts


def test_a_node_that_cannot_be_measured_is_unknown_by_name():
    view = scanned(TWO_TIERS, broken={TWO_TIERS.nodes[5]})
    assert verdicts(view, Judgement.UNKNOWN) == {(Part("node", TWO_TIERS.nodes[5]),)}
    assert view.assessment.named(Judgement.UNKNOWN) == (TWO_TIERS.nodes[5],)
    assert not view.assessment.named(Judgement.DEFECTIVE)


@pytest.mark.long
def test_a_whole_leaf_that_cannot_be_reached_is_unknown_and_named():
    leaf = FatTree(nodes=18, nodes_per_leaf=6, spines=2).fabric()
    away = {nic.node for nic in leaf.nics_on[leaf.leaves[1]]}
    view = scanned(leaf, groups="pairs", broken=away)
    assert set(view.assessment.named(Judgement.UNKNOWN)) == away
    assert not view.assessment.named(Judgement.DEFECTIVE)
    assert len(view.assessment.named(Judgement.HEALTHY)) == 12


def test_a_node_missing_from_the_topology_is_unknown_with_that_reason():
    view = scanned(BED, absent=["stranger"])
    (node,) = [node for node in view.assessment.nodes if node.judgement is Judgement.UNKNOWN]
    assert (node.node, node.code) == ("stranger", "NOT-PLACED")


def test_suspects_meet_good_nodes_in_one_more_turn_and_teach_nothing():
    view = scanned(TWO_TIERS, [FAULTS["node"](TWO_TIERS)])
    planned = [each for each in view.executions if not each.step.turn]
    after = [each.step for each in view.executions if each.step.turn]
    assert {step.turn for step in after} == {1}
    assert any(TWO_TIERS.nodes[5] in step.participants for step in after)
    taught = sum(
        len(alike) for alike in units(planned, view.campaign.plan) if "rate" in alike.key.metric
    )
    assert taught == sum(
        c.units for s in view.criteria for c in s.criteria if "rate" in c.key.metric
    )


@pytest.mark.parametrize("share", [0.3, 0.9, 1.0])
def test_a_scan_that_was_cut_short_comes_to_the_same_verdict_with_the_rest_only(share):
    fault = FAULTS["node"](TWO_TIERS)
    whole = scanned(TWO_TIERS, [fault])
    kept = whole.executions[: int(share * len(whole.executions))]
    resumed = scanned(TWO_TIERS, [fault], history=kept)
    assert resumed.executions[: len(kept)] == kept
    assert len(resumed.executions) == len(whole.executions)
    assert resumed.assessment.nodes == whole.assessment.nodes


def test_earlier_criteria_judge_a_network_that_is_slow_everywhere_and_no_leaf_is_blamed_for_it():
    good = scanned(TWO_TIERS)
    slow = [Fault(kind="", part=Part("switch", leaf)) for leaf in TWO_TIERS.leaves]
    assert not scanned(TWO_TIERS, slow).assessment.named(Judgement.DEFECTIVE)
    view = scanned(TWO_TIERS, slow, criteria=good.criteria)
    (whole,) = view.assessment.parts  # one sentence: no leaf is worse
    assert (whole.code, len(whole.evidence)) == ("NO-CONTRAST", len(TWO_TIERS.leaves))
    assert whole.reason.startswith(f"all {len(TWO_TIERS.leaves)} leaves: ")
    assert "below the criteria, by 30% at the median" in whole.reason
    assert view.assessment.judgement is Judgement.UNKNOWN
    assert not view.assessment.named(Judgement.HEALTHY)


def test_pairs_are_compared_at_equal_distance_only():
    view = scanned(RAILS, groups="pairs")
    by_hand = defaultdict(set)
    for execution in view.executions:
        for series in execution.result.series:
            rail = series.device.partition("-")[0].removeprefix("mlx5_")
            hops = hops_of(RAILS, Flow(*rail_nics_on(*execution.step.participants, rail)))
            by_hand[hops, series.metric].add((execution.step.participants, series.device))
    found = {
        (int(alike.key.sku.split()[-2]), alike.key.metric): set(
            zip(alike.participants, alike.devices, strict=True)
        )
        for alike in units(view.executions, view.campaign.plan)
    }
    assert found == by_hand


def test_a_flow_is_as_bad_as_its_worst_metric():
    view = scanned(TWO_TIERS, [FAULTS["cable"](TWO_TIERS)], groups="pairs")
    worst = {}
    for verdict in view.assessment.verdicts():
        if len(verdict.participants) == 1:
            continue
        one, other = verdict.participants
        way = verdict.metric.partition(":")[2]
        flow = {
            "forth": Flow(*rail_nics_on(one, other, "0")),
            "back": Flow(*rail_nics_on(other, one, "0")),
            "": Flow(*rail_nics_on(one, other, "0"), mutual=True),
        }[way]
        short = 1 - verdict.similarity
        worst[flow] = max(worst.get(flow, 0.0), short)
    slow = FaultPrior().limit
    expected = {flow: short for flow, short in worst.items() if short > slow or not flow.mutual}
    assert 0 < len(expected) < len(worst)
    seen = observe_traffic(TWO_TIERS, view.assessment.alone, view.assessment.batch_verdicts)
    assert {each.flow: each.shortfall for each in seen.observations} == pytest.approx(expected)
    assert not seen.unmeasured


def test_right_bytes_over_a_slow_link_are_no_good_flow():
    """Or the link would be said to be slow on and off."""
    right = MetricSpec(name="agreement", unit="1", direction="higher")
    pair = replace(PAIR, metrics=(PAIR.metrics[0], right))
    fabric = small_fabric(12)  # six leaves with two nodes each under one spine
    (uplink,) = fabric.uplinks("leaf-0-1")
    fault = Fault(kind="", part=link_part(uplink), loss=0.6)
    view = scanned(fabric, [fault], groups="pairs", spec=pair)
    (verdict,) = view.assessment.parts
    assert verdict.parts == (link_part(uplink),)
    # of two nodes with ten others, both ways
    assert "in all 40 flows that may cross it" in verdict.reason
    assert "on and off" not in verdict.reason


def test_a_full_scan_pairs_the_nodes_that_the_topology_knows():
    nodes = [Node(name=name, sku="s") for name in (*BED.nodes, "x")]
    suite = Suite(name="s", summary="", benchmarks=(SuiteEntry(benchmark="pair", groups="pairs"),))
    planned = plan(suite, nodes, {"pair": PAIR}, BED)
    met = [frozenset(step.participants) for step in steps(planned, 0, {*BED.nodes, "x"})]
    assert set(met) == {frozenset(pair) for pair in combinations(BED.nodes, 2)}
    assert len(met) == 15
