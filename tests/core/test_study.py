"""A study: policies compared fairly, the Selector as Algorithm 1 has it, honest intervals."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from clusters import BENCHMARKS, Always, category, endless, outcome, site, truth
from scipy.stats import ttest_1samp

from anubis.core.history.defects import Defect
from anubis.core.records import SelectionPolicy
from anubis.core.select.selection import joint_probability, learn_detection
from anubis.lab.study.cluster import run
from anubis.lab.study.incidents import DefectCause, Histories
from anubis.lab.study.policies import GreedySelection
from anubis.lab.study.scenario import Benchmark, Jobs, Scenario, Variations
from anubis.lab.study.trials import SeedMean, Study, Trial, estimate, utilization_over_time
from anubis.report.simulate import findings, interval

SCENARIO = Scenario(
    summary="thirty nodes for a test",
    nodes=30,
    spares=2,
    days=20,
    seeds=2,
    jobs=Jobs(median_h=10.0, spread=1.0, limit_h=48.0),
    benchmarks=(
        Benchmark(name="gemm", minutes=2),
        Benchmark(name="loopback", minutes=1),
        Benchmark(name="train", minutes=60),
    ),
    categories=(
        category(mtbi_h=60, worse_by=1.5, at_worst=8),
        category(name="link", mtbi_h=90, causes=(DefectCause(share=1, found_by=("loopback",)),)),
    ),
    incident_costs_h=60.0,
    sweep=Variations(catch=(0.0,), p0=(1.0,)),
)


def figures(study: Study, policy, catch=1.0, p0=0.01, seed=0):
    return study.result(Trial(policy=policy, seed=seed, catch=catch, p0=p0)).figures


@pytest.fixture(scope="module")
def study():
    return Study(SCENARIO)


def test_the_selector_spends_little_and_prevents_almost_as_much_as_everything(study):
    none, full, mine = (figures(study, each) for each in ("absence", "full set", "selector"))
    assert mine["validation_h"] < 0.2 * full["validation_h"]
    assert mine["incidents"] < 0.5 * none["incidents"]
    assert mine["utilization"] > max(none["utilization"], full["utilization"])


def test_a_sentence_has_a_figure_only_if_the_table_has_it(study):
    said = " ".join(findings(study))
    compared = ("selector", "absence", "full set")
    shown = {
        name: [interval(study.estimates(study.trial(policy))[name]) for policy in compared]
        for name in ("validation_h", "mtbi_h", "utilization")
    }
    stated = {
        "validation_h": "less time on validation" in said,
        "mtbi_h": "times that of absence" in said,
        "utilization": "Nodes work" in said,
    }
    assert stated == {name: "too few seeds" not in cells for name, cells in shown.items()}
    assert {True, False} == {*stated.values()}  # both were seen


def test_random_subsets_cost_as_much_per_node_as_those_of_the_selector(study):
    trials = [Trial(policy=p, seed=0, catch=1.0, p0=0.01) for p in ("selector", "random")]
    mine, blind = (study.result(trial).outcome for trial in trials)
    assert blind.validating_h / blind.queries == pytest.approx(
        mine.validating_h / mine.queries, rel=0.3
    )
    assert blind.incidents > mine.incidents


def test_a_selector_that_accepts_any_risk_is_absence(study):
    nothing = figures(study, "absence")
    assert figures(study, "selector", p0=1.0) == nothing
    assert study.gains("absence", 1.0) == [0.0, 0.0]


def test_without_any_catch_all_policies_have_the_same_mtbi(study):
    """All but the ideal one, which needs no benchmark to know."""
    values = {
        figures(study, policy, catch=0.0)["mtbi_h"]
        for policy in ("absence", "full set", "cron", "random", "selector")
    }
    assert max(values) == pytest.approx(min(values), rel=1e-12)
    assert figures(study, "ideal", catch=0.0)["mtbi_h"] == math.inf


def test_the_order_of_policies_changes_nothing():
    forwards = replace(SCENARIO, days=4.0, seeds=1, sweep=Variations(catch=(), p0=()))
    backwards = replace(forwards, policies=tuple(reversed(SCENARIO.policies)))
    results = []
    for scenario in (forwards, backwards):
        other = Study(scenario)
        results.append({trial: other.result(trial).outcome for trial in other.trials()})
    assert results[0].keys() == results[1].keys()
    for trial in results[0]:
        assert pickle.dumps(results[0][trial]) == pickle.dumps(results[1][trial]), trial


def test_every_run_is_listed_once(study):
    trials = study.trials()
    assert len(trials) == len(set(trials))
    expected = 6 * 2 * 2 + 2  # policies, seeds, catches; and one p0 more for the Selector
    assert len(trials) == expected


# --- the Selector --------------------------------------------------------------------------


class Sure:
    """A node's risk is its number in percent; all of it is of one category."""

    def chances_within(self, nodes, hours, now_h, histories):
        return np.array(nodes) / 100

    def mixes(self, nodes, histories):
        return [{"gpu": 1.0}] * len(nodes)


def selector(p0, half_life_h=1e-6, **changes):
    past = [Defect(category="gpu", found_by=frozenset({"gemm", "train"}))] * 75
    past += [Defect(category="gpu", found_by=frozenset({"loopback"}))] * 25
    plain = {
        "risk": Sure(),
        "detection": learn_detection(past, BENCHMARKS, prior=1e-9, category_prior=1e-9),
        "durations_s": (120.0, 60.0, 3600.0),
        "incident_costs_h": 1e6,
        "policy": SelectionPolicy(p0=p0, half_life_h=half_life_h),
    }
    return GreedySelection(**{**plain, **changes})


def proven_long_ago():
    """A hundred nodes that passed everything once, so long ago that it says nothing any more."""
    histories = Histories.blank(nodes=100, categories=1, benchmarks=3)
    histories.validated_h[:] = -1e6
    return histories


@pytest.mark.parametrize("p0", [0.001, 0.01, 0.03, 0.05, 0.2])
def test_the_selector_adds_the_best_per_second_until_the_risk_is_accepted(p0):
    """Against the definition, by hand, for one node of each risk: gemm saves 75 % in two minutes,
    loopback 25 % in one, and the training nothing that gemm does not."""
    histories = proven_long_ago()
    for node in (0, 1, 4, 10, 60):
        p, wanted, left = node / 100, 0, 1.0
        for bit, drop in ((0b001, 0.75), (0b010, 0.25)):
            if p * left > p0:
                wanted, left = wanted | bit, left - drop
        (chosen,) = selector(p0).choose([node], 10.0, 0.0, histories)
        assert chosen == wanted, (node, p0)


def test_each_node_of_a_job_gets_the_tests_that_its_risk_is_worth():
    histories = proven_long_ago()
    chosen = selector(0.02).choose([0, 50], 10.0, 0.0, histories)
    assert chosen == [0b000, 0b011]
    assert joint_probability([0.0, 0.5]) > 0.02


def test_a_benchmark_that_takes_longer_than_it_saves_is_not_run():
    """At 4 % risk gemm takes 3 % off it: worth 2 minutes only if an incident costs over 67."""
    histories = proven_long_ago()
    cheap, dear = (selector(0.0, incident_costs_h=minutes / 60) for minutes in (66, 68))
    assert cheap.choose([4], 10.0, 0.0, histories) == [0]
    assert dear.choose([4], 10.0, 0.0, histories)[0] & 0b001


def test_a_test_passed_an_hour_ago_is_not_run_again():
    histories = proven_long_ago()
    histories.validated_h[10, 0] = 4.0
    trusting = selector(0.02, half_life_h=100.0)
    assert trusting.choose([10], 10.0, 5.0, histories) == [0b010]
    assert trusting.choose([10], 10.0, 500.0, histories) == [0b001 | 0b010]


def test_a_node_without_a_pass_since_its_repair_is_tested_even_without_risk():
    """As in production: a defect is presumed there, and node 0 has no other risk."""
    histories = proven_long_ago()
    assert selector(0.02).choose([0], 10.0, 0.0, histories) == [0b000]
    histories.validated_h[0] = -np.inf
    assert selector(0.02).choose([0], 10.0, 0.0, histories) == [0b011]


# --- numbers -------------------------------------------------------------------------------


def test_an_interval_is_students():
    values = [3.0, 4.5, 4.0, 7.0]
    found = estimate(values)
    low, high = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert estimate([1.0]).margin == math.inf
    assert estimate([1.0, math.inf]).mean == math.inf


def test_utilization_over_time_adds_up_to_the_whole():
    place = site(nodes=30, spares=2)
    found = outcome(place, endless(30, size=3))
    shares = utilization_over_time(found, 48)
    assert shares.mean() == pytest.approx(found.working_h / (30 * 720))
    assert ((shares >= 0) & (shares <= 1 + 1e-9)).all()


def test_an_early_repair_takes_nothing_from_other_causes():
    """Incidents that no benchmark finds come at their rate, however much is found meanwhile."""
    blind = DefectCause(share=1.0)
    seen = DefectCause(share=9.0, found_by=("gemm",))
    place = site(nodes=200, defect_repair_h=0.0, incident_repair_h=0.0, durations_h=(0.01,) * 3)
    kinds = category(mtbi_h=20.0, causes=(seen, blind))
    found = run(place, endless(200, count=20_000), truth(place, kinds), Always(benchmarks=1))
    expected = 200 * 720 / 20 * 0.1
    assert found.repaired_early > 5 * expected
    assert abs(found.incidents - expected) < 4 * math.sqrt(expected)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"spares": 30}, "spares is 30, expected 0 to 29 of the nodes"),
        ({"nodes": 0}, '"nodes" is 0, expected at least 1'),
        ({"catch": 1.5}, "catch is 1.5, expected a share from 0 to 1"),
        ({"days": 0}, '"days" is 0, expected more than 0'),
        ({"benchmarks": SCENARIO.benchmarks[1:]}, 'found by "gemm", which is not'),
        ({"policies": ("ideal", "ideal")}, '"policies" names "ideal" 2 times'),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(SCENARIO, **changes)


@pytest.mark.parametrize(("nodes", "spares"), [(1, 0), (4, 0), (4, 3)])
def test_a_tiny_cluster_is_simulated_all_the_same(nodes, spares):
    tiny = Study(replace(SCENARIO, nodes=nodes, spares=spares, seeds=1, days=2.0))
    assert all(0 <= tiny.result(t).figures["utilization"] <= 1 + 1e-9 for t in tiny.trials())


def test_random_jobs_are_not_cut_into_pieces_without_end():
    assert Jobs(median_h=12.0, spread=1.5, limit_h=0.5)
    for wrong in ({"median_h": 1e30}, {"spread": 20.0}):
        with pytest.raises(ValueError, match="cuts random jobs into more than 10,000 pieces"):
            Jobs(limit_h=48.0, **wrong)
    with pytest.raises(ValueError, match="limit_h"):
        Jobs(limit_h=1e-9)


@pytest.mark.parametrize(
    ("mean", "margin", "words"),
    [
        (20.0, 2.5, "20.0 ± 2.5"),
        (1067.0, 13548.0, "too few seeds"),  # as a simulation with two seeds once had it
        (0.0, 0.0, "0.0 ± 0.0"),
        (20.0, math.inf, "20.0"),  # one seed
        (math.inf, math.nan, "-"),  # no incident came
    ],
)
def test_an_interval_wider_than_its_amount_is_no_figure(mean, margin, words):
    assert interval(SeedMean(mean=mean, margin=margin)) == words
    if words == "too few seeds":
        assert (
            interval(SeedMean(mean=mean, margin=margin), is_difference=True) == "1,067.0 ± 13,548.0"
        )
