"""How near the tests of a metric came to its limit, and which metrics drift towards it."""

from __future__ import annotations

import random
from itertools import chain
from statistics import median

import numpy as np
import pytest

from anubis.core.amounts import DAY_S
from anubis.core.history.drift import Drift, DriftPoint, LimitShares, drifts, share_of_limit
from anubis.report.drift import SHOWN_DAYS, ClusterDrift, change, drift_page

NOW = 1_790_000_000.0


def shares_on(day: float, *shares: float, metric: str = "tflops") -> LimitShares:
    at = NOW - day * DAY_S
    return LimitShares(at=at, benchmark="gemm", metric=metric, shares=np.array(shares))


@pytest.mark.parametrize(
    ("similarity", "alpha", "share"),
    [(1, 0.95, 0), (0.95, 0.95, 1), (0.9, 0.95, 2), (0.8, 0.6, 0.5)],
)
def test_the_share_of_a_limit_is_0_at_normal_and_1_at_the_limit(similarity, alpha, share):
    assert share_of_limit(np.array([similarity]), alpha) == pytest.approx([share])


def test_a_test_is_its_middle_unit_for_any_grouping_of_its_verdicts():
    draw = random.Random(3)
    days = {
        day: [[draw.random() for _ in range(draw.randint(1, 9))] for _ in range(3)]
        for day in (9, 4, 1)
    }
    (drift,) = drifts(shares_on(day, *part) for day, parts in days.items() for part in parts)
    middles = [median(chain(*parts)) for parts in days.values()]
    assert [point.middle for point in drift.points] == pytest.approx(middles)
    assert [point.units for point in drift.points] == [sum(map(len, p)) for p in days.values()]
    assert drift.change == pytest.approx(middles[2] - (middles[0] + middles[1]) / 2)


def test_metrics_beyond_their_limit_come_first_then_those_that_drift_most():
    told = [
        *(shares_on(day, share, metric="falls") for day, share in ((3, 0.2), (2, 0.3), (1, 0.9))),
        *(shares_on(day, share, metric="mends") for day, share in ((3, 0.9), (1, 0.2))),
        *(shares_on(day, share, metric="beyond") for day, share in ((3, 1.9), (1, 1.5))),
        shares_on(1, 0.8, metric="new"),
        shares_on(1, metric="of nothing"),
    ]
    assert [drift.metric for drift in drifts(told)] == ["beyond", "falls", "mends", "new"]


def test_the_page_of_drifts_shows_used_shares_of_limits_and_marks_those_beyond():
    points = [
        DriftPoint(at=NOW - DAY_S, units=8, middle=0.25, far=0.5),
        DriftPoint(at=NOW, units=8, middle=0.75, far=1.5),
    ]
    drift = Drift(benchmark="gemm", metric="tflops", points=points)
    since = NOW - SHOWN_DAYS * DAY_S
    page = drift_page([ClusterDrift(cluster="<i>", since=since, drifts=[drift])], NOW)
    assert "gemm tflops" in page
    assert '<td data-label="change" class="n">+50%</td>' in page
    assert '<td data-label="last test" class="n">75%</td>' in page
    assert '<td data-label="95th percentile" class="n bad">150%</td>' in page
    assert "<i>" not in page
    assert "<b>1</b> of 1 metric beyond the limit at the 95th percentile" in page
    assert change(Drift(benchmark="b", metric="m", points=points[:1])) == "-"
    assert "begin with <code>anubis accept</code>" in drift_page([], NOW)
    quiet = ClusterDrift(cluster="c", node="n1", since=since, drifts=[])
    assert "compared this node with a criterion" in drift_page([quiet], NOW)
