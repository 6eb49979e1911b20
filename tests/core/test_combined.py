"""All metrics of a program together: a loss in each of them that no metric shows by itself."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from fleets import entry, small_plan
from test_judgement import D, H, U, by_node, judged, learn, measured

from anubis.core.campaign.planning import follow_ups, steps
from anubis.core.judge.combined import combine, is_combined
from anubis.core.judge.foreign_load import TAKEN
from anubis.core.judge.units import latest_executions, units
from anubis.core.records import Policy, Readings, Result, Series

METRICS, SAMPLES, NODES = 10, 4, 32
PLAN = small_plan(NODES, [entry("compute")])
SCATTER = 0.03  # of nodes, apart in each metric


def paces(seed, slow=0.0):
    """The pace of each node in each metric; the first is so much slower in all of them."""
    pace = 1 + SCATTER * np.random.default_rng(seed).standard_normal((NODES, METRICS))
    pace[0] *= 1 - slow
    return pace


def result_of(pace, seed=0, taken=0.0, metrics=METRICS):
    rng = np.random.default_rng(seed)
    series = [
        Series(
            metric=f"rate:{number}",
            device="cuda:0",
            samples=(number + 1) * pace[number] * rng.normal(1, 0.002, SAMPLES),
        )
        for number in range(metrics)
    ]
    shares = {s.metric: {"cuda:0": [taken] * SAMPLES} for s in series} if taken else {}
    return Result(series=Readings.pack(series), environment={TAKEN: shares} if shares else {})


def run(pace, plan=PLAN, **changes):
    every = steps(plan, 0, {node.name for node in plan.nodes})
    return [
        measured(step, result_of(pace[int(step.participants[0][1:])], seed, **changes))
        for seed, step in enumerate(every)
    ]


def without_scores(criteria):
    return tuple(
        replace(of_sku, criteria=tuple(c for c in of_sku.criteria if not is_combined(c.key)))
        for of_sku in criteria
    )


def test_a_score_is_the_geometric_mean_of_the_medians_of_a_run():
    done = run(paces(1))
    (combined,) = combine(units(latest_executions(done), PLAN))
    for unit in combined.scores:
        (mine,) = (e.result for e in done if e.step.participants == unit.participants)
        medians = [float(np.median(series.samples)) for series in mine.series]
        assert unit.samples == pytest.approx([np.prod(medians) ** (1 / METRICS)])


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_in_all_metrics_is_named_though_none_shows_it(seed):
    pace = paces(seed)
    pace[0] = np.where(np.arange(METRICS) == 4, 0.905, 0.93)
    done = run(pace)
    criteria = learn(PLAN, done)
    alone = judged(PLAN, done, without_scores(criteria))
    assert set(by_node(alone).values()) == {H}
    together = judged(PLAN, done, criteria)
    assert by_node(together) == {f"n{i}": H if i else D for i in range(NODES)}
    units = [(v.participants, v.metric, v.device) for v in together.verdicts()]
    assert len(units) == len(set(units)) == NODES * METRICS  # one verdict on each metric
    worst = next(together.verdicts())
    assert (worst.metric, worst.device, worst.code) == ("rate:4", "cuda:0", "COMPUTE.RATE.4")
    assert "7% worse than normal in all 10 metrics together on cuda:0" in worst.reason
    assert re.search("most in rate:4: (8|9|10|11)%$", worst.reason)


def test_healthy_nodes_are_called_no_more_often():
    """Of 640 at most as many as 0.5 % and chance (95 %) make."""
    called = 0
    for seed in range(20):
        done = run(paces(100 + seed))
        called += list(by_node(judged(PLAN, done)).values()).count(D)
    assert called <= 6


def test_a_metric_that_falls_short_itself_is_not_named_twice():
    pace = paces(5, slow=0.3)
    assessment = judged(PLAN, run(pace))
    assert not any("together" in verdict.reason for verdict in assessment.verdicts())


@pytest.mark.parametrize(("again", "judgement"), [(0.925, D), (1.0, H)])
def test_the_second_measurement_counts_as_much_as_the_first(again, judgement):
    pace = paces(2)
    pace[0] = 0.925
    done = run(pace)
    (step,) = follow_ups(PLAN, 0, 0, 1, [("n0",)])
    repeated = measured(step, result_of(np.full(METRICS, again), seed=99))
    assessment = judged(PLAN, [repeated, *done], learn(PLAN, done))
    assert by_node(assessment)["n0"] is judgement


def test_one_of_four_nodes_is_measured_a_third_time_if_all_metrics_together_are_bad_twice():
    few, pace = small_plan(4, [entry("compute")]), paces(2)
    criteria = learn(PLAN, run(pace))
    pace[0] = 0.925
    done = run(pace, few)
    for turn, judgement in ((1, U), (2, D)):
        (step,) = follow_ups(few, 0, 0, turn, [("n0",)])
        done.insert(0, measured(step, result_of(pace[0], seed=99)))
        assessment = judged(few, done, criteria)
        assert by_node(assessment)["n0"] is judgement
        assert bool(assessment.to_confirm) == (judgement is U)


def test_time_that_others_took_is_given_back():
    pace = paces(2)
    criteria = learn(PLAN, run(pace))
    pace[0] = 0.925
    assert by_node(judged(PLAN, run(pace), criteria))["n0"] is D
    assert by_node(judged(PLAN, run(pace, taken=0.1), criteria))["n0"] is not D


def test_criteria_without_scores_and_runs_without_all_metrics_judge_as_before():
    criteria = learn(PLAN, run(paces(3)))
    assert set(by_node(judged(PLAN, run(paces(3)), without_scores(criteria))).values()) == {H}
    fewer = judged(PLAN, run(paces(3), metrics=9), criteria)
    assert {verdict.code for verdict in fewer.alone} == {"NOT-MEASURED"}
    assert not any("together" in verdict.reason for verdict in fewer.alone)


def test_the_rule_of_the_paper_knows_no_score():
    criteria = learn(PLAN, run(paces(3)), policy=Policy(calibrated=False))
    assert criteria == without_scores(criteria)
