"""Values that were rounded before they were recorded: a step of rounding is no defect."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.judge import criteria
from anubis.core.judge.rounding import step_of
from anubis.core.records import CriterionKey, MetricSpec, Policy, Workload

KEY = CriterionKey(
    sku="h100", workload=Workload.make("copy", "1", {}), metric="rate", device_kind="node"
)
RATE = MetricSpec(name="rate", unit="GB/s", direction="higher")


def learn(values, metric=RATE):
    samples = values.reshape(len(values), -1)
    learned = criteria.learn(
        samples, key=KEY, metric=metric, nodes=len(values), policy=Policy(false_alarm_rate=1e-3)
    )
    short = criteria.shortfalls(samples, learned).shortfall(learned)
    return learned, (short >= 1) & (not learned.refusal)


def rounded(values, step):
    return np.maximum(1, np.round(values / step)) * step


@pytest.mark.parametrize(("nodes", "steps"), [(20, 1), (64, 1), (64, 32)])
def test_rounding_makes_no_healthy_node_defective_at_any_resolution_and_noise(nodes, steps):
    """Before, 1 to 24 % of them were called, the most if nodes scatter by a third of a step; of
    those with 32 values, which scatter by up to 0.8 steps, 7 %."""
    rng = np.random.default_rng(nodes)
    called = []
    for _ in range((1280 if steps == 1 else 320) // nodes):
        step, noise = 100 * rng.uniform(0.01, 0.2), rng.uniform(0.02, 0.8)
        levels = 100 + step * (rng.uniform(-0.5, 0.5) + noise * rng.standard_normal(nodes))
        within = step * rng.uniform(0.02, 0.8) if steps > 1 else 0.0
        values = levels[:, None] + within * rng.standard_normal((nodes, steps))
        called.append(learn(rounded(values, step))[1])
    assert np.mean(called) <= 0.005


def test_runs_that_scatter_by_a_step_show_half_a_step_in_their_means():
    rng = np.random.default_rng(3)
    levels = np.repeat([100.0, 90.0], [31, 1])
    called = learn(rounded(levels[:, None] + 10 * rng.standard_normal((32, 64)), 10.0))[1]
    assert list(np.flatnonzero(called)) == [31]


@pytest.mark.parametrize("step", [0.01, 0.1, 1.0])
def test_a_loss_of_a_tenth_is_found_in_values_of_fine_resolution(step):
    rng = np.random.default_rng(7)
    fleets = rng.normal(100, 0.5, (20, 24))
    fleets[:, 5] *= 0.9
    called = np.array([learn(rounded(fleet, step))[1] for fleet in fleets])
    assert called[:, 5].all()
    assert not np.delete(called, 5, axis=1).any()


def test_two_steps_of_rounding_are_a_defect_and_one_is_none():
    values = np.repeat([105.0, 100.0, 95.0, 90.0], [3, 25, 4, 1])
    learned, called = learn(values)
    assert list(np.flatnonzero(called)) == [32]
    assert learned.doubt_alpha == 0.95


def test_a_metric_that_is_equal_on_all_nodes_but_one_is_judged_as_it_is():
    called = learn(np.repeat([100.0, 90.0], [31, 1]))[1]
    assert list(np.flatnonzero(called)) == [31]


@pytest.mark.parametrize(
    ("nodes", "events", "samples"), [(8, 0.3, 5), (40, 0.3, 5), (40, 2.0, 5), (40, 2.0, 20)]
)
def test_counts_of_events_make_no_healthy_node_defective(nodes, events, samples):
    """As numbers of parts, 20 and 11 % of them were called: those with a median of 2. By the middle
    of their 20 samples 1.5 % were: it is often the same whole number."""
    counted = replace(RATE, unit="1", direction="lower")
    rng = np.random.default_rng(50)
    fleets = [1.0 + rng.poisson(events, (nodes, samples)) for _ in range(640 // nodes)]
    assert np.mean([learn(counts, counted)[1].mean() for counts in fleets]) <= 0.005


def test_a_node_with_three_times_as_many_events_is_found_though_counts_scatter():
    rng = np.random.default_rng(51)
    fleets = [1.0 + rng.poisson(10, (40, 5)) for _ in range(8)]
    for counts in fleets:
        counts[7] = 1 + rng.poisson(35, 5)
        criterion, short = learn(counts, replace(RATE, unit="1", direction="lower"))
        assert np.flatnonzero(short).tolist() == [7]
        assert not criterion.refusal


def test_a_part_that_two_of_twelve_nodes_lack_is_missing_there():
    parts = np.full((12, 3), 8.0)
    parts[:2] = 7.0
    assert np.flatnonzero(learn(parts, replace(RATE, unit="1"))[1]).tolist() == [0, 1]


@given(
    st.lists(st.integers(50, 150), min_size=2, max_size=20), st.sampled_from([0.5, 0.7, 1.0, 5.0])
)
def test_the_step_is_the_greatest_common_divisor_of_all_differences(numbers, unit):
    divisor = math.gcd(*(abs(number - numbers[0]) for number in numbers))
    values = np.array(numbers) * unit
    assert step_of(values, float(np.median(values))) == pytest.approx(divisor * unit)
