"""A search by groups whose answers may be wrong: nodes that always fail, at times, or only
together, and groups that fail by chance."""

from __future__ import annotations

import math
import random
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anubis.core.network.group_search import (
    AT_FAULT,
    BY_CHANCE,
    RATES,
    TOGETHER,
    Found,
    GroupTest,
    Search,
    posterior,
)
from anubis.core.network.job_search import look_into_groups

PARTNERS = 32


def fleet(size):
    return tuple(f"n{i}" for i in range(size))


def trial(nodes, failed):
    return GroupTest(tuple(nodes), frozenset(nodes), failed)


def searched(nodes, fails, *, partners=PARTNERS, by_comparison=False) -> tuple[Found, Search]:
    """Result of a search in a group that failed, by groups that answer at once."""
    spare = tuple(f"s{i}" for i in range(partners))
    search = Search(good=dict.fromkeys(spare), leaves=(nodes,), by_comparison=by_comparison)
    search.trials += [trial(spare[: len(nodes)], False), trial(nodes, True)]
    rounds = search.carry_out(search.narrow(nodes))
    seen: set[tuple[str, ...]] = set()
    try:
        groups = next(rounds).groups
        while True:
            busy = [node for group in groups for node in group]
            assert len(busy) == len(set(busy))
            assert all(len(group) > 1 for group in groups)
            assert seen.isdisjoint(groups)
            seen.update(groups)
            groups = rounds.send([fails(frozenset(group)) for group in groups]).groups
    except StopIteration as end:
        return end.value, search


def meets(*sick):
    return lambda group: any(nodes <= group for nodes in map(frozenset, sick))


def naive_posterior(nodes, trials):
    """Bayes by enumeration: no node at fault, one of them, or two only together, each at every
    rate; weighed by the likelihood of every single trial."""
    pair_prior = 2 * TOGETHER / (len(nodes) - 1)
    suspects = [*((node,) for node in nodes), *combinations(nodes, 2)]
    prior = {part: 1.0 if len(part) == 1 else pair_prior for part in suspects}
    scale = AT_FAULT / sum(prior.values())
    worlds = [((), 0.0, 1 - AT_FAULT)]
    worlds += [
        (part, rate, scale * prior[part] * share)
        for part, (rate, share) in product(suspects, RATES.items())
    ]
    chances = dict.fromkeys([(), *suspects], 0.0)
    for part, rate, weight in worlds:
        for _, group, failed in trials:
            own = rate if part and set(part) <= group else 0.0
            passes = (1 - own) * (1 - BY_CHANCE)
            weight *= 1 - passes if failed else passes
        chances[part] += weight
    total = sum(chances.values())
    return {part: chance / total for part, chance in chances.items()}


@given(st.integers(3, 6), st.randoms(use_true_random=False), st.integers(0, 9))
def test_the_chances_are_those_of_bayes_by_enumeration(size, random, count):
    nodes = fleet(size)
    groups = [random.sample(nodes, random.randint(2, size)) for _ in range(count)]
    trials = [trial(group, random.random() < 0.5) for group in groups]
    suspects = [*((node,) for node in nodes), *combinations(nodes, 2)]
    truth = naive_posterior(nodes, trials)
    shown = posterior(suspects, trials, among=size)
    assert shown.keys() == truth.keys()
    np.testing.assert_allclose([shown[part] for part in truth], list(truth.values()), rtol=1e-9)


@pytest.mark.parametrize("size", [4, 8, 16, 32, 64])
def test_one_that_always_fails_takes_no_more_rounds_than_plain_halving(size):
    """A round for each halving, one to be sure, and one for the rest."""
    for place in range(0, size, max(1, size // 8)):
        nodes = fleet(size)
        found, search = searched(nodes, meets({nodes[place]}))
        assert found == Found(nodes=(nodes[place],))
        assert search.rounds <= math.ceil(math.log2(size)) + 2


@given(st.integers(4, 24), st.randoms(use_true_random=False), st.booleans())
def test_exactly_the_nodes_that_always_fail_are_found(size, random, by_comparison):
    nodes = fleet(size)
    sick = random.sample(nodes, random.randint(1, max(1, size // 4)))
    found, _ = searched(
        nodes, meets(*({node} for node in sick)), partners=size, by_comparison=by_comparison
    )
    assert (set(found.nodes), found.links) == (set(sick), ())


@example(16, 2, 0)
@given(st.integers(4, 32), st.integers(0, 31), st.integers(0, 30))
def test_two_nodes_that_fail_only_together_are_found_and_neither_is_blamed(size, first, further):
    nodes = fleet(size)
    pair = {nodes[first % size], nodes[(first + 1 + further % (size - 1)) % size]}
    found, _ = searched(nodes, meets(pair))
    assert ([set(link) for link in found.links], found.nodes) == ([pair], ())


def test_a_group_search_names_a_node_that_fails_in_half_of_its_tests_and_no_other():
    named = 0
    budget = 3 * 9 - 2  # rounds: three times those of a fault that always shows, below two levels
    for seed in range(40):
        rng, nodes = random.Random(seed), fleet(32)
        sick = rng.choice(nodes)
        found, search = searched(
            nodes, lambda group, rng=rng, sick=sick: sick in group and rng.random() < 0.5
        )
        assert not found.links
        assert set(found.nodes) <= {sick}
        named += bool(found.nodes) and search.rounds <= budget
    assert named >= 0.8 * 40


def test_groups_that_fail_by_chance_name_no_node():
    for seed in range(60):
        rng = random.Random(seed)
        found, _ = searched(fleet(32), lambda group, rng=rng: rng.random() < BY_CHANCE)
        assert found == Found()


@pytest.mark.parametrize("by_comparison", [False, True])
@pytest.mark.parametrize("sick", [*combinations(range(8), 3), range(8)])
def test_a_leaf_is_found_as_a_whole_only_if_all_of_its_nodes_fail(sick, by_comparison):
    nodes = fleet(8)
    found, _ = searched(
        nodes, meets(*({nodes[k]} for k in sick)), partners=8, by_comparison=by_comparison
    )
    assert (set(found.nodes), found.links) == ({nodes[k] for k in sick}, ())


def test_two_nodes_can_be_told_apart_only_with_a_good_third():
    assert not searched(("a", "b"), meets({"b"}), partners=0)[0]
    assert searched(("a", "b"), meets({"b"}), partners=2)[0].nodes == ("b",)


# --- groups of a benchmark, side by side -----------------------------------------------------


def looked_into(planned, is_slow):
    """The progress of a search to its end, with groups that answer at once."""
    known = {group: is_slow(frozenset(group)) for group in planned}
    results = dict(known)
    progress = look_into_groups(known, results)
    while progress.groups:
        busy = [node for group in progress.groups for node in group]
        assert len(busy) == len(set(busy))
        assert results.keys().isdisjoint(progress.groups)
        results |= {group: is_slow(frozenset(group)) for group in progress.groups}
        progress = look_into_groups(known, results)
    return progress


@given(st.integers(3, 8), st.randoms(use_true_random=False))
def test_exactly_the_slow_nodes_of_groups_side_by_side_are_found(size, random):
    """Two groups share nodes, as they do if the number of nodes is no multiple of the size."""
    nodes = fleet(4 * size)
    planned = [nodes[i : i + size] for i in range(0, 4 * size, size)]
    planned.append((*nodes[:2], *(f"m{i}" for i in range(size - 2))))
    sick = random.sample(nodes, random.randint(0, size // 2))
    progress = looked_into(planned, meets(*({node} for node in sick)))
    assert (set(progress.nodes), progress.links, progress.paths) == (set(sick), (), ())


def test_a_slow_node_of_two_groups_is_found_although_no_group_is_good_at_first():
    nodes = fleet(32)
    planned = [*(nodes[i : i + 8] for i in range(0, 32, 8)), ("n0", "n1", *fleet(38)[32:])]
    progress = looked_into(planned, meets({"n0"}, {"n8"}, {"n22"}, {"n28"}))
    assert (set(progress.nodes), progress.paths) == ({"n0", "n8", "n22", "n28"}, ())


def test_a_group_that_is_slow_each_time_and_no_part_of_it_is_a_path_and_blames_no_node():
    nodes = fleet(8)
    progress = looked_into([nodes, tuple(f"m{i}" for i in range(8))], meets(set(nodes)))
    assert (progress.nodes, progress.paths) == ((), (nodes,))
