"""Thresholds between the numbers of nodes that they were learned for."""

from __future__ import annotations

import math

import pytest

from anubis.core.watch.model import Thresholds

LEARNED = Thresholds(nodes=(4, 8, 16, 64, 1024), scores=(6.0, 5.0, 3.0, 4.0, 6.0))


@pytest.mark.parametrize(
    ("nodes", "score"),
    [(4, 6.0), (8, 5.0), (16, 3.0), (64, 4.0), (1024, 6.0), (32, 3.5), (256, 5.0)],
)
def test_a_threshold_between_two_others_follows_the_logarithm(nodes, score):
    assert LEARNED.value_at(nodes) == pytest.approx(score)


def test_beyond_the_learned_numbers_of_nodes_the_last_threshold_holds():
    assert LEARNED.value_at(3) == 6.0
    assert LEARNED.value_at(100_000) == 6.0


def test_fewer_nodes_than_sixteen_have_a_score_of_another_kind():
    assert LEARNED.value_at(15) == 5.0
    assert LEARNED.value_at(16) == 3.0


def test_thresholds_of_one_kind_alone_serve_for_both():
    assert Thresholds(nodes=(64,), scores=(4.0,)).value_at(5) == 4.0


@pytest.mark.parametrize(
    ("nodes", "scores"),
    [((), ()), ((4, 4), (1.0, 1.0)), ((8, 4), (1.0, 1.0)), ((4,), (math.nan,)), ((4,), (0.0,))],
)
def test_thresholds_that_cannot_be_meant_are_refused(nodes, scores):
    with pytest.raises(ValueError, match="threshold"):
        Thresholds(nodes=nodes, scores=scores)
