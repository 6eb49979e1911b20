"""Units of one node: their common part, and differences from the other units of the node."""

from __future__ import annotations

from math import hypot

import numpy as np
import pytest
from scipy import stats

from anubis.core.judge import criteria, siblings
from anubis.core.judge.calibration import (
    Strictness,
    _bound_of_nested,
    _independent_units,
    _nested_scatter,
    calibrate_lags,
)
from anubis.core.records import CriterionKey, MetricSpec, Policy, Workload

KEY = CriterionKey(
    sku="h100", workload=Workload.make("gemm", "1", {}), metric="tflops", device_kind="cuda"
)
HIGHER = MetricSpec(name="tflops", unit="TFLOP/s", direction="higher")
ON_EACH = 8


def nested(rng, nodes, between, within):
    """Losses of units on nodes, with known standard deviations of both."""
    owners = np.repeat(np.arange(nodes), ON_EACH)
    return between * rng.standard_normal(nodes)[owners] + within * rng.standard_normal(
        owners.size
    ), owners


def test_a_unit_lags_behind_the_median_of_the_others_of_its_node():
    rng = np.random.default_rng(1)
    owners = rng.permutation(np.repeat(np.arange(5), [1, 2, 3, 4, 8]))
    losses = rng.normal(0, 0.1, owners.size).round(2)  # few are equal
    lags, medians = siblings.lags(losses, owners), siblings.medians_of_nodes(losses, owners)
    for unit, node in enumerate(owners):
        others = [losses[i] for i in np.flatnonzero(owners == node) if i != unit]
        expected = 1 - (1 - losses[unit]) / (1 - np.median(others)) if len(others) > 1 else 0.0
        assert lags[unit] == pytest.approx(expected)
        assert medians[node] == pytest.approx(np.median(losses[owners == node]))


def test_units_of_groups_and_nodes_with_one_unit_have_no_siblings():
    assert siblings.number_nodes([("a",), ("b",)]) is None
    assert siblings.number_nodes([("a", "b"), ("a", "b")]) is None
    assert siblings.number_nodes([("b",), ("a",), ("b",)]).tolist() == [0, 1, 0]


@pytest.mark.parametrize(("between", "within"), [(3.0, 0.3), (1.0, 1.0), (0.0, 3.0)])
def test_nested_scatter_is_that_of_the_analysis_of_variance(between, within):
    """The closed form for balanced normal data: mean squares between and within nodes, and
    Satterthwaite's degrees of freedom of their sum."""
    rng, nodes = np.random.default_rng(2), 200
    losses, owners = nested(rng, nodes, between, within)
    table = losses.reshape(nodes, ON_EACH)
    of_nodes = ON_EACH * table.mean(axis=1).var(ddof=1)
    of_units = table.var(axis=1, ddof=1).mean()
    parts = of_nodes / ON_EACH, of_units * (1 - 1 / ON_EACH)
    of_parts = nodes - 1, nodes * (ON_EACH - 1)
    total = sum(parts)
    degrees = total**2 / sum(part**2 / d for part, d in zip(parts, of_parts, strict=True))
    scatter, between_nodes = _nested_scatter(losses, owners, 1e-4)
    assert scatter.spread == pytest.approx(np.sqrt(total), rel=0.1)
    share = (between_nodes.spread / scatter.spread) ** 2
    assert share == pytest.approx(parts[0] / total, abs=0.1)
    # the worst half of nodes and units is not looked at, which leaves a quarter of the degrees
    assert 0.2 * degrees < scatter.degrees <= degrees


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.99])
def test_correlated_units_amount_to_as_many_as_are_beyond_a_limit_by_themselves(correlation):
    rate = 0.01
    limit = stats.norm.isf(rate)
    shape = (1 - correlation) * np.eye(3) + correlation
    none_beyond = stats.multivariate_normal(np.zeros(3), shape).cdf(np.full(3, limit))
    assert _independent_units(correlation, 3, rate) == pytest.approx(
        (1 - none_beyond) / rate, rel=0.02
    )


@pytest.mark.parametrize("nodes", [4, 8, 32])
@pytest.mark.parametrize(("between", "within"), [(0.03, 0.003), (0.01, 0.01), (0.0, 0.03)])
def test_one_more_healthy_node_is_beyond_a_nested_limit_no_more_often_than_the_rate(
    nodes, between, within
):
    rng, rate = np.random.default_rng(3), 0.01
    beyond = []
    for _ in range(600 // nodes):
        strictness = Strictness(alpha=0.95, rate=rate / ON_EACH)
        limit = _bound_of_nested(*nested(rng, nodes, between, within), strictness).loss
        more, _ = nested(rng, 50, between, within)
        beyond.append(np.mean(more.reshape(50, ON_EACH).max(axis=1) > limit))
    assert np.mean(beyond) < {4: 4, 8: 2.4, 32: 1.7}[nodes] * rate


def test_units_are_beyond_the_limit_of_their_siblings_no_more_often_than_the_rate():
    rng = np.random.default_rng(4)
    beyond = []
    for _ in range(60):
        losses, owners = nested(rng, 4, 0.03, 0.003)
        limit = calibrate_lags(siblings.lags(losses, owners), owners, 0.01)
        more, others = nested(rng, 50, 0.03, 0.003)
        beyond.append(np.mean(siblings.lags(more, others) > limit))
    assert 0.002 < np.mean(beyond) < 0.02


def judged(rng, slow=1.0, nodes=8, between=0.03, own=True):
    """Nodes that are called by both times, if the units of the first are so much slower."""
    owners = np.repeat(np.arange(nodes), ON_EACH)
    pace = 100 * (1 + between * rng.standard_normal(nodes))[owners]
    pace *= 1 + 0.003 * rng.standard_normal(owners.size)
    pace[:ON_EACH] *= slow
    first, second = (
        pace[:, None] * (1 + 0.003 * rng.standard_normal((owners.size, 16))) for _ in range(2)
    )
    learned = criteria.learn(
        first,
        key=KEY,
        metric=HIGHER,
        nodes=nodes,
        policy=Policy(),
        owners=owners if own else None,
        together=ON_EACH,
    )
    if learned.refusal:
        return np.zeros(nodes, dtype=bool)
    before, after = (
        criteria.shortfalls(samples, learned, owners if own else None)
        for samples in (first, second)
    )
    bad = (before.suspicion(learned) >= 1) & (before.together(after, learned) >= 1)
    return bad.reshape(nodes, ON_EACH).any(axis=1)


def test_a_gpu_that_is_slower_than_its_siblings_is_found_though_nodes_differ():
    """Of 96 healthy nodes that differ by 3 % none is called; units taken for independent call
    one in fifty, and find half of the slow ones."""
    rng = np.random.default_rng(5)
    one = np.array([0.9] + [1.0] * (ON_EACH - 1))
    assert np.mean([judged(rng) for _ in range(12)]) <= 0.005
    assert np.mean([judged(rng, one)[0] for _ in range(8)]) == 1.0
    assert np.mean([judged(rng, one, own=False)[0] for _ in range(8)]) < 0.9


@pytest.mark.parametrize("faster", [1.1, 1.5, 4.0])
def test_a_unit_as_fast_as_the_fleet_is_healthy_even_beside_faster_siblings(faster):
    rng = np.random.default_rng(8)
    fast = np.array([1.0] + [faster] * (ON_EACH - 1))
    assert not any(judged(rng, fast, between=0.01)[0] for _ in range(8))


def test_a_node_whose_units_are_all_slow_is_found_beside_the_fleet():
    rng = np.random.default_rng(6)
    assert np.mean([judged(rng, 0.9, between=0.01)[0] for _ in range(8)]) >= 0.8


def test_the_spread_of_one_more_unit_is_that_of_both_levels():
    rng = np.random.default_rng(7)
    losses, owners = nested(rng, 400, 0.02, 0.01)
    limit = _bound_of_nested(losses, owners, Strictness(alpha=0.95, rate=1e-3 / ON_EACH)).loss
    alone = stats.norm.isf(1e-3) * hypot(0.02, 0.01)
    all_eight = stats.norm.isf(1e-3 / ON_EACH) * hypot(0.02, 0.01)
    assert 0.95 * alone < limit < 1.05 * all_eight
