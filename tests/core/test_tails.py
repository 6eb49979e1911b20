"""Limits of nodes that may scatter with heavy tails: by scipy's distributions, and by fleets whose
shape is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from anubis.core.judge.calibration import (
    SMALL,
    Strictness,
    _bound,
    fit_line,
    heavy_scale,
    usual_units,
)
from anubis.core.judge.tails import BEFORE, Tails, log_odds

RATE = 0.001 / 8  # of one metric of eight


def normal(rng, nodes):
    return rng.normal(0, 0.01, nodes)


def heavy(rng, nodes):
    return 0.01 * rng.standard_t(4, nodes)


def test_the_odds_are_those_of_both_densities_beside_each_other():
    levels = heavy(np.random.default_rng(4), 200)
    usual = usual_units(levels, np.arange(200))
    middle, spread, worst, beyond = fit_line(levels, usual, 1e-6)
    scale = heavy_scale(spread, 200, usual.size)
    better = levels[levels <= worst]
    assert 90 <= better.size <= 100  # the worst half counts by its number only

    def likelihood(placed):
        return placed.logpdf(better).sum() + beyond * placed.logsf(worst)

    truth = likelihood(stats.t(4, middle, scale)) - likelihood(stats.norm(middle, spread))
    assert log_odds(levels) == pytest.approx(truth)
    assert scale == pytest.approx(0.01, rel=0.3)


@pytest.mark.parametrize(("draw", "likely"), [(normal, 0.0), (heavy, 1.0)])
def test_four_metrics_of_128_nodes_show_how_these_scatter(draw, likely):
    rng = np.random.default_rng(1)
    chances = [Tails([draw(rng, 128) for _ in range(4)]).chance for _ in range(20)]
    assert np.mean(np.array(chances) > 0.5) == pytest.approx(likely, abs=0.2)


def test_the_same_metric_again_is_no_more_evidence():
    levels = heavy(np.random.default_rng(2), 64)
    assert Tails([levels] * 4).chance == pytest.approx(Tails([levels]).chance)


def test_metrics_that_show_no_shape_change_nothing():
    levels = heavy(np.random.default_rng(2), 64)
    assert Tails([np.zeros(64), levels]).chance == pytest.approx(Tails([levels]).chance)
    assert Tails([np.zeros(64)]).chance == pytest.approx(BEFORE)


@pytest.mark.parametrize(
    "levels", [np.zeros(64), np.repeat([0.0, 0.01], [60, 4]), np.linspace(0, 1, 5)]
)
def test_equal_rounded_or_few_values_show_no_shape(levels):
    assert log_odds(levels) == 0


def beyond(draw, tails, seed=3, fleets=150, nodes=64):
    """The share of one more healthy node beyond the limit of a fleet that is known by its tails,
    by the true distribution, and the mean limit."""
    rng = np.random.default_rng(seed)
    limits = []
    for _ in range(fleets):
        metrics = [draw(rng, nodes) for _ in range(4)]
        of_program = Tails(metrics)
        of_one = metrics[0]
        usual = usual_units(of_one, np.arange(nodes))
        strictness = Strictness(
            alpha=0.95, rate=RATE, heavy=(lambda of=of_program: of.chance) if tails else None
        )
        limits.append(_bound(of_one, usual, np.arange(nodes), strictness).loss)
    true = stats.norm if draw is normal else stats.t(4)
    return float(true.sf(np.array(limits) / 0.01).mean()), float(np.mean(limits))


def test_few_healthy_nodes_of_heavy_tails_are_beyond_a_limit_that_is_as_strict_on_normal_ones():
    before, _ = beyond(heavy, tails=False)
    assert beyond(heavy, tails=True)[0] < 0.4 * before
    assert beyond(normal, tails=True)[1] < 1.05 * beyond(normal, tails=False)[1]


def test_a_limit_that_alpha_allows_anyway_is_not_widened():
    rng = np.random.default_rng(5)
    levels = heavy(rng, SMALL) / 10
    strictness = Strictness(alpha=0.95, rate=RATE, heavy=lambda: 0.5, allowed=0.05)
    every = np.arange(levels.size)
    plain = _bound(levels, every, every, replace(strictness, heavy=None))
    assert _bound(levels, every, every, strictness) == plain
    assert _bound(levels, every, every, replace(strictness, allowed=0.0)).loss > plain.loss
