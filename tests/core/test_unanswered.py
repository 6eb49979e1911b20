"""Tests that a campaign asked of a node and that the node did not answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleets import entry, small_plan

from anubis.core.campaign.planning import narrow
from anubis.core.fabric import single_switch
from anubis.core.judge.damaged_measurements import leave_out_damaged
from anubis.core.records import Ended, Judgement
from tests.core.test_judgement import ended, executions, judged, learn

PLAN = small_plan(6, [entry("compute"), entry("probe"), entry("pair")])
ALL = ("compute", "pair", "probe")


def even(step, device):
    return 100.0


def run(plan, change=lambda execution: execution, rate=even):
    return [done for e in executions(plan, rate) if (done := change(e)) is not None]


def owed(plan, done, node="n3", **how):
    (verdict,) = (v for v in judged(plan, done, **how).nodes if v.node == node)
    return verdict.judgement, verdict.owes


def on(node, *benchmarks):
    """A check whether an execution is one of these, with the node."""
    return lambda e: node in e.step.participants and e.step.workload.benchmark in benchmarks


def only(is_meant, how):
    return lambda e: how(e) if is_meant(e) else e


def test_a_healthy_node_owes_nothing():
    assert owed(PLAN, run(PLAN)) == (Judgement.HEALTHY, None)


@pytest.mark.parametrize("how", [Ended.TIMED_OUT, Ended.NOT_RUN, Ended.FAILED])
def test_a_program_that_left_no_answer_is_owed(how):
    done = run(PLAN, only(on("n3", "probe"), lambda e: ended(e, how)))
    assert owed(PLAN, done) == (Judgement.UNKNOWN, ("probe",))


def test_a_lost_node_owes_the_tests_running_or_not_begun_at_its_loss():
    gone = on("n3", "probe", "pair")
    done = run(PLAN, only(gone, lambda e: None if len(e.step.participants) > 1 else lost(e)))
    assert owed(PLAN, done, lost={"n3": "silent"}) == (Judgement.UNKNOWN, ("pair", "probe"))


def lost(execution):
    return replace(ended(execution, Ended.LOST), lost=execution.step.participants)


def test_a_node_that_was_never_there_owes_all_that_was_asked_and_so_does_one_lost_at_the_end():
    done = run(PLAN, only(on("n3", *ALL), lambda e: None))
    assert owed(PLAN, done, lost={"n3": "never there"}) == (Judgement.UNKNOWN, ALL)
    assert owed(PLAN, done) == (Judgement.UNKNOWN, ALL)  # nothing was measured there
    assert owed(PLAN, run(PLAN), lost={"n3": "silent in the end"}) == (Judgement.UNKNOWN, ALL)


def test_not_applicable_is_an_answer():
    inapplicable = only(on("n3", "probe"), lambda e: ended(e, Ended.NOT_APPLICABLE))
    crashed = only(on("n3", "compute"), lambda e: ended(e, Ended.FAILED))
    done = run(PLAN, lambda e: crashed(inapplicable(e)))
    assert owed(PLAN, done) == (Judgement.UNKNOWN, ("compute",))


def test_a_node_whose_results_cannot_be_compared_owes_nothing():
    """No criterion for its benchmarks, or none that is trusted: then the pair that it left out is
    not owed either, as there is no known problem of the node."""
    alone = [execution for execution in run(PLAN) if len(execution.step.participants) == 1]
    others = learn(PLAN, [e for e in alone if e.step.workload.benchmark == "compute"])
    assert owed(PLAN, alone, criteria=others) == (Judgement.UNKNOWN, ())
    halves = run(PLAN, rate=lambda step, i: 100.0 if int(step.participants[0][1:]) < 3 else 50.0)
    assert owed(PLAN, [e for e in halves if len(e.step.participants) == 1]) == (
        Judgement.UNKNOWN,
        (),
    )


def test_a_defective_node_owes_open_tests_and_not_those_it_was_spared():
    slow = lambda step, i: 80.0 if step.participants == ("n3",) else 100.0  # noqa: E731
    hung = only(on("n3", "probe"), lambda e: ended(e, Ended.TIMED_OUT))
    spared = only(on("n3", "pair"), lambda e: None)
    assert owed(PLAN, run(PLAN, lambda e: spared(hung(e)), slow)) == (
        Judgement.DEFECTIVE,
        ("probe",),
    )


def test_a_collective_of_all_nodes_is_owed_by_no_single_node():
    together = small_plan(6, [entry("compute"), entry("collective")])
    done = run(together, only(on("n3", "compute", "collective"), lambda e: None))
    assert owed(together, done, lost={"n3": "never there"}) == (Judgement.UNKNOWN, ("compute",))


def test_a_node_is_asked_its_own_tests_only_and_a_partner_those_for_several():
    chosen = narrow(PLAN, {"compute": {"n1"}, "pair": {"n3"}}, ["n4", "n5"])
    done = run(chosen, only(lambda e: {"n3", "n4"} & {*e.step.participants}, lambda e: None))
    reasons = {"n3": "never there", "n4": "never there"}
    assert owed(chosen, done, "n3", lost=reasons) == (Judgement.UNKNOWN, ("pair",))
    assert owed(chosen, done, "n4", lost=reasons) == (Judgement.UNKNOWN, ("pair",))


def test_a_node_missing_from_the_topology_owes_the_pairs_across_the_fabric():
    plan = small_plan(4, [entry("pair")])
    plan = replace(plan, fabric=single_switch(["n0", "n1", "n2"]))
    assert owed(plan, run(plan)) == (Judgement.UNKNOWN, ("pair",))


def test_a_damaged_measurement_is_owed_again():
    assessment, plan = judged(PLAN, run(PLAN)), PLAN
    (step,) = {
        e.step
        for e in run(plan)
        if e.step.participants == ("n3",) and e.step.workload.benchmark == "probe"
    }
    (verdict,) = (v for v in leave_out_damaged(assessment, [step]).nodes if v.node == "n3")
    assert (verdict.judgement, verdict.owes) == (Judgement.UNKNOWN, ("probe",))
