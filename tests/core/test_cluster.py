"""The simulated cluster: its books balance, and it agrees with closed forms."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from clusters import (
    BENCHMARKS,
    JOBS,
    MTBI_H,
    Always,
    assert_books_balance,
    category,
    endless,
    outcome,
    recorded,
    site,
    sites,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from anubis.lab.study.cluster import run
from anubis.lab.study.incidents import Histories, KnownRates
from anubis.lab.study.policies import Absence, Cron, FullSet, Ideal, RandomSubsets
from anubis.lab.study.traces import TracedJob

NEVER = category(mtbi_h=1e12)


# --- closed forms --------------------------------------------------------------------------


def test_without_validation_incidents_come_at_their_rate():
    """A Poisson process with one rate: the count has the variance of its mean."""
    place = site(nodes=400)
    found = outcome(place, endless(400))
    up_h = 400 * 720 - found.repair_h
    expected = up_h / 100
    assert abs(found.incidents - expected) < 4 * math.sqrt(expected)


def test_a_node_works_the_share_of_time_between_its_incidents():
    """Renewal theory: mean time up over the mean of up and repair, if a job always waits."""
    place = site(nodes=80, span_h=5000.0, incident_repair_h=25.0)
    found = outcome(place, endless(80, count=30_000))
    assert found.working_h / (80 * 5000) == pytest.approx(100 / 125, abs=0.01)


def test_a_hot_buffer_hides_repairs_until_it_is_empty():
    """Each node is in repair 5 of 105 hours, independently of the others: a binomial number of
    them."""
    place = site(nodes=110, spares=10, span_h=6_000.0, incident_repair_h=5.0)
    found = outcome(place, endless(110, duration_h=300.0, count=10_000))
    share = binom.pmf(np.arange(111), 110, 5 / 105)
    left = np.maximum(10 - np.arange(111), 0)
    assert found.spare_h / 6_000 == pytest.approx(share @ left, abs=0.2)
    assert found.idle_h == pytest.approx(0.0, abs=1.0)


def test_a_single_server_queue_waits_as_the_textbook_says():
    """M/D/1: the mean wait is load * service / (2 (1 - load))."""
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(2.0, 20_000))
    jobs = [TracedJob(arrival_h=a, nodes=1, duration_h=1.0) for a in arrivals.tolist()]
    place = site(nodes=1, span_h=float(arrivals[-1]))
    found = outcome(place, jobs, None, 0, NEVER)
    waits = (found.first_h - arrivals)[np.isfinite(found.first_h)]
    assert waits.mean() == pytest.approx(0.5 * 1.0 / (2 * (1 - 0.5)), rel=0.05)


def test_many_servers_keep_the_mean_number_of_jobs_that_little_says():
    """Little: jobs at work = arrivals an hour * hours each, while no job has to wait."""
    rng = np.random.default_rng(1)
    arrivals = np.cumsum(rng.exponential(0.1, 20_000))
    jobs = [
        TracedJob(arrival_h=a, nodes=2, duration_h=d)
        for a, d in zip(arrivals.tolist(), rng.exponential(3.0, 20_000).tolist(), strict=True)
    ]
    place = site(nodes=200, span_h=float(arrivals[-1]))
    found = outcome(place, jobs, None, 0, NEVER)
    assert found.working_h / place.span_h == pytest.approx(10 * 3 * 2, rel=0.03)


@pytest.mark.parametrize(("benchmarks", "coverage"), [(0b001, 0.75), (0b010, 0.25), (0b111, 1.0)])
def test_a_subset_finds_its_coverage_of_the_defects_that_would_strike(benchmarks, coverage):
    place = site(nodes=100, incident_repair_h=0.0, defect_repair_h=0.0)
    found = outcome(place, endless(100, count=5_000), Always(benchmarks=benchmarks))
    defects = found.repaired_early + found.incidents
    margin = 4 * math.sqrt(max(coverage * (1 - coverage), 0.002) / defects)
    assert abs(found.repaired_early / defects - coverage) < margin


@pytest.mark.parametrize("catch", [0.5, 0.1])
def test_the_share_of_early_repairs_is_coverage_times_catch(catch):
    place = site(nodes=100, incident_repair_h=0.0, defect_repair_h=0.0, catch=catch)
    found = outcome(place, endless(100, count=5_000), Always(benchmarks=0b001))
    share = found.repaired_early / (found.repaired_early + found.incidents)
    assert share == pytest.approx(0.75 * catch, abs=0.05)


def test_a_defect_that_shows_too_late_is_an_incident():
    """A job of d hours, a defect that shows s hours before: s / d of them are seen at its start."""
    rare = category(mtbi_h=500.0)
    place = site(nodes=500, shows_h=6.0, durations_h=(1e-3,) * 3, incident_repair_h=0.0)
    found = outcome(
        place, endless(500, duration_h=24.0, count=17_500), FullSet(benchmarks=3), 0, rare
    )
    share = found.repaired_early / (found.repaired_early + found.incidents)
    assert share == pytest.approx(6 / 24, abs=0.03)


def test_incidents_get_more_frequent_with_each_of_their_category():
    kinds = (
        category(name="a", mtbi_h=100, worse_by=2, at_worst=5),
        category(name="b", mtbi_h=50),
    )
    known = KnownRates(kinds, BENCHMARKS, nodes=1, seed=0)
    counts = np.array([[0, 0], [1, 9], [2, 0], [3, 0], [10_000, 0]])
    rates = known.rates(counts)
    assert rates[:, 0] == pytest.approx([0.01, 0.02, 0.04, 0.05, 0.05])
    assert rates[:, 1] == pytest.approx([0.02] * 5)
    histories = Histories.blank(nodes=1, categories=2, benchmarks=3)
    assert known.chances_within([0], 10.0, 0.0, histories) == pytest.approx([1 - math.exp(-0.3)])


def test_rates_that_grow_with_incidents_cause_more_incidents():
    """With rates that grow, more incidents happen than without; so they were counted."""
    place = site(nodes=200)
    steady = outcome(place, endless(200), None, 0, category())
    growing = outcome(place, endless(200), None, 0, category(worse_by=1.5, at_worst=10))
    assert growing.incidents > 1.5 * steady.incidents


# --- policies meet the same fate -----------------------------------------------------------


def policies() -> dict[str, object]:
    return {
        "absence": Absence(),
        "full set": FullSet(benchmarks=3),
        "cron": Cron(benchmarks=3, every_h=100.0),
        "random": RandomSubsets(benchmarks=3, share=0.3, rng=np.random.default_rng(0)),
    }


@pytest.mark.parametrize("name", policies())
def test_without_any_catch_every_policy_has_exactly_the_incidents_of_absence(name):
    """Not about as many: the same ones, because fate does not ask what nodes do."""
    growing = category(worse_by=1.5, at_worst=8)
    place, jobs = site(nodes=60, spares=4, catch=0.0), endless(60, size=3)
    alone = outcome(place, jobs, None, 7, growing)
    found = outcome(place, jobs, policies()[name], 7, growing)
    assert found.incidents == alone.incidents > 200
    assert found.repair_h == pytest.approx(alone.repair_h, rel=1e-12)
    assert found.repaired_early == 0


@pytest.mark.parametrize("name", policies())
def test_no_policy_beats_the_ideal_one(name):
    growing = category(worse_by=1.5, at_worst=8)
    place, jobs = site(nodes=60, spares=4), endless(60, size=3)
    best = outcome(place, jobs, Ideal(), 0, growing)
    found = outcome(place, jobs, policies()[name], 0, growing)
    assert best.incidents == 0 < found.incidents
    assert best.working_h > found.working_h
    assert best.repair_h < found.repair_h


def test_the_same_seed_gives_the_same_outcome_and_another_does_not():
    place, jobs = site(spares=2), endless(50, size=2)
    runs = [outcome(place, jobs, policies()["random"], seed) for seed in (1, 1, 2)]
    assert pickle.dumps(runs[0]) == pickle.dumps(runs[1])
    assert pickle.dumps(runs[0]) != pickle.dumps(runs[2])


# --- single stories ------------------------------------------------------------------------


JOB = [TracedJob(arrival_h=0.0, nodes=1, duration_h=20.0)]


def test_a_job_continues_on_another_node_with_its_progress():
    found = run(site(nodes=2), JOB, recorded(("n0", 5.0)), Absence())
    assert (found.incidents, found.hits) == (1, 1)
    assert found.finished_h.tolist() == [20.0]


def test_a_job_goes_back_to_its_last_checkpoint():
    found = run(site(nodes=2, checkpoint_h=3.0), JOB, recorded(("n0", 5.0)), Absence())
    assert found.lost_h == pytest.approx(2.0)
    assert found.finished_h.tolist() == [22.0]
    assert_books_balance(found, JOB)


def test_a_job_without_a_replacement_node_waits_for_the_repair():
    place = site(nodes=1, incident_repair_h=10.0)
    found = run(place, JOB, recorded(("n0", 5.0), nodes=1), Absence())
    assert found.finished_h[0] - 20 == pytest.approx(found.repair_h)


def test_a_found_defect_never_becomes_an_incident_and_the_job_starts_after_its_tests():
    place = site(nodes=2)
    found = run(place, JOB, recorded(("n0", 5.0)), Always(benchmarks=0b001))
    assert (found.repaired_early, found.incidents) == (1, 0)
    assert found.first_h.tolist() == [pytest.approx(0.4)]  # n0 was tested, then n1
    blind = run(place, JOB, recorded(("n0", 5.0)), Always(benchmarks=0b010))
    assert (blind.repaired_early, blind.incidents) == (0, 1)


def test_a_policy_gets_the_time_since_return_and_the_service_before_it():
    class Spy(Absence):
        def choose(self, nodes, hours, now_h, histories):
            told.append((now_h, float(histories.in_service_h[0]), float(histories.served_h[0])))
            return [0]

    told: list[tuple[float, float, float]] = []
    run(site(nodes=1), JOB, recorded(("n0", 5.0), nodes=1), Spy())
    (began_h, *at_first), (back_h, *then) = told
    assert (began_h, at_first) == (0, [0, 0])
    assert then == [back_h, 5.0]
    assert back_h > 5


def test_an_incident_that_falls_into_a_repair_is_none():
    place = site(nodes=1, incident_repair_h=1000.0, span_h=2000.0)
    found = run(place, JOB, recorded(("n0", 5.0), ("n0", 5.1), nodes=1), Absence())
    assert found.incidents == 1


def test_spares_start_no_job_but_replace_nodes():
    jobs = [TracedJob(arrival_h=0.0, nodes=1, duration_h=10.0)] * 3
    found = run(site(nodes=3, spares=1), jobs, recorded(("n0", 5.0), nodes=3), Absence())
    assert found.first_h.tolist() == [0.0, 0.0, 10.0]
    assert found.finished_h.tolist() == [10.0, 10.0, 20.0]


def test_a_job_larger_than_the_cluster_is_counted_and_delays_no_other():
    jobs = [
        TracedJob(arrival_h=0.0, nodes=3, duration_h=1.0),
        TracedJob(arrival_h=0.0, nodes=2, duration_h=1.0),
    ]
    found = run(site(nodes=3, spares=1), jobs, recorded(nodes=3), Absence())
    assert found.too_large == 1
    assert np.isnan(found.first_h[0])
    assert found.finished_h[1] == 1.0


def test_first_come_first_served():
    """A large job at the head of the line is not overtaken by a small one."""
    jobs = [
        TracedJob(arrival_h=0.0, nodes=1, duration_h=10.0),
        TracedJob(arrival_h=1.0, nodes=2, duration_h=1.0),
        TracedJob(arrival_h=2.0, nodes=1, duration_h=1.0),
    ]
    found = run(site(nodes=2), jobs, recorded(), Absence())
    assert found.first_h.tolist() == [0.0, 10.0, 11.0]


# --- whatever is asked for -----------------------------------------------------------------


@settings(max_examples=30)
@given(sites(0.0), JOBS, MTBI_H, st.sampled_from([*policies(), "ideal"]), st.integers(0, 5))
def test_the_books_balance_for_any_job_load_and_policy(place, jobs, mtbi_h, name, seed):
    policy = {**policies(), "ideal": Ideal()}[name]
    growing = category(mtbi_h=mtbi_h, worse_by=2.0, at_worst=4.0)
    found = outcome(place, jobs, policy, seed, growing)
    assert_books_balance(found, jobs)
    if name == "absence":
        assert found.repaired_early == found.validating_h == 0


def test_zero_jobs_and_no_kind_of_incident_leave_a_cluster_idle():
    place = site(nodes=4, spares=1)
    found = run(place, [], KnownRates((), BENCHMARKS, 4, 0), FullSet(benchmarks=3))
    assert found.idle_h == pytest.approx(3 * 720)
    assert found.spare_h == pytest.approx(720)
