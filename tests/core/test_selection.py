"""Expectations are worked out in fractions, by rules that look at everything anew each time."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anubis.core.history.defects import Defect
from anubis.core.records import SelectionPolicy
from anubis.core.select.optimum import optimum
from anubis.core.select.selection import (
    Budget,
    Detection,
    Exposure,
    Menu,
    break_even,
    choose,
    expected_loss_s,
    expose,
    freshness,
    joint_probability,
    learn_detection,
)

ONE = 1 << 12  # shares are whole numbers of this: floats add them up without an error


def detection(*found, shares=None, benchmarks=None):
    """Kinds of defects by their finders: `detection("ab", "b")`."""
    names = benchmarks or tuple(sorted(set("".join(found))))
    table = np.array([[name in kind for name in names] for kind in found], dtype=bool)
    each = np.full(len(found), 1 / len(found)) if shares is None else np.array(shares)
    return Detection(
        benchmarks=tuple(names),
        finders=table.reshape(len(found), len(names)),
        categories=(),
        shares=each[None, :],
        defects={},
        known=0,
    )


def menu(known, durations_s, probabilities=(0.5,), **more):
    return Menu(
        exposure=expose(known, probabilities), detection=known, durations_s=durations_s, **more
    )


def names(choice):
    return [pick.benchmark for pick in choice.picks]


# --- risk ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tiny", ["1e-3", "1e-9", "1e-15", "1e-18"])
def test_the_joint_probability_of_ten_thousand_small_ones_is_right_to_the_last_digits(tiny):
    with localcontext(prec=60):
        exact = float(1 - (1 - Decimal(tiny)) ** 10_000)
    assert joint_probability([float(tiny)] * 10_000) == pytest.approx(exact, rel=1e-13, abs=0)


def test_the_joint_probability_of_none_and_of_the_certain():
    assert joint_probability([]) == 0.0
    assert joint_probability([0.0, 0.0]) == 0.0
    assert joint_probability([0.0, 1.0, 0.3]) == 1.0
    assert joint_probability([0.5, 0.5]) == pytest.approx(0.75)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan])
def test_a_number_outside_0_to_1_is_refused_as_a_probability(wrong):
    with pytest.raises(ValueError, match="not between 0 and 1"):
        joint_probability([0.5, wrong])


def test_a_job_breaks_even_if_an_incident_costs_as_much_time_as_the_suite():
    """A job of 24 h loses 12 h on average; a suite of 6 min is 1/120 of that."""
    assert break_even(360, expected_loss_s(24 * 3600)) == pytest.approx(1 / 120)
    assert break_even(360, expected_loss_s(600)) == 1.0  # shorter than its tests
    assert break_even(0, expected_loss_s(600)) == 0.0
    assert break_even(360, 0) == 1.0


# --- what finds what -----------------------------------------------------------------------


def share_found(detection, subset):
    """The share of all defects to expect that some benchmark of the subset finds."""
    names = np.array(detection.benchmarks)
    return sum(
        share
        for share, finders in zip(detection.overall, detection.finders, strict=True)
        if set(subset) & set(names[finders])
    )


def test_without_smoothing_coverage_is_the_share_of_defects_found():
    known = learn_detection(
        [
            Defect(found_by=frozenset({"gemm"})),
            Defect(found_by=frozenset({"gemm", "copy"})),
            Defect(found_by=frozenset({"copy"})),
            Defect(),  # an incident that no benchmark explains
        ],
        ["gemm", "copy", "disk"],
        prior=0.0,
        category_prior=0.0,
    )
    assert share_found(known, []) == 0
    assert share_found(known, ["gemm"]) == 0.5
    assert share_found(known, ["gemm", "copy"]) == 0.75
    assert share_found(known, ["gemm", "copy", "disk"]) == 0.75


def test_without_known_defects_all_benchmarks_are_worth_the_same():
    known = learn_detection([], ["a", "b", "c", "d"], prior=0.05, category_prior=5)
    assert share_found(known, ["a"]) == 0.25
    assert share_found(known, ["a", "b", "c", "d"]) == pytest.approx(1)


@pytest.mark.parametrize("benchmarks", [2, 5, 24])
def test_one_known_defect_does_not_make_its_finder_worth_all(benchmarks):
    """With Perks' prior, what all may yet find is one defect more: half of two."""
    names = [str(i) for i in range(benchmarks)]
    first = Defect(found_by=frozenset(names[:1]), tried=frozenset(names[1:]))
    prior = SelectionPolicy().prior_of(benchmarks)
    known = learn_detection([first], names, prior=prior, category_prior=2)
    assert share_found(known, names[1:]) == pytest.approx(
        (benchmarks - 1) * prior / (1 + benchmarks * prior)
    )
    assert 0.25 <= share_found(known, names[1:]) <= 0.53


def test_a_benchmark_tried_in_vain_is_worth_less_than_one_never_tried():
    """Of 19 defects; in defects: 19 found by `old`, 0.05 x 20 / 20 each, 0.05 x 20 of `new`."""
    tried = [Defect(found_by=frozenset({"old"}), tried=frozenset({"vain"})) for _ in range(19)]
    known = learn_detection(tried, ["old", "vain", "new"], prior=0.05, category_prior=5)
    total = 19 + 0.05 + 0.05 + 1.0
    assert share_found(known, ["vain"]) == pytest.approx(0.05 / total)
    assert share_found(known, ["new"]) == pytest.approx(1.0 / total)
    assert share_found(known, ["old"]) == pytest.approx(19.05 / total)


def test_a_category_is_filled_up_with_defects_of_all_categories():
    defects = [
        *(Defect(category="net", found_by=frozenset({"ring"})) for _ in range(2)),
        *(Defect(category="gpu", found_by=frozenset({"gemm"})) for _ in range(6)),
    ]
    known = learn_detection(defects, ["gemm", "ring"], prior=0.0, category_prior=4)
    assert known.defects == {"net": 2, "gpu": 6}
    ring = known.finders[:, 1]
    assert known.kind_shares({"net": 1})[ring].sum() == pytest.approx((2 + 4 * 2 / 8) / (2 + 4))
    assert known.kind_shares({"gpu": 3})[ring].sum() == pytest.approx((0 + 4 * 2 / 8) / (6 + 4))
    half = (3 / 6 + 1 / 10) / 2
    assert known.kind_shares({"net": 7, "gpu": 7})[ring].sum() == pytest.approx(half)
    for nothing in ({}, {"never seen": 2}, {"net": 0}):
        assert known.kind_shares(nothing)[ring].sum() == pytest.approx(2 / 8)


def test_coverage_by_a_measurement_halves_with_each_half_life():
    week = 7 * 24 * 3600
    ages = [0, week, 3 * week, math.inf, -60]
    assert freshness(ages, week).tolist() == [1, 0.5, 0.125, 0, 1]
    assert freshness(ages, 0).tolist() == [0] * 5


def test_the_freshest_of_the_benchmarks_that_find_a_kind_counts():
    known = detection("ab", "b", "c")
    fresh = np.array([[0.5, 0.25, 0.0]])
    assert expose(known, [0.3], fresh=fresh).uncovered[0] * 3 == pytest.approx([0.5, 0.75, 1])


subsets = st.frozensets(st.sampled_from("abcdef"), max_size=6)
histories = st.lists(
    st.builds(
        Defect,
        category=st.sampled_from(["", "net", "gpu"]),
        found_by=subsets,
        tried=subsets,
    ),
    max_size=12,
)


@given(histories, subsets, subsets, st.sampled_from("abcdef"), st.sampled_from([0.0, 0.05, 1.0]))
def test_coverage_grows_ever_less(defects, small, more, another, prior):
    known = learn_detection(defects, "abcdef", prior=prior, category_prior=5)
    large = small | more

    def gain(subset):
        return share_found(known, subset | {another}) - share_found(known, subset)

    assert -1e-12 <= gain(large) <= gain(small) + 1e-12
    assert share_found(known, "abcdef") <= 1 + 1e-12


# --- Algorithm 1 ---------------------------------------------------------------------------


def of_kinds(found, benchmarks):
    """`detection` for any number of kinds, none of them more common than another."""
    return Detection(
        benchmarks=tuple(benchmarks),
        finders=np.array([[b in kind for b in benchmarks] for kind in found], dtype=bool).reshape(
            len(found), len(benchmarks)
        ),
        categories=(),
        shares=np.zeros((1, len(found))),
        defects={},
        known=0,
    )


@st.composite
def menus(draw, node_counts=(1, 1, 1, 2, 4, 0), together=(True, False)):
    """Shares are whole 4,096ths and nodes powers of two: floats add them up without an error."""
    benchmarks = "abcdef"[: draw(st.integers(0, 6))]
    kinds = draw(st.lists(st.sets(st.sampled_from(benchmarks or "-"), max_size=3), max_size=8))
    nodes = draw(st.sampled_from(node_counts))
    sizes = st.lists(st.integers(0, 9), min_size=len(kinds), max_size=len(kinds))
    uncovered = draw(st.lists(sizes, min_size=nodes, max_size=nodes))
    seconds = st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0])
    return Menu(
        exposure=Exposure(
            probabilities=np.full(nodes, 0.5),
            uncovered=np.array(uncovered, dtype=float).reshape(nodes, len(kinds)) / ONE,
        ),
        detection=of_kinds(kinds, benchmarks),
        durations_s=draw(st.lists(seconds, min_size=len(benchmarks), max_size=len(benchmarks))),
        together=draw(st.sampled_from(together)),
        budget=Budget(
            seconds=draw(st.sampled_from([math.inf, math.inf, 4.0, 0.0])),
            node_seconds=draw(st.sampled_from([math.inf, math.inf, 7.0, 0.0])),
            nodes=draw(st.sampled_from([math.inf, math.inf, math.inf, 2, 1, 0])),
        ),
    )


def found_by(menu, group, subset):
    """The share of all incidents to expect, in fractions, that a subset finds on a group."""
    names, share = menu.detection.benchmarks, Fraction(1, max(1, len(menu.exposure.uncovered)))
    found = Fraction(0)
    for node in group:
        for kind, finders in enumerate(menu.detection.finders):
            if any(names[i] in subset for i in np.flatnonzero(finders)):
                found += share * Fraction(menu.exposure.uncovered[node, kind])
    return found


def plain(menu, p0, worth, among=None):
    """Algorithm 1 to the letter: all drops anew at each step, in fractions."""
    p, chosen, spent = Fraction(menu.exposure.p), [], Fraction(0)
    names = menu.detection.benchmarks
    subsets = {group: frozenset() for group in menu.groups}
    share = Fraction(1, max(1, len(menu.exposure.uncovered)))
    remaining = p * share * sum(Fraction(open_) for open_ in menu.exposure.uncovered.ravel())
    while remaining > p0:
        best = None
        for i, group in enumerate(menu.groups):
            for j, name in enumerate(names):
                if among is not None and (i, j) not in among:
                    continue
                before = found_by(menu, group, subsets[group])
                drop = p * (found_by(menu, group, subsets[group] | {name}) - before)
                cost = Fraction(menu.durations_s[j]) * len(group)
                busy = sum(Fraction(menu.durations_s[names.index(b)]) for b in subsets[group])
                if drop == 0 or busy + Fraction(menu.durations_s[j]) > menu.budget.seconds:
                    continue
                if spent + cost > menu.budget.node_seconds:
                    continue
                tested = {g for g, subset in subsets.items() if subset} | {group}
                if sum(map(len, tested)) > menu.budget.nodes:
                    continue
                rate = drop / cost if cost else math.inf
                if best is None or (-rate, -drop, i, j) < best[0]:
                    best = (-rate, -drop, i, j), group, name, drop, cost
        if best is None or -best[0][0] < worth:
            break
        _, group, name, drop, cost = best
        subsets[group] |= {name}
        remaining, spent = remaining - drop, spent + cost
        chosen.append((name, group))
    return chosen


left_over = st.integers(0, 40)  # p0, in 4,096ths of p
least_worth = st.sampled_from([0.0, 1e-4, 1e-3])
apart = menus(node_counts=(2, 4), together=(False,))


@given(menus() | apart, left_over, least_worth)
def test_one_choice_for_each_group_at_a_time_is_the_choice_among_all(menu, left, worth):
    p0 = menu.exposure.p * left / ONE
    choice = choose(menu, p0=p0, worth=worth)
    assert [(pick.benchmark, pick.nodes) for pick in choice.picks] == plain(menu, p0, worth)


@given(
    menus() | apart,
    left_over,
    least_worth,
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 5))),
)
def test_a_choice_among_some_is_that_of_a_menu_without_the_others(menu, left, worth, some):
    among = {(i, j) for i, j in some if i < len(menu.groups) and j < len(menu.durations_s)}
    p0 = menu.exposure.p * left / ONE
    choice = choose(menu, p0=p0, worth=worth, among=among)
    assert [(pick.benchmark, pick.nodes) for pick in choice.picks] == plain(menu, p0, worth, among)


@given(menus(), st.integers(0, 40))
def test_a_choice_states_its_cost_and_remaining_risk(menu, left):
    p0 = menu.exposure.p * left / ONE
    choice = choose(menu, p0=p0)
    subsets = {
        group: {pick.benchmark for pick in choice.picks if pick.nodes == group}
        for group in menu.groups
    }
    nodes = max(1, len(menu.exposure.uncovered))
    before = 1 - Fraction(menu.exposure.open.sum())
    found = sum(found_by(menu, group, subset) for group, subset in subsets.items())
    assert choice.covered_before == before
    assert choice.coverage == before + found
    assert choice.remaining == pytest.approx(menu.exposure.p * float(1 - choice.coverage))
    assert sum(pick.drop for pick in choice.picks) == pytest.approx(menu.exposure.p * float(found))
    spent = {
        group: sum(menu.durations_s[menu.detection.benchmarks.index(name)] for name in subset)
        for group, subset in subsets.items()
    }
    assert choice.longest_s == max(spent.values(), default=0) <= menu.budget.seconds
    assert choice.node_seconds == sum(s * len(group) for group, s in spent.items())
    assert choice.node_seconds <= menu.budget.node_seconds
    assert sum(len(group) for group, subset in subsets.items() if subset) <= menu.budget.nodes
    assert nodes >= len(menu.groups)


def test_with_a_limited_number_of_nodes_those_most_at_risk_are_tested():
    known = detection("a", "b")
    full = menu(known, [1, 2], [0.1, 0.4, 0.2], together=False, budget=Budget(nodes=2))
    tested = {pick.nodes for pick in choose(full, p0=0).picks}
    assert tested == {(1,), (2,)}
    none = menu(known, [1, 2], [0.1, 0.4], budget=Budget(nodes=1))
    assert not choose(none, p0=0).picks


def test_with_equal_gains_the_shortest_goes_first_and_the_last_is_not_needed():
    known = detection("a", "b", "c", "d")
    choice = choose(menu(known, [4, 1, 3, 2]), p0=0.5 * 0.25)
    assert names(choice) == ["b", "d", "c"]
    assert [pick.drop for pick in choice.picks] == [0.125] * 3
    assert (choice.remaining, choice.longest_s) == (0.125, 6)


def test_a_benchmark_that_lost_its_worth_to_an_earlier_one_comes_later():
    """a finds 6, b 7 and c 4 at first; after b only 1 is left of a."""
    known = detection("ab", "a", "b", "c", shares=[5 / 12, 1 / 12, 2 / 12, 4 / 12])
    assert names(choose(menu(known, [1, 1, 1]), p0=0)) == ["b", "c", "a"]


def test_a_benchmark_that_finds_nothing_new_is_not_chosen():
    choice = choose(menu(detection("ab", "b", "c"), [1, 1, 1]), p0=0)
    assert names(choice) == ["b", "c"]


def test_equals_are_taken_in_the_order_of_their_names_and_of_the_nodes():
    known = detection("a", "b", "c")
    assert names(choose(menu(known, [1, 1, 1]), p0=0)) == ["a", "b", "c"]
    apart = choose(menu(known, [1, 1, 1], [0.5, 0.5], together=False), p0=0)
    assert [(pick.nodes[0], pick.benchmark) for pick in apart.picks] == [
        (node, name) for node in (0, 1) for name in "abc"
    ]


def test_among_equals_per_second_the_larger_goes_first():
    known = detection("a", "b", "c", shares=[0.25, 0.5, 0.25])
    assert names(choose(menu(known, [1, 2, 1]), p0=0)) == ["b", "a", "c"]


def test_a_test_too_long_for_a_busy_node_may_run_on_another():
    known = detection("a", "b", "c")
    fresh = np.array([[0.0, 0.0, 1.0], [1.0, 0.5, 0.75]])
    exposure = expose(known, [0.5, 0.5], fresh=fresh)
    busy = Menu(
        exposure=exposure,
        detection=known,
        durations_s=[2, 3, 1],
        together=False,
        budget=Budget(seconds=4),
    )
    picks = [(pick.nodes, pick.benchmark) for pick in choose(busy, p0=0).picks]
    assert picks == [((0,), "a"), ((1,), "c"), ((1,), "b")]


def test_node_seconds_are_spent_by_all_nodes_together():
    three = menu(detection("a"), [2], [0.5] * 3, together=False, budget=Budget(node_seconds=5))
    assert [pick.nodes for pick in choose(three, p0=0).picks] == [(0,), (1,)]


def test_tests_without_duration_come_first_the_larger_before_the_smaller():
    known = detection("a", "b", "c", shares=[0.2, 0.5, 0.3])
    assert names(choose(menu(known, [0, 1, 0]), p0=0)) == ["c", "a", "b"]


@pytest.mark.parametrize("together", [True, False])
def test_nothing_is_chosen_without_nodes_risk_benchmarks_or_budget(together):
    known = detection("a", "b")
    none = choose(menu(known, [1, 1], [], together=together), p0=0)
    assert (none.picks, none.p, none.coverage, none.missed) == ((), 0, 1, 0)
    safe = choose(menu(known, [1, 1], [0.0, 0.0], together=together), p0=0)
    assert (safe.picks, safe.p, safe.remaining) == ((), 0, 0)
    unarmed = choose(menu(of_kinds([set()], ""), [], [0.5], together=together), p0=0.1)
    assert (unarmed.picks, unarmed.remaining, unarmed.missed) == ((), 0, 0)
    for budget in (Budget(seconds=0), Budget(node_seconds=0)):
        broke = choose(menu(known, [1, 1], [0.5], together=together, budget=budget), p0=0.1)
        assert (broke.picks, broke.remaining, broke.missed) == ((), 0.5, 0.5)


def test_a_certain_incident_makes_everything_worth_while():
    choice = choose(menu(detection("a", "b"), [1, 1], [1.0, 0.0]), p0=0)
    assert (choice.p, names(choice), choice.remaining) == (1, ["a", "b"], 0)


def test_a_risk_that_is_just_bearable_is_borne():
    known = detection("a", "b")
    assert names(choose(menu(known, [1, 1], [0.25]), p0=0.25)) == []
    assert names(choose(menu(known, [1, 1], [0.25]), p0=0.2499)) == ["a"]


def test_a_risky_node_is_tested_more_than_one_that_was_just_measured():
    known = detection("a", "b")
    fresh = np.array([[1.0, 0.5], [0.0, 0.0]])
    exposure = expose(known, [0.1, 0.1], fresh=fresh)
    both = Menu(exposure=exposure, detection=known, durations_s=[1, 1], together=False)
    choice = choose(both, p0=0.19 * 0.2)
    assert [(pick.nodes, pick.benchmark) for pick in choice.picks] == [((1,), "a"), ((1,), "b")]
    assert choice.covered_before == pytest.approx((1 + 0.5) / 4)


def test_a_fresh_measurement_is_not_repeated_even_on_a_risky_node():
    known = detection("a", "b", "-")  # and a third of the incidents nothing explains
    assert known.benchmarks == ("-", "a", "b")
    fresh = np.array([[0.0, 1.0, 1.0]])
    risky = Menu(exposure=expose(known, [0.9], fresh=fresh), detection=known, durations_s=[1, 1, 1])
    assert names(choose(risky, p0=0)) == ["-"]


def test_a_test_that_finds_too_little_per_second_is_left_out():
    known = detection("a", "b", shares=[0.75, 0.25])
    assert names(choose(menu(known, [1, 1]), p0=0, worth=0.2)) == ["a"]
    assert names(choose(menu(known, [1, 2], [0.5, 0.5]), p0=0, worth=0.2)) == ["a"]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
    st.lists(st.floats(0, 1), min_size=2, max_size=2),
)
@example([1.0, 0.7194800711568768, 0.4317360946283425], [0.0, 0.0])  # shares of 1 + 2e-16 in all
def test_the_papers_product_never_exceeds_the_chance_that_some_node_has_an_unforeseen_incident(
    probabilities, fresh
):
    """p (1 - C) counts the incidents of many nodes as one; of one node it is exact."""
    known = detection("a", "b")
    passed = np.tile(fresh, (len(probabilities), 1))
    exposure = expose(known, probabilities, fresh=passed)
    choice = choose(Menu(exposure=exposure, detection=known, durations_s=[1, 1]), p0=1)
    exact = 1 - math.prod(1 - p * (1 - sum(fresh) / 2) for p in probabilities)
    assert choice.missed == pytest.approx(exact, abs=1e-12)
    assert choice.remaining <= choice.missed + 1e-12
    if len(probabilities) == 1:
        assert choice.remaining == pytest.approx(choice.missed, abs=1e-12)


# --- the optimum ---------------------------------------------------------------------------


def cheapest(menu, p0):
    """All choices, tried one by one: the least cost of those that leave least, but p0 suffices.
    What is owed is in each, as far as the budget allows."""
    p, names = Fraction(menu.exposure.p), menu.detection.benchmarks
    runs = list(itertools.product(menu.groups, range(len(names))))

    def cost_of(some):
        return sum(menu.durations_s[j] * menu.busy[j] * len(group) for group, j in some)

    def fits(some):
        busy = [sum(menu.durations_s[j] for g, j in some if g == group) for group, _ in some]
        is_short = max(busy, default=0) <= menu.budget.seconds
        tested = sum(map(len, {group for group, _ in some}))
        return (
            is_short and cost_of(some) <= menu.budget.node_seconds and tested <= menu.budget.nodes
        )

    owed = set()
    for group, j in runs:
        if menu.owed[list(group), j].any() and fits({*owed, (group, j)}):
            owed.add((group, j))
    best = None
    for size in range(len(runs) + 1):
        for some in map(set, itertools.combinations(runs, size)):
            if not (owed <= some and fits(some)):
                continue
            open_ = Fraction(menu.exposure.open.sum()) - sum(
                found_by(menu, group, {names[j] for g, j in some if g == group})
                for group in menu.groups
            )
            key = (max(p * open_, Fraction(p0)), cost_of(some))
            best = key if best is None else min(best, key)
    return best


@given(
    menus().filter(lambda menu: len(menu.groups) * len(menu.durations_s) <= 8),
    st.integers(0, 40),
    st.data(),
)
def test_the_optimum_is_the_best_of_all_choices(menu, left, data):
    p0, tests = menu.exposure.p * left / ONE, len(menu.durations_s)
    flags = st.sampled_from([False, False, True])
    rows = st.lists(st.lists(flags, min_size=tests, max_size=tests), min_size=4, max_size=4)
    menu = replace(
        menu,
        busy=data.draw(st.lists(st.sampled_from([1, 2]), min_size=tests, max_size=tests)),
        owed=np.array(data.draw(rows)).reshape(4, tests)[: len(menu.exposure.probabilities)],
    )
    found = optimum(menu, p0=p0)
    remaining, cost = cheapest(menu, p0)
    assert max(found.remaining, p0) == pytest.approx(float(remaining), abs=1e-7)
    assert found.node_seconds == pytest.approx(cost)


@pytest.mark.parametrize(
    ("together", "budget"),
    [
        (True, Budget(seconds=10)),
        (True, Budget(node_seconds=20)),
        (False, Budget(seconds=10)),
        (False, Budget(node_seconds=20)),
        (False, Budget(seconds=10, nodes=2)),
    ],
)
def test_within_a_budget_the_optimum_covers_more_than_the_greedy_choice(together, budget):
    known = detection("a", "b", shares=[1 / 4, 3 / 4])
    full = menu(known, [1, 10], [0.5, 0.5], together=together, budget=budget)
    assert choose(full, p0=0).coverage < 0.7
    best = optimum(full, p0=0)
    assert set(names(best)) == {"b"}
    assert best.coverage == pytest.approx(0.75)


def test_with_few_nodes_allowed_the_optimum_tests_one_node_fully():
    known = detection("a", "b")
    puzzle = menu(known, [1, 10], [0.5, 0.5], together=False, budget=Budget(nodes=1))
    best = optimum(puzzle, p0=0.376)
    assert sorted(names(best)) == ["a", "b"]
    assert len({pick.nodes for pick in best.picks}) == 1


def test_the_optimum_is_cheaper_than_a_misled_greedy_choice():
    """The short one finds half; only the long one finds enough, and then the short one is waste."""
    known = detection("ab", "b", "b", "b")
    puzzle = menu(known, [1, 5])
    assert names(choose(puzzle, p0=0)) == ["a", "b"]
    assert names(optimum(puzzle, p0=0)) == ["b"]


def test_a_search_that_ends_early_or_is_too_large_leaves_the_greedy_choice(monkeypatch):
    known = detection("ab", "b", "b", "b")
    puzzle = menu(known, [1, 5])
    with monkeypatch.context() as patch:
        patch.setattr("anubis.core.select.optimum.MOST_COLUMNS", 5)  # it has 2 runs and 4 kinds
        assert names(optimum(puzzle, p0=0)) == ["a", "b"]
        patch.setattr("anubis.core.select.optimum.MOST_COLUMNS", 6)
        assert names(optimum(puzzle, p0=0)) == ["b"]
    monkeypatch.setattr("anubis.core.select.optimum._Programme._solve", lambda *_: None)
    assert names(optimum(puzzle, p0=0)) == ["a", "b"]


def test_without_time_for_a_search_the_greedy_choice_is_taken(monkeypatch):
    known = detection("ab", "b", "b", "b")
    puzzle = menu(known, [1, 5], [0.5] * 400, together=False, budget=Budget(node_seconds=1000))
    assert optimum(puzzle, p0=0).coverage > choose(puzzle, p0=0).coverage
    monkeypatch.setattr("anubis.core.select.optimum.LONGEST_S", 0.0)
    assert optimum(puzzle, p0=0) == choose(puzzle, p0=0)
