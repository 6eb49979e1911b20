"""Scores against pycox's own, the paper's formula by hand, and truths that are known."""

import numpy as np
import pandas as pd
import pytest
import scipy.integrate

from anubis.models.risk import scores
from anubis.models.risk.forecast import HOURS, Forecast, kaplan_meier, life_table


def drawn(rows, seed=0):
    """Uptimes with ties, a third censored, and forecasts that know a little."""
    rng = np.random.default_rng(seed)
    rate = np.exp(rng.normal(-4, 1, rows))
    true, end = rng.exponential(1 / rate), rng.uniform(0, 200, rows)
    duration_h = np.minimum(true, end)
    guessed = rate * np.exp(rng.normal(0, 0.5, rows))
    return np.ceil(duration_h), true <= end, guessed


def survival_by_pycox(hours, hazard, duration_h, observed):
    from pycox.evaluation import EvalSurv

    frame = pd.DataFrame(np.exp(-hazard.T), index=hours)
    return EvalSurv(frame, duration_h, observed.astype(int), censor_surv="km")


@pytest.mark.parametrize("crossing", [False, True])
@pytest.mark.long
def test_concordance_and_brier_score_are_those_of_pycox(monkeypatch, crossing):
    monkeypatch.setattr(scipy.integrate, "simps", scipy.integrate.simpson, raising=False)
    duration_h, observed, rate = drawn(300)
    hours = np.union1d([0.0], duration_h)
    shape = np.where(rate > np.median(rate), 0.6, 1.4)[:, None] if crossing else 1.0
    hazard = (rate[:, None] * hours) ** shape
    known = survival_by_pycox(hours, hazard, duration_h, observed)
    column = np.searchsorted(hours, duration_h)
    found = scores.concordance(hazard, column, duration_h, observed)
    assert found == pytest.approx(known.concordance_td(), abs=1e-12)
    grid = hours[(hours > 0) & (hours < 150)]
    alive = np.exp(-hazard[:, np.isin(hours, grid)])
    np.testing.assert_allclose(
        scores.brier(alive, grid, duration_h, observed), known.brier_score(grid), rtol=1e-9
    )
    assert scores.integrated_brier(alive, grid, duration_h, observed) == pytest.approx(
        known.integrated_brier_score(grid),
        rel=5e-3,  # pycox integrates by parabolas
    )


def test_accuracy_is_the_papers_formula_and_a_constant_scores_the_mean_time_over_h():
    expected_h = np.array([99.2, 5000.0, 0.0, np.inf])
    duration_h = np.array([49.5, 300.0, 0.0, 1200.0])
    observed = np.array([True, False, True, True])
    found = scores.accuracy(expected_h, duration_h, observed)
    # 100 for 50; 2400 for no incident; 0 for 0; 2400 for 1200
    assert found.relative == pytest.approx((0.5 + 1 + 1 + 0.5) / 4)
    assert found.over_horizon == pytest.approx((2350 / 2400 + 1 + 1 + 0.5) / 4)
    assert found.on_observed == pytest.approx((0.5 + 1 + 0.5) / 3)
    constant = scores.accuracy(np.full(4, np.inf), duration_h, observed)
    assert constant.relative == constant.over_horizon
    assert constant.relative == pytest.approx((50 + 2400 + 0 + 1200) / 4 / 2400)


def test_concordance_of_two_kinds_of_nodes_follows_from_their_rates():
    """One kind has three times the other's rate: it comes first in 3 of 4 pairs across kinds."""
    rng = np.random.default_rng(2)
    rate = np.repeat([1.0, 3.0], 1000)
    duration_h = rng.exponential(1 / rate)
    hours, observed = np.union1d([0.0], duration_h), np.ones(2000, dtype=bool)
    column = np.searchsorted(hours, duration_h)
    for told, expected in ((rate, 0.625), (np.ones(2000), 0.5), (1 / rate, 0.375)):
        found = scores.concordance(told[:, None] * hours, column, duration_h, observed)
        assert found == pytest.approx(expected, abs=0.01)


def truth_and_forecast(factor, power, rows=20_000, seed=1):
    """Hazards `factor` too high, and their logarithms spread by `power` too far."""
    rng = np.random.default_rng(seed)
    log_rate = rng.normal(-7, 0.8, rows)
    true, end = rng.exponential(np.exp(-log_rate)), rng.uniform(0, 2400, rows)
    told = factor * np.exp(-7 + power * (log_rate + 7))
    forecast = Forecast(hours=HOURS, hazard=np.outer(told, HOURS))
    return forecast, np.minimum(true, end), true <= end


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_the_calibration_slope_measures_the_exaggeration_of_risks(factor, power):
    slope = scores.calibration_slope(*truth_and_forecast(factor, power), hours=720)
    assert slope == pytest.approx(1 / power, rel=0.06)


def test_calibrated_groups_find_the_predicted_share_and_others_do_not():
    honest = scores.calibration_groups(*truth_and_forecast(1.0, 1.0), hours=720)
    assert len(honest) == 10
    assert all(abs(group.predicted - group.found) < 0.035 for group in honest)
    doubled = scores.calibration_groups(*truth_and_forecast(2.0, 1.0), hours=720)
    assert all(group.predicted > 1.5 * group.found for group in doubled[:3])


def test_the_spread_has_no_slope_if_all_nodes_have_the_same_risk():
    forecast = Forecast(hours=HOURS, hazard=np.outer(np.full(50, 0.01), HOURS))
    duration_h, observed, _ = drawn(50)
    assert scores.calibration_slope(forecast, duration_h, observed, 24) is None


def test_a_single_incident_at_the_highest_risk_fits_no_slope():
    hazard = np.outer(np.geomspace(1e-9, 1.0, 20), HOURS)
    duration_h, observed = np.full(20, 24.0), np.arange(20) == 19
    slope = scores.calibration_slope(Forecast(hours=HOURS, hazard=hazard), duration_h, observed, 24)
    assert slope is None or np.isfinite(slope)


def test_later_hours_than_most_were_watched_are_left_out():
    duration_h, observed, _ = drawn(500)
    kept = scores.watched_hours(HOURS, duration_h, observed)
    lasting = life_table(duration_h, ~observed)
    share = kaplan_meier(lasting)[lasting.hours <= kept[-1]]
    assert share.min() >= scores.WATCHED
    assert kept[-1] < 200
