"""Several kinds of nodes under one sku: planted, found, judged apart; and never invented."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fleets import entry, small_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from anubis.config import criteria_files
from anubis.core.campaign.planning import steps
from anubis.core.judge.judgement import assess
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.missing_values import surplus_devices
from anubis.core.judge.peaks import deepest_valley
from anubis.core.judge.units import units
from anubis.core.records import (
    Ended,
    Execution,
    Judgement,
    Node,
    Policy,
    Readings,
    Result,
    Series,
)

H, D, U = Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN
METRICS = ("compute", "probe", "glance")
RNG = np.random.default_rng(7)


def rates(levels, noise=0.003, samples=8):
    """Rates of each node around its level."""
    levels = np.asarray(levels, dtype=float)
    return levels[:, None] * RNG.normal(1, noise, (levels.size, samples))


def campaign(measured, skus=None):
    """A plan, and executions of it: `measured` has the samples of each node in each benchmark."""
    plan = small_plan(len(next(iter(measured.values()))), [entry(name) for name in measured])
    if skus:
        labelled = (Node(name=node.name, sku=skus[node.name]) for node in plan.nodes)
        plan = replace(plan, nodes=tuple(labelled))
    number = {node.name: place for place, node in enumerate(plan.nodes)}
    done = []
    for step in steps(plan, 0, set(number)):
        samples = measured[step.workload.benchmark][number[step.participants[0]]]
        series = Readings.pack([Series(metric="rate", device="cuda:0", samples=samples)])
        result = Result(series=series)
        done.append(
            Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)
        )
    return plan, done


def judged(plan, done, criteria=None):
    """The criteria, learned if none are given, and the assessment by them."""
    measured = units(done, plan)
    learned = criteria or learn_criteria(
        measured, Policy(), suite="s", anubis="0", created_at="2026-11-22"
    )
    return learned, assess(measured, done, plan, learned, {})


def by_node(assessment):
    return {verdict.node: verdict.judgement for verdict in assessment.nodes}


def names(*numbers):
    return {f"n{number}" for number in numbers}


def all_but(bad, count):
    return {f"n{i}": D if f"n{i}" in bad else H for i in range(count)}


# --- what was planted ---------------------------------------------------------------------------


@pytest.mark.parametrize("faster_by", [0.07, 0.15, 0.5])
@pytest.mark.parametrize("noise", [0.0, 0.003, 0.01])
def test_one_node_at_40_percent_among_75_and_25_nodes_is_defective_and_the_rest_healthy(
    faster_by, noise
):
    levels = np.r_[np.full(75, 100.0), np.full(25, 100 * (1 + faster_by))]
    levels[3] = 40
    criteria, assessment = judged(*campaign({"compute": rates(levels, noise)}))
    assert by_node(assessment) == all_but(names(3), 100)
    assert {of_kind.sku for of_kind in criteria} == {"h100-kind-a", "h100-kind-b"}
    slower, faster = (of_kind.node_kind for of_kind in criteria)
    assert (slower.sku, slower.label) == ("h100", "h100-kind-a")
    assert set(faster.nodes) == names(*range(75, 100))
    assert set(slower.nodes) == names(*range(75))
    assert 0.99 <= faster.confidence <= 1
    assert faster.metric == "compute rate"
    assert faster.typical == pytest.approx(100 * (1 + faster_by), rel=0.01)


def test_216_of_1748_nodes_that_are_7_percent_faster_are_named():
    kind = np.random.default_rng(1).permutation(np.r_[np.zeros(1532), np.ones(216)])
    spread = np.random.default_rng(2).normal(1, 0.01, kind.size)
    criteria, assessment = judged(*campaign({"compute": rates((100 + 7 * kind) * spread)}))
    faster = {f"n{i}" for i in np.flatnonzero(kind)}
    assert len(faster ^ set(criteria[1].node_kind.nodes)) <= 4  # 3.5 standard deviations to either
    assert set(by_node(assessment).values()) == {H}


@pytest.mark.parametrize("share_of_its_kind", [0.9, 0.85, 0.5])
def test_a_node_that_is_slow_among_its_own_kind_is_found(share_of_its_kind):
    """At 0.9 it is still 17 % faster than any node of the other kind."""
    levels = np.r_[np.full(75, 100.0), np.full(25, 130.0)]
    levels[80] *= share_of_its_kind
    _, assessment = judged(*campaign({"compute": rates(levels)}))
    assert by_node(assessment) == all_but(names(80), 100)


def test_other_metrics_say_of_which_kind_a_node_is_that_is_slow_in_one():
    """It looks like a healthy node of the slower kind, in this metric alone."""
    levels = np.r_[np.full(75, 100.0), np.full(25, 107.0)]
    slow = levels.copy()
    slow[80] = 100.0
    measured = {"compute": rates(slow), "probe": rates(levels), "glance": rates(5 * levels)}
    criteria, assessment = judged(*campaign(measured))
    assert "n80" in criteria[1].node_kind.nodes
    (bad,) = [verdict for verdict in assessment.alone if verdict.judgement is D]
    assert (bad.participants, bad.benchmark) == (("n80",), "compute")


def test_a_kind_that_is_better_in_one_metric_is_not_defective_for_being_worse_in_another():
    measured = {
        "compute": rates(np.r_[np.full(75, 100.0), np.full(25, 120.0)]),
        "probe": rates(np.r_[np.full(75, 50.0), np.full(25, 40.0)]),
        "glance": rates(np.full(100, 7.0)),
    }
    _, assessment = judged(*campaign(measured))
    assert by_node(assessment) == all_but(set(), 100)


def test_many_that_are_alike_and_worse_may_share_a_cause_and_stay_defective():
    levels = np.r_[np.full(75, 100.0), np.full(25, 90.0)]
    criteria, assessment = judged(*campaign({"compute": rates(levels)}))
    assert [of_sku.node_kind for of_sku in criteria] == [None]
    assert by_node(assessment) == all_but(names(*range(75, 100)), 100)


@pytest.mark.parametrize(
    ("slower", "faster", "kinds"),
    [
        (176, 24, 2),
        (300, 24, 1),  # too small a share
        (16, 8, 2),
        (12, 6, 1),  # too few to tell
        (50, 50, 1),  # half of them: which half is well is unknown
    ],
)
def test_a_kind_has_its_share_of_the_nodes_and_is_the_smaller_one(slower, faster, kinds):
    levels = np.r_[np.full(slower, 100.0), np.full(faster, 115.0)]
    criteria, _ = judged(*campaign({"compute": rates(levels)}))
    assert len(criteria) == kinds


@pytest.mark.parametrize("count", [8, 20, 64])
def test_two_halves_of_a_fleet_are_unknown_and_the_answer_names_both_levels(count):
    """Half may be bad, or half of another kind: the nodes alone do not show which."""
    levels = np.r_[np.full(count // 2, 100.0), np.full(count // 2, 130.0)]
    criteria, assessment = judged(*campaign({"compute": rates(levels, 0.0003)}))
    assert set(by_node(assessment).values()) == {U}
    half = count // 2
    both = f"{half} at 100 GB/s and {half} at 130 GB/s; if they are two kinds of nodes, give each"
    assert all(both in node.reason for node in assessment.nodes)
    again, _ = judged(*campaign({"compute": rates(levels, 0.0003)}), criteria)
    assert again == criteria


def test_three_kinds_are_three():
    levels = np.r_[np.full(60, 100.0), np.full(30, 115.0), np.full(25, 140.0)]
    levels[[5, 70, 100]] *= 0.93
    criteria, assessment = judged(*campaign({"compute": rates(levels)}))
    assert [len(of_kind.node_kind.nodes) for of_kind in criteria] == [60, 30, 25]
    assert by_node(assessment) == all_but(names(5, 70, 100), 115)


@settings(max_examples=15)
@given(st.data())
def test_planted_kinds_are_found_node_by_node(data):
    count = data.draw(st.integers(80, 300))
    fewer = data.draw(st.integers(count // 4, count // 3))
    faster_by = data.draw(st.sampled_from([0.07, 0.12, 0.3]))
    place = np.random.default_rng(count).permutation(count)
    levels = np.where(place < fewer, 1 + faster_by, 1.0) * data.draw(
        st.sampled_from([1e-6, 1.0, 3e9])
    )
    criteria, assessment = judged(*campaign({"compute": rates(levels)}))
    kinds = [of_kind.node_kind for of_kind in criteria]
    assert set(kinds[1].nodes) == names(*np.flatnonzero(place < fewer))
    assert set(by_node(assessment).values()) == {H}


# --- what was not -------------------------------------------------------------------------------

SHAPES = {
    "normal": lambda rng, n: rng.normal(1, 0.03, n),
    "heavy tails": lambda rng, n: np.exp(0.02 * rng.standard_t(2, n)),
    "skewed": lambda rng, n: np.exp(0.05 * rng.exponential(1, n)),
    "drift over the fleet": lambda rng, n: np.linspace(1, 1.2, n),
    "even": lambda rng, n: rng.uniform(1, 1.3, n),
    "coarse clock": lambda rng, n: np.round(10 * rng.normal(1, 0.08, n)),
    "a slow tail": lambda rng, n: 1 - 0.3 * (rng.random(n) < 0.05) * rng.random(n),
    "a few fast ones": lambda rng, n: np.where(rng.random(n) < 0.04, 1.2, 1.0),
}


@settings(max_examples=25)
@given(
    st.sampled_from(sorted(SHAPES)),
    st.integers(20, 400),
    st.sampled_from([1, 2, 8]),
    st.integers(0, 10_000),
)
def test_a_healthy_fleet_of_one_kind_is_never_split(shape, count, samples, seed):
    rng = np.random.default_rng(seed)
    level = SHAPES[shape](rng, count)
    noise = 0.0 if shape == "coarse clock" else 0.005
    measured = level[:, None] * rng.normal(1, noise, (count, samples))
    criteria, _ = judged(*campaign({"compute": measured}))
    assert [of_sku.node_kind for of_sku in criteria] == [None], (shape, count, samples, seed)


@settings(max_examples=20)
@given(
    st.integers(20, 300), st.sampled_from([2, 3, 8, 32]), st.floats(0.1, 0.9), st.integers(0, 999)
)
def test_two_modes_that_every_node_has_are_no_two_kinds(count, samples, share, seed):
    rng = np.random.default_rng(seed)
    fast = rng.random((count, samples)) < share
    measured = np.where(fast, 110.0, 100.0) * rng.normal(1, 0.002, fast.shape)
    criteria, _ = judged(*campaign({"compute": measured}))
    assert [of_sku.node_kind for of_sku in criteria] == [None]


def test_a_kind_of_nodes_must_show_in_both_halves_of_the_values():
    """Both of two values are fast on a third of the nodes, by chance."""
    rng = np.random.default_rng(3)
    measured = np.where(rng.random((300, 2)) < 0.6, 130.0, 100.0)
    criteria, _ = judged(*campaign({"compute": measured * rng.normal(1, 0.002, (300, 2))}))
    assert [of_sku.node_kind for of_sku in criteria] == [None]


def test_kinds_that_the_policy_would_not_tell_apart_stay_together():
    """However far other nodes are below both."""
    levels = np.r_[np.full(70, 100.0), np.full(25, 103.0), np.full(8, 80.0)]
    criteria, assessment = judged(*campaign({"compute": rates(levels, 0.001)}))
    assert [of_sku.node_kind for of_sku in criteria] == [None]
    assert by_node(assessment) == all_but(names(*range(95, 103)), 103)


# --- what it is based on ------------------------------------------------------------------------


def rarest(values):
    """The same by its definition: every three stretches, one after the other."""
    x, n = sorted(values), len(values)
    least = 1.0
    beside = max(3, round(n / 10))
    while 2 * beside + 2 <= n:
        for spaces in {1, 1 + beside // 10, 1 + int(0.3 * beside)}:
            for i in range(beside, n - beside - spaces):
                gap = x[i + spaces] - x[i]
                sides = x[i] - x[i - beside], x[i + spaces + beside] - x[i + spaces]
                share = gap / (gap + max(sides))
                # so few of all numbers in that share of the length
                least = min(least, binom.cdf(spaces - 1, spaces + beside - 1, share))
        beside *= 2
    return min(1.0, 3 * n * least)


@settings(max_examples=20)
@given(st.lists(st.floats(0, 1), min_size=20, max_size=40, unique=True))
def test_the_deepest_valley_is_the_rarest_of_three_stretches(values):
    assert deepest_valley(np.array(values)).chance == pytest.approx(rarest(values), rel=1e-6)


@pytest.mark.parametrize(
    "shape",
    [
        lambda rng, n: rng.random(n),
        lambda rng, n: rng.exponential(1, n),
        lambda rng, n: rng.standard_cauchy(n),
        lambda rng, n: np.where(rng.random(n) < 0.5, rng.normal(0, 0.001, n), rng.random(n)),
        lambda rng, n: np.r_[np.zeros(n // 2), rng.random(n - n // 2)],
    ],
)
@pytest.mark.parametrize("count", [20, 100, 400])
def test_a_single_peak_has_a_deep_valley_no_more_often_than_stated(shape, count):
    rng = np.random.default_rng(count)
    chances = np.array([deepest_valley(shape(rng, count)).chance for _ in range(500)])
    for stated in (0.1, 0.01):
        assert np.mean(chances <= stated) <= stated + 3 * np.sqrt(stated / 500)


# --- what is said of it -------------------------------------------------------------------------


def test_the_labels_settle_it():
    """Nodes with the labels that were named are judged by the same criteria, and need no list."""
    levels = np.r_[np.full(75, 100.0), np.full(25, 107.0)]
    measured = {"compute": rates(levels)}
    plan, done = campaign(measured)
    criteria, assessment = judged(plan, done)
    label_of = {name: of.sku for of in criteria for name in of.node_kind.nodes}
    labelled = campaign(measured, label_of)
    again, by_label = judged(*labelled)
    assert [of_sku.node_kind for of_sku in again] == [None, None]
    assert [criteria_files.dump(replace(of, node_kind=None)) for of in criteria] == [
        criteria_files.dump(of) for of in again
    ]
    _, by_old_criteria = judged(*labelled, criteria)
    assert by_node(by_label) == by_node(by_old_criteria) == by_node(assessment)


def test_criteria_files_keep_kinds_and_an_ambiguous_node_is_unknown(tmp_path):
    levels = np.r_[np.full(75, 100.0), np.full(25, 107.0)]
    criteria, _ = judged(*campaign({"compute": rates(levels)}))
    criteria_files.write_learned(criteria, tmp_path)
    read = criteria_files.load(tmp_path, "s")
    assert [of.node_kind for of in read] == [of.node_kind for of in criteria]
    levels[80] *= 0.93
    new = [100.0, 107.0, 90.0]  # well if it is of the slower kind; of whichever; of neither
    later = campaign({"compute": rates(np.r_[levels, new])})
    verdicts = by_node(judged(*later, read)[1])
    assert verdicts == all_but(names(80), 100) | {"n100": U, "n101": H, "n102": D}


def test_a_node_without_the_metric_that_separates_kinds_teaches_neither():
    levels = np.r_[np.full(75, 100.0), np.full(25, 107.0)]
    plan, done = campaign({"compute": rates(levels), "probe": rates(np.full(100, 5.0))})
    done = [
        run
        for run in done
        if (run.step.participants, run.step.workload.benchmark) != (("n5",), "compute")
    ]
    criteria, assessment = judged(plan, done)
    assert {of.sku for of in criteria} == {"h100-kind-a", "h100-kind-b"}
    assert {of.sku: of.criteria[0].units for of in criteria} == {
        "h100-kind-a": 74,
        "h100-kind-b": 25,
    }
    assert by_node(assessment) == all_but(set(), 100)  # in the rest it is as both


def test_criteria_files_of_kinds_that_no_longer_exist_are_removed(tmp_path):
    two = judged(*campaign({"compute": rates(np.r_[np.full(75, 100.0), np.full(25, 107.0)])}))[0]
    whole = judged(*campaign({"compute": rates(np.full(100, 100.0))}))[0]
    for learned in (whole, two, whole):
        paths = criteria_files.write_learned(learned, tmp_path)
        assert sorted(tmp_path.rglob("*.json")) == sorted(paths)
    own = paths[0].rename(paths[0].with_name("mine.json"))
    criteria_files.write_learned(whole, tmp_path)
    assert own.exists()  # of one kind before and now: nothing was parted otherwise


def test_a_node_with_more_devices_than_its_kind_is_named_and_not_condemned():
    plan, done = campaign({"compute": rates([100.0] * 8)})
    assert surplus_devices(done, plan) == {}
    both = [Series(metric="rate", device=f"cuda:{i}", samples=np.full(8, 100.0)) for i in range(2)]
    more = replace(done[0], result=Result(series=Readings.pack(both)))
    (node,) = more.step.participants
    assert list(surplus_devices([more, *done[1:]], plan)) == [node]
    few = [replace(run, result=more.result) for run in done[1:]]
    assert surplus_devices([done[0], *few], plan) == {}  # it has fewer, which is another question
    _, assessment = judged(plan, [more, *done[1:]])
    assert set(by_node(assessment).values()) == {H}
