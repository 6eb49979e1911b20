"""The simple models against closed forms, statsmodels and a second way to count."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import weibull_min
from statsmodels.duration.hazard_regression import PHReg
from statsmodels.duration.survfunc import SurvfuncRight

from anubis.core.history.status import Statuses, Uptimes
from anubis.models.risk.baselines import (
    Exponential,
    ExponentialPerCount,
    ExponentialPerHour,
    KaplanMeier,
    Weibull,
)
from anubis.models.risk.cox import Cox


def made(duration_h, observed, values=None, covariates=("incidents",)) -> Uptimes:
    rows = len(duration_h)
    values = np.zeros((rows, len(covariates))) if values is None else np.asarray(values, float)
    statuses = Statuses(
        covariates=covariates,
        nodes=tuple(f"n{i}" for i in range(rows)),
        at=np.zeros(rows),
        values=values.reshape(rows, -1),
    )
    return Uptimes(
        statuses=statuses,
        duration_h=np.asarray(duration_h, float),
        observed=np.asarray(observed, bool),
    )


def censored(rows, seed, draw):
    rng = np.random.default_rng(seed)
    true, end = draw(rng), rng.uniform(0, 400, rows)
    return made(np.minimum(true, end), true <= end, rng.poisson(2, rows))


def hazard(model, uptimes, hours):
    return model.cumulative_hazard(uptimes.statuses, np.asarray(hours, float))


def test_one_rate_is_incidents_over_the_hours_watched():
    uptimes = made([10, 20, 70], [True, False, True])
    np.testing.assert_allclose(hazard(Exponential.fit(uptimes, 0), uptimes, [50]), 50 * 2 / 100)


def test_a_rate_for_each_count_leans_on_the_fleets_by_one_incident():
    counts = [0] * 20 + [1] * 10 + [7] * 15
    uptimes = made([10] * 20 + [40] * 10 + [2] * 15, [True] * 45, counts)
    rate = 45 / 630
    found = hazard(ExponentialPerCount.fit(uptimes, 0), uptimes, [1.0])[:, 0]
    expected = [(n + 1) / (hours + 1 / rate) for n, hours in ((20, 200), (10, 400), (15, 30))]
    np.testing.assert_allclose(found, np.repeat(expected, [20, 10, 15]))


def test_counts_that_few_reached_share_the_rate_of_their_neighbours():
    """Each count beyond the first is reached once; alone, the last would have next to no risk."""
    counts = np.arange(31)
    uptimes = made(np.where(counts == 30, 50.0, 1.0), counts < 30, counts)
    found = hazard(ExponentialPerCount.fit(uptimes, 0), uptimes, [1.0])[:, 0]
    np.testing.assert_allclose(found[:20], 11 / (10 + 80 / 30))  # ten incidents each
    np.testing.assert_allclose(found[20:], 11 / (60 + 80 / 30))  # what is left joins the last


def test_a_rate_for_each_hour_is_counted_hour_by_hour():
    uptimes = censored(300, 1, lambda rng: rng.weibull(0.8, 300) * 50)
    model, t, d = ExponentialPerHour.fit(uptimes, 0), uptimes.duration_h, uptimes.observed
    expected = [0.0]
    for k in range(40):
        watched = np.clip(t - k, 0, 1).sum()
        expected.append(expected[-1] + np.sum(d & (t > k) & (t <= k + 1)) / watched)
    np.testing.assert_allclose(hazard(model, uptimes, np.arange(41))[0], expected, rtol=1e-9)


def test_kaplan_meier_is_that_of_statsmodels():
    uptimes = censored(200, 2, lambda rng: np.ceil(rng.exponential(100, 200)))  # with ties
    known = SurvfuncRight(uptimes.duration_h, uptimes.observed.astype(int))
    found = np.exp(-hazard(KaplanMeier.fit(uptimes, 0), uptimes, known.surv_times)[0])
    np.testing.assert_allclose(found, known.surv_prob, rtol=1e-9)


def test_weibull_has_the_likelihood_that_no_other_shape_and_scale_exceeds():
    uptimes = censored(2000, 3, lambda rng: 120 * rng.weibull(0.7, 2000))
    scale, shape = Weibull.fit(uptimes, 0).scale_shape
    t, d = uptimes.duration_h, uptimes.observed

    def likelihood(scale, shape):
        known = weibull_min(shape, scale=scale)
        return known.logpdf(t[d]).sum() + known.logsf(t[~d]).sum()

    best = likelihood(scale, shape)
    assert all(
        likelihood(scale * a, shape * b) < best
        for a, b in [(1.01, 1), (0.99, 1), (1, 1.01), (1, 0.99)]
    )
    np.testing.assert_allclose([scale, shape], [120, 0.7], rtol=0.1)


def test_cox_has_the_coefficients_of_statsmodels():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(500, 3))
    true = np.ceil(rng.exponential(100 * np.exp(-x @ [1.0, -0.5, 0.0])))
    end = rng.uniform(0, 300, 500)
    uptimes = made(np.minimum(true, end), true <= end, x, ("a", "b", "c"))
    model = Cox.fit(uptimes, 0)
    known = PHReg(
        uptimes.duration_h,
        model.scale.apply(x),
        status=uptimes.observed.astype(int),
        ties="breslow",
    ).fit()
    np.testing.assert_allclose(model.beta, known.params, atol=1e-3)
    times, cumulated, _ = known.baseline_cumulative_hazard[0]
    asked = np.unique(times)
    mean = dataclasses.replace(uptimes.statuses, values=np.tile(model.scale.mean, (500, 1)))
    plain = model.cumulative_hazard(mean, asked)[0]
    before = [cumulated[times == t].max() for t in asked]  # statsmodels gives that before the time
    np.testing.assert_allclose(plain[:-1], before[1:], rtol=1e-3)


def test_cox_bears_covariates_that_say_the_same_or_nothing():
    rng = np.random.default_rng(5)
    x = rng.normal(size=200)
    uptimes = made(
        rng.exponential(np.exp(-x)),
        np.ones(200),
        np.column_stack([x, x, np.ones(200)]),
        ("a", "b", "c"),
    )
    beta = Cox.fit(uptimes, 0).beta
    assert beta[0] == pytest.approx(beta[1])
    assert beta.sum() == pytest.approx(x.std(), rel=0.3)
    assert beta[2] == pytest.approx(0, abs=1e-9)
