"""Pairs on two levels: criteria that are learned from them alone never pass both."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from fleets import entry, small_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.campaign.planning import steps
from anubis.core.judge.judgement import assess
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.two_levels import find_boundary
from anubis.core.judge.units import units
from anubis.core.records import Ended, Execution, Judgement, Policy, Readings, Result, Series

NOISE = 0.01  # of the rate of a pair


def scan(nodes: int, bad: int, loss: float, rng: np.random.Generator, sku_of_bad: str = "h100"):
    """The judged pairs of a fleet: every pair with a bad node is slow."""
    plan = small_plan(nodes, [entry("pair", groups="pairs")])
    skus = (sku_of_bad if place < bad else node.sku for place, node in enumerate(plan.nodes))
    labelled = (replace(node, sku=sku) for node, sku in zip(plan.nodes, skus, strict=True))
    plan = replace(plan, nodes=tuple(labelled))
    done = []
    for step in steps(plan, 0, {node.name for node in plan.nodes}):
        slow = any(int(name[1:]) < bad for name in step.participants)
        rate = 40 * (1 - loss * slow) * rng.normal(1, NOISE)
        samples = rng.normal(rate, 0.002 * rate, 8)
        result = Result(
            series=Readings.pack([Series(metric="rate", device="node", samples=samples)])
        )
        done.append(
            Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)
        )
    measured = units(done, plan)
    learned = learn_criteria(measured, Policy(), suite="s", anubis="0", created_at="now")
    return assess(measured, done, plan, learned, {})


@pytest.mark.parametrize("nodes", [4, 5, 6, 8, 12])
def test_no_scan_of_slow_and_fast_pairs_is_healthy_by_its_own_criteria(nodes):
    for bad in range(1, nodes - 1):
        assessment = scan(nodes, bad, 0.4, np.random.default_rng([nodes, bad]))
        assert assessment.judgement is not Judgement.HEALTHY, bad
        defective = assessment.named(Judgement.DEFECTIVE)
        assert {int(name[1:]) for name in defective} <= set(range(bad)), bad


def test_slower_nodes_of_another_sku_are_healthy():
    assessment = scan(12, 6, 0.4, np.random.default_rng(0), sku_of_bad="a100")
    assert assessment.judgement is Judgement.HEALTHY


def test_the_answer_names_the_nodes_on_each_level_and_the_way_to_settle():
    assessment = scan(5, 3, 0.4, np.random.default_rng(0))
    (batch,) = assessment.batch_verdicts
    assert (batch.judgement, batch.code) == (Judgement.UNKNOWN, "CRITERION-REFUSED")
    found = re.search(r"two levels, 1 at ([\d.]+) GB/s and 9 at ([\d.]+) GB/s", batch.reason)
    assert [float(level) for level in found.groups()] == pytest.approx([40, 24], rel=3 * NOISE)
    assert "n3 and n4 reach the higher one, n0, n1 and n2 only the lower one" in batch.reason
    assert "a node that is known to be good" in batch.reason


@pytest.mark.parametrize("draw", ["normal", "heavy", "even"])
@pytest.mark.parametrize("size", [3, 6, 8, 10, 28, 120])
def test_groups_of_one_kind_have_two_levels_less_than_once_in_a_hundred_fleets(size, draw):
    rng = np.random.default_rng([size, len(draw)])
    fleets = {
        "normal": rng.standard_normal((500, size)),
        "heavy": rng.standard_t(3, (500, size)),
        "even": rng.random((500, size)),
    }[draw]
    assert sum(find_boundary(levels) is not None for levels in fleets) <= 5


@given(size=st.integers(8, 60), seed=st.integers(0, 2**32), noise=st.floats(1e-6, 0.01))
@settings(max_examples=20)
def test_a_gap_of_many_deviations_parts_two_levels(size, seed, noise):
    rng = np.random.default_rng(seed)
    place = int(rng.integers(2, size - 1))
    values = noise * np.linspace(0, 3, size)
    values[place:] += 30 * noise
    boundary = find_boundary(rng.permutation(values))
    assert boundary == values[place]
    assert find_boundary(values, rounding=30 * noise) is None  # a step of rounding


def test_values_that_are_rounded_to_few_steps_have_one_level():
    steps_us = np.repeat([2.0, 3.0], 6)
    assert find_boundary(np.log(steps_us), rounding=math.log(1.5) / math.sqrt(12)) is None
    assert find_boundary(np.log(steps_us)) is not None
