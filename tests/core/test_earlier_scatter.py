"""The scatter of a fleet, learned from earlier campaigns: against fleets with a known scatter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from anubis.core.judge import criteria
from anubis.core.judge.calibration import MISLED, Prior, Strictness, _bound
from anubis.core.judge.earlier_scatter import (
    MOST_DEGREES,
    earlier_criteria,
    fit_prior,
    inverse_trigamma,
    learned_before,
)
from anubis.core.records import (
    CriteriaSet,
    CriterionKey,
    KnownScatter,
    MetricSpec,
    Policy,
    Provenance,
    Workload,
)

KEY = CriterionKey(
    sku="h100", workload=Workload.make("gemm", "1", {}), metric="tflops", device_kind="cuda"
)
HIGHER = MetricSpec(name="tflops", unit="TFLOP/s", direction="higher")


def fleet(rng, nodes, between):
    return rng.normal(100, 100 * between, (nodes, 1)) * rng.normal(1, 0.003, (nodes, 32))


def learn(samples, earlier=()):
    return criteria.learn(
        samples,
        key=KEY,
        metric=HIGHER,
        nodes=len(samples),
        policy=Policy(),
        earlier=earlier,
    )


def as_set(criterion, digest, day):
    provenance = Provenance(suite="s", anubis="1", digest=digest, created_at=f"2026-11-{day:02}")
    return CriteriaSet(sku="h100", criteria=(criterion,), provenance=provenance)


def bound(losses, earlier=None, rate=1e-3):
    every = np.arange(losses.size)
    return _bound(losses, every, every, Strictness(alpha=0.95, rate=rate), earlier=earlier)


@pytest.mark.parametrize(("degrees", "spread"), [(6.0, 0.01), (12.0, 0.2)])
def test_many_campaigns_show_the_inverse_gamma_distribution_of_their_variances(degrees, spread):
    rng = np.random.default_rng(1)
    variances = spread**2 * degrees / rng.chisquare(degrees, 4000)
    seen = np.sqrt(variances * rng.chisquare(7, 4000) / 7)
    prior = fit_prior([KnownScatter(spread=s, degrees=7) for s in seen.tolist()])
    assert prior.spread == pytest.approx(spread, rel=0.03)
    assert prior.degrees == pytest.approx(degrees, rel=0.1)


def test_campaigns_that_are_alike_are_pooled_and_count_no_more_than_two_fleets_of_eight():
    few, many = (fit_prior([KnownScatter(spread=0.02, degrees=d)]) for d in (7, 300))
    assert few.spread == many.spread == pytest.approx(0.02)
    assert (few.degrees, many.degrees) == (7, MOST_DEGREES)
    pooled = fit_prior([KnownScatter(spread=s, degrees=7) for s in (0.01, 0.02)])
    assert pooled.spread == pytest.approx(np.sqrt((0.01**2 + 0.02**2) / 2))
    assert fit_prior([]) is None


@pytest.mark.parametrize("value", [1e-4, 0.2, 3.0, 1e4])
def test_the_inverse_of_the_trigamma_function_undoes_it(value):
    assert special.polygamma(1, inverse_trigamma(value)) == pytest.approx(value)


def test_a_prior_that_fits_makes_the_limit_of_eight_units_as_strict_as_its_degrees_allow():
    """Student's t for the degrees of both, unless one healthy unit in 200 were beyond it."""
    losses = stats.norm.isf((np.arange(1, 9) - 0.375) / 8.25)
    losses *= 0.01 / losses.std(ddof=1)
    reach = 0.01 * np.sqrt(1 + 1 / 8)
    by_both = stats.t.isf(1e-3 / 2, 7 + MOST_DEGREES) * reach
    five_times = stats.t.isf(MISLED * 1e-3, 7) * reach
    fitting = bound(losses, Prior(spread=0.01, degrees=MOST_DEGREES))
    assert fitting.loss == pytest.approx(max(by_both, five_times))
    assert fitting.loss < 0.8 * bound(losses).loss


@pytest.mark.parametrize("spread", [1e-6, 0.1, 0.3, 3.0, 100.0])
def test_a_prior_that_misleads_neither_widens_a_limit_nor_makes_alarms_five_times_as_frequent(
    spread,
):
    for losses in np.random.default_rng(2).normal(0, 0.01, (20, 8)):
        misled = bound(losses, Prior(spread=0.01 * spread, degrees=MOST_DEGREES)).loss
        alone = bound(losses).loss
        assert min(alone, bound(losses, rate=MISLED * 1e-3).loss) <= misled <= alone


def test_eight_nodes_that_differ_by_1_5_percent_show_smaller_losses_beside_earlier_campaigns():
    rng = np.random.default_rng(3)
    earlier = [learn(fleet(rng, 32, 0.015)) for _ in range(2)]
    today = [fleet(rng, 8, 0.015) for _ in range(4)]
    alone, beside = (np.median([learn(s, known).shows for s in today]) for known in ((), earlier))
    assert beside < 0.85 * alone
    assert [learn(today[0], known).earlier for known in ((), earlier)] == [0, 2]


def test_a_scatter_counts_once_for_each_campaign_and_only_if_its_criterion_is_trusted():
    criterion = learn(fleet(np.random.default_rng(4), 8, 0.01))
    refused = replace(criterion, refusal="not repeatable")
    sets = [as_set(criterion, "a", 1), as_set(criterion, "a", 2), as_set(criterion, "b", 3)]
    assert len(earlier_criteria([*sets, as_set(refused, "c", 4)])[KEY]) == 2
    third = np.datetime64("2026-11-03T00:00:00").astype(float)
    assert learned_before(sets, third) == tuple(sets[:2])
