"""The distances of docs/design/mathematics.md against plain definitions and closed forms."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from naive import distance as naive_distance
from naive import distance_sums as naive_sums
from naive import shortfall as naive_shortfall
from naive import typical_loss as naive_typical_loss
from strategies import arrays, fleets, samples, tails

from anubis.core.errors import CriteriaError
from anubis.core.judge import compiled_ecdf, ecdf

FEW = (0, ecdf.FEW)  # with 0 the smallest fleet is compared by compiled loops
ways = st.sampled_from(
    [
        {"FEW": 0, "PAIRWISE": 0},  # no two are compared by themselves
        {"FEW": 0, "PAIRWISE": 0, "FEW_LEVELS": 0},  # in a tree
        {"FEW": 0, "PAIRWISE": ecdf.PAIRWISE},
        {"FEW": ecdf.FEW, "PAIRWISE": ecdf.PAIRWISE},
    ]
)


@given(samples, samples, tails)
def test_both_distances_agree_with_their_definitions(a, b, tail):
    one, other = np.array(a), np.array(b)
    assert ecdf.distance(one, other, tail) == pytest.approx(naive_distance(a, b, tail), abs=1e-12)
    assert ecdf.shortfall(one, other, tail) == pytest.approx(naive_shortfall(a, b, tail), abs=1e-12)


@given(st.floats(0.1, 10), st.floats(0.1, 10), tails)
def test_for_single_values_the_distance_is_one_minus_smaller_over_larger(a, b, tail):
    expected = 1 - min(a, b) / max(a, b)
    assert ecdf.distance(np.array([a]), np.array([b]), tail) == pytest.approx(expected)


@given(samples, samples, tails)
def test_a_sample_that_is_nowhere_worse_has_no_shortfall(a, b, tail):
    better = np.maximum.reduce([np.sort(np.resize(a, 20)), np.sort(np.resize(b, 20))])
    assert ecdf.shortfall(better, np.sort(np.resize(b, 20)), tail) == pytest.approx(0, abs=1e-12)


def test_a_twentieth_of_steps_that_are_100_times_slower_is_far_from_similar():
    """The trap of reading the paper's "replace max with min" literally: it would give 0.95."""
    normal = np.full(100, 10.0)  # milliseconds
    sick = np.concatenate((np.full(95, 10.0), np.full(5, 1000.0)))
    observed, reference = ecdf.goodness(sick, "lower"), ecdf.goodness(normal, "lower")
    assert 1 - ecdf.shortfall(observed, reference, 0.0) < 0.05
    assert 1 - ecdf.shortfall(observed, reference, 0.05) < 0.05


@given(samples, st.data())
def test_the_typical_loss_agrees_with_its_definition(a, data):
    size = data.draw(st.sampled_from([None, 7]))
    values = st.floats(0.1, 10)
    b = data.draw(st.lists(values, min_size=len(a), max_size=len(a))) if size is None else [2.5] * 7
    expected = naive_typical_loss(a, b)
    observed, reference = np.sort(a), np.sort(b)
    assert ecdf.typical_loss(observed, reference) == pytest.approx(expected, abs=1e-12)
    for few in FEW:
        with mock.patch.object(ecdf, "FEW", few):
            fast = ecdf.typical_losses(ecdf.Bundle.from_samples([observed]), reference)
        assert fast == pytest.approx([expected], abs=1e-12)


@given(st.integers(4, 40), st.integers(4, 40), st.floats(-0.5, 0.5))
def test_the_typical_loss_between_samples_of_two_sizes_is_the_same_in_both_forms(n, m, loss):
    rng = np.random.default_rng(n * m)
    observed, reference = np.sort(rng.uniform(1, 2, n)), np.sort(rng.uniform(1, 2, m))
    with mock.patch.object(ecdf, "FEW", 0):
        fast = ecdf.typical_losses(ecdf.Bundle.from_samples([(1 - loss) * observed]), reference)
    assert fast == pytest.approx([ecdf.typical_loss((1 - loss) * observed, reference)], abs=1e-12)


def test_neither_warm_up_nor_how_often_a_mode_occurs_shows_in_the_typical_loss():
    normal = np.repeat([90.0, 100.0], [10, 22])
    for slow in (6, 14):  # of 32 in the slower mode, and two steps of warm-up
        observed = np.repeat([30.0, 90.0, 100.0], [2, slow - 2, 32 - slow])
        assert ecdf.typical_loss(observed, normal) == pytest.approx(0.0)
        assert ecdf.typical_loss(0.98 * observed, normal) == pytest.approx(0.02)


def test_a_tail_lighter_than_epsilon_counts_in_proportion():
    normal = np.full(1000, 100.0)
    one_slow_step = np.concatenate(([1.0], np.full(999, 100.0)))
    assert ecdf.shortfall(one_slow_step, normal, 0.0) == pytest.approx(0.99)
    assert ecdf.shortfall(one_slow_step, normal, 0.05) == pytest.approx(0.99 * 0.001 / 0.05)


@given(fleets, tails, ways)
def test_fast_sums_equal_the_double_loop(fleet, tail, way):
    with mock.patch.multiple(ecdf, **way):
        fast = ecdf.distance_sums(ecdf.Bundle.from_samples(arrays(fleet)), tail)
    np.testing.assert_allclose(fast, naive_sums(fleet, tail), atol=1e-9)


@given(fleets, tails, ways, st.data())
def test_sums_of_the_distances_to_some_count_only_these(fleet, tail, way, data):
    among = data.draw(st.lists(st.booleans(), min_size=len(fleet), max_size=len(fleet)))
    with mock.patch.multiple(ecdf, **way):
        fast = ecdf.distance_sums(ecdf.Bundle.from_samples(arrays(fleet)), tail, np.array(among))
    np.testing.assert_allclose(fast, naive_sums(fleet, tail, among), atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("lengths", [(8,), (1,), (5, 7, 8), range(1, 90), (512,), range(300, 3000)])
@pytest.mark.parametrize("pairwise", [0, 1])
@pytest.mark.parametrize("few_levels", [0, ecdf.FEW_LEVELS])
def test_fast_sums_equal_the_definition_for_fleets_large_enough_to_be_divided(
    monkeypatch, lengths, pairwise, few_levels
):
    monkeypatch.setattr(ecdf, "FEW_LEVELS", few_levels)
    monkeypatch.setattr(ecdf, "PAIRWISE", pairwise)
    rng = np.random.default_rng(7)
    fleet = [
        np.sort(rng.choice([rng.normal(100, 2), rng.normal(60, 9)]) + rng.integers(0, 9, size=m))
        for m in rng.choice(lengths, size=36)
    ]
    some = rng.random(len(fleet)) < 0.2
    for tail in (0.0, 0.05):
        apart = np.array([[ecdf.distance(a, b, tail) for b in fleet] for a in fleet])
        for among in (None, some):
            np.testing.assert_allclose(
                ecdf.distance_sums(ecdf.Bundle.from_samples(fleet), tail, among),
                apart.sum(axis=1) if among is None else apart[:, some].sum(axis=1),
                rtol=1e-9,
                atol=1e-9,
            )


@given(fleets, samples, tails, st.booleans(), st.sampled_from(FEW))
@example([[3.0], [4.0], [5.0]], [4.0], 0.0, True, 0)
@example([[3.0], [4.0], [5.0]], [4.0], 0.05, False, 0)
@example([[3.0], [4.0], [5.0]], [4.0], 0.05, True, ecdf.FEW)
@example([[3.0], [4.0], [5.0]], [4.0], 0.0, False, ecdf.FEW)
def test_distances_to_one_sample_equal_the_definition(fleet, reference, tail, worse, few):
    with mock.patch.object(ecdf, "FEW", few):
        fast = ecdf.distances_to(
            ecdf.Bundle.from_samples(arrays(fleet)), np.array(reference), tail, worse=worse
        )
    definition = naive_shortfall if worse else naive_distance
    np.testing.assert_allclose(fast, [definition(a, reference, tail) for a in fleet], atol=1e-12)


@pytest.mark.parametrize("bad", [[], [0.0], [-1.0, 2.0], [np.nan], [1.0, np.inf]])
@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_samples_that_are_not_positive_numbers_are_refused(bad, direction):
    with pytest.raises(CriteriaError):
        ecdf.goodness(np.array(bad, dtype=float), direction)


def test_loops_that_setup_has_compiled_serve_fleets_of_any_size():
    ecdf.compile_loops()
    loops = (compiled_ecdf.divide, compiled_ecdf.distances_to, compiled_ecdf.typical_losses)
    compiled = [list(loop.signatures) for loop in loops]
    assert all(compiled)
    for nodes, values in ((1000, 1), (9, 300)):
        fleet = ecdf.Bundle.from_samples(1.0 + np.arange(1.0 * nodes * values).reshape(nodes, -1))
        ecdf.distance_sums(fleet, 0.0, np.arange(nodes) > 3)
        ecdf.distances_to(fleet, fleet[1], 0.0, worse=False)
        ecdf.typical_losses(fleet, fleet[1])
    assert [list(loop.signatures) for loop in loops] == compiled
