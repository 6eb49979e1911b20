"""Slow steps: counted against truths that were planted, and chances against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from anubis.core.judge import criteria, ecdf, slow_steps
from anubis.core.judge.second_measurements import (
    OF_THE_GOOD,
    RepeatedShortfalls,
    are_among_the_worst,
    learn_from_controls,
)
from anubis.core.judge.slow_steps import learn_share, learn_slow_steps, set_aside, tail_chances
from anubis.core.records import CriterionKey, MetricSpec, Policy, SlowShare, Workload

STEPS = 32
KEY = CriterionKey(
    sku="h100", workload=Workload.make("train", "1", {}), metric="step_s", device_kind="cuda"
)
TIME = MetricSpec(name="step_s", unit="s", direction="lower")


def steady(rng, n, steps=STEPS):
    """RepeatedShortfalls of runs whose nodes, and steps, differ by 0.3 %."""
    return rng.normal(1, 0.003, (n, 1)) * rng.normal(1, 0.003, (n, steps))


def longer(times, rng, chance, factor=2.0):
    """Each step takes longer with that chance."""
    return np.where(rng.random(times.shape) < chance, factor * times, times)


def stalled(times, rng, nodes, steps=3):
    times = times.copy()
    for node in nodes:
        times[node, rng.choice(times.shape[1], steps, replace=False)] *= 2
    return times


def with_warm_up(times, rng):
    times = times.copy()
    times[:, :2] /= rng.uniform(0.3, 0.9, (len(times), 2))
    return times


def with_checkpoints(times, rng):
    """Each eighth step takes 1.4 to 3.3 times as long, by node."""
    times = times.copy()
    times[:, 7::8] *= rng.uniform(1.4, 3.3, (len(times), 1))
    return times


def with_collections_of_garbage(times, rng):
    """Each tenth step takes a third longer, from another one on for each run."""
    times = times.copy()
    for run, first in zip(times, rng.integers(0, 10, len(times)), strict=True):
        run[first::10] *= 1.3
    return times


def with_bursts(times, rng):
    """Runs of which one in 14 has a burst of 2 to 8 steps that take twice as long."""
    times = times.copy()
    for run in np.flatnonzero(rng.random(len(times)) < 0.07):
        times[run, rng.integers(24) :][: rng.integers(2, 9)] *= 2
    return times


def in_groups(times, rng, steps):
    """Each step has a chance of one in 100 to begin a group of so many that take twice as long."""
    begins = rng.random(times.shape) < 0.01
    slow = begins.copy()
    for later in range(1, steps):
        slow[:, later:] |= begins[:, :-later]
    return np.where(slow, 2 * times, times)


def in_two_modes(times, rng):
    """Three steps in ten take half as long again, which is how the program runs."""
    return longer(times, rng, 0.3, 1.5)


HEALTHY = {
    "steady": lambda times, rng: times,
    "one step in 100 twice as long": lambda times, rng: longer(times, rng, 0.01),
    "one step in 100 ten times as long": lambda times, rng: longer(times, rng, 0.01, 10.0),
    "three steps in 100 twice as long": lambda times, rng: longer(times, rng, 0.03),
    "warm-up": with_warm_up,
    "checkpoints": with_checkpoints,
    "garbage": with_collections_of_garbage,
    "bursts": with_bursts,
    "two modes": in_two_modes,
}
BAD_ONCE = {"bursts"}  # healthy runs that are, and so are measured again


def learn(times, **policy):
    return criteria.learn(
        list(times), key=KEY, metric=TIME, nodes=len(times), policy=Policy(**policy)
    )


def learn_alone(counts, lengths):
    """Learn from slow steps of which none is near to another."""
    return learn_share(1.1, counts, lengths, groups=counts)


def goodness(times):
    return ecdf.Bundle.from_samples([1 / run for run in times])


def count_slow(units, slow):
    return set_aside(units, slow).slow


def count_equal_chances(short, again, learned):
    every = np.ones(len(short.level), dtype=bool)
    times = RepeatedShortfalls.from_shortfalls((short, again), (every, every), learned)
    return times.count_equal_chances(every.size)


def called(first, second, learned):
    """Nodes called by two measurements of all, as a campaign judges its suspects."""
    short, again = (criteria.shortfalls(times, learned) for times in (first, second))
    beyond_chance = count_equal_chances(short, again, learned) == 0
    return (short.suspicion(learned) >= 1) & (short.together(again, learned) >= 1) & beyond_chance


@pytest.mark.parametrize("kind", HEALTHY)
@pytest.mark.parametrize(("n", "fleets"), [(8, 60), (64, 10)])
def test_at_most_one_of_two_hundred_healthy_nodes_is_called_by_its_slow_steps(kind, n, fleets):
    rng = np.random.default_rng(41)
    at_once, by_both = [], []
    for _ in range(fleets):
        first, second = (HEALTHY[kind](steady(rng, n), rng) for _ in range(2))
        learned = learn(first)
        assert not learned.refusal
        at_once.append((criteria.similarities(first, learned) <= learned.alpha).mean())
        by_both.append(called(first, second, learned).mean())
    assert np.mean(at_once) <= (0.08 if kind in BAD_ONCE else 0.005)
    assert np.mean(by_both) <= 0.005


@pytest.mark.parametrize("steps", [2, 3])
def test_slow_steps_that_usually_come_in_groups_make_no_node_suspect(steps):
    """When each slow step counted by itself, 27 % of these healthy nodes were suspects."""
    rng = np.random.default_rng(52)
    suspects = []
    for _ in range(4):
        times = in_groups(steady(rng, 128), rng, steps)
        learned = learn(times)
        suspects.append(criteria.shortfalls(list(times), learned).suspicion(learned) >= 1)
    assert np.mean(suspects) <= 0.02


def test_a_burst_on_two_nodes_hides_no_stalls_of_two_others():
    """Two of 32 nodes are no usual way of slow steps to come: only one such stall in four was found
    when the nodes with stalls counted as evidence that slow steps come in groups."""
    rng = np.random.default_rng(54)
    found = []
    for _ in range(20):
        first, second = (stalled(steady(rng, 32), rng, nodes=(0, 1)) for _ in range(2))
        first[2, 11:16] *= 2
        first[3, 20:24] *= 2
        found.append(called(first, second, learn(first))[:2])
    assert np.mean(found) >= 0.9


def test_a_quarter_of_nodes_that_are_slow_for_a_stretch_of_each_run_is_found():
    rng = np.random.default_rng(53)
    first, second = (longer(steady(rng, 64), rng, 0.005) for _ in range(2))
    for times in (first, second):
        times[:16, 11:21] *= 2
    assert called(first, second, learn(first))[:16].all()


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("steady", 1.0),
        ("one step in 100 twice as long", 0.7),
        ("one step in 100 ten times as long", 0.8),
        ("warm-up", 0.95),
        ("checkpoints", 0.95),
        ("garbage", 0.95),
    ],
)
def test_three_stalled_steps_of_thirty_two_are_found_among_usual_ones(kind, least):
    rng = np.random.default_rng(42)
    slow, found = range(4), []
    for _ in range(12):
        first, second = (stalled(HEALTHY[kind](steady(rng, 64), rng), rng, slow) for _ in range(2))
        found.append(called(first, second, learn(first))[:4])
    assert np.mean(found) >= least


def test_stalls_on_one_of_six_nodes_show_if_the_others_are_measured_again_and_have_none():
    rng = np.random.default_rng(55)
    others = np.arange(6) > 0

    def stalls_show(second):
        learned = learn(first)
        short, again = (criteria.shortfalls(times, learned) for times in (first, second))
        more = learn_from_controls(learned, again, others)
        alone, beside = (short.together(again, taught)[0] >= 1 for taught in (learned, more))
        assert short.suspicion(learned)[0] >= 1
        assert not alone
        return beside

    for _ in range(8):
        first, second = (stalled(steady(rng, 6), rng, [0]) for _ in range(2))
        assert stalls_show(second)
        second[1:, 4:6] *= 2
        assert not stalls_show(second)


def test_slow_steps_of_a_run_leave_its_level_as_it_was():
    rng = np.random.default_rng(43)
    times = steady(rng, 16)
    spoiled = longer(times, rng, 0.05, 5.0)
    units = goodness(spoiled)
    apart = set_aside(units, learn_slow_steps(units, 0.01, 1e-4))
    assert apart.slow[0].tolist() == (spoiled != times).sum(axis=1).tolist()
    assert np.allclose(apart.level.values, goodness(times).values, rtol=0.02)
    assert np.allclose(apart.lost, (spoiled / times).mean(axis=1) - 1, atol=0.02)


@given(st.floats(0.1, 10), st.integers(0, 15), st.integers(0, 31))
def test_a_slower_node_has_no_more_slow_steps_and_one_more_stall_is_one_more(pace, node, step):
    times = steady(np.random.default_rng(44), 16)
    slow = learn_slow_steps(goodness(times), 0.01, 1e-4)
    before = count_slow(goodness(times), slow)
    times[node] *= pace
    assert np.array_equal(count_slow(goodness(times), slow), before)
    times[node, step] *= 2
    after = count_slow(goodness(times), slow) - before
    assert after[:, node].tolist() == [1, 1, 0]
    assert after.sum() == 2


@pytest.mark.parametrize("kind", HEALTHY)
@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**32 - 1),
    share=st.floats(0, 1),
    factor=st.floats(1, 5),
    alpha=st.sampled_from((0.95, 0.7)),
)
def test_no_step_that_becomes_faster_makes_a_healthy_node_defective(
    kind, seed, share, factor, alpha
):
    rng = np.random.default_rng(seed)
    times = HEALTHY[kind](steady(rng, 16), rng)
    criterion = learn(times, alpha=alpha)
    faster = times / np.where(rng.random(times.shape) < share, factor, 1.0)
    passed, passes = (
        criteria.similarities(list(of_nodes), criterion) > criterion.alpha
        for of_nodes in (times, faster)
    )
    assert np.all(passes[passed])


def test_runs_of_differing_length_are_compared_with_their_own_usual_step():
    rng = np.random.default_rng(45)
    runs = [with_warm_up(steady(rng, 1, steps), rng)[0] for steps in rng.integers(20, 60, 12)]
    runs[5][[3, 9]] *= 2
    counts = count_slow(goodness(runs), learn_slow_steps(goodness(runs), 0.01, 1e-4))
    assert counts[1].tolist() == [2 * (i == 5) for i in range(12)]


def test_a_unit_with_several_runs_has_the_slow_steps_of_all():
    rng = np.random.default_rng(46)
    times = with_warm_up(steady(rng, 12), rng)
    slow = learn_slow_steps(goodness(times), 0.01, 1e-4)
    twice = np.concatenate((times, stalled(times, rng, [2])), axis=1)
    assert count_slow(goodness(twice), slow)[1].tolist() == [3 * (i == 2) for i in range(12)]


def test_too_short_runs_have_no_slow_steps():
    assert learn_slow_steps(goodness(np.ones((9, 7))), 0.01, 1e-4) is None
    assert learn(np.ones((9, 7))).slow_steps is None
    assert learn(np.ones((9, 8)), calibrated=False).slow_steps is None


# --- how many of them chance explains ---------------------------------------------------------


@pytest.mark.parametrize(("share", "steps", "length"), [(0.0, 224, 32), (0.01, 2000, 64)])
def test_the_chance_of_so_many_is_the_tail_of_the_beta_binomial_distribution(share, steps, length):
    seen = SlowShare(times=1.1, share=share, steps=steps, correlation=0.0)
    hits = share * steps
    truth = stats.betabinom(length, hits + 0.5, steps - hits + 0.5).sf(np.arange(-1, length))
    assert np.allclose(tail_chances(length, seen), truth, rtol=1e-6)


def test_slow_steps_of_one_unit_that_come_together_are_correlated():
    """Groups of four, of which one step determines the other three."""
    rng = np.random.default_rng(47)
    lengths = np.full(500, 64)
    learned = learn_alone(4 * rng.binomial(16, 0.05, 500), lengths)
    assert learned.correlation == pytest.approx(3 / 63, rel=0.25)
    assert learn_alone(rng.binomial(64, 0.05, 500), lengths).correlation == 0


def test_groups_of_slow_steps_at_random_places_are_as_many_as_expected():
    rng = np.random.default_rng(54)
    for count, length in ((2, 32), (5, 20), (9, 12)):
        groups = []
        for _ in range(2000):
            at = np.sort(rng.choice(length, count, replace=False))
            groups.append(1 + np.sum(np.diff(at) > slow_steps.NEAR))
        expected = slow_steps._expect_groups(np.array([count]), np.array([length]))
        assert np.mean(groups) == pytest.approx(expected[0], rel=0.03)


@pytest.mark.parametrize("correlation", [0.01, 0.1])
def test_shares_that_differ_by_a_beta_distribution_give_the_distribution_of_counts(correlation):
    seen = SlowShare(times=1.1, share=0.05, steps=10**9, correlation=correlation)
    a, b = (share * (1 / correlation - 1) for share in (0.05, 0.95))
    truth = stats.betabinom(64, a, b).sf(np.arange(-1, 64))
    assert np.allclose(tail_chances(64, seen), truth, rtol=1e-3)


def test_slow_steps_that_cost_little_are_no_defect_unless_stricter_limits_are_welcome():
    rng = np.random.default_rng(50)
    first, second = (stalled(steady(rng, 32, 200), rng, [0], steps=4) for _ in range(2))  # 2 %
    more = stalled(first, rng, [1], steps=14)
    assert not called(first, second, learn(first)).any()
    assert np.flatnonzero(called(first, second, learn(first, own_alpha=True))).tolist() == [0]
    again = stalled(second, rng, [1], steps=14)
    assert np.flatnonzero(called(more, again, learn(more))).tolist() == [1]


def test_a_node_bad_twice_is_in_doubt_if_nodes_that_come_and_go_explain_as_many():
    """Of 100 nodes 30 are bad, each time others: 9 are twice by chance, and no more."""
    rng = np.random.default_rng(51)
    learned = learn(steady(rng, 100), own_alpha=True)

    def judged(bad_both, bad_once):
        first, second = steady(rng, 100), steady(rng, 100)
        first[: bad_both + bad_once] *= 1.2
        second[:bad_both] *= 1.2
        short, again = (criteria.shortfalls(times, learned) for times in (first, second))
        return count_equal_chances(short, again, learned)[:bad_both]

    assert judged(9, 21).all()
    assert not judged(9, 2).any()
    assert not judged(1, 0).any()


@pytest.mark.parametrize(("nodes", "times"), [(4, 3), (8, 3), (12, 2), (12, 3), (32, 2)])
def test_the_order_of_runs_calls_one_of_200_healthy_nodes_at_most_by_any_distribution(nodes, times):
    """Whatever the distribution, and however few nodes: only the order of the runs counts."""
    rng = np.random.default_rng(52)
    called = []
    for _ in range(2000):
        runs = 1 + rng.random((times, nodes))
        made = np.full(nodes, times)
        called.append(are_among_the_worst(runs, runs.min(axis=0), made, nodes).mean())
    assert np.mean(called) <= OF_THE_GOOD


def test_nodes_whose_runs_are_all_among_the_worst_are_called_one_of_few_only_by_three_runs():
    rng = np.random.default_rng(53)

    def worst(nodes, times, slow):
        runs = 1 + rng.random((times, nodes))
        runs[:, :slow] += 1
        made = np.full(nodes, times)
        return are_among_the_worst(runs, runs.min(axis=0), made, nodes)

    assert not worst(8, 2, 1).any()
    assert worst(8, 3, 1).tolist() == [True] + 7 * [False]
    assert worst(32, 2, 1).sum() == 1
    assert worst(100, 2, 20).tolist() == 20 * [True] + 80 * [False]


@pytest.mark.parametrize("share", [0.002, 0.01, 0.05])
def test_a_share_is_learned_though_one_unit_in_eight_stalls(share):
    rng = np.random.default_rng(48)
    counts = rng.binomial(STEPS, share, 800)
    counts[:100] += 4
    learned = learn_alone(counts, np.full(800, STEPS))
    assert learned.share == pytest.approx(share, rel=0.25)


def test_units_of_a_healthy_fleet_exceed_a_chance_no_more_often_than_stated():
    rng = np.random.default_rng(49)
    times = [longer(steady(rng, 256), rng, 0.02) for _ in range(8)]
    learned = learn(times[0])
    chance = learned.slow_steps.once
    beyond = [criteria.shortfalls(t, learned).suspicion(learned) >= 1 for t in times[1:]]
    assert np.mean(beyond) <= 1.3 * chance


def test_three_to_seven_nodes_with_checkpoints_are_compared_at_their_places():
    """By one usual step for all places, one healthy node in ten was called: the one whose
    checkpoints take more than three times as long."""
    rng = np.random.default_rng(35)
    called, nodes = 0, 0
    for size in (3, 5, 6, 7) * 8:
        times = with_checkpoints(steady(rng, size), rng)
        learned = learn(times)
        called += np.sum(criteria.shortfalls(times, learned).suspicion(learned) >= 1)
        nodes += size
    assert called / nodes <= 0.01
