"""What a metric can show: against fleets whose truth is known, and against the plain procedure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from anubis.core.judge import criteria
from anubis.core.judge.calibration import (
    Strictness,
    _bound,
    _common_bounds,
    chance_of_call,
    has_two_levels,
    smallest_loss,
    usual_units,
)
from anubis.core.judge.ecdf import Bundle
from anubis.core.records import CriterionKey, MetricSpec, Policy, Workload

KEY = CriterionKey(
    sku="h100", workload=Workload.make("gemm", "1", {}), metric="tflops", device_kind="cuda"
)
HIGHER = MetricSpec(name="tflops", unit="TFLOP/s", direction="higher")
STEPS = 32


def learn(samples, together=1, **policy):
    return criteria.learn(
        samples,
        key=KEY,
        metric=HIGHER,
        nodes=len(samples),
        policy=Policy(**policy),
        together=together,
    )


def at(rate):
    return Strictness(alpha=0.95, rate=rate)


def called(samples, learned):
    if learned.refusal:
        return np.zeros(len(samples), dtype=bool)
    return criteria.similarities(samples, learned) <= learned.alpha


def noisy(rng, n, between=0.003, within=0.003, steps=STEPS):
    paces = rng.normal(100, 100 * between, (n, 1))
    return paces * rng.normal(1, within, (n, steps))


def two_modes(rng, n, **spread):
    return noisy(rng, n, **spread) * np.where(rng.random((n, STEPS)) < 0.3, 0.9, 1.0)


def warming_up(rng, n):
    steps = noisy(rng, n, within=0.01)
    steps[:, :2] *= rng.uniform(0.3, 0.9, (n, 2))
    return steps


def heavy_tailed(rng, n):
    return 100 * np.maximum(1 + 0.03 * rng.standard_t(3, (n, STEPS)) / np.sqrt(3), 0.05)


FLEETS = {
    "steps 3 %": lambda rng, n: noisy(rng, n, within=0.03),
    "steps 5 %": lambda rng, n: noisy(rng, n, within=0.05),
    "nodes 3 %": lambda rng, n: noisy(rng, n, between=0.03),
    "both 3 %, two modes": lambda rng, n: two_modes(rng, n, between=0.03, within=0.03),
    "two modes": two_modes,
    "warm-up": warming_up,
    "heavy-tailed steps": heavy_tailed,
}


@pytest.mark.long
@pytest.mark.parametrize(("n", "fleets"), [(8, 60), (64, 10)])
@pytest.mark.parametrize("kind", FLEETS)
def test_at_most_one_of_two_hundred_healthy_nodes_is_called_at_any_noise(kind, n, fleets):
    rng = np.random.default_rng(13)
    alarms = [called(s, learn(s)).mean() for s in (FLEETS[kind](rng, n) for _ in range(fleets))]
    assert np.mean(alarms) <= 0.005


@pytest.mark.parametrize("kind", FLEETS)
def test_a_loss_that_a_metric_shows_is_found_and_a_much_smaller_one_is_not(kind):
    rng = np.random.default_rng(14)
    learned = learn(FLEETS[kind](rng, 200))
    more = FLEETS[kind](rng, 400)
    assert not learned.refusal
    assert 0.75 < called(more * (1 - learned.shows), learned).mean() <= 1
    assert called(more * (1 - learned.shows / 4), learned).mean() < 0.3


@given(
    paces=st.lists(st.floats(50, 150), min_size=1, max_size=12),
    limit=st.floats(1, 160),
    begin=st.floats(1, 160),
)
def test_the_smallest_loss_that_shows_is_the_first_of_all_even_if_the_search_begins_far_off(
    paces, limit, begin
):
    units = Bundle.from_samples(np.array(paces)[:, None])
    below = lambda slowed: slowed.values <= limit  # noqa: E731
    losses = np.arange(1, 1025) / 1024 * 0.95
    shown = [loss for loss in losses if np.mean(units.values * (1 - loss) <= limit) >= 0.9]
    assert smallest_loss(units, below, begin) == pytest.approx([*shown, 1.0][0], abs=0.0006)


def stalling(rng, samples, share):
    """Samples with that share of their steps, taken by chance, twice as long."""
    halved = np.argsort(rng.random(samples.shape), axis=1) < round(share * samples.shape[1])
    return np.where(halved, samples / 2, samples)


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("steps 3 %", 0.98),
        ("steps 5 %", 0.98),
        ("nodes 3 %", 0.98),
        ("both 3 %, two modes", 0.9),
        ("two modes", 0.98),
    ],
)
def test_a_tenth_of_the_steps_twice_as_long_is_found_at_any_noise(kind, least):
    """As the mean of all steps, which such noise hides it from, it is a loss of 5 %."""
    rng = np.random.default_rng(25)
    learned = learn(FLEETS[kind](rng, 64))
    assert called(stalling(rng, FLEETS[kind](rng, 100), 0.1), learned).mean() >= least


@pytest.mark.parametrize("kind", ["steps 5 %", "warm-up", "heavy-tailed steps"])
def test_stalls_that_a_metric_shows_are_found(kind):
    rng = np.random.default_rng(26)
    learned = learn(FLEETS[kind](rng, 128))

    def found(share):
        first, second = (
            criteria.shortfalls(stalling(rng, FLEETS[kind](rng, 400), share), learned)
            for _ in range(2)
        )
        suspects = first.suspicion(learned) >= 1
        return (suspects & (first.together(second, learned) >= 1)).mean()

    assert found(learned.stalls) > 0.75
    assert found(learned.stalls / 2) < 0.5


@pytest.mark.parametrize("kind", ["two modes", "warm-up"])
def test_a_loss_of_three_percent_shows_in_metrics_whose_typical_step_is_repeatable(kind):
    """Half a percent and less is what the typical steps of these nodes scatter by."""
    rng = np.random.default_rng(27)
    learned = learn(FLEETS[kind](rng, 64), own_alpha=True)
    assert learned.shows < 0.03
    assert called(0.97 * FLEETS[kind](rng, 200), learned).mean() > 0.9


@pytest.mark.parametrize("n", [8, 24, 256])
def test_one_more_healthy_unit_is_beyond_the_common_limit_no_more_often_than_the_rate(n):
    """Two losses that go together, as mean and typical step do, and two that do not."""
    rng = np.random.default_rng(28)
    most = 1.7 if n > 8 else 2.4
    for correlation in (0.97, 0.0):
        beyond = []
        for _ in range(1024 // n):
            draw = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], n).T
            bounds = _common_bounds((draw[0], 3 * draw[1] + 1), np.arange(n), at(0.01))
            first, second = bounds[0].loss, (bounds[1].loss - 1) / 3
            pairs = stats.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]])
            beyond.append(1 - pairs.cdf([first, second]))
        assert np.mean(beyond) < most * 0.01
        assert np.mean(beyond) > 0.4 * 0.01


# --- fewer than 20 units -------------------------------------------------------------------


def blom(n):
    """The share of healthy units that is worse than each of n that are spread evenly."""
    return (np.arange(1, n + 1) - 0.375) / (n + 0.25)


def left(losses, rate):
    votes = np.arange(losses.size)
    return _bound(losses, usual_units(losses, votes), votes, at(rate)).usual.size


@pytest.mark.parametrize(("n", "critical"), [(8, 2.221), (12, 2.55), (19, 2.854)])
def test_one_bad_unit_of_few_is_called_at_the_published_critical_value(n, critical):
    """Grubbs (1969), table 1, one-sided at 1 %: of all fleets, so n times less of all units. The
    others have so much of the rate that two are bad, or more."""
    even = stats.norm.isf(blom(n - 1))

    def with_one_at(grubbs):
        t = np.sqrt(n * (n - 2) * grubbs**2 / ((n - 1) ** 2 - n * grubbs**2))
        return np.append(even, even.mean() + t * even.std(ddof=1) * np.sqrt(n / (n - 1)))

    rate = 0.01 / n / 0.85
    assert left(with_one_at(critical + 0.003), rate) == n - 1
    assert left(with_one_at(critical - 0.003), rate) == n


@pytest.mark.parametrize(("deviation", "bad", "rest"), [(4.0, 1, 7), (4.0, 2, 6), (6.0, 3, 5)])
def test_the_chance_of_a_wrong_call_agrees_with_the_multivariate_t(deviation, bad, rest):
    shared = 1 / (rest + 1)  # all are held against the same mean
    shape = (1 - shared) * np.eye(bad) + shared
    together = stats.multivariate_t(np.zeros(bad), shape, df=rest - 1)
    all_of_them = together.cdf(np.full(bad, -deviation), maxpts=20_000, random_state=1)
    sets_with_a_unit = {1: 1, 2: 7, 3: 21}[bad]
    expected = sets_with_a_unit * all_of_them
    assert chance_of_call(deviation, bad, rest) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("bad", [2, 3])
def test_several_bad_units_of_eight_do_not_hide_each_other(bad):
    """By the z-score no two of eight are more than 1.6 deviations off, with any loss."""
    rest = stats.norm.isf(blom(8 - bad))
    losses = np.append(rest, rest.mean() + 5 * bad * rest.std(ddof=1) * np.linspace(1, 1.1, bad))
    assert stats.zscore(losses, ddof=1).max() < 2
    assert left(losses, 0.005) == 8 - bad


def test_one_slow_unit_of_eight_is_found_almost_as_often_as_by_the_best_test_there_is():
    """Of those that know neither mean nor deviation, Grubbs' has the most power against one."""
    rng = np.random.default_rng(30)
    losses = rng.standard_normal((300, 8))
    losses[:, 0] += 4.5
    called = [x[0] > _bound(x, np.arange(8), np.arange(8), at(0.005)).loss for x in losses]
    best = stats.nct(6, 4.5 * np.sqrt(7 / 8)).sf(stats.t.isf(0.005, 6))
    assert np.mean(called) > best - 0.06


def test_at_most_one_in_two_hundred_of_eight_healthy_units_is_beyond_two_limits():
    """Mean and typical step that have nothing to do with each other, at the default rate."""
    rng = np.random.default_rng(34)
    beyond = []
    for first, second in rng.standard_normal((300, 2, 8)):
        bounds = _common_bounds((first, second), np.arange(8), at(0.001))
        limits = [bound.loss for bound in bounds]
        beyond.append(1 - np.prod(stats.norm.cdf(limits)))
    assert np.mean(beyond) < 0.005


@pytest.mark.parametrize("within", [0.003, 0.03])
def test_a_metric_that_carries_alpha_keeps_the_policys_limit(within):
    learned = learn(noisy(np.random.default_rng(15), 40, within=within))
    assert (learned.alpha, learned.tail, learned.repeats) == (0.95, 1.0, 1)
    assert learned.typical_alpha is None
    assert learned.shows == pytest.approx(0.05, abs=0.01)


def test_a_metric_that_cannot_carry_alpha_states_the_repeats_that_would_suffice():
    """By that many times as many steps it carries, and by half of them it does not."""
    rng = np.random.default_rng(17)
    fleet = lambda steps: noisy(rng, 64, between=0, within=0.12, steps=steps)  # noqa: E731
    learned = learn(fleet(STEPS))
    assert learned.alpha < 0.95
    assert 2 <= learned.repeats <= 6
    assert learn(fleet(2 * learned.repeats * STEPS)).alpha == 0.95
    apart = learn(noisy(rng, 64, between=0.03))
    assert apart.alpha < 0.95
    assert apart.repeats == 0


def test_learning_is_refused_if_no_useful_loss_would_show():
    rng = np.random.default_rng(18)
    learned = learn([np.array([v]) for v in rng.uniform(20, 100, 30)])
    assert learned.refusal


def test_a_limit_for_large_losses_only_is_accepted_although_smaller_ones_hide():
    learned = learn(noisy(np.random.default_rng(0), 12), alpha=0.5, tail=0.5)
    assert (learned.alpha, learned.refusal) == (0.5, "")
    assert learned.shows == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("shape", ["steps", "nodes"])
def test_slow_nodes_that_are_not_odd_do_not_hide_themselves_by_widening_the_limit(shape):
    """One in eight, four standard deviations off: the limit is that of the healthy alone."""
    rng = np.random.default_rng(24)
    spread = {"within": 0.05} if shape == "steps" else {"between": 0.01}
    healthy = noisy(rng, 224, **spread)
    deviation = healthy.mean(axis=1).std() / 100
    slow = noisy(rng, 32, **spread) * (1 - 4 * deviation)
    alone, together = learn(healthy, own_alpha=True), learn([*healthy, *slow], own_alpha=True)
    assert 1 - together.alpha == pytest.approx(1 - alone.alpha, rel=0.12)


@pytest.mark.parametrize(
    ("n", "between", "within"),
    [(3, 0.003, 0.003), (3, 0.03, 0.03), (6, 0.03, 0.003), (6, 0.03, 0.03)],
)
def test_among_fewer_than_eight_nodes_no_healthy_one_is_called_and_a_very_slow_one_is(
    n, between, within
):
    """Alpha as it is called one in twenty of those that differ by 3 %."""
    rng = np.random.default_rng(19)
    fleets = [noisy(rng, n, between, within) for _ in range(40)]
    assert np.mean([called(samples, learn(samples)) for samples in fleets]) <= 0.005
    slow = [np.vstack((samples[:1] * 0.7, samples[1:])) for samples in fleets[:20]]
    assert np.mean([called(samples, learn(samples))[0] for samples in slow]) > 0.7


def test_a_loss_that_few_nodes_cannot_tell_from_chance_is_in_doubt():
    samples = noisy(np.random.default_rng(20), 6, between=0.03)
    few, enough = learn(samples), learn(noisy(np.random.default_rng(20), 20, between=0.03))
    assert (few.doubt_alpha, enough.doubt_alpha) == (0.95, None)
    assert few.alpha < 0.95
    strict, similarity = criteria.doubtful(samples * 0.93, few, None)
    assert strict.alpha == 0.95
    assert np.any(similarity <= 0.95)
    assert not called(samples, few).any()
    alike = noisy(np.random.default_rng(20), 7)
    assert learn(alike).doubt_alpha is None  # its limit is alpha itself


def in_doubt(samples, learned):
    strict, similarity = criteria.doubtful(samples, learned, None)
    return (similarity <= strict.alpha) & ~called(samples, learned)


@pytest.mark.parametrize("n", [8, 16])
def test_a_loss_of_a_tenth_is_seldom_healthy_among_nodes_that_differ_by_three_percent(n):
    """The limit of 8 nodes is 17 %, that of many such nodes 9 %."""
    rng = np.random.default_rng(21)
    fleets = [noisy(rng, n, between=0.03, steps=8) for _ in range(40)]
    assert np.mean([in_doubt(samples, learn(samples)) for samples in fleets]) < 0.04
    slow = [np.vstack((samples[:1] * 0.9, samples[1:])) for samples in fleets]
    learned = [learn(samples) for samples in slow]
    by_fleet = list(zip(slow, learned, strict=True))
    seen = [in_doubt(fleet, of)[0] or called(fleet, of)[0] for fleet, of in by_fleet]
    assert np.mean(seen) > 0.7


def judge_few(paces, steps, seed):
    rng = np.random.default_rng(seed)
    samples = np.array(paces)[:, None] * noisy(rng, len(paces), steps=steps)
    learned = learn(samples)
    if learned.refusal:
        return learned.refusal, set()
    strict, similarity = criteria.doubtful(samples, learned, None)
    well = ~called(samples, learned) & (similarity > strict.alpha)
    return "", set(np.flatnonzero(well))


@given(
    n=st.integers(3, 7),
    loss=st.floats(0.08, 0.9),
    steps=st.sampled_from([1, 5, 16]),
    seed=st.integers(0, 999),
)
@example(n=3, loss=0.1, steps=16, seed=0)
def test_a_bad_node_among_few_that_are_alike_is_never_healthy_and_the_others_are(
    n, loss, steps, seed
):
    """Of three, it makes the limit so loose that it would show next to no loss."""
    assert judge_few([1 - loss, *[1] * (n - 1)], steps, seed) == ("", {*range(1, n)})


def test_no_node_of_few_is_healthy_without_a_majority_that_is_alike():
    for paces in ([1, 1, 0.93, 0.93, 0.86, 0.86], [1, 0.93, 0.86], [1, 1, 0.9, 0.9]):
        refusal, well = judge_few(paces, 16, 0)
        assert ("no majority" in refusal, well) == (True, set())


def test_the_plain_rule_knows_no_noise():
    samples = noisy(np.random.default_rng(20), 40, between=0.03)
    plain = learn(samples, calibrated=False)
    assert (plain.alpha, plain.tail) == (0.95, 0.05)
    assert called(samples, plain).mean() > 0.02


def test_metrics_that_judge_a_node_together_share_the_rate_of_false_alarms():
    samples = noisy(np.random.default_rng(21), 100, between=0.02)
    alone, many = learn(samples), learn(samples, together=100)
    widths = [1 - learned.proposed_alpha for learned in (alone, many)]
    expected = stats.t.isf(1e-5, 99) / stats.t.isf(1e-3, 99)
    assert widths[1] / widths[0] == pytest.approx(expected, rel=0.15)


# --- who is usual --------------------------------------------------------------------------


def plainly_usual(balance, votes):
    """Usual units, from the outermost inwards: one that is odd among the nearer ones leaves, and
    all beyond."""
    n = len(balance)
    middle = np.median([balance[vote] for vote in votes])
    order = sorted(range(n), key=lambda i: abs(balance[i] - middle))
    kept = order
    for size in range(n - 1, 2, -1):
        inside, candidate = order[:size], order[size]
        if 2 * sum(vote in inside for vote in votes) <= len(votes):
            break
        values = [balance[i] for i in inside]
        spread = np.std(values, ddof=1) * np.sqrt(1 + 1 / size)
        reach = stats.t.isf(0.01 / 2 / n, size - 1)
        if abs(balance[candidate] - np.mean(values)) > reach * spread + 1e-9:
            kept = inside
    return sorted(kept)


@given(
    st.lists(st.sampled_from([0.0, 0.01, 0.012, -0.02, 0.1, 0.11, 0.5]), min_size=4, max_size=20),
    st.data(),
)
@settings(max_examples=60)
def test_the_usual_units_are_those_of_the_plain_procedure(levels, data):
    rng = np.random.default_rng(len(levels))
    balance = np.array(levels) + rng.normal(0, 0.001, len(levels))
    some = st.lists(st.integers(0, len(levels) - 1), min_size=3, max_size=20)
    votes = np.array(data.draw(st.one_of(st.just(list(range(len(levels)))), some)))
    assert list(usual_units(balance, votes)) == plainly_usual(balance, votes)


def test_odd_units_do_not_hide_each_other():
    rng = np.random.default_rng(22)
    balance = np.concatenate((rng.normal(0, 0.01, 40), rng.normal(0.2, 0.01, 19)))
    assert list(usual_units(balance, np.arange(59))) == list(range(40))


def test_a_scatter_is_learned_from_a_bare_majority_of_equal_units_beside_better_ones():
    """All of the majority but one were ignored, and one has no scatter."""
    better = np.random.default_rng(1).uniform(150, 160, 63)
    learned = learn(np.concatenate((np.full(65, 100.0), better))[:, None])
    assert np.isfinite(learned.alpha)
    assert not called(np.full((65, 1), 100.0), learned).any()


@pytest.mark.parametrize(("levels", "two"), [([0.0, 1.0], True), ([0.0, 0.5, 1.0], False)])
def test_two_groups_differ_from_mere_scatter(levels, two):
    rng = np.random.default_rng(23)
    assert has_two_levels(np.repeat(levels, 20) + rng.normal(0, 0.02, 20 * len(levels))) is two
    assert not has_two_levels(rng.normal(0, 1, 40))
    assert not has_two_levels(np.zeros(8))
