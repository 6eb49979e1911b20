"""Distances, scores, runs and silences of watching, against closed forms and other libraries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform
from watched import CPU, PFC

from anubis.core.watch import distances
from anubis.core.watch.deviations import departure
from anubis.core.watch.distances import (
    LEAST_DEVIATION,
    _least_score,
    bounds,
    mean_distances,
    scores,
    stand_out,
    surely_stands_out,
)
from anubis.core.watch.silences import presence
from anubis.core.watch.telemetry import Span, span_of
from anubis.core.watch.watch_settings import WatchSettings

fleets = st.builds(
    lambda seed, nodes, apart: made(seed, nodes, apart),
    st.integers(0, 10**6),
    st.integers(2, 60),
    st.floats(0, 1),
)


def made(seed, nodes, apart=0.0):
    windows = np.random.default_rng(seed).normal(0.4, 0.02, (nodes, 8))
    windows[nodes // 2] += apart
    return windows.astype(np.float32)


@pytest.mark.parametrize("nodes", [2, 9, 70, 200])
def test_mean_distances_are_those_of_scipy(nodes):
    windows = made(1, nodes, 0.3)
    expected = (
        squareform(pdist(windows.astype(np.float64))).sum(axis=1) / (nodes - 1) / math.sqrt(8)
    )
    assert mean_distances(windows) == pytest.approx(expected, rel=1e-6)


def test_a_constant_offset_is_its_own_distance():
    windows = np.full((5, 8), 0.2, dtype=np.float32)
    windows[3] += 0.25
    assert mean_distances(windows)[3] == pytest.approx(0.25)
    assert mean_distances(windows)[0] == pytest.approx(0.25 / 4)


@given(fleets)
def test_no_mean_distance_is_outside_its_bounds(windows):
    lower, upper = bounds(windows)
    exact = mean_distances(windows)
    assert (lower <= exact).all()
    assert (exact <= upper).all()


@settings(max_examples=25)
@given(fleets, st.floats(0.5, 6), st.sampled_from([0.0, 0.05, 0.3]), st.data())
def test_an_answer_from_bounds_equals_that_from_all_pairs(windows, threshold, least, data):
    rules = WatchSettings(candidates=data.draw(st.sampled_from(["all", "largest"])))
    row = data.draw(st.sampled_from([0, len(windows) // 2]))
    apart = stand_out(windows, threshold, least, rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anubis.core.watch.distances.FEW", 0)
        sure = surely_stands_out(windows, row, threshold, least, rules)
        assert sure is None or sure == (row in apart)
        assert stand_out(windows, threshold, least, rules).tolist() == apart.tolist()


@given(fleets, st.floats(0.3, 2))
def test_no_score_is_below_its_lower_bound(windows, factor):
    windows = (0.4 + (windows - 0.4) * np.float32(factor)).astype(np.float32)
    exact, row = mean_distances(windows), len(windows) // 2
    lower, upper = (np.delete(bound, row) for bound in bounds(windows))
    spread = exact.std()
    score = (exact[row] - exact.mean()) / spread if spread > 1e-6 else 0.0
    assert _least_score(float(exact[row]), lower, upper) <= max(score, 0.0) + 1e-6


def test_a_clear_outlier_of_a_large_job_is_certain_without_all_pairs():
    windows = made(3, 1000, 0.4)
    assert surely_stands_out(windows, 500, 8.0, 0.05, WatchSettings())
    assert surely_stands_out(windows, 3, 8.0, 0.05, WatchSettings()) is False


@pytest.mark.parametrize("nodes", [16, 64, 1000])
def test_a_single_outlier_scores_the_root_of_the_number_of_its_peers_at_most(nodes):
    far = np.ones(nodes)
    far[4] = 1e6
    assert scores(far)[4] == pytest.approx(math.sqrt(nodes - 1))


def test_among_few_nodes_the_score_does_not_saturate():
    far = np.array([0.1, 0.1, 0.1, 0.6])
    assert scores(far)[3] == pytest.approx(0.5 / LEAST_DEVIATION)


def test_nodes_that_are_equally_far_from_each_other_have_no_score():
    assert not scores(np.full(20, 0.3) * (1 + 1e-8 * np.arange(20))).any()
    assert scores(np.zeros(0)).size == 0


def test_values_are_scaled_by_known_limits_or_else_by_the_range_in_the_job():
    values = np.array([[3, np.nan], [50, 12]], dtype=np.float32)
    assert span_of(CPU, values) == Span(0, 100)
    assert span_of(PFC, values) == Span(0, 50)
    assert span_of(PFC, np.full((2, 2), np.nan, dtype=np.float32)).width == 0
    scaled = Span(0, 50).scale(np.array([-5, 25, 80], dtype=np.float32))
    assert scaled.tolist() == [0, 0.5, 1]
    assert Span(7, 7).scale(np.array([7, np.nan], dtype=np.float32))[0] == 0


def test_a_departure_begins_at_the_point_it_left_in_any_phase_of_the_job():
    peers = np.where(np.arange(100) % 10 < 5, 90.0, 0.0)  # work and wait
    own = np.where(np.arange(100) < 60, peers, 0.0)
    left = departure(own, peers, 55, 99, 8)
    assert (left.since, left.returned, left.always) == (60, False, False)


def test_a_stall_of_all_others_at_the_same_moment_does_not_hide_that_the_node_was_with_them():
    at = np.arange(100)
    peers = np.where(at < 60, 600.0, 280.0)
    own = np.where(at < 60, 598.0, 80.0)
    left = departure(own, peers, 57, 99, 8)
    assert (left.since, left.returned, left.always) == (60, False, False)


def test_a_role_that_does_not_show_while_all_write_a_checkpoint_is_a_role():
    at = np.arange(200)
    peers = np.where((at > 80) & (at < 120), 5.0, 40.0)
    own = np.where((at > 80) & (at < 120), 5.0, 60.0)
    assert departure(own, peers, 130, 199, 8).always


def test_late_phases_are_a_role_even_if_all_nodes_were_idle_before():
    at = np.arange(300)
    peers = np.where((at > 50) & (at % 20 < 10), 60.0, 0.0)
    own = np.where((at > 50) & ((at - 4) % 20 < 10), 60.0, 0.0)
    assert departure(own, peers, 60, 299, 8, activity=True).always
    checkpoint = (at > 120) & (at < 160)
    assert departure(
        np.where(checkpoint, 0, own), np.where(checkpoint, 0, peers), 170, 299, 8, activity=True
    ).always
    assert not departure(own, np.where(at < 150, own, peers), 150, 299, 8, activity=True).always


def test_a_node_that_works_again_with_all_others_is_back():
    at = np.arange(200)
    stall = (at >= 60) & (at < 150)
    peers, own = np.where(stall, 280.0, 600.0), np.where(stall, 80.0, 600.0)
    assert departure(own, peers, 60, 149, 8).returned
    idle = np.where(at < 150, peers, 80.0)  # the job ended: all are where the node was
    assert not departure(np.where(at < 60, 600.0, 80.0), idle, 60, 149, 8).returned


def test_points_at_which_most_nodes_are_silent_count_against_none():
    values = np.zeros((5, 30), dtype=np.float32)
    values[:, 20:] = np.nan
    values[2, 15:] = np.nan
    seen = presence(values, long=6, least=8)
    assert not len(seen.vanished)
    assert seen.newest == 19
    assert seen.holes == ((20, 29),)
    assert presence(values, long=5, least=8).vanished.tolist() == [2]


def test_sums_of_large_jobs_keep_their_precision():
    windows = np.random.default_rng(0).normal(0.9, 1e-3, (3000, 8)).astype(np.float32)
    some = windows.astype(np.float64)
    expected = np.sqrt(((some[:5, None] - some[None]) ** 2).sum(axis=2)).sum(axis=1)
    assert distances._compiled_sums(windows)[:5] == pytest.approx(expected, rel=2e-6)
