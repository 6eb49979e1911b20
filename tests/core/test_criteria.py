"""Learning and judging: against the plain algorithm, and against the expectations of a fleet's
owner."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import settle as naive_settle
from strategies import arrays, fleets, tails

from anubis.core.errors import CriteriaError
from anubis.core.judge import criteria, ecdf
from anubis.core.judge.ecdf import Bundle
from anubis.core.records import CriterionKey, MetricAlpha, MetricSpec, Policy, Workload

KEY = CriterionKey(
    sku="h100", workload=Workload.make("gemm", "1", {}), metric="tflops", device_kind="cuda"
)
HIGHER = MetricSpec(name="tflops", unit="TFLOP/s", direction="higher")
LOWER = MetricSpec(name="step_ms", unit="ms", direction="lower")


def learn(samples, metric=HIGHER, **policy):
    return criteria.learn(
        samples, key=KEY, metric=metric, nodes=len(samples), policy=Policy(**policy)
    )


def fleet(rng, sizes_and_levels, m=16):
    return [rng.normal(level, 0.002 * level, m) for n, level in sizes_and_levels for _ in range(n)]


@given(fleets, tails)
@settings(max_examples=50)
def test_settling_keeps_the_units_that_the_plain_algorithm_keeps(samples, tail):
    votes = np.arange(len(samples))
    healthy = criteria.settle(Bundle.from_samples(arrays(samples)), votes, alpha=0.7903, tail=tail)
    if not healthy.refusal.startswith("learning"):
        assert list(healthy.kept) == naive_settle(samples, 0.7903, tail)


@given(fleets, tails, st.data())
@settings(max_examples=50)
def test_settling_from_another_start_is_the_plain_algorithm_from_there(samples, tail, data):
    start = data.draw(st.sampled_from(samples))
    votes = np.arange(len(samples))
    healthy = criteria.settle(
        Bundle.from_samples(arrays(samples)), votes, alpha=0.7903, tail=tail, start=np.array(start)
    )
    if not healthy.refusal.startswith("learning"):
        assert list(healthy.kept) == naive_settle(samples, 0.7903, tail, start)


def test_learning_with_one_more_day_starts_from_the_units_that_were_healthy(monkeypatch):
    """The first look is at the healthy of before: one round, and the same criterion."""
    rng = np.random.default_rng(9)
    before = learn(fleet(rng, [(70, 100.0), (50, 92.0)]))
    looked: list[int] = []

    def counting(bundle, tail, among=None, sums=ecdf.distance_sums):
        looked.append(len(bundle) if among is None else int(np.sum(among)))
        return sums(bundle, tail, among)

    monkeypatch.setattr(ecdf, "distance_sums", counting)
    today = fleet(rng, [(70, 100.4), (50, 92.1)])
    cold = learn(today)
    assert looked == [120, 50]
    looked.clear()
    warm = criteria.learn(today, key=KEY, metric=HIGHER, nodes=120, policy=Policy(), start=before)
    assert looked == [70]
    assert list(warm.reference) == list(cold.reference)
    assert (warm.healthy, warm.refusal) == (cold.healthy, cold.refusal) == (70, "")
    assert warm.repeatability == pytest.approx(cold.repeatability, abs=1e-12)


def passes(samples, learned):
    assert not learned.refusal
    return (criteria.similarities(samples, learned) > learned.alpha).tolist()


def test_a_slow_node_is_found_and_the_others_are_not():
    rng = np.random.default_rng(1)
    samples = fleet(rng, [(20, 100.0), (1, 92.0)])
    learned = learn(samples)
    assert not learned.refusal
    assert passes(samples, learned) == [True] * 20 + [False]


def test_a_faster_node_is_unusual_but_not_defective():
    rng = np.random.default_rng(2)
    samples = fleet(rng, [(20, 100.0), (1, 130.0)])
    learned = learn(samples)
    assert learned.healthy == 20
    assert passes(samples[-1:], learned) == [True]


@pytest.mark.parametrize("own_alpha", [False, True])
def test_with_equal_samples_an_equal_one_passes_and_a_lower_one_fails(own_alpha):
    samples = [np.array([8.0])] * 40 + [np.array([7.0])]
    learned = learn(samples, own_alpha=own_alpha)
    assert passes(samples, learned) == [True] * 40 + [False]


def test_a_metric_that_must_not_vary_has_a_limit_of_its_own():
    """A channel that is computed wrongly may move the loss by half a percent."""
    rng = np.random.default_rng(6)
    samples = [np.array([6.9 * rng.normal(1, 1e-5)]) for _ in range(40)] + [np.array([6.86])]
    learned = learn(samples, metric=MetricSpec(name="loss", unit="1", direction="either"))
    assert learned.alpha == 0.999
    assert passes(samples, learned)[-2:] == [True, False]


def test_a_metric_that_must_not_vary_fails_in_either_direction():
    """The loss after ten steps from one seed: a node that computes wrong may well end lower."""
    rng = np.random.default_rng(5)
    samples = fleet(rng, [(40, 6.9), (1, 6.3), (1, 7.6)], m=1)
    loss = MetricSpec(name="loss", unit="1", direction="either")
    learned = learn(samples, metric=loss)
    assert passes(samples, learned) == [True] * 40 + [False] * 2
    lower = learn(samples, metric=MetricSpec(name="loss", unit="1", direction="lower"))
    assert passes(samples[40:41], lower) == [True]


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e9])
def test_milliseconds_and_steps_per_second_give_the_same_verdicts(unit):
    rng = np.random.default_rng(3)
    rates = fleet(rng, [(12, 50.0), (2, 45.0)])
    times = [unit / rate for rate in rates]
    of_rates, of_times = learn(rates), learn(times, metric=LOWER)
    assert passes(rates, of_rates) == passes(times, of_times)
    np.testing.assert_allclose(
        criteria.similarities(rates, of_rates), criteria.similarities(times, of_times)
    )


def test_a_third_of_the_fleet_that_is_slow_does_not_drag_the_criterion_along():
    """An iterated mean with a 5 % limit keeps them, and ends at 230.9 instead of 235.1."""
    rng = np.random.default_rng(4)
    samples = fleet(rng, [(20, 235.0), (10, 235.0 * 0.94)])
    learned = learn(samples)
    assert learned.healthy == 20
    assert np.median(learned.reference) == pytest.approx(235.0, rel=0.003)
    means = np.array([sample.mean() for sample in samples])
    kept = means
    for _ in range(20):
        kept = means[abs(means / kept.mean() - 1) < 0.05]
    assert kept.size == 30


@pytest.mark.parametrize("loss", [0.03, 0.06, 0.1, 0.2])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.3, 0.4, 0.45])
def test_as_long_as_most_are_well_the_criterion_is_theirs(share, loss):
    rng = np.random.default_rng(8)
    bad = round(60 * share)
    samples = fleet(rng, [(60 - bad, 100.0), (bad, 100.0 * (1 - loss))])
    learned = learn(samples)
    assert not learned.refusal
    assert np.median(learned.reference) == pytest.approx(100.0, rel=0.003)
    passed = passes(samples, learned)
    assert passed[: 60 - bad] == [True] * (60 - bad)
    if loss > 0.055:  # nearer to the limit of 5 % than their noise, either may happen
        assert passed[60 - bad :] == [False] * bad


@pytest.mark.parametrize("loss", [0.06, 0.1, 0.2])
def test_learning_is_refused_if_half_of_the_fleet_is_bad(loss):
    samples = fleet(np.random.default_rng(9), [(30, 100.0), (30, 100.0 * (1 - loss))])
    learned = learn(samples)
    assert "there is no majority to learn from" in learned.refusal


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ([(10, 100.0), (10, 80.0)], "no majority"),
        ([(2, 100.0)], "2 of the 3 units"),
        ([(1, 100.0)], "1 of the 3 units"),
    ],
)
def test_a_refusal_to_learn_states_its_reason(shape, sentence):
    samples = fleet(np.random.default_rng(5), shape)
    learned = learn(samples)
    assert sentence in learned.refusal


def test_units_that_do_not_agree_among_themselves_teach_nothing():
    levels = [97.6] * 5 + [100.0] + [102.45] * 5  # each near the middle, the ends far apart
    learned = learn([np.array([level]) for level in levels], alpha=0.975)
    assert learned.healthy == 11
    assert "not repeatable enough" in learned.refusal


def test_repeatability_is_the_mean_similarity_of_the_healthy_pairs():
    learned = learn([np.array([v]) for v in (100.0, 99.0, 98.0, 50.0)])
    assert learned.repeatability == pytest.approx((0.99 + 0.98 + 98 / 99) / 3)


@pytest.mark.parametrize("spread", [0.001, 0.003, 0.01])
def test_a_proposed_alpha_lets_through_as_many_healthy_units_as_the_rate_says(spread):
    """Measured on 20,000 more healthy units for each of 60 fleets of the same distribution."""
    rng = np.random.default_rng(11)
    false_alarms = []
    for _ in range(60):
        learned = learn(rng.normal(100, 100 * spread, (100, 1)), alpha=0.5, false_alarm_rate=0.01)
        more = criteria.similarities(rng.normal(100, 100 * spread, (20_000, 1)), learned)
        false_alarms.append(np.mean(more <= learned.proposed_alpha))
    assert np.mean(false_alarms) == pytest.approx(0.01, rel=0.2)


def test_a_stricter_alpha_is_applied_only_on_request_and_a_looser_one_unless_forbidden():
    rng = np.random.default_rng(12)
    tight = [rng.normal(100, 0.1, 4) for _ in range(50)]
    loose = [np.array([v]) for v in rng.normal(100, 2, 50)]
    assert learn(tight).alpha == 0.95
    assert learn(tight).proposed_alpha > 0.99
    own = learn(tight, own_alpha=True)
    assert own.alpha == own.proposed_alpha
    assert passes([np.full(4, 98.5)], own) == [False]
    assert passes([np.full(4, 98.5)], learn(tight)) == [True]
    looser = learn(loose)
    assert looser.alpha == looser.proposed_alpha < 0.95
    never_looser = learn(loose, own_alpha=True, calibrated=False)
    assert never_looser.proposed_alpha < 0.95
    assert never_looser.alpha == 0.95
    assert learn(tight[:2], own_alpha=True).proposed_alpha is None


def test_a_sample_counts_once_per_vote_and_proves_no_repeatability_by_agreeing_with_itself():
    samples = [np.array([v]) for v in (100.0, 98.0, 50.0)]
    voices = [0, 0, 0, 1, 2, 2]
    learned = criteria.learn(
        samples, key=KEY, metric=HIGHER, nodes=6, policy=Policy(), votes=voices
    )
    assert (learned.units, learned.healthy) == (6, 4)
    assert learned.repeatability == pytest.approx(0.98)
    alone = criteria.learn(
        samples, key=KEY, metric=HIGHER, nodes=4, policy=Policy(), votes=[0, 0, 0, 2]
    )
    assert alone.repeatability is None
    assert "single measurement" in alone.refusal


@pytest.mark.parametrize(
    ("steps", "times_slower", "tail", "similarity"),
    [
        (500, 100, 0.05, 1 - 0.99 * (1 / 500) / 0.05),  # healthy; of 256 quantiles it was one
        (1000, 2, 0.0, 0.5),  # of 256 quantiles it was none
        (20_000, 2, 0.0, 0.5),
    ],
)
def test_one_slow_step_among_very_many_weighs_as_the_definition_says(
    steps, times_slower, tail, similarity
):
    steady, one_slow_step = np.full(steps, 10.0), np.full(steps, 10.0)
    one_slow_step[steps // 3] *= times_slower
    learned = learn([*[steady] * 9, one_slow_step], metric=LOWER, tail=tail, calibrated=False)
    (found,) = criteria.similarities([one_slow_step], learned)
    assert found == pytest.approx(similarity, abs=1e-9)
    assert passes([one_slow_step], learned) == [similarity > 0.95]
    # and where it is the criterion, it is no worse than itself
    odd = learn([one_slow_step] * 9, metric=LOWER, tail=tail, calibrated=False)
    assert odd.reference.size == steps
    assert criteria.similarities([one_slow_step], odd)[0] == 1


@pytest.mark.parametrize("bad", [[], [1.0, np.nan], [np.inf], [1.0, 0.0], [-1.0]])
@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_samples_that_cannot_be_compared_are_refused_with_their_unit_and_workload(bad, direction):
    metric = MetricSpec(name="tflops", unit="TFLOP/s", direction=direction)
    for good in (np.ones(len(bad)), np.ones(7)):  # as a matrix, and one by one
        samples = [good, np.array(bad), good]
        where = "gemm@1 tflops of h100, unit " + ("1" if not good.size else "2")
        with pytest.raises(CriteriaError, match=where):
            learn(samples, metric=metric)
        with pytest.raises(CriteriaError, match=where):
            criteria.similarities(samples, learn([np.ones(3)] * 3, metric=metric))


RULES = (
    MetricAlpha(benchmark="gemm", alpha=0.97),
    MetricAlpha(metric="step_ms", alpha=0.9),
    MetricAlpha(benchmark="train_*", metric="*:bf1?", alpha=0.8),
)


@pytest.mark.parametrize(
    ("benchmark", "metric", "alpha"),
    [
        ("disk", "gbps", 0.95),  # the policy's
        ("gemm", "tflops:bf16", 0.97),
        ("gemm", "step_ms", 0.9),  # the last that fits
        ("train_moe", "step_ms", 0.9),
        ("train_moe", "loss:bf16", 0.8),
        ("train_moe", "loss:fp32", 0.95),
        ("train", "loss:bf16", 0.95),
    ],
)
def test_a_metric_has_the_alpha_of_the_last_rule_that_fits_it(benchmark, metric, alpha):
    policy = Policy(alphas=RULES)
    assert policy.alpha_of(benchmark, metric) == alpha
    assert policy.metric_policy(benchmark, metric) == Policy(alpha=alpha)
