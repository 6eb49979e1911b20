"""A job that fails as a whole is divided until the part that still fails is left, and the others go
back to work."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from fleets import spec

from anubis.core.campaign.follow_ups import _steps_across
from anubis.core.campaign.planning import plan
from anubis.core.fabric import Fabric, Part
from anubis.core.judge.group_verdicts import SIZE
from anubis.core.network.crossing import link_part
from anubis.core.network.reproduction import (
    Division,
    divide,
    first_groups,
    most_rounds,
    most_rounds_together,
    reproduce,
)
from anubis.core.records import (
    Assessment,
    Campaign,
    CampaignKind,
    Judgement,
    Needs,
    Policy,
    Readings,
    Series,
    Suite,
    SuiteEntry,
    sets_taught_by,
)
from anubis.lab.simulation.simulated_fleet import SimulatedFleet
from anubis.lab.simulation.simulated_network import Fault, SimulatedNetwork
from anubis.operations.validator import CampaignOutcome, carry_out
from anubis.reach.executors.simulated import SimulatedExecutor
from tests.core.made_fabrics import FatTree

TREE = FatTree(nodes=32, nodes_per_leaf=4, leaves_per_pod=2, spines=2, cores=4)
FABRIC = TREE.fabric()
NODES = FABRIC.nodes
PODS = [NODES[i : i + 8] for i in range(0, 32, 8)]
MODEL = spec("model", scope="group", needs=Needs(min_nodes=2))
LONG = spec("long", scope="group", needs=Needs(min_nodes=2))
PAIR = spec("pair", scope="pair", needs=Needs(min_nodes=2))
ALONE = spec("alone")
SPECS = {each.name: each for each in (MODEL, LONG, PAIR, ALONE)}
GROUPS = (MODEL.name, LONG.name)
SUITE = Suite(
    name="s",
    summary="",
    benchmarks=(
        SuiteEntry(benchmark="alone"),
        SuiteEntry(benchmark="model", groups="parts"),
        SuiteEntry(benchmark="pair", groups="across"),
    ),
)


TWO_PROGRAMS = replace(
    SUITE,
    benchmarks=(
        *SUITE.benchmarks,
        SuiteEntry(benchmark="long", groups="parts", duration_s=3 * MODEL.duration_s),
    ),
)
THREE_LEAVES = FatTree(nodes=6, nodes_per_leaf=2, spines=1).fabric()


class Cluster(SimulatedExecutor):
    """A group hangs, or is slow, if it has any of these sets of nodes whole; or if it leads over a
    bad core or leaf, or has more than so many nodes. What comes and goes shows in a share of its
    tests."""

    def __init__(
        self,
        *bad: set[str],
        slow: bool = False,
        bad_switch: str = "",
        share: float = 1.0,
        above: int = 0,
    ) -> None:
        super().__init__(SimulatedFleet(nodes="node[00001-00032]", slow_share=0), SPECS, FABRIC)
        self.bad, self.slow, self.bad_switch = bad, slow, bad_switch
        self.share, self.above = share, above
        faults = (
            (Fault(kind="drops", part=Part("switch", bad_switch), loss=0.8),) if bad_switch else ()
        )
        self.network = SimulatedNetwork(fabric=FABRIC, faults=faults)

    def _is_bad(self, step):
        met = set(step.participants)
        pods = sum(not met.isdisjoint(pod) for pod in PODS)
        below = {nic.node for nic in FABRIC.nics_on.get(self.bad_switch, ())}
        if len(met) <= self.above:
            return False
        if self.above and not self.bad:
            return True
        if np.random.default_rng([3, *step.id.encode()]).random() >= self.share:
            return False
        over = pods > 1 if self.bad_switch.startswith("core") else bool(met & below)
        return any(nodes <= met for nodes in self.bad) or (bool(self.bad_switch) and over)

    def _troubles(self, step):
        fails = step.workload.benchmark in GROUPS and not self.slow and self._is_bad(step)
        return {"hang": step.participants[0]} if fails else {}

    def _measure(self, step, spec):
        if step.workload.benchmark not in GROUPS:
            return super()._measure(step, spec)
        rng = np.random.default_rng(len(step.id))
        rate = rng.normal(50.0 if self._is_bad(step) else 100.0, 0.5, 8)
        return Readings.pack([Series(metric="rate", device="cpu", samples=rate)])


class Leaves(SimulatedExecutor):
    """Leaves under one spine; the only uplink of one of them may be slow."""

    def __init__(self, fabric: Fabric, slow_leaf: str = "", seed: int = 0) -> None:
        nodes = ",".join(fabric.nodes)
        super().__init__(SimulatedFleet(nodes=nodes, slow_share=0), SPECS, fabric)
        (uplink,) = fabric.uplinks(slow_leaf) if slow_leaf else (None,)
        faults = (Fault(kind="slow", part=link_part(uplink), loss=0.85),) if uplink else ()
        self.network = SimulatedNetwork(fabric=fabric, faults=faults, noise=0.15, seed=seed)
        self.below = {nic.node for nic in fabric.nics_on.get(slow_leaf, ())}
        self.rng = np.random.default_rng(seed)

    def _measure(self, step, spec):
        if step.workload.benchmark != "model":
            return super()._measure(step, spec)
        crosses = 0 < len(self.below & set(step.participants)) < len(step.participants)
        rate = self.rng.normal(15.0 if crosses else 100.0, 0.5, 8)
        return Readings.pack([Series(metric="rate", device="cpu", samples=rate)])


def located(
    cluster, history=(), criteria=(), fabric=FABRIC, alpha=0.95, suite=SUITE
) -> tuple[CampaignOutcome, list[set[str]]]:
    released: list[set[str]] = []
    campaign = Campaign(
        id="c",
        kind=CampaignKind.LOCATE,
        plan=plan(suite, cluster.nodes(), SPECS, fabric),
        policy=Policy(alpha=alpha),
        executor="simulated",
        created_at=0.0,
        criteria=criteria,
    )
    outcome = carry_out(
        campaign,
        cluster,
        keep=lambda batch: None,
        observe=lambda machine, events: None,
        history=history,
        release=lambda nodes: released.append(set(nodes)),
    )
    return outcome, released


@cache
def located_while_well() -> tuple[CampaignOutcome, list[set[str]]]:
    return located(Cluster())


def rounds(outcome: CampaignOutcome) -> int:
    return max(run.step.turn for run in outcome.executions) + 1


def groups(outcome: CampaignOutcome, turn: int) -> set[tuple[str, ...]]:
    runs = (run.step for run in outcome.executions if run.step.workload.benchmark == "model")
    return {step.participants for step in runs if step.turn == turn}


def test_nodes_are_divided_by_pods_and_leaves_of_the_fabric():
    all_nodes = divide(NODES, FABRIC)
    assert [part.nodes for part in all_nodes.parts] == PODS
    assert {leaf.nodes for leaf in all_nodes.leaves()} == {
        NODES[i : i + 4] for i in range(0, 32, 4)
    }
    on_rails = FatTree(nodes=16, nodes_per_leaf=8, spines=2, rails=2).fabric()
    assert [len(part.nodes) for part in divide(on_rails.nodes, on_rails).parts] == [8, 8]
    assert first_groups(divide(NODES)) == (NODES,)


def test_nodes_that_are_alone_on_their_switches_meet_each_other_and_none_is_left_out():
    one_each = (*NODES[:2], NODES[8], NODES[16])  # a leaf, and one node of each of two further pods
    assert first_groups(divide(one_each, FABRIC)) == (NODES[:2], (NODES[8], NODES[16]))
    alone = (*NODES[:2], *NODES[8:10], NODES[16])
    assert first_groups(divide(alone, FABRIC)) == ((*NODES[:2], NODES[16]), NODES[8:10])


@pytest.mark.parametrize("slow", [False, True])
def test_a_bad_node_is_found_by_pod_leaf_and_halves_and_the_others_go_back_after_one_round(slow):
    outcome, released = located(Cluster({NODES[5]}, slow=slow))
    assert outcome.assessment.named(Judgement.DEFECTIVE) == (NODES[5],)
    assert groups(outcome, 0) == set(PODS)
    assert groups(outcome, 1) == {NODES[0:4], NODES[4:8]}
    assert rounds(outcome) <= most_rounds(divide(NODES, FABRIC))
    pod = set(PODS[0])
    assert pod.isdisjoint(released[0])
    assert len(released[0]) > len(NODES) / 2
    last = {node for run in outcome.executions for node in run.step.participants if run.step.turn}
    assert released[0].isdisjoint(last)


@pytest.mark.parametrize("slow", [False, True])
def test_a_bad_leaf_is_named_as_a_switch_and_none_of_its_nodes(slow):
    leaf = "leaf-0-1"
    outcome, released = located(Cluster(bad_switch=leaf, slow=slow))
    assert not outcome.assessment.named(Judgement.DEFECTIVE)
    (named,) = outcome.assessment.parts
    assert named.parts == (Part("switch", leaf),)
    assert set(named.nodes) == {nic.node for nic in FABRIC.nics_on[leaf]}
    assert len(released[0]) > len(NODES) / 2
    each_alone = 4 if slow else 1  # slow groups keep their size, so good nodes are few
    assert rounds(outcome) <= 3 + each_alone


def test_a_search_ends_under_any_answers_of_its_groups():
    class Arbitrary(Cluster):
        def _is_bad(self, step):
            return np.random.default_rng([4, *step.id.encode()]).random() < 0.4

        def launch(self, launch):
            assert launch.step.turn < 60
            super().launch(launch)

    located(Arbitrary(slow=True))


def test_no_pairs_across_parts_are_asked_of_nodes_that_went_back():
    whole = plan(SUITE, Cluster().nodes(), SPECS, FABRIC)
    parts = NODES[:4], NODES[4:8]

    def pairs(gone):
        return list(_steps_across(whole, 1, 2, Assessment(alone=(), nodes=()), {}, parts, gone))

    assert pairs(gone=frozenset())
    assert not pairs(gone=frozenset(NODES[:4]))


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("sick", [(0, 2), (1, 2, 3)])
def test_several_bad_nodes_in_both_halves_of_a_leaf_are_named_and_not_the_switch(sick, slow):
    nodes = [NODES[4 + place] for place in sick]
    outcome, _ = located(Cluster(*({node} for node in nodes), slow=slow))
    assert outcome.assessment.named(Judgement.DEFECTIVE) == tuple(nodes)
    assert not outcome.assessment.parts


def test_two_bad_nodes_in_two_pods_are_both_found():
    outcome, _ = located(Cluster({NODES[5]}, {NODES[30]}))
    assert outcome.assessment.named(Judgement.DEFECTIVE) == (NODES[5], NODES[30])


@pytest.mark.parametrize("slow", [False, True])
def test_if_all_pods_are_well_and_the_whole_is_not_pairs_across_pods_name_the_core(slow):
    outcome, released = located(Cluster(bad_switch="core-1", slow=slow))
    assert {len(group) for group in groups(outcome, 1)} == {2 * len(PODS[0])}
    assert not outcome.assessment.named(Judgement.DEFECTIVE)
    pairs = [run.step for run in outcome.executions if run.step.workload.benchmark == "pair"]
    pod_of = {node: number for number, pod in enumerate(PODS) for node in pod}
    began = min(step.turn for step in pairs)
    # rounds in which two pods meet and then all nodes, as nothing stands out, or a round that fails
    assert began == (5 if slow else 2)
    first = [step.participants for step in pairs if step.turn == began]
    # other pairs are chosen by those that are bad again, not by all that fell short once
    assert {step.participants for step in pairs if step.turn == began + 1} < {*first}
    crossing = [pair for pair in first if len({pod_of[node] for node in pair}) > 1]
    inside = [pair for pair in first if pair not in crossing]
    assert len(inside) == 2 * len(PODS)
    assert {node for pair in crossing for node in pair} & {node for pair in inside for node in pair}
    leaf_of = {nic.node: nic.switch for nic in FABRIC.nics}
    assert all(leaf_of[a] == leaf_of[b] for a, b in inside)
    named = {part for verdict in outcome.assessment.parts for part in verdict.parts}
    assert Part("switch", "core-1") in named or any("core-1" in part.other for part in named)
    assert not slow or released == [
        set(NODES) - {node for step in pairs for node in step.participants}
    ]


@pytest.mark.long
@pytest.mark.parametrize("before", ["no pairs", "pairs inside pods", "nothing to trust"])
def test_pairs_across_that_were_not_learned_before_teach_themselves(before):
    healthy, _ = located_while_well()

    def kept(criterion):
        if criterion.key.workload.benchmark != "pair":
            return criterion
        if before == "nothing to trust":
            return replace(criterion, refusal="learned from 1 of the 3 units it takes")
        inside = before == "pairs inside pods" and criterion.key.sku.endswith(" at 2 hops")
        return criterion if inside else None

    learned = tuple(
        replace(of_sku, criteria=tuple(filter(None, map(kept, of_sku.criteria))))
        for of_sku in healthy.criteria
        if any(map(kept, of_sku.criteria))
    )
    assert learned
    cluster = Cluster(bad_switch="core-1", slow=True)
    outcome, _ = located(cluster, criteria=learned)
    named = {part for verdict in outcome.assessment.parts for part in verdict.parts}
    assert Part("switch", "core-1") in named or any("core-1" in part.other for part in named)
    assert not outcome.assessment.named(Judgement.DEFECTIVE)


class OneSlow(SimulatedExecutor):
    """Leaves of eight nodes. One node, or none, makes its groups slow."""

    def __init__(self, nodes: int, slow: int | None) -> None:
        self.fabric = FatTree(nodes=nodes, nodes_per_leaf=8, spines=2).fabric()
        names = ",".join(self.fabric.nodes)
        super().__init__(SimulatedFleet(nodes=names, slow_share=0), SPECS, self.fabric)
        self.slow = self.fabric.nodes[slow] if slow is not None else ""
        self.rng = np.random.default_rng(0)

    def _measure(self, step, spec):
        if step.workload.benchmark != "model":
            return super()._measure(step, spec)
        rate = self.rng.normal(50.0 if self.slow in step.participants else 100.0, 0.5, 8)
        return Readings.pack([Series(metric="rate", device="cpu", samples=rate)])


@pytest.mark.parametrize("node", [0, 15])
def test_the_slower_of_two_parts_is_searched(node):
    cluster = OneSlow(nodes=16, slow=node)
    outcome, _ = located(cluster, fabric=cluster.fabric)
    assert outcome.assessment.named(Judgement.DEFECTIVE) == (cluster.slow,)


@pytest.mark.parametrize("slow", [None, 3])
def test_leaves_of_different_sizes_are_compared_by_groups_of_one_size(slow):
    """Leaves of 8, 8, 8 and 6 nodes."""
    cluster = OneSlow(nodes=30, slow=slow)
    assessment = located(cluster, fabric=cluster.fabric)[0].assessment
    assert assessment.named(Judgement.DEFECTIVE) == ((cluster.slow,) if cluster.slow else ())
    assert assessment.judgement is (Judgement.DEFECTIVE if cluster.slow else Judgement.HEALTHY)
    assert len(assessment.named(Judgement.HEALTHY)) >= 24


def test_a_node_of_all_groups_of_a_size_is_not_called_good_because_these_are_alike():
    """Leaves of 8, 8 and 6 nodes. The third one meets each of the others, as no others of 14 do."""
    cluster = OneSlow(nodes=22, slow=21)
    assessment = located(cluster, fabric=cluster.fabric)[0].assessment
    assert set(assessment.named(Judgement.UNKNOWN)) == set(cluster.fabric.nodes[16:])
    assert not assessment.named(Judgement.DEFECTIVE)


def uplink_located(fabric: Fabric, leaf: str, seed: int = 0) -> CampaignOutcome:
    """A locate of an uplink, judged by what one taught while all was well."""
    loose = 0.5
    healthy, _ = located(Leaves(fabric, seed=100 + seed), fabric=fabric, alpha=loose)
    cluster = Leaves(fabric, leaf, seed)
    before = sets_taught_by(healthy.criteria, plan(SUITE, cluster.nodes(), SPECS, fabric))
    outcome, _ = located(cluster, criteria=before, fabric=fabric, alpha=loose)
    assert not outcome.assessment.named(Judgement.DEFECTIVE)
    return outcome


@pytest.mark.parametrize(("seed", "leaf"), [*enumerate(THREE_LEAVES.leaves)])
def test_the_only_uplink_of_a_leaf_is_named_and_neither_the_leaf_nor_its_nodes(seed, leaf):
    """Both nodes of the leaf are in every bad pair, until they meet each other."""
    outcome = uplink_located(THREE_LEAVES, leaf, seed)
    (verdict,) = outcome.assessment.parts
    assert verdict.judgement is Judgement.DEFECTIVE
    (uplink,) = THREE_LEAVES.uplinks(leaf)
    assert verdict.parts == (link_part(uplink),)


def test_slow_pairs_between_two_leaves_lack_a_comparison_and_the_reason_states_it():
    fabric = FatTree(nodes=8, nodes_per_leaf=4, spines=1).fabric()
    outcome = uplink_located(fabric, "leaf-0-1")
    (verdict,) = outcome.assessment.parts
    assert {link_part(link) for link in fabric.links if fabric.is_uplink(link)} <= set(
        verdict.parts
    )
    assert "nothing to compare it with" in verdict.reason


def test_a_fault_between_two_leaves_of_a_pod_is_searched_by_pairs_of_that_pod():
    outcome, released = located(Cluster({NODES[1], NODES[6]}))
    pairs = [run.step for run in outcome.executions if run.step.workload.benchmark == "pair"]
    assert {node for step in pairs for node in step.participants} <= set(PODS[0])
    assert pairs
    assert released[0] >= set(PODS[2]) | set(PODS[3])
    assert not outcome.assessment.named(Judgement.DEFECTIVE)


@pytest.mark.parametrize("slow", [False, True])
def test_two_nodes_of_two_pods_that_fail_only_together_are_found(slow):
    """Every two pods meet, and two that fail together are halved; no pair is needed."""
    pair = {NODES[6], NODES[27]}
    outcome, _ = located(Cluster(pair, slow=slow))
    assert not [run for run in outcome.executions if run.step.workload.benchmark == "pair"]
    smallest = min(outcome.assessment.parts, key=lambda part: len(part.nodes))
    assert set(smallest.nodes) == pair
    assert not outcome.assessment.named(Judgement.DEFECTIVE)
    together = most_rounds_together(divide(NODES, FABRIC))
    assert rounds(outcome) <= 6 + together


def test_a_failure_that_does_not_recur_blames_no_node():
    outcome, released = located_while_well()
    models = [run.step for run in outcome.executions if run.step.workload.benchmark == "model"]
    two_pods = {frozenset((*a, *b)) for a, b in combinations(PODS, 2)}
    met = {frozenset(step.participants) for step in models}
    assert met == {*map(frozenset, PODS), frozenset(NODES), *two_pods}
    assert not outcome.assessment.parts
    assert not outcome.assessment.named(Judgement.DEFECTIVE)
    (gone,) = released
    pairs = [run.step for run in outcome.executions if run.step.workload.benchmark == "pair"]
    assert gone == set(NODES) - {node for step in pairs for node in step.participants}
    assert min(step.turn for step in pairs) > max(step.turn for step in models)


def groups_of(outcome, benchmark):
    runs = (run.step for run in outcome.executions if run.step.workload.benchmark == benchmark)
    return [step.participants for step in runs]


@pytest.mark.parametrize("slow", [False, True])
def test_a_group_that_fails_by_its_shortest_program_runs_no_other_one(slow):
    outcome, _ = located(Cluster({NODES[5]}, slow=slow), suite=TWO_PROGRAMS)
    assert outcome.assessment.named(Judgement.DEFECTIVE) == (NODES[5],)
    short, long = groups_of(outcome, "model"), groups_of(outcome, "long")
    assert {*long} == {group for group in short if NODES[5] not in group}


def test_pods_that_are_well_meet_by_the_shortest_program_alone():
    outcome, _ = located(Cluster(), suite=TWO_PROGRAMS)
    assert sorted(groups_of(outcome, "long")) == PODS
    assert {len(group) for group in groups_of(outcome, "model")} == {8, 16, 32}


def test_a_failure_in_all_groups_blames_no_node():
    """Pods, leaves, and groups of two at last."""
    outcome, _ = located(Cluster(*({node} for node in NODES)))
    assert rounds(outcome) == 3
    assert not outcome.assessment.named(Judgement.DEFECTIVE)
    assert not outcome.assessment.parts


@pytest.mark.parametrize("well", [2, 4])
def test_if_every_group_of_more_nodes_fails_the_answer_is_their_size_and_no_node(well):
    outcome, _ = located(Cluster(above=well))
    (verdict,) = outcome.assessment.parts
    assert (verdict.code, verdict.judgement) == (SIZE, Judgement.UNKNOWN)
    assert f"groups of {2 * well} nodes or more" in verdict.subject
    assert not outcome.assessment.named(Judgement.DEFECTIVE)


@pytest.mark.parametrize("well", [3, 5])
def test_a_node_that_needs_many_others_to_fail_is_found_in_groups_that_keep_their_size(well):
    """With 5, each leaf of its pod is well, and the pod fails."""
    outcome, _ = located(Cluster({NODES[5]}, above=well))
    assert outcome.assessment.named(Judgement.DEFECTIVE) == (NODES[5],)
    assert not outcome.assessment.parts


@pytest.mark.parametrize("slow", [False, True])
def test_locate_names_a_node_that_fails_in_half_of_its_tests_and_no_other(slow):
    """One seed in the suite; scripts/studies/bench-locate has more, on 1,024 nodes."""
    outcome, _ = located(Cluster({NODES[5]}, slow=slow, share=0.5))
    assert outcome.assessment.named(Judgement.DEFECTIVE) == (NODES[5],)
    assert not outcome.assessment.parts


def test_an_interrupted_search_by_a_job_resumes_without_extra_steps():
    outcome, _ = located(Cluster({NODES[5]}))
    resumed, released = located(Cluster({NODES[5]}), history=outcome.executions[:40])
    assert resumed.assessment.nodes == outcome.assessment.nodes
    assert len(resumed.executions) == len(outcome.executions)
    assert released


def test_if_nothing_fails_again_four_fifths_go_back_before_any_pair_meets():
    fabric = FatTree(nodes=1024, nodes_per_leaf=32, leaves_per_pod=8, spines=4, cores=4).fabric()
    results: dict[tuple[str, ...], bool | None] = {}
    while (progress := reproduce(divide(fabric.nodes, fabric), results, lambda parts: None)).groups:
        assert not progress.handed_back
        results |= dict.fromkeys(progress.groups, False)
    assert max(map(len, results)) == 1024
    assert progress.across
    assert len(progress.handed_back) > 0.8 * 1024


def test_one_of_1024_nodes_takes_rounds_by_the_logarithm():
    fabric = FatTree(nodes=1024, nodes_per_leaf=32, leaves_per_pod=8, spines=4, cores=4).fabric()
    all_nodes = divide(fabric.nodes, fabric)
    assert most_rounds(all_nodes) == 2 + 5 + 2
    results = {part.nodes: "node00700" in part.nodes for part in all_nodes.parts}
    further = reproduce(all_nodes, results, lambda parts: False)
    assert len(further.groups) == 8
    assert len(further.handed_back) == 1024 - 256 - 32  # a leaf stays, to fill up halves
    two = reproduce(Division(kind="whole", nodes=("a", "b")), {}, lambda parts: False)
    assert two.groups == (("a", "b"),)
