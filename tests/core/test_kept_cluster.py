"""Faults that show only in jobs: the books balance, closed forms hold, and means help."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from clusters import (
    JOBS,
    MTBI_H,
    Always,
    assert_books_balance,
    category,
    endless,
    recorded,
    site,
    sites,
    truth,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.config import configs
from anubis.lab.study.incidents import DefectCause
from anubis.lab.study.kept_cluster import run_kept
from anubis.lab.study.policies import Absence
from anubis.lab.study.response import RATES, FaultCare, Luck, Means, Response, respond
from anubis.lab.study.scenario import MEANS, Size
from anubis.lab.study.traces import TracedJob
from anubis.lab.study.trials import Study

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
ALONE = Means()
PLAIN = Response(timeout_h=0.5, search_h=0.0, restart_h=0.0, watch_alarms=0.0, test_alarms=0.0)
EVERY_MEANS = Means(watches=True, diagnoses=True, locates=True, proves=True)
WORST = Luck(watch=0.999, diagnosis=0.999, locate=0.999, notice=0.5, search=0.5)


def kept(place, jobs, policy=None, rates=PLAIN, means=ALONE, course="hangs", seed=0, **changes):
    upkeep = FaultCare(rates=rates, means=means, courses=[(course, 0.5)], seed=seed)
    kinds = [category(**changes)]
    return run_kept(place, jobs, truth(place, *kinds, seed=seed), policy or Absence(), upkeep)


def one_fault(at_h, course, means=ALONE, rates=PLAIN, policy=None, **changes):
    """A scenario of one job on one of two nodes, whose first node is struck once."""
    struck = recorded(("n0", at_h))
    jobs = [TracedJob(arrival_h=0.0, nodes=1, duration_h=20.0)]
    upkeep = FaultCare(rates=rates, means=means, courses=[(course, 0.5)])
    found = run_kept(site(nodes=2, **changes), jobs, struck, policy or Absence(), upkeep)
    assert_books_balance(found, jobs)
    return found


# --- closed forms --------------------------------------------------------------------------


def test_a_fleet_without_faults_loses_nothing():
    place = site(nodes=20)
    found = kept(place, endless(20), rates=replace(PLAIN, restart_h=0.1), mtbi_h=1e12)
    assert found.working_h == pytest.approx(20 * 720)
    assert found.lost_h == found.stalled_h == found.validating_h == found.repair_h == 0


def test_nodes_hang_the_share_of_time_that_renewal_theory_says():
    """Up for 100 h, hanging for half an hour, in repair for 25 h."""
    place = site(nodes=80, span_h=2_500.0, incident_repair_h=25.0)
    found = kept(place, endless(80, count=30_000))
    total_h = 80 * 2_500
    assert found.working_h / total_h == pytest.approx(100 / 125.5, abs=0.01)
    assert found.stalled_h / total_h == pytest.approx(0.5 / 125.5, rel=0.05)


def test_a_gang_hangs_as_often_as_all_its_nodes_together():
    """Each fault stalls eight nodes. Those that strike spares show in the next job."""
    place = site(nodes=400, spares=40, incident_repair_h=1.0)
    found = kept(place, endless(400, size=8, duration_h=100.0), mtbi_h=1_000.0)
    assert found.stalled_h == pytest.approx(found.restarts * 8 * 0.5, rel=0.01)
    expected = (400 * 720 - found.repair_h) / 1_000
    assert abs(found.incidents - expected) < 4 * math.sqrt(expected)


def test_programs_hang_at_their_rate_and_nodes_are_not_blamed_for_it():
    place = site(nodes=100)
    rates = replace(PLAIN, program_mtbi_h=200.0)
    found = kept(place, endless(100, size=4), rates=rates, mtbi_h=1e12)
    assert found.restarts == pytest.approx(found.working_h / 200, rel=0.15)
    assert found.incidents == found.repair_h == found.alarms == 0


def test_false_alarms_of_tests_come_at_their_rate():
    place = site(nodes=100, defect_repair_h=0.0)
    policy = Always(benchmarks=0b001)
    rates = replace(PLAIN, test_alarms=0.02)
    found = kept(place, endless(100), policy, rates, mtbi_h=1e12)
    expected = 0.02 * found.validations
    assert abs(found.alarms - expected) < 4 * math.sqrt(expected)


def test_false_alarms_of_the_watch_come_at_their_rate_and_cost_a_test():
    place = site(nodes=100)
    rates = replace(PLAIN, watch_alarms=0.01)
    found = kept(place, endless(100), None, rates, Means(watches=True), mtbi_h=1e12)
    ended = np.isfinite(found.finished_h).sum()
    expected = ended * -math.expm1(-0.01 * 24)
    assert abs(found.alarms - expected) < 4 * math.sqrt(expected)
    assert found.validating_h == pytest.approx(found.alarms * 1.3, rel=0.02)


# --- single stories ------------------------------------------------------------------------


def test_a_hang_lasts_until_its_time_out_then_the_search_then_the_start():
    rates = replace(PLAIN, search_h=2.0, restart_h=0.25)
    found = one_fault(5.0, "hangs", rates=rates)
    searched_h = found.finished_h[0] - 20 - 0.5 - 0.25
    assert searched_h > 0
    assert found.stalled_h == pytest.approx(0.5 + searched_h + 0.25)


def test_a_slow_job_works_on_at_its_pace_until_the_watch_names_the_node():
    rates = replace(PLAIN, watch_names=1.0, watch_h=2.0)
    found = one_fault(5.0, "slow", Means(watches=True), rates)
    assert found.slow_h == pytest.approx(1.0)  # two hours at half pace
    assert found.finished_h[0] == pytest.approx(21.0)
    assert found.stalled_h == 0


def test_a_slow_job_may_end_before_the_fault_is_noticed():
    found = one_fault(18.0, "slow", rates=replace(PLAIN, notices_h=1e9))
    assert found.finished_h[0] == pytest.approx(22.0)
    assert found.repair_h == 0


def test_a_node_that_a_test_finds_needs_no_search():
    rates = replace(PLAIN, search_h=50.0)
    found = one_fault(5.0, "stops", rates=rates, policy=Always(benchmarks=0b001), shows_h=0.0)
    assert found.finished_h[0] == pytest.approx(20.0 + 3 * 0.2)  # tested at first, then n0, then n1
    assert found.stalled_h == 0


def test_work_goes_back_to_the_last_checkpoint():
    found = one_fault(5.5, "stops", checkpoint_h=2.0)
    assert found.lost_h == pytest.approx(1.5)


def test_an_idle_node_that_was_struck_shows_it_in_its_next_job():
    struck = truth(site(nodes=1), category(mtbi_h=1e-3))
    jobs = [TracedJob(arrival_h=50.0, nodes=1, duration_h=1.0)]
    upkeep = FaultCare(rates=PLAIN, courses=[("stops", 0.5)])
    found = run_kept(site(nodes=1, span_h=60.0), jobs, struck, Absence(), upkeep)
    assert found.incidents > 0
    assert found.first_h[0] == 50.0


# --- answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("course", ["stops", "hangs", "slow"])
@pytest.mark.parametrize("by_program", [False, True])
@settings(max_examples=15)
@given(chances=st.lists(st.floats(0, 0.999), min_size=5, max_size=5))
def test_more_means_never_name_less(course, by_program, chances):
    rates, luck = Response(), Luck(*chances)
    steps = [Means(), Means(watches=True), Means(watches=True, diagnoses=True), EVERY_MEANS]
    answers = [respond(course, rates, each, luck, by_program=by_program) for each in steps]
    named = [answer.is_named for answer in answers]
    assert named == sorted(named)
    for before, after in pairwise(answers):
        if before.is_named and after.is_named:
            assert after.until_h <= before.until_h


def test_only_a_diagnosis_says_that_a_program_is_at_fault():
    best = Luck(watch=0.0, diagnosis=0.0, locate=0.0, notice=0.5, search=0.5)
    watched = respond("hangs", Response(), Means(watches=True), best, by_program=True)
    diagnosed = respond("hangs", Response(), EVERY_MEANS, best, by_program=True)
    assert (watched.is_named, diagnosed.is_named) == (False, True)


def test_a_search_by_groups_that_names_nothing_leaves_a_person_to_search():
    rates = Response(locate_h=1.0, search_h=2.0)
    alone, beside = (
        respond("stops", rates, means, WORST) for means in (Means(), Means(locates=True))
    )
    assert beside.search_h == pytest.approx(alone.search_h + 1.0)


# --- whatever is asked for -----------------------------------------------------------------

SHARE = st.floats(0, 1)
HOURS = st.sampled_from([0.0, 0.1, 3.0, 1e4])
ANY_RATES = st.builds(
    Response,
    **{name: SHARE if name.endswith("_names") else HOURS for name in RATES if name[-2:] != "ms"},
    watch_alarms=st.sampled_from([0.0, 0.1]),
    test_alarms=st.sampled_from([0.0, 0.1, 0.5]),
    program_mtbi_h=st.sampled_from([None, 1.0, 100.0]),
)


@settings(max_examples=25)
@given(
    place=sites(0.1),
    jobs=JOBS,
    rates=ANY_RATES,
    means=st.builds(Means, **dict.fromkeys(vars(Means()), st.booleans())),
    course=st.sampled_from(["stops", "hangs", "slow"]),
    mtbi_h=MTBI_H,
    benchmarks=st.sampled_from([0b000, 0b001, 0b111]),
    seed=st.integers(0, 5),
)
def test_every_hour_of_every_node_is_spent_once(
    place, jobs, rates, means, course, mtbi_h, benchmarks, seed
):
    policy = Always(benchmarks=benchmarks)
    found = kept(place, jobs, policy, rates, means, course, seed, mtbi_h=mtbi_h)
    assert_books_balance(found, jobs)
    assert 0 <= found.slow_h <= found.lost_h + 1e-9


# --- policies ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study():
    """The shipped fleet, with fewer nodes and more faults."""
    shipped = configs.simulation("fleet")
    worse = tuple(replace(kind, mtbi_h=kind.mtbi_h / 20) for kind in shipped.categories)
    sizes = tuple(Size(nodes=nodes, share=1 / nodes) for nodes in (1, 4, 16))
    jobs = replace(shipped.jobs, sizes=sizes)
    small = replace(shipped, nodes=48, spares=4, days=8, seeds=2, categories=worse, jobs=jobs)
    return Study(small)


def lost_h(study, policy):
    figures = study.estimates(study.trial(policy))
    return sum(figures[name].mean for name in ("lost_h", "stalled_h", "validation_h", "repair_h"))


def test_each_means_loses_less_time_than_none_and_stalls_less_than_tests_alone(study):
    assert max(lost_h(study, each) for each in ("selector", *MEANS)) < lost_h(study, "absence")
    stalled = [
        study.estimates(study.trial(each))["stalled_h"].mean
        for each in ("absence", "selector", "with diagnosis")
    ]
    assert stalled == sorted(stalled, reverse=True)


def test_tests_that_are_perfect_and_take_no_time_never_lose(study):
    free = tuple(replace(each, minutes=1e-6) for each in study.scenario.benchmarks)
    kinds = tuple(
        replace(kind, causes=(DefectCause(share=1, found_by=("gemm",)),))
        for kind in study.scenario.categories
    )
    rates = replace(study.scenario.response, test_alarms=0.0)
    perfect = Study(replace(study.scenario, benchmarks=free, categories=kinds, response=rates))
    assert lost_h(perfect, "full set") < 0.7 * lost_h(study, "absence")
    full = perfect.estimates(perfect.trial("full set"))["goodput"].mean
    assert full > study.estimates(study.trial("absence"))["goodput"].mean


def test_a_watch_that_names_nothing_changes_nothing_but_its_false_alarms(study):
    blind = replace(study.scenario.response, watch_names=0.0, watch_alarms=0.0)
    other = Study(replace(study.scenario, response=blind))
    watched, plain = (other.result(other.trial(name)) for name in ("with watch", "selector"))
    assert watched.figures == plain.figures


# --- where the rates come from -------------------------------------------------------------


@pytest.mark.parametrize("name", RATES)
def test_a_measured_rate_is_on_its_page(name):
    rate = RATES[name]
    assert (rate.origin == "assumed") == (not rate.source)
    if rate.origin == "measured" and rate.says:
        assert rate.says in " ".join((RESULTS / rate.source).read_text().split())


def test_the_false_alarms_of_tests_are_no_fewer_than_the_mean_of_their_page():
    rows = re.findall(r"^\|(.*)\|$", (RESULTS / "power.md").read_text(), re.MULTILINE)
    cells = [row.split(" | ") for row in rows if row.count(" | ") == 11]
    called = [float(row[4].split()[0]) for row in cells if row[1].strip().isdigit()]
    assert len(called) == 120
    assert 0 < sum(called) / len(called) <= 100 * RATES["test_alarms"].value
