"""Chances and times from a cumulative hazard, against closed forms and numeric integration."""

import numpy as np
import pytest
from scipy.integrate import quad

from anubis.models.risk.forecast import HOURS, Forecast


def constant(rate):
    return Forecast(hours=HOURS, hazard=np.outer([rate], HOURS))


@pytest.mark.parametrize("rate", [1e-6, 1e-4, 0.01, 1.0])
def test_a_constant_rate_gives_the_exponential_distribution(rate):
    found = constant(rate)
    asked = np.array([0.0, 0.3, 24.0, 2400.0, 50_000.0])
    np.testing.assert_allclose(found.chances_within(asked)[0], 1 - np.exp(-rate * asked), rtol=1e-9)
    np.testing.assert_allclose(found.expected_h(), 1 / rate, rtol=1e-6)
    np.testing.assert_allclose(found.median_h(), np.log(2) / rate, rtol=1e-9)


def test_the_expected_time_is_the_area_below_the_survival_curve():
    hazard = np.array([[0.0, 0.2, 0.2, 1.5]])
    found = Forecast(hours=np.array([0.0, 3.0, 10.0, 30.0]), hazard=hazard)
    area, _ = quad(
        lambda t: float(np.exp(-found.hazard_at(np.array([t]))[0, 0])),
        0,
        1000,
        points=[3, 10, 30],
        limit=200,
    )
    np.testing.assert_allclose(found.expected_h(), area, rtol=1e-6)


def test_each_node_can_be_asked_at_an_hour_of_its_own():
    found = Forecast(hours=HOURS, hazard=np.outer([0.1, 0.2, 0.3], HOURS))
    np.testing.assert_allclose(found.hazard_each(np.array([0.0, 7.0, 5000.0])), [0, 1.4, 1500])


def test_without_hazard_the_times_are_infinite():
    found = constant(0.0)
    assert found.expected_h() == np.inf
    assert found.median_h() == np.inf
    assert found.chances_within(np.array([2400.0])) == 0


@pytest.mark.parametrize(
    ("hazard", "complaint"),
    [
        ([0.0, 2.0, 1.0], "never falls"),
        ([0.1, 1.0, 2.0], "starts at 0"),
        ([0.0, 1.0, np.nan], "finite"),
    ],
)
def test_an_invalid_cumulative_hazard_is_refused(hazard, complaint):
    with pytest.raises(ValueError, match=complaint):
        Forecast(hours=np.array([0.0, 1.0, 2.0]), hazard=np.array([hazard]))
