"""Medians without a few nodes, against medians that are reckoned anew."""

from __future__ import annotations

import numpy as np
import pytest

from anubis.core.watch import deviations, medians
from anubis.core.watch.deviations import BEYOND_PEERS, is_beyond
from anubis.core.watch.medians import Middle


def made(random, few):
    """Values with ties and holes, all rows that are compared, and the rows left out."""
    nodes, times = int(random.integers(1, 40)), int(random.integers(1, 6))
    values = np.round(random.normal(0, 1, (nodes + 3, times)), int(random.integers(0, 3)))
    values[random.random(values.shape) < random.choice([0, 0.1, 0.5, 0.95])] = np.nan
    rows = np.sort(random.choice(nodes + 3, nodes, replace=False))
    left_out = random.choice(rows, random.integers(0, min(few, nodes) + 1), replace=False)
    return values.astype(np.float32), rows, left_out


def plain(values):
    """NaN if nothing is known."""
    known = [column[np.isfinite(column)].astype(float) for column in values.T]
    return [np.median(column) if len(column) else np.nan for column in known]


@pytest.mark.parametrize("few", [1, 2, 32])
def test_the_median_without_a_few_is_that_of_the_others(monkeypatch, few):
    monkeypatch.setattr(medians, "FEW", few)
    for seed in range(200):
        values, rows, left_out = made(np.random.default_rng(seed), few)
        middle = Middle.from_rows(values, rows)
        others = np.setdiff1d(rows, left_out)
        assert sorted(middle.excluded_rows(others)) == sorted(left_out)
        told = middle.medians_without(middle.excluded_rows(others))
        assert np.array_equal(told, plain(values[others]), equal_nan=True), f"seed {seed}"
        assert np.array_equal(medians.medians(values[others]), told, equal_nan=True)


def test_more_equal_values_may_be_left_out_than_are_around_the_middle(monkeypatch):
    monkeypatch.setattr(medians, "FEW", 2)
    values = np.array([*[0] * 8, *range(1, 13)], dtype=np.float32)[:, None]
    middle = Middle.from_rows(values, np.arange(20))
    assert middle.band.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert middle.medians_without(np.array([2, 5])).tolist() == [3.5]


def test_other_nodes_than_those_in_order_need_a_new_order():
    middle = Middle.from_rows(np.zeros((60, 2), dtype=np.float32), np.arange(40))
    assert middle.excluded_rows(np.arange(41)) is None
    assert middle.excluded_rows(np.arange(1, 41)) is None
    assert middle.excluded_rows(np.arange(7)) is None  # far fewer
    assert list(middle.excluded_rows(np.arange(1, 40))) == [0]


def test_half_of_the_peers_suffice_to_know_that_a_node_is_beyond_them(monkeypatch):
    monkeypatch.setattr(deviations, "AT_ONCE", 4)
    for seed in range(200):
        random = np.random.default_rng(seed)
        values, rows, _ = made(random, 1)
        usual = np.array(plain(values[rows]))
        far = np.abs(values[rows] - usual)
        means = [row[np.isfinite(row)].mean() for row in far if np.isfinite(row).any()]
        if means:
            distance = float(random.choice([1.0, BEYOND_PEERS * np.median(means), 3.0]))
            expected = distance >= BEYOND_PEERS * np.median(means)
            assert is_beyond(distance, values, rows, usual) == expected, f"seed {seed}"
