"""Samples at odd times on a common grid: by a loop that follows the definition word by word."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.watch.alignment import (
    Grid,
    SampledSeries,
    align,
    gap_of,
    grid_over,
    rates,
    resample,
    step_of,
)
from anubis.core.watch.telemetry import Side, WatchedMetric

DUTY = WatchedMetric(name="gpu_duty", unit="%", low=0, high=100, fault=Side.LOW, family="gpu")


def samples(*told):
    """(row, time, value) in the order of their reports."""
    rows, times, values = zip(*told, strict=True) if told else ((), (), ())
    return SampledSeries(
        rows=np.array(rows, dtype=np.int64),
        times=np.array(times, dtype=float),
        values=np.array(values, dtype=float),
    )


def naive(told, nodes, grid):
    """Point by point: the nearest sample within half a step, else the nearer neighbour's."""
    answer = [[math.nan] * grid.points for _ in range(nodes)]
    for row in range(nodes):
        own = [
            (time, value)
            for at, time, value in told
            if at == row and math.isfinite(time) and math.isfinite(value)
        ]
        chosen = {}
        for time, value in own:
            point = round((time - grid.start) / grid.step_s)  # both round halves to even
            if not 0 <= point < grid.points:
                continue
            beside = abs(time - (grid.start + point * grid.step_s))
            if point not in chosen or beside <= abs(
                chosen[point][0] - (grid.start + point * grid.step_s)
            ):
                chosen[point] = (time, value)
        for point in range(grid.points):
            before = max((other for other in chosen if other <= point), default=None)
            after = min((other for other in chosen if other >= point), default=None)
            if before is None or after is None:
                continue
            (left, left_value), (right, right_value) = chosen[before], chosen[after]
            at = grid.start + point * grid.step_s
            if before == after or right - left <= gap_of(grid.step_s):
                answer[row][point] = left_value if at - left <= right - at else right_value
    return np.array(answer, dtype=np.float32).reshape(nodes, grid.points)


quarters = st.integers(-40, 400).map(lambda n: n / 4)
told_values = st.one_of(st.integers(0, 100).map(float), st.just(math.nan), st.just(math.inf))


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 3), quarters, told_values), max_size=60),
    st.sampled_from([1.0, 2.0, 15.0]),
)
def test_resampling_agrees_with_a_loop_over_the_points(told, step_s):
    grid = Grid(start=0.0, step_s=step_s, points=int(90 / step_s))
    np.testing.assert_array_equal(resample(samples(*told), 4, grid), naive(told, 4, grid))


def on_seconds(*told, points=40):
    return resample(samples(*told), 1, Grid(start=0.0, step_s=1.0, points=points))[0]


def test_a_lost_sample_takes_the_value_of_the_nearest_one():
    row = on_seconds((0, 0, 1.0), (0, 1, 2.0), (0, 4, 5.0), points=5)
    assert row.tolist() == [1, 2, 2, 5, 5]


def test_fifteen_seconds_are_bridged_and_sixteen_are_missing():
    assert not np.isnan(on_seconds((0, 0, 1.0), (0, 15, 2.0), points=16)).any()
    gap = on_seconds((0, 0, 1.0), (0, 16, 2.0), points=17)
    assert np.isnan(gap[1:16]).all()
    assert (gap[0], gap[16]) == (1, 2)


def test_a_series_that_ends_is_not_carried_on():
    row = on_seconds(*((0, time, 7.0) for time in range(10)))
    assert np.isnan(row[10:]).all()
    assert (row[:10] == 7).all()


def test_samples_that_come_twice_or_late_change_nothing():
    told = [(0, float(time), float(time)) for time in range(40)]
    mixed = [told[i] for i in np.random.default_rng(1).permutation(40)] + told[5:20]
    np.testing.assert_array_equal(on_seconds(*mixed), on_seconds(*told))


def test_the_last_reported_of_two_values_for_one_moment_counts():
    assert on_seconds((0, 3, 1.0), (0, 3, 2.0))[3] == 2


def test_samples_that_are_no_numbers_are_ignored():
    row = on_seconds((0, 0, 1.0), (0, 1, math.nan), (0, 2, math.inf), (0, 3, 1e39), (0, 4, 5.0))
    assert row[:5].tolist() == [1, 1, 1, 5, 5]


def test_a_clock_that_is_off_shifts_the_node_and_loses_nothing():
    values = np.arange(40.0)
    row = on_seconds(*((0, time + 2.3, value) for time, value in enumerate(values)))
    np.testing.assert_array_equal(row[2:], values[:38])


def test_scrapes_that_drift_against_a_coarse_grid_leave_no_holes():
    grid = grid_over(1000.0, 1900.0, 15.0)
    told = [(0, 990 + 15.3 * scrape, 1.0) for scrape in range(62)]
    assert not np.isnan(resample(samples(*told), 1, grid)).any()


def test_grids_of_one_step_fit_on_each_other():
    early, late = grid_over(100.4, 900.0, 15.0), grid_over(583.0, 1500.0, 15.0)
    assert early.start % 15 == late.start % 15 == 0
    assert early.start >= 100.4
    assert early.end <= 900


@pytest.mark.parametrize(("every", "step_s"), [(1.0, 1.0), (15.02, 15.0), (0.1, 1.0), (7.0, 7.0)])
def test_the_step_is_how_often_nodes_were_sampled(every, step_s):
    assert step_of([samples(*((0, every * i, 1.0) for i in range(60)))]) == step_s


def test_metrics_sampled_at_different_steps_share_the_coarsest_grid():
    fine = samples(*((0, float(i), 1.0) for i in range(60)))
    coarse = samples(*((0, 15.0 * i, 1.0) for i in range(4)))
    assert step_of([fine, coarse]) == 15
    assert math.isnan(step_of([samples((0, 1.0, 1.0))]))


def test_a_metric_without_samples_is_unknown_everywhere():
    telemetry = align({}, [DUTY], ["n0", "n1"], Grid(start=0.0, step_s=1.0, points=5))
    assert np.isnan(telemetry.series("gpu_duty")).all()


def naive_rates(told, gap_s):
    answer = []
    for row in sorted({at for at, _, _ in told}):
        last = {}
        for at, time, value in told:
            if at == row and math.isfinite(value):
                last[time] = value
        series = sorted(last.items())
        for (t0, v0), (t1, v1) in pairwise(series):
            if t1 - t0 <= gap_s:
                answer.append((row, t1, ((v1 - v0) if v1 >= v0 else v1) / (t1 - t0)))
    return answer


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), quarters, told_values), max_size=40))
def test_rates_of_counters_are_those_of_a_loop(told):
    found = rates(samples(*told))
    made = list(zip(found.rows.tolist(), found.times.tolist(), found.values.tolist(), strict=True))
    assert made == naive_rates(told, 15.0)


def test_a_counter_that_began_again_at_zero_gives_no_negative_rate():
    found = rates(samples((0, 0, 1000.0), (0, 1, 1010.0), (0, 2, 4.0), (0, 3, 14.0)))
    assert found.values.tolist() == [10, 4, 10]
