"""Places of a node that measure something else than their siblings on most nodes: how nodes are
built, and no defect."""

from __future__ import annotations

import numpy as np
import pytest
from fleets import entry, small_plan
from test_judgement import POLICY, D, H, by_node, executions, judged, learn

from anubis.core.judge.device_places import find_places, place_remark
from anubis.core.judge.units import latest_executions, units
from anubis.core.records import Policy

ENDS = (0, 7)


def measure(nodes, rate, devices=8):
    plan = small_plan(nodes, [entry("compute")])
    return plan, list(executions(plan, rate, devices))


def warm_ends(slow=None):
    """Nodes whose first and last GPU are 7 % slower; `slow`: one GPU and its share of the rest."""

    def rate(step, i):
        (node,) = step.participants
        share = slow[1] if slow and (node, i) == slow[0] else 1.0
        return 100.0 * (0.93 if i in ENDS else 1.0) * share

    return rate


def kinds_of(criteria):
    return sorted(c.key.device_kind for of_sku in criteria for c in of_sku.criteria)


@pytest.mark.parametrize("nodes", [3, 8, 24])
def test_gpus_at_slow_places_of_all_nodes_are_no_defects(nodes):
    assert set(by_node(judged(*measure(nodes, warm_ends()))).values()) == {H}


@pytest.mark.parametrize("place", [0, 4])
def test_a_gpu_is_compared_with_the_same_place_of_other_nodes(place):
    """10 % below the others of its place: of GPU 0 as of GPU 4, which is then as fast as a healthy
    GPU 0 but for 3 %."""
    assessment = judged(*measure(12, warm_ends((("n3", place), 0.9))))
    assert by_node(assessment) == {f"n{i}": D if i == 3 else H for i in range(12)}
    worst = next(assessment.verdicts())
    assert (worst.device, worst.code) == (f"cuda:{place}", "COMPUTE.RATE")
    assert f"10% slower than normal on cuda:{place}" in worst.reason


def test_the_slower_half_of_all_nodes_is_a_kind_of_device():
    half = lambda step, i: 90.0 if i >= 4 else 100.0  # noqa: E731
    plan, done = measure(12, half)
    assert kinds_of(learn(plan, done)) == ["cuda", "cuda:4+cuda:5+cuda:6+cuda:7"]
    assert set(by_node(judged(plan, done)).values()) == {H}


def test_a_slow_place_of_a_few_nodes_is_a_defect_of_each():
    few = lambda step, i: 90.0 if i == 2 and step.participants[0] in ("n1", "n5") else 100.0  # noqa: E731
    plan, done = measure(12, few)
    assert kinds_of(learn(plan, done)) == ["cuda"]
    assert [n for n, judgement in by_node(judged(plan, done)).items() if judgement is D] == [
        "n1",
        "n5",
    ]


def test_criteria_know_places_if_a_single_node_is_judged_by_them():
    criteria = learn(*measure(12, warm_ends()))
    for slow, expected in ((None, H), ((("n0", 7), 0.9), D)):
        assert by_node(judged(*measure(1, warm_ends(slow)), criteria)) == {"n0": expected}


def test_a_lost_gpu_of_a_slow_place_is_missed():
    criteria = learn(*measure(12, warm_ends()))
    assessment = judged(*measure(1, warm_ends(), devices=7), criteria)
    assert "1 of 8 cuda" in next(assessment.verdicts()).reason


def test_criteria_without_places_judge_as_before():
    criteria = learn(*measure(12, lambda step, i: 100.0))
    assert by_node(judged(*measure(3, warm_ends()), criteria)) == dict.fromkeys(
        ("n0", "n1", "n2"), D
    )


def test_the_rule_of_the_paper_knows_no_places():
    paper = Policy(calibrated=False)
    assert kinds_of(learn(*measure(12, warm_ends()), policy=paper)) == ["cuda"]


@pytest.mark.parametrize("nodes", [3, 4, 8, 32])
@pytest.mark.parametrize("scatter", [0.003, 0.03])
def test_chance_makes_no_places(nodes, scatter):
    rng = np.random.default_rng(nodes)
    for _ in range(20):
        pace = 1 + scatter * rng.standard_normal((nodes, 8))
        plan, done = measure(
            nodes, lambda step, i, pace=pace: 100 * pace[int(step.participants[0][1:]), i]
        )
        (alike,) = units(latest_executions(done), plan)
        assert find_places(alike, POLICY.alpha) == []


def test_the_remark_names_the_places():
    ends, rest = sorted(
        (c.key for of_sku in learn(*measure(8, warm_ends())) for c in of_sku.criteria),
        key=lambda key: -len(key.device_kind),
    )
    assert place_remark(ends).startswith("cuda:0, cuda:7 differ from the other devices")
    assert place_remark(rest) == ""
