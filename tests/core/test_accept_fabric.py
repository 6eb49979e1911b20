"""An acceptance with a topology: the suite, then pairs across the fabric, on one page."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from fleets import entry, spec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anubis.core.campaign.planning import plan, steps
from anubis.core.campaign.state_machine import CampaignMachine, Launch
from anubis.core.fabric import Part
from anubis.core.judge.judgement import assess
from anubis.core.judge.units import latest_executions, units
from anubis.core.network.coverage import coverage
from anubis.core.network.crossing import link_part
from anubis.core.network.pairing import HopRound, pair_test_of
from anubis.core.network.traffic import keep_crossing
from anubis.core.records import (
    Campaign,
    CampaignKind,
    Ended,
    Judgement,
    Needs,
    Policy,
    Readings,
    Result,
    Suite,
    sets_taught_by,
)
from anubis.lab.simulation.simulated_network import Fault
from anubis.operations.validator import carry_out
from anubis.report.view import CampaignView
from tests.core.made_fabrics import FatTree
from tests.core.test_across_rails import ABLE, RAILS, UPPER
from tests.core.test_scan import FAULTS, PAIR, Network, scanned, uplink, verdicts

ALONE = spec("alone")
MEET = spec("meet", scope="pair", needs=Needs(min_nodes=2))
SUITE = Suite(
    name="s",
    summary="",
    benchmarks=(
        entry("alone", repeats=3),
        entry("meet", groups="pairs", rounds=3),
    ),
)
THEN = Suite(name="scan", summary="", benchmarks=(entry("pair", groups="covering"),))
TREE = FatTree(nodes=12, nodes_per_leaf=4, spines=2).fabric()


class Cluster(Network):
    """With programs for a suite beside the one of a scan."""

    def __init__(self, fabric, faults=(), *, spec=PAIR, absent=(), inapplicable=(), **trouble):
        super().__init__(fabric, faults, spec=spec, absent=absent, **trouble)
        self._specs = {"alone": ALONE, "meet": MEET, "pair": spec}
        self.inapplicable = set(inapplicable)  # nodes that lack the program for pairs
        self.launched = []

    def launch(self, launch):
        self.launched.append(launch.step.id)
        super().launch(launch)

    def _measurement(self, step, spec, **about):
        event = super()._measurement(step, spec, **about)
        if spec.name == "pair" and self.inapplicable.intersection(step.participants):
            event = replace(event, result=Result(not_applicable="ib_write_bw is missing"))
        return event


def planned(fabric, spec=PAIR, *, then=THEN, suite=SUITE):
    nodes = Cluster(fabric).nodes()
    return plan(
        suite, nodes, {"alone": ALONE, "meet": MEET, "pair": spec}, then and fabric, then=then
    )


def accepted(fabric, faults=(), *, suite=SUITE, then=THEN, history=(), spec=PAIR, **trouble):
    """The outcome of accepting the nodes of a fabric, and what the Validator launched."""
    executor = Cluster(fabric, faults, spec=spec, **trouble)
    whole = planned(fabric, spec, then=then, suite=suite)
    campaign = Campaign(
        id="c",
        kind=CampaignKind.ACCEPT,
        plan=replace(whole, nodes=executor.nodes()),
        policy=Policy(),
        executor="simulated",
        created_at=0.0,
    )
    outcome = carry_out(
        campaign,
        executor,
        keep=lambda batch: None,
        observe=lambda machine, events: None,
        history=history,
    )
    view = CampaignView(
        campaign=replace(campaign, criteria=outcome.criteria),
        executions=outcome.executions,
        assessment=outcome.assessment,
        criteria=outcome.criteria,
    )
    return view, executor.launched


@cache
def well():
    return accepted(TREE)


@cache
def with_a_slow_leaf():
    return accepted(TREE, [FAULTS["leaf"](TREE)])


def learned(view):
    """Criteria by which others judge."""
    return repr(
        [
            (of_sku.sku, of_sku.criteria, of_sku.provenance.digest)
            for of_sku in sets_taught_by(view.criteria, view.campaign.plan)
        ]
    )


def not_healthy(view):
    nodes = [node for node in view.assessment.nodes if node.judgement is not Judgement.HEALTHY]
    return {node.node: (node.judgement, node.code, node.reason) for node in nodes}


@pytest.mark.parametrize(("nodes", "per_leaf"), [(24, 2), (72, 12)])
def test_a_slow_spine_that_no_pair_can_tell_from_its_peer_blames_no_node(nodes, per_leaf):
    """By chance it slows all pairs of some nodes in the suite, whose partners are good elsewhere;
    half of all pairs over it are slow, so that nothing shows what is normal."""
    fabric = FatTree(nodes=nodes, nodes_per_leaf=per_leaf, spines=2).fabric()
    view, _ = accepted(fabric, [Fault(kind="slow", part=Part("switch", "spine-0-0"), loss=0.4)])
    assert not view.assessment.named(Judgement.DEFECTIVE)
    assert view.assessment.judgement is not Judgement.HEALTHY


def test_acceptance_runs_the_suite_then_pairs_across_the_fabric_and_blames_no_sound_part():
    view, launched = well()
    assert [phase.name for phase in view.campaign.plan.phases] == [
        "single-node",
        "multi-node",
        "fabric",
    ]
    assert view.headline == "12 healthy · 0 defective · 0 unknown"
    assert view.network.coverage.counts_by_tier() == {(1, 2): (6, 6)}
    assert [step.split(".")[0] for step in launched] == sorted(
        step.split(".")[0] for step in launched
    )


@pytest.mark.parametrize("kind", ["node", "leaf"])
def test_a_fault_in_the_network_is_named_as_a_scan_names_it(kind):
    fault = FAULTS[kind](TREE)
    view, _ = accepted(TREE, [fault])
    assert view.assessment.judgement is Judgement.DEFECTIVE
    assert verdicts(view) == {(fault.part,)}
    sick = {fault.part.name} if fault.part.kind == "node" else set()
    assert set(view.assessment.named(Judgement.DEFECTIVE)) == sick


def test_the_fabric_judges_nodes_and_parts_word_for_word_as_a_scan_does():
    leaf = Fault(kind="", part=Part("switch", "leaf-0-1"), loss=1.0)
    view, _ = accepted(TREE, [leaf], suite=replace(SUITE, benchmarks=SUITE.benchmarks[:1]))
    scan = scanned(TREE, [leaf], "covering")
    assert [part.reason for part in view.assessment.parts] == [
        part.reason for part in scan.assessment.parts
    ]
    assert not_healthy(view) == not_healthy(scan)
    assert set(not_healthy(view)) == set(TREE.nodes[4:8])
    reasons = {reason for _, _, reason in not_healthy(view).values()}
    assert reasons == {"no pair with this node was good; the cause is switch leaf-0-1"}


def test_pairs_on_devices_that_the_topology_lacks_teach_validate_nothing_either():
    unmapped = {nic.device: "cpu" for nic in RAILS.nics}
    view, _ = accepted(RAILS, measured_as=unmapped)
    assert {part.code for part in view.assessment.parts} == {"NOT-MAPPED"}
    assert learned(view) == learned(accepted(RAILS, then=None)[0])


def test_a_bad_uplink_is_named_beside_nodes_that_are_all_healthy():
    fault = Fault(kind="", part=uplink(TREE, "leaf-0-1"), loss=0.5)
    view, _ = accepted(TREE, [fault])
    (verdict,) = view.assessment.parts
    assert fault.part in verdict.parts
    assert len(verdict.parts) <= 2  # which of both uplinks a flow took is unknown
    assert view.headline.startswith(f"defective: {verdict.subject} · nodes: 12 healthy")
    assert any("fell short in meet as well" in line for line in verdict.evidence)


def test_a_bad_link_above_the_spines_is_named_by_pairs_across_rails():
    fault = Fault(kind="", part=link_part(UPPER[0]), loss=0.5)
    view, _ = accepted(RAILS, [fault], spec=ABLE)
    (parts,) = verdicts(view)
    assert fault.part in parts
    assert len(parts) <= 4
    assert view.assessment.named(Judgement.DEFECTIVE) == ()


def test_pairs_of_the_suite_do_not_blame_nodes_below_a_dead_leaf():
    """Three of four partners are beyond the leaf, so that all pairs of some nodes are bad."""
    leaf = Fault(kind="", part=Part("switch", "leaf-0-1"), loss=1.0)
    without, _ = accepted(TREE, [leaf], then=None)
    assert not set(without.assessment.named(Judgement.HEALTHY)) >= set(TREE.nodes)
    view, launched = accepted(TREE, [leaf])
    assert verdicts(view) == {(leaf.part,)}
    below = set(TREE.nodes[4:8])
    assert view.assessment.named(Judgement.DEFECTIVE) == ()
    assert set(view.assessment.named(Judgement.UNKNOWN)) <= below
    assert any("/pair/" in step and any(node in step for node in below) for step in launched)


def test_a_node_that_is_slow_in_the_suite_and_good_across_the_fabric_is_the_one_at_fault():
    class Slow(Cluster):
        def _measure(self, step, spec):
            series = super()._measure(step, spec)
            slow = spec.name == "meet" and TREE.nodes[5] in step.participants
            return Readings.pack(replace(s, samples=s.samples / (1 + slow)) for s in series)

    executor = Slow(TREE)
    campaign = well()[0].campaign
    outcome = carry_out(
        replace(campaign, criteria=()),
        executor,
        keep=lambda batch: None,
        observe=lambda machine, events: None,
    )
    assert outcome.assessment.named(Judgement.DEFECTIVE) == (TREE.nodes[5],)
    assert not outcome.assessment.parts


def test_criteria_learned_by_an_acceptance_are_the_same_with_and_without_the_fabric_phase():
    with_fabric, without = well()[0], accepted(TREE, then=None)[0]
    assert learned(with_fabric) == learned(without)
    assert {of_sku.sku for of_sku in with_fabric.criteria} > {"simulated"}


def test_pairs_of_the_suite_load_the_network_at_once_and_those_across_the_fabric_take_turns():
    machine = CampaignMachine(planned(TREE), retries=0)
    commands = machine.start(0.0)
    assert all(not command.crosses_fabric for command in commands if isinstance(command, Launch))
    use = machine._use
    for phase, takes in ((1, False), (2, True)):
        ways = [machine._ways(step) for step in steps(planned(TREE), phase, TREE.nodes)]
        assert any(ways) is takes
    assert use is not None


@pytest.mark.parametrize("after", [40, -3])
def test_a_resumed_acceptance_does_not_repeat_settled_steps_and_ends_the_same(after):
    fault = FAULTS["leaf"](TREE)
    whole, launched = with_a_slow_leaf()
    history = whole.executions[:after]
    again, relaunched = accepted(TREE, [fault], history=history)
    assert not {run.step.id for run in history}.intersection(relaunched)
    assert len(relaunched) < len(launched)
    assert again.headline == whole.headline
    assert verdicts(again) == verdicts(whole)


def test_an_acceptance_whose_pairs_cannot_run_leaves_the_fabric_unknown_with_the_reason():
    view, _ = accepted(TREE, inapplicable=TREE.nodes)
    (part,) = view.assessment.parts
    assert (part.judgement, part.code) == (Judgement.UNKNOWN, "NOT-MEASURED")
    assert "ib_write_bw is missing" in part.reason
    assert view.assessment.judgement is Judgement.UNKNOWN
    assert len(view.assessment.named(Judgement.HEALTHY)) == 12


def test_a_node_without_a_pair_test_across_the_fabric_is_unknown():
    alone = TREE.nodes[3]
    view, _ = accepted(TREE, inapplicable=[alone])
    assert view.assessment.named(Judgement.UNKNOWN) == (alone,)
    assert view.assessment.judgement is Judgement.UNKNOWN


def test_the_fit_nodes_still_cross_all_uplinks_that_they_can_reach():
    """A spine's leaves lose most of their nodes: the plan alone would leave uplinks uncrossed."""
    whole = planned(RAILS, ABLE)
    for fit in (set(RAILS.nodes[2:10]), set(RAILS.nodes[::3]), set(RAILS.nodes[:5])):
        pair_tests = [pair_test_of(step) for step in steps(whole, 2, fit)]
        assert {name for met in pair_tests for name in met.pair} == fit
        rounds = [
            HopRound(
                hops=0, rails=RAILS.rails, pairs=(met.pair,), alone=(), spare=(), shift=met.shift
            )
            for met in pair_tests
        ]
        every = [
            HopRound(hops=0, rails=RAILS.rails, pairs=((a, b),), alone=(), spare=(), shift=shift)
            for a in fit
            for b in fit - {a}
            for shift in range(4)
        ]
        crossed, can_be = coverage(RAILS, rounds), coverage(RAILS, every)
        missed = [
            link
            for link, now, best in zip(
                RAILS.links, crossed.link_chance, can_be.link_chance, strict=True
            )
            if best >= 0.95 > now
        ]
        assert not missed


def test_a_program_that_the_suite_runs_just_so_is_judged_by_itself_in_either_phase():
    """As pair_rdma in the suite for acceptance, `full`."""
    same = replace(SUITE, benchmarks=(*SUITE.benchmarks, entry("pair", groups="pairs", rounds=3)))
    leaf = Fault(kind="", part=Part("switch", "leaf-0-1"), loss=0.5)
    view, _ = accepted(TREE, [leaf], suite=same)
    assert verdicts(view) == {(leaf.part,)}
    assert view.assessment.named(Judgement.DEFECTIVE) == ()
    without, _ = accepted(TREE, [leaf], suite=same, then=None)
    assert learned(view) == learned(without)


def test_a_program_gets_the_same_parameters_in_both_phases():
    """The plan keeps its measurements apart, and no program does."""
    same = replace(SUITE, benchmarks=(*SUITE.benchmarks, entry("pair", groups="pairs", rounds=3)))
    whole = planned(TREE, suite=same)
    own, across = (
        next(step for step in steps(whole, phase, TREE.nodes) if step.workload.benchmark == "pair")
        for phase in (1, 2)
    )
    assert own.workload != across.workload
    told = [Launch(step=step, attempt=1).parameters for step in (own, across)]
    assert told[0] == told[1]


OUTCOMES = st.sampled_from(["good"] * 4 + ["slow", "failed", "missing"])


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=10)
@given(st.data())
def test_nothing_that_was_measured_bad_ends_as_healthy_without_a_reason(data):
    """Any outcome of any step, of the suite or across the fabric."""
    view, _ = well()
    changed = {
        run.step.id: outcome
        for run in data.draw(st.lists(st.sampled_from(view.executions), min_size=1, max_size=6))
        if (outcome := data.draw(OUTCOMES)) != "good"
    }
    runs = [
        outcome_of(run, changed.get(run.step.id, "good"))
        for run in latest_executions(view.executions)
    ]
    whole = assess(
        units(runs, view.campaign.plan), runs, view.campaign.plan, view.criteria, lost={}
    )
    bad = [
        v
        for v in whole.alone
        if v.judgement is Judgement.DEFECTIVE
        or (v.judgement is Judgement.UNKNOWN and view.campaign.plan.crosses(v))
    ]
    assert not bad or whole.judgement is not Judgement.HEALTHY
    not_healthy = [v for v in (*whole.nodes, *whole.parts) if v.judgement is not Judgement.HEALTHY]
    assert all(v.reason and v.code for v in not_healthy)
    on_fabric = keep_crossing(view.campaign.plan, whole)
    if any(v.judgement is Judgement.DEFECTIVE for v in on_fabric.alone):
        assert whole.parts


def outcome_of(run, outcome):
    if outcome == "slow":
        slow = (
            replace(s, samples=s.samples * (2.0 if "latency" in s.metric else 0.5))
            for s in run.result.series
        )
        return replace(run, result=replace(run.result, series=Readings.pack(slow)))
    if outcome == "failed":
        return replace(run, ended=Ended.FAILED, reason="it broke", result=Result())
    if outcome == "missing":
        absent = Result(not_applicable="absent")
        return replace(run, ended=Ended.NOT_APPLICABLE, reason="absent", result=absent)
    return run
