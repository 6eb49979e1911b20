"""The beginning of a standstill of a job, by its nodes, its logs, and reports."""

from __future__ import annotations

import numpy as np
import pytest

from anubis.core.diagnose.diagnose_due import (
    AGAIN_S,
    LOGS,
    WATCH,
    ReportedStall,
    is_news,
    silence_begin,
    undiagnosed_stalls,
)
from anubis.core.watch.silences import standing_still
from anubis.core.watch.telemetry import Side, Telemetry, WatchedMetric
from tests.core.watched import DUTY, START

LIMIT_S = 600.0


def metric(name):
    return WatchedMetric(name=name, unit="%", low=0, high=None, fault=Side.LOW, family="gpu")


TENSOR, NETWORK = metric("gpu_tensor"), metric("throughput")


def job(worked, still, *, nodes=5, metrics=(DUTY, TENSOR, NETWORK), seed=1):
    """Its GPUs are busy all the time, as those that wait for each other are."""
    random = np.random.default_rng(seed)
    values = random.normal(80, 4, size=(len(metrics), nodes, worked + still))
    for row, watched in enumerate(metrics):
        if watched is not DUTY:
            values[row, :, worked:] = np.abs(random.normal(0, 0.2, size=(nodes, still)))
    return Telemetry(
        metrics=metrics,
        nodes=tuple(f"n{i}" for i in range(nodes)),
        start=START,
        step_s=1.0,
        values=values.astype(np.float32),
    )


def still_for(telemetry, limit_s=LIMIT_S):
    since = standing_still(telemetry, limit_s)
    return None if since is None else telemetry.end + telemetry.step_s - since


def test_the_standstill_of_a_job_begins_with_its_last_work():
    assert still_for(job(500, 700)) == 700
    assert still_for(job(500, 600)) == 600
    assert still_for(job(500, 599)) is None
    assert still_for(job(1200, 0)) is None


def test_one_node_at_work_is_work_and_a_moment_of_it_is_none():
    telemetry = job(500, 700)
    telemetry.series("throughput")[2, 800:820] = 80
    assert still_for(telemetry) == 700
    telemetry.series("throughput")[2, 500:] = 80
    assert still_for(telemetry) is None


def test_busy_gpus_alone_or_metrics_of_few_nodes_show_no_standstill():
    assert still_for(job(500, 700, metrics=(DUTY,))) is None
    telemetry = job(500, 700)
    telemetry.values[1:, :3, 500:] = np.nan
    assert still_for(telemetry) is None


def test_a_job_never_seen_at_work_has_no_standstill():
    assert still_for(job(0, 1200)) is None
    assert still_for(job(20, 1180)) is None


# --- what is news -------------------------------------------------------------------------------


def told(at, source=LOGS):
    return ReportedStall(job="7", at=at, source=source)


def test_a_stall_is_reported_only_if_it_began_after_all_reported_ones():
    assert is_news(1000.0, [])
    assert not is_news(1000.0, [told(1000.0, WATCH)])
    assert not is_news(1000.0, [told(1700.0, "operator")])  # who saw it when it had begun
    assert is_news(1761.0, [told(1700.0, "operator")])


def test_a_log_is_silent_after_the_limit_and_after_twice_that_once_it_was_wrong():
    assert silence_begin(1000.0, 0.0, 1599.0, LIMIT_S, []) is None
    assert silence_begin(1000.0, 0.0, 1600.0, LIMIT_S, []) == 1000.0
    assert silence_begin(1000.0, 1300.0, 1700.0, LIMIT_S, []) is None  # an earlier run's words
    assert silence_begin(5000.0, 0.0, 6000.0, LIMIT_S, [told(1000.0)]) is None
    assert silence_begin(5000.0, 0.0, 6200.0, LIMIT_S, [told(1000.0)]) == 5000.0
    assert silence_begin(1000.0, 0.0, 99_999.0, 0.0, []) is None  # switched off


def stalled(at, source="operator", job="7"):
    return ReportedStall(job=job, at=at, source=source)


@pytest.mark.parametrize(
    ("told", "diagnosed", "due"),
    [
        ([stalled(1000.0)], {}, [1000.0]),
        ([stalled(1000.0)], {"7": [1000.0]}, []),
        ([stalled(1000.0)], {"8": [1000.0]}, [1000.0]),
        ([stalled(1000.0), stalled(1000.0 + AGAIN_S)], {}, [1000.0]),
        ([stalled(1000.0), stalled(1001.0 + AGAIN_S)], {}, [1000.0, 1001.0 + AGAIN_S]),
        ([stalled(1000.0), stalled(1000.0, job="8")], {}, [1000.0, 1000.0]),
        ([stalled(1061.0, WATCH)], {"7": [1000.0]}, [1061.0]),
        ([stalled(1000.0)], {"7": [1500.0]}, []),
    ],
)
def test_a_stall_is_diagnosed_once(told, diagnosed, due):
    assert [stall.at for stall in undiagnosed_stalls(told, diagnosed)] == due
