"""Small fleets in which every number of a decision can be worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from anubis.core.history.defects import Defect
from anubis.core.history.events import (
    FleetUpgraded,
    IncidentReported,
    JobAllocated,
    NodeAdded,
    Tick,
)
from anubis.core.records import SelectionPolicy
from anubis.core.select.decision import Action, Outlook, choose_tests, decide
from anubis.core.select.selection import Budget, learn_detection
from anubis.report.decision import brief, line, paragraph, sentence
from anubis.report.decision import test_rows as rows_of_tests

HOUR_S = 3600
BENCHMARKS = ("disk", "gemm", "ring")
SECONDS = (100.0, 10.0, 20.0)
EXACT = SelectionPolicy(search="greedy", prior=1e-12, category_prior=1e-12)


def defects(category, found_by, count):
    some = frozenset(found_by)
    return [Defect(category=category, found_by=some, tried=frozenset(BENCHMARKS))] * count


HISTORY = [
    *defects("gpu", ["gemm"], 6),
    *defects("net", ["ring"], 3),
    *defects("disk", ["disk"], 1),
]


def outlook(probabilities, fresh=None, mixes=None, proven=None, history=HISTORY, **more):
    """`fresh`: what each benchmark that was passed still covers of what it finds."""
    nodes = len(probabilities)
    left = np.zeros((nodes, 3)) if fresh is None else np.array(fresh, dtype=float)
    with np.errstate(divide="ignore"):
        ages_s = -np.log2(left) * EXACT.half_life_h * HOUR_S
    return Outlook(
        probabilities=np.array(probabilities, dtype=float),
        proven=np.ones(nodes, dtype=bool) if proven is None else np.array(proven),
        mixes=mixes or [{}] * nodes,
        ages_s=ages_s,
        detection=learn_detection(history, BENCHMARKS, prior=1e-12, category_prior=1e-12),
        durations_s=SECONDS,
        **more,
    )


def nodes(count):
    return tuple(f"n{i}" for i in range(1, count + 1))


def job(count, hours=24):
    return JobAllocated(nodes=nodes(count), duration_s=hours * HOUR_S)


def run(decision):
    return [(test.benchmark, test.nodes) for test in decision.tests]


# --- events --------------------------------------------------------------------------------


def test_a_job_at_a_bearable_risk_starts_at_once():
    decision = decide(job(2), outlook([0.05, 0.05]), EXACT, at=7.0)
    assert (decision.action, decision.tests, decision.at) == (Action.SKIP, (), 7.0)
    assert decision.p == pytest.approx(0.0975)
    assert decision.remaining == pytest.approx(0.0975)


def test_a_job_at_too_high_a_risk_waits_for_the_tests_worth_most_on_the_riskiest_nodes():
    """p = 0.244; gemm on n1 takes off 0.6 x 5/6 of it, which leaves 0.122, and ring the rest."""
    decision = decide(job(2), outlook([0.2, 0.04]), EXACT, at=0)
    assert decision.action is Action.VALIDATE
    assert run(decision) == [("gemm", ("n1",)), ("ring", ("n1",))]
    p = 1 - 0.8 * 0.96
    assert decision.p == pytest.approx(p)
    gemm, ring = decision.tests
    assert gemm.drop == pytest.approx(p * 5 / 6 * 0.6)
    assert gemm.drop_per_s == pytest.approx(gemm.drop / 10)
    assert ring.drop == pytest.approx(p * 5 / 6 * 0.3)
    assert decision.coverage == pytest.approx(5 / 6 * 0.9)
    assert decision.remaining == pytest.approx(p * (1 - 0.75))
    assert (decision.longest_s, decision.node_seconds) == (30, 30)
    assert [(d.node, d.p) for d in decision.drivers] == [("n1", 0.2), ("n2", 0.04)]
    assert decision.drivers[0].share == pytest.approx(5 / 6)


def test_a_presumed_defect_is_lifted_only_by_passes_that_leave_no_more_than_p0():
    """Or a gate that was unknown once would be a go when it is asked again."""
    policy = replace(EXACT, p0=0.15)
    presumed = {"presumed": np.array([True])}
    few = decide(job(1), outlook([0.05], [[0, 0, 1]], **presumed), policy, at=0)
    assert (few.p, few.action) == (1.0, Action.VALIDATE)  # 0.7 of the defects are not looked for
    enough = decide(job(1), outlook([0.05], [[0, 1, 0.01]], **presumed), policy, at=0)
    assert (enough.p, enough.action) == (pytest.approx(0.05), Action.SKIP)
    never = decide(job(1), outlook([0.05], [[0, 0, 1]]), policy, at=0)
    assert never.p == pytest.approx(0.05)


def test_together_all_nodes_of_a_job_run_the_same():
    decision = decide(job(2), outlook([0.2, 0.04]), EXACT, at=0, together=True)
    assert run(decision) == [("gemm", ("n1", "n2"))]
    assert decision.remaining == pytest.approx((1 - 0.8 * 0.96) * 0.4)
    assert (decision.longest_s, decision.node_seconds) == (10, 20)


def test_a_fresh_pass_lets_a_job_start_without_a_test():
    fresh = [[1, 1, 1], [1, 1, 0.5]]
    decision = decide(job(2), outlook([0.2, 0.04], fresh), EXACT, at=0)
    assert decision.action is Action.SKIP
    assert decision.covered_before == pytest.approx(1 - 1 / 6 * 0.3 * 0.5)


@pytest.mark.parametrize("search", ["greedy", "optimum"])
def test_a_pass_in_another_suite_covers_the_defects_that_it_finds(search):
    """ring and disk, which are in another suite, find 0.4 of the defects; gemm finds the rest."""
    policy = replace(EXACT, search=search)
    known = learn_detection(
        HISTORY, ["gemm"], elsewhere=["disk", "ring"], prior=1e-12, category_prior=1e-12
    )

    def decided(fresh):
        seen = replace(outlook([0.5], [fresh]), detection=known, durations_s=(10.0,))
        return decide(job(1), seen, policy, at=0)

    passed, never = decided([0, 1, 1]), decided([0, 0, 0])
    assert (passed.covered_before, never.covered_before) == pytest.approx((0.4, 0))
    assert run(passed) == run(never) == [("gemm", nodes(1))]
    assert (passed.remaining, never.remaining) == pytest.approx((0, 0.2))
    assert [gap.finders for gap in never.gaps] == [("ring",), ("disk",)]


@pytest.mark.parametrize("count", [1, 100])
def test_a_test_that_takes_longer_than_it_is_expected_to_save_is_not_run(count):
    """60 s are at stake: gemm saves 0.6 p of that, 18 s, in 10 s; ring would save 9 s in 20 s."""
    hasty = JobAllocated(nodes=nodes(count), duration_s=120)
    even = outlook([1 - 0.5 ** (1 / count)] * count)
    decision = decide(hasty, even, EXACT, at=0, together=True)
    assert run(decision) == [("gemm", nodes(count))]
    assert decision.remaining == pytest.approx(0.2)
    assert "leaves a risk of 0.2: no other test fits and is worth its time." in paragraph(decision)


@pytest.mark.parametrize(
    ("search", "wanted"), [("greedy", ["ring", "disk"]), ("optimum", ["disk"])]
)
def test_a_policy_may_ask_for_the_cheapest_tests_that_suffice(search, wanted):
    """ring finds half in a fifth of the time; disk finds all, and then ring was in vain."""
    history = [*defects("gpu", ["disk", "ring"], 1), *defects("gpu", ["disk"], 1)]
    policy = SelectionPolicy(prior=1e-12, category_prior=1e-12, search=search)
    decision = decide(job(1), outlook([0.5], history=history), policy, at=0)
    assert [test.benchmark for test in decision.tests] == wanted
    assert decision.remaining == pytest.approx(0, abs=1e-9)
    both = sum(SECONDS[BENCHMARKS.index(name)] for name in ("ring", "disk"))
    cheapest = search == "optimum"
    assert decision.greedy_node_seconds == (both if cheapest else None)
    said = f"first would take {both / HOUR_S:.2g} node-hours"
    assert (said in paragraph(decision)) == cheapest


@pytest.mark.parametrize("search", ["greedy", "optimum"])
def test_no_search_runs_a_test_that_costs_more_than_it_saves(search):
    policy = SelectionPolicy(prior=1e-12, category_prior=1e-12, p0=0, search=search)
    brief = JobAllocated(nodes=nodes(1), duration_s=120)
    assert run(decide(brief, outlook([0.5]), policy, at=0)) == [("gemm", nodes(1))]


@pytest.mark.parametrize("count", [1, 100])
def test_a_test_worth_its_time_on_one_idle_node_is_worth_it_in_any_fleet(count):
    """As above, with 60 s at stake on each node."""
    brief = SelectionPolicy(prior=1e-12, category_prior=1e-12, horizon_h=120 / HOUR_S)
    idle = Tick(nodes=nodes(count))
    assert run(decide(idle, outlook([0.5] * count), brief, at=0)) == [("gemm", nodes(count))]


def test_p0_of_a_job_is_the_risk_at_which_an_incident_costs_as_much_as_the_suite():
    """The suite takes 130 s, an incident half of the job."""
    by_job = SelectionPolicy(p0="job")
    assert decide(job(1, 10), outlook([0.5]), by_job, at=0).p0 == pytest.approx(130 / 18_000)
    assert decide(Tick(nodes=("n1",)), outlook([0.5]), by_job, at=0).p0 == pytest.approx(
        130 / (12 * HOUR_S)
    )
    short = JobAllocated(nodes=("n1",), duration_s=200)
    assert decide(short, outlook([0.99]), by_job, at=0).action is Action.SKIP


def test_an_added_node_gets_every_test_even_without_risk():
    decision = decide(NodeAdded(nodes=("n1",)), outlook([0.0]), EXACT, at=0)
    assert decision.action is Action.VALIDATE
    assert {test.benchmark for test in decision.tests} == set(BENCHMARKS)
    assert (decision.p, decision.p0) == (1, 0)


def test_after_an_upgrade_a_defect_is_presumed_and_earlier_passes_do_not_count():
    seen = outlook([0.01, 0.01], fresh=np.ones((2, 3)))
    learned = FleetUpgraded(nodes=nodes(2), criteria="learned")
    decision = decide(learned, seen, EXACT, at=0)
    assert decision.action is Action.VALIDATE
    assert (decision.covered_before, decision.p) == (0, 1)
    refused = FleetUpgraded(nodes=nodes(2), criteria="refused")
    again = decide(refused, seen, EXACT, at=0)
    assert again.action is Action.ACCEPT
    assert all(test.nodes == nodes(2) for test in again.tests)
    assert {test.benchmark for test in again.tests} == set(BENCHMARKS)


@pytest.mark.parametrize(
    ("category", "first"), [("gpu", "gemm"), ("net", "ring"), ("disk", "disk")]
)
def test_after_an_incident_the_benchmarks_that_find_its_category_run_on_its_node(category, first):
    """However lately it was measured: something has happened since."""
    event = IncidentReported(nodes=("n1",), category=category)
    decision = decide(event, outlook([0.01], fresh=[[1, 1, 1]]), EXACT, at=0)
    assert run(decision) == [(first, ("n1",))]
    assert (decision.p, decision.category) == (1, category)
    assert decision.remaining == pytest.approx(0, abs=1e-9)


def test_a_node_with_incidents_of_one_category_is_tested_for_that_category():
    both = outlook([0.2, 0.2], mixes=[{"net": 3}, {}])
    decision = decide(job(2), both, EXACT, at=0)
    assert [test.benchmark for test in decision.tests if "n1" in test.nodes] == ["ring"]
    assert [test.benchmark for test in decision.tests if "n2" in test.nodes] == ["gemm"]


def test_a_sweep_spends_its_budget_on_the_riskiest_idle_nodes():
    idle = Tick(nodes=nodes(4))
    decision = decide(
        idle, outlook([0.1, 0.4, 0.05, 0.3]), EXACT, at=0, budget=Budget(node_seconds=25)
    )
    assert run(decision) == [("gemm", ("n2", "n4"))]
    assert decision.node_seconds == 20
    assert [driver.node for driver in decision.drivers] == ["n2", "n4", "n1", "n3"]


def test_a_node_without_a_pass_is_presumed_defective_even_at_low_risk():
    decision = decide(job(2), outlook([0.01, 0.01], proven=[True, False]), EXACT, at=0)
    assert decision.p == 1
    assert [(driver.node, driver.p) for driver in decision.drivers] == [("n2", 1), ("n1", 0.01)]
    assert run(decision)[:2] == [("gemm", ("n2",)), ("ring", ("n2",))]


def test_a_policy_may_make_a_gate_run_unprofitable_tests_if_the_risk_is_too_high():
    """As in the job of 120 s above: ring is not worth its time, and yet it lowers the risk."""
    hasty = JobAllocated(nodes=nodes(1), duration_s=120)
    anyway = replace(EXACT, above_p0="run")
    decision = decide(hasty, outlook([0.5]), anyway, at=0)
    assert [test.benchmark for test in decision.tests] == ["gemm", "ring"]
    assert decision.is_bearable
    idle = replace(anyway, horizon_h=120 / HOUR_S)
    assert run(decide(Tick(nodes=nodes(1)), outlook([0.5]), idle, at=0)) == [("gemm", nodes(1))]


def test_an_incident_that_costs_more_makes_more_tests_worth_their_time():
    """gemm, the best, takes 0.6 of 0.5 off in 10 s: worth it from 33.3 node-seconds on."""
    seen = outlook([0.5])
    cheap, dear = (choose_tests(job(1), seen, EXACT, incident_costs_s=s) for s in (33, 34))
    assert (cheap.picks, [pick.benchmark for pick in dear.picks]) == ((), ["gemm"])


# --- edges ---------------------------------------------------------------------------------


def test_no_nodes_need_no_tests():
    decision = decide(Tick(nodes=()), outlook([]), EXACT, at=0)
    assert (decision.action, decision.p, decision.drivers) == (Action.SKIP, 0, ())


def test_a_risk_that_no_test_lowers_is_stated_and_nothing_runs():
    blind = outlook([0.5], history=[Defect(tried=frozenset(BENCHMARKS))] * 50)
    decision = decide(job(1), blind, EXACT, at=0)
    assert decision.action is Action.SKIP
    assert decision.gaps[0].finders == ()
    assert decision.gaps[0].share == pytest.approx(1)
    assert "Still, nothing runs: no test fits" in paragraph(decision)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_a_job_without_a_duration_is_refused(seconds):
    with pytest.raises(ValueError, match="expected a duration above 0"):
        JobAllocated(nodes=("n1",), duration_s=seconds)


def test_a_decision_states_its_assumptions_if_the_history_is_too_short():
    def assumed(category, history):
        event = IncidentReported(nodes=("n1",), category=category)
        policy = SelectionPolicy(category_prior=5)
        return decide(event, outlook([0.1], history=history), policy, at=0).assumed

    assert assumed("gpu", HISTORY) == ()
    assert assumed("net", HISTORY) == (
        'only 3 defects behind "net" known, so those of all categories count as well',
    )
    assert assumed("psu", HISTORY) == (
        'no defect behind "psu" is known, so those of all categories count',
    )
    assert assumed("gpu", []) == (
        "no defect is known yet, so each benchmark is taken to find as much as any other",
    )


# --- words ---------------------------------------------------------------------------------


def test_the_first_line_of_a_decision_is_its_answer_and_the_second_the_risk():
    guess = "every node has the fleet's base rate"
    decision = decide(job(2), outlook([0.2, 0.05], assumed=(guess,)), EXACT, at=0)
    assert [*brief(decision)] == [
        "run gemm, ring on n1, 1 of 2 nodes (unnamed): 30 s a node, 0.0083 node-hours",
        "risk within 24 h: 0.24, after tests 0.067; accepted 0.1, by the policy",
        "riskiest: n1 (p = 0.2), n2 (p = 0.05)",
        "28% of the incidents to expect stay uncovered",
        "1 assumption: see --why",
    ]
    well = decide(job(1), outlook([0.01]), EXACT, at=0)
    assert next(brief(well)) == "run nothing on n1 (unnamed)"


def test_a_page_has_a_sentence_without_powers_of_ten_and_a_row_for_each_test():
    decision = decide(job(2), outlook([0.2, 0.05]), EXACT, at=0)
    assert sentence(decision) == (
        "Run gemm, ring on n1, 1 of 2 nodes (unnamed): 30 s a node, 0.0083 node-hours."
        " The chance of an incident within 24 h is 24%, and 6.7% if the tests pass."
        " 10% is accepted, by the policy."
    )
    assert rows_of_tests(decision) == [
        ("gemm", "n1", "10 s", "12%"),
        ("ring", "n1", "20 s", "5.8%"),
    ]
    rare = decide(job(1), outlook([1e-7]), EXACT, at=0)
    assert "is under 0.01%, and under 0.01% after what was measured." in sentence(rare)
    assert rows_of_tests(rare) == []


def test_a_decision_explains_itself_in_one_paragraph():
    guess = "every node has the fleet's base rate"
    decision = decide(job(2), outlook([0.2, 0.05], assumed=(guess,)), EXACT, at=0)
    assert paragraph(decision) == (
        "On cluster unnamed, a job of 24 h on n1, n2: p = 0.24 that at least one of them has"
        " an incident within 24 h; p0 is 0.1, by the policy."
        " Most of the expected incidents come from n1 (80%, p = 0.2), n2 (20%, p = 0.05)."
        " Run: gemm on n1 (10 s, lowers the risk by 0.12, 1.2e-02 per node-second);"
        " ring on n1 (20 s, lowers the risk by 0.058, 2.9e-03 per node-second)."
        " That takes at most 30 s on a node, 0.0083 node-hours in all, and leaves a risk of 0.067."
        " 28% of the expected incidents stay uncovered: 12% that only gemm would find;"
        " 10% that only disk would find; 6% that only ring would find."
        " Assumed: every node has the fleet's base rate."
    )


def test_a_decision_names_the_rack_that_fares_far_worse_than_the_fleet():
    noted = {"n1": "rack r2 has 2.4 times the incidents of all"}
    told = paragraph(decide(job(2), outlook([0.2, 0.01], noted=noted), EXACT, at=0))
    assert "come from n1 (95%, p = 0.2; rack r2 has 2.4 times the incidents of all), n2 (5%" in told


def test_a_decision_to_skip_states_its_reasons_in_figures():
    fresh = np.full((64, 3), 0.8)
    decision = decide(job(64, 2), outlook([0.004] * 64, fresh), EXACT, at=0)
    assert paragraph(decision) == (
        "On cluster unnamed, a job of 2 h on 64 nodes: p = 0.23 that at least one of them"
        " has"
        " an incident within 2 h; p0 is 0.1, by the policy."
        " Recent measurements cover 80% of that, which leaves 0.045."
        " No node is at much higher risk than the others: the riskiest, n1, has p = 0.004."
        " So no test needs to run."
        " 20% of the expected incidents stay uncovered: 12% that only gemm would find;"
        " 6% that only ring would find; 2% that only disk would find."
    )


def test_a_decision_after_an_incident_begins_with_the_incident():
    event = IncidentReported(nodes=("n7",), category="net")
    told = paragraph(decide(event, outlook([0.1]), EXACT, at=0))
    assert told.startswith(
        'On cluster unnamed, incident "net" on n7: a defect is presumed, and p0 is 0.1,'
        " by the policy. Run: ring ("
    )


def test_a_job_on_a_node_with_a_presumed_defect_has_no_chance_of_100_percent():
    made = decide(job(3), outlook([0.1] * 3, proven=[True, False, True]), EXACT, at=0)
    assert "A defect is presumed on one node or more; the chance of an incident" in sentence(made)
    assert "a defect is presumed on one of them or more, and p0 is" in paragraph(made)
    assured = decide(job(5000), outlook([0.1] * 5000), EXACT, at=0)
    assert assured.p == 1  # 0.9 to the power of 5,000
    assert "presumed" not in sentence(assured)


def test_many_risky_nodes_give_the_chance_that_at_least_one_fails():
    """The product of the paper says 0.09 if 1,000 nodes leave a chance of 0.59."""
    decision = decide(job(1000), outlook([0.01] * 1000, np.full((1000, 3), 0.91)), EXACT, at=0)
    assert decision.remaining == pytest.approx(0.09, abs=1e-4)
    assert decision.missed == pytest.approx(1 - (1 - 0.0009) ** 1000)
    assert "the chance that one has an incident no test would find is 0.59" in paragraph(decision)


def test_as_json_a_decision_says_all_of_it_and_the_paragraph():
    decision = decide(job(2), outlook([0.2, 0.05]), EXACT, at=0)
    told = json.loads(line(decision))
    assert told["type"] == "decision"
    assert (told["event"], told["action"]) == ("job-allocated", "validate")
    assert told["p"] == decision.p
    assert told["tests"][0]["nodes"] == ["n1"]
    assert told["gaps"][0]["finders"] == ["gemm"]
    assert told["why"] == paragraph(decision)
