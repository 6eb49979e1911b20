"""Properties of every risk model after any training."""

import dataclasses

import numpy as np
import pytest

from anubis.core.errors import RiskError
from anubis.core.history.status import Statuses, Uptimes
from anubis.models.risk.baselines import Constant
from anubis.models.risk.forecast import HOURS
from anubis.models.risk.models import MODELS
from anubis.models.risk.risk_model import forecast
from anubis.models.risk.splits import take
from tests.risk.known_hazard import KnownHazard, uptimes

UPTIMES = uptimes(KnownHazard(), nodes=60, seed=3, watched_h=4000)
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


@pytest.fixture(scope="module")
def fitted():
    return {model: model.fit(UPTIMES, seed=5) for model in MODELS}


def wild() -> Statuses:
    """Statuses like no other: all zero, enormous, and a count never reached."""
    values = np.vstack([np.zeros(7), np.full(7, 1e9), np.eye(7) * 1e4])
    rows = len(values)
    return Statuses(
        covariates=UPTIMES.statuses.covariates,
        nodes=("x",) * rows,
        at=np.zeros(rows),
        values=values,
    )


@every_model
@pytest.mark.parametrize("asked", [UPTIMES.statuses, wild()], ids=["seen", "wild"])
def test_the_hazard_starts_at_0_never_falls_and_chances_are_chances(fitted, model, asked):
    hours = np.concatenate((HOURS, [1e4, 1e6]))
    found = forecast(fitted[model], asked, hours)  # refuses what starts elsewhere, falls, or is NaN
    chances = found.chances_within(np.array([0.0, 1.0, 100.0, 1e5]))
    assert np.all((chances >= 0) & (chances <= 1))
    assert np.all(np.diff(chances, axis=1) >= 0)
    assert np.all(found.expected_h() > 0)
    assert np.all(found.median_h() > 0)


@every_model
def test_the_same_seed_gives_the_same_hazard_to_the_last_bit(fitted, model):
    again = model.fit(UPTIMES, seed=5)
    before = fitted[model].cumulative_hazard(UPTIMES.statuses, HOURS)
    assert before.tobytes() == again.cumulative_hazard(UPTIMES.statuses, HOURS).tobytes()


@every_model
def test_the_order_of_the_nodes_asked_about_changes_nothing(fitted, model):
    order = np.random.default_rng(0).permutation(len(UPTIMES))
    mixed = Statuses(
        covariates=UPTIMES.statuses.covariates,
        nodes=tuple(UPTIMES.statuses.nodes[i] for i in order),
        at=UPTIMES.statuses.at[order],
        values=UPTIMES.statuses.values[order],
    )
    one = fitted[model].cumulative_hazard(UPTIMES.statuses, HOURS)
    other = fitted[model].cumulative_hazard(mixed, HOURS)
    np.testing.assert_allclose(one[order], other, rtol=1e-5)


@every_model
def test_the_order_of_the_uptimes_learned_from_changes_nothing(fitted, model):
    order = np.random.default_rng(1).permutation(len(UPTIMES))
    statuses = UPTIMES.statuses
    mixed = Uptimes(
        statuses=Statuses(
            covariates=statuses.covariates,
            nodes=tuple(statuses.nodes[i] for i in order),
            at=statuses.at[order],
            values=statuses.values[order],
        ),
        duration_h=UPTIMES.duration_h[order],
        observed=UPTIMES.observed[order],
    )
    one = fitted[model].cumulative_hazard(statuses, HOURS)
    other = model.fit(mixed, seed=5).cumulative_hazard(statuses, HOURS)
    np.testing.assert_allclose(one, other, rtol=1e-4)


@every_model
def test_other_covariates_are_refused_by_name(fitted, model):
    renamed = tuple("age" if name == "up_h" else name for name in UPTIMES.statuses.covariates)
    other = dataclasses.replace(UPTIMES.statuses, covariates=renamed)
    with pytest.raises(RiskError, match='it needs "up_h", "age" is new; train it again'):
        forecast(fitted[model], other)


@pytest.mark.parametrize("model", MODELS[1:], ids=lambda model: model.name)
def test_uptimes_without_an_incident_are_refused(model):
    with pytest.raises(RiskError, match=r"0 of .* uptimes ended in an incident"):
        model.fit(dataclasses.replace(UPTIMES, observed=np.zeros(len(UPTIMES), dtype=bool)), seed=0)


@pytest.mark.parametrize("model", MODELS[1:-1], ids=lambda model: model.name)
def test_one_incident_at_the_very_beginning_is_survived(model):
    few = take(UPTIMES, np.arange(len(UPTIMES)) < 9)
    few = dataclasses.replace(few, duration_h=np.arange(9.0), observed=np.arange(9) == 0)
    assert forecast(model.fit(few, seed=0), few.statuses).chances_within(np.array([24.0])).max() < 1


@every_model
def test_a_fleet_whose_incidents_all_came_after_three_minutes_can_be_learned(model):
    all_of_them = np.ones(len(UPTIMES))
    young = dataclasses.replace(UPTIMES, duration_h=all_of_them / 20, observed=all_of_them > 0)
    found = forecast(model.fit(young, seed=0), young.statuses)
    surest = 0 if model is Constant else 1
    assert found.chances_within(np.array([24.0])).min() == pytest.approx(surest, abs=1e-6)
