"""Learning and judging: against the plain algorithm, and against what a fleet owner would say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from naive import settle as naive_settle
from strategies import arrays, fleets, tails

from anubis.core import criteria
from anubis.core.records import CriterionKey, Judgement, MetricSpec, Policy, Workload

KEY = CriterionKey(
    sku="h100", workload=Workload.of("gemm", "1", {}), metric="tflops", device_kind="cuda"
)
HIGHER = MetricSpec(name="tflops", unit="TFLOP/s", direction="higher")
LOWER = MetricSpec(name="step_ms", unit="ms", direction="lower")


def learn(samples, metric=HIGHER, **policy):
    return criteria.learn(
        samples, key=KEY, metric=metric, nodes=len(samples), policy=Policy(**policy)
    )


def fleet(rng, sizes_and_levels, m=16):
    return [rng.normal(level, 0.002 * level, m) for n, level in sizes_and_levels for _ in range(n)]


@given(fleets, tails)
@settings(max_examples=150)
def test_settling_keeps_whom_the_plain_algorithm_keeps(samples, tail):
    healthy = criteria.settle(arrays(samples), alpha=0.7903, tail=tail)
    if not healthy.refusal.startswith("learning"):
        assert list(healthy.kept) == naive_settle(samples, 0.7903, tail)


def test_a_slow_node_is_found_and_the_others_are_not():
    rng = np.random.default_rng(1)
    samples = fleet(rng, [(20, 100.0), (1, 92.0)])
    learned = learn(samples)
    assert not learned.refusal
    judged = [judgement for judgement, _ in criteria.judge(samples, learned)]
    assert judged == [Judgement.HEALTHY] * 20 + [Judgement.DEFECTIVE]


def test_a_faster_node_is_unusual_but_not_defective():
    rng = np.random.default_rng(2)
    samples = fleet(rng, [(20, 100.0), (1, 130.0)])
    learned = learn(samples)
    assert learned.healthy == 20
    assert criteria.judge(samples[-1:], learned)[0][0] is Judgement.HEALTHY


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e9])
def test_milliseconds_and_steps_per_second_give_the_same_verdicts(unit):
    rng = np.random.default_rng(3)
    rates = fleet(rng, [(12, 50.0), (2, 45.0)])
    times = [unit / rate for rate in rates]
    by_rate = criteria.judge(rates, learn(rates))
    by_time = criteria.judge(times, learn(times, metric=LOWER))
    assert [j for j, _ in by_rate] == [j for j, _ in by_time]
    np.testing.assert_allclose([s for _, s in by_rate], [s for _, s in by_time])


def test_a_third_of_the_fleet_that_is_slow_does_not_drag_the_criterion_along():
    rng = np.random.default_rng(4)
    learned = learn(fleet(rng, [(20, 235.0), (10, 235.0 * 0.94)]))
    assert learned.healthy == 20
    assert np.median(learned.reference) == pytest.approx(235.0, rel=0.003)


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ([(10, 100.0), (10, 80.0)], "no majority"),
        ([(2, 100.0)], "2 of the 3 units"),
        ([(1, 100.0)], "1 of the 3 units"),
    ],
)
def test_what_cannot_be_learned_is_said_and_judged_unknown(shape, sentence):
    samples = fleet(np.random.default_rng(5), shape)
    learned = learn(samples)
    assert sentence in learned.refusal
    assert {j for j, _ in criteria.judge(samples, learned)} == {Judgement.UNKNOWN}


def test_units_that_do_not_agree_among_themselves_teach_nothing():
    levels = [97.6] * 5 + [100.0] + [102.45] * 5  # each near the middle, the ends far apart
    learned = learn([np.array([level]) for level in levels], alpha=0.975)
    assert learned.healthy == 11
    assert "not repeatable enough" in learned.refusal


def test_repeatability_is_the_mean_similarity_of_the_healthy_pairs():
    learned = learn([np.array([v]) for v in (100.0, 99.0, 98.0, 50.0)])
    assert learned.repeatability == pytest.approx((0.99 + 0.98 + 98 / 99) / 3)


def test_long_samples_are_condensed_without_moving_their_quantiles():
    rng = np.random.default_rng(6)
    sample = np.sort(rng.lognormal(0, 0.3, 100_000))
    condensed = criteria.condense(sample)
    assert condensed.size == criteria.MOST_VALUES
    shares = np.array([0.01, 0.1, 0.5, 0.9, 0.99])
    np.testing.assert_allclose(
        np.quantile(condensed, shares), np.quantile(sample, shares), rtol=0.02
    )
