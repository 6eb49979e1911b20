from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.network.bisection import SearchBudget, bisect

PLENTY = SearchBudget(tests=10_000, minutes=10_000)


def run(search, is_bad, watch=lambda tests: None):
    """Drive a search with a fleet that answers at once."""
    try:
        tests = next(search)
        while True:
            watch(tests)
            tests = search.send([is_bad(set(group)) for group in tests])
    except StopIteration as end:
        return end.value


def fleet(size):
    return [f"n{i}" for i in range(size)]


@st.composite
def slow_nodes(draw):
    """Up to a third of a group, so that some test will be good."""
    nodes = fleet(draw(st.integers(4, 80)))
    bad = draw(st.sets(st.sampled_from(nodes), min_size=1, max_size=max(1, len(nodes) // 3)))
    return nodes, bad


@given(slow_nodes())
def test_exactly_the_slow_nodes_are_found_and_no_test_shares_a_node_with_another(case):
    nodes, bad = case

    def disjoint(tests):
        busy = [node for group in tests for node in group]
        assert len(busy) == len(set(busy))
        assert all(len(group) > 1 for group in tests)

    found = run(
        bisect(nodes, ["spare1", "spare2"], PLENTY), lambda group: bool(bad & group), disjoint
    )
    assert set(found.nodes) == bad
    assert set(found.good) == {*nodes, "spare1", "spare2"} - bad
    assert (found.links, found.doubtful, found.unresolved) == ((), (), ())


@given(st.integers(5, 90), st.randoms(use_true_random=False))
def test_two_nodes_that_are_slow_together_only_are_found_and_neither_is_blamed(size, random):
    nodes = fleet(size)
    pair = set(random.sample(nodes, 2))
    found = run(bisect(nodes, budget=PLENTY), lambda group: pair <= group)
    assert [set(link) for link in found.links] == [pair]
    assert (found.nodes, found.doubtful, found.unresolved) == ((), (), ())


def test_one_of_64_takes_a_round_for_each_halving_and_two_to_make_sure():
    """Two tests a round, and one for the node and one for the rest."""
    found = run(bisect(fleet(64), budget=PLENTY), lambda group: "n37" in group)
    assert found.rounds == math.log2(64) + 2
    assert found.tests == 2 * math.log2(64) + 2
    assert found.minutes == found.rounds * 0.5


def test_five_of_232_take_about_as_many_tests_as_others_say_of_theirs_and_few_rounds():
    """NVIDIA reports some 55 tests for 232 nodes with 5 bad ones."""
    tests = []
    for seed in range(50):
        bad = set(random.Random(seed).sample(fleet(232), 5))
        found = run(bisect(fleet(232), budget=PLENTY), lambda group, bad=bad: bool(bad & group))
        assert set(found.nodes) == bad
        assert found.rounds <= math.ceil(math.log2(232)) + 2
        tests.append(found.tests)
    assert 45 <= sum(tests) / len(tests) <= 75


def test_every_test_is_as_large_as_the_first_group_when_there_are_enough_good_nodes():
    spare = [f"s{i}" for i in range(200)]
    sizes = []
    run(
        bisect(fleet(64), spare, PLENTY),
        lambda group: "n5" in group,
        lambda tests: sizes.extend(len(group) for group in tests),
    )
    assert set(sizes[:-1]) == {64}
    assert sizes[-1] == 63  # all the rest together


def test_a_slow_node_and_a_slow_pair_elsewhere_are_told_apart():
    found = run(bisect(fleet(32), budget=PLENTY), lambda g: "n3" in g or {"n20", "n30"} <= g)
    assert found.nodes == ("n3",)
    assert [set(link) for link in found.links] == [{"n20", "n30"}]


@pytest.mark.parametrize(
    "budget",
    [
        SearchBudget(tests=5),
        SearchBudget(minutes=1.6),
        SearchBudget(tests=0),
        SearchBudget(minutes=0),
    ],
)
def test_a_budget_is_kept_and_what_it_left_open_is_named(budget):
    found = run(bisect(fleet(64), budget=budget), lambda group: "n37" in group)
    assert found.tests <= budget.tests
    assert found.minutes <= budget.minutes
    assert found.nodes == ()
    assert any("n37" in group for group in found.unresolved)


def test_without_a_good_node_two_cannot_be_told_apart_and_with_one_they_can():
    alone = run(bisect(["a", "b"], budget=PLENTY), lambda group: "b" in group)
    assert (alone.nodes, alone.unresolved) == ((), (("a", "b"),))
    helped = run(bisect(["a", "b"], ["c", "d"], PLENTY), lambda group: "b" in group)
    assert (helped.nodes, helped.unresolved) == (("b",), ())


def test_a_node_that_was_bad_once_and_is_good_with_others_is_doubtful():
    times = []

    def once(group):
        times.append("n9" in group)
        return "n9" in group and sum(times) <= math.log2(16)

    found = run(bisect(fleet(16), budget=PLENTY), once)
    assert (found.nodes, found.doubtful) == ((), ("n9",))


def test_nodes_that_turn_slow_later_show_when_the_rest_is_tested_together():
    rounds = []

    def watch(tests):
        rounds.append(tests)
        busy = [node for group in tests for node in group]
        assert len(busy) == len(set(busy))

    def is_bad(group):
        late = len(rounds) > math.log2(16) + 1
        return "n3" in group or (late and bool(group & {"n9", "n15"}))

    found = run(bisect(fleet(16), budget=PLENTY), is_bad, watch)
    assert set(found.nodes) == {"n3", "n9", "n15"}
    assert found.doubtful == ()
    assert not {"n3", "n9", "n15"} & set(found.good)


def test_a_group_that_is_well_when_it_is_tested_again_blames_nobody():
    found = run(bisect(fleet(16), budget=PLENTY), lambda group: False)
    assert (found.nodes, found.links, found.doubtful, found.unresolved) == ((), (), (), ())


def test_results_that_do_not_fit_the_tests_are_refused():
    search = bisect(fleet(8))
    assert len(next(search)) == 2
    with pytest.raises(ValueError, match="1 results for 2 tests"):
        search.send([True])
