"""Aegis' rule across nodes, held against the rule as it is written down, sample by sample."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from anubis.core.watch.outliers import OutlierRule, OutlierStream, pack_stream, resume_stream
from anubis.core.watch.telemetry import Side, Telemetry, WatchedMetric

POWER = WatchedMetric(name="gpu_power", unit="W", low=0.0, high=700.0, fault=Side.LOW, family="gpu")
RETRANSMITS = WatchedMetric(
    name="retransmits", unit="packets/s", low=0.0, high=None, fault=Side.HIGH, floor=5.0
)
HEAT = WatchedMetric(name="gpu_temperature", unit="C", low=0.0, high=100.0, fault=Side.EITHER)
START = 1_700_000_040.0  # a minute of the rule begins here


def telemetry(values, *, metrics=(POWER,), groups=(), step_s=1.0, start=START):
    values = np.asarray(values, dtype=np.float32)
    if values.ndim == 2:
        values = values[None]
    nodes = tuple(f"n{i}" for i in range(values.shape[1]))
    return Telemetry(
        metrics=metrics, nodes=nodes, start=start, step_s=step_s, values=values, groups=groups
    )


def heard(job, rule=None, pieces=None):
    stream = OutlierStream(job.metrics, job.nodes, job.groups, rule)
    for first, last in pieces or [(0, job.points)]:
        piece = job.values[:, :, first:last]
        stream.hear(replace(job, start=job.start + first * job.step_s, values=piece))
    return stream


def named(stream):
    return {
        (node, deviation.metric, deviation.side)
        for node, deviations in stream.deviations().items()
        for deviation in deviations
    }


def healthy(nodes=16, minutes=30, seed=0, level=400.0, noise=4.0):
    draws = np.random.default_rng(seed)
    return level + noise * draws.standard_normal((nodes, minutes * 60))


# --- the judge -----------------------------------------------------------------------------------


def as_written(job, rule):
    """Outliers of the last full minute: every sample of the span against the mean and the deviation
    of all nodes at its time, each less its own level, by loops."""
    minute = round(rule.minute_s / job.step_s)
    minutes = job.points // minute - 1  # the last one has not ended before the next begins
    kept = min(minutes, rule.level_minutes)
    result = set()
    for row, metric in enumerate(job.metrics):
        own = {
            past: [own_level(series, past, minute, rule) for series in job.values[row]]
            for past in range(minutes - rule.minutes, minutes)
        }
        for group in sorted(set(job.groups or ("",))):
            peers = [
                i for i, name in enumerate(job.groups or ("",) * len(job.nodes)) if name == group
            ]
            for node in peers:
                for side in (Side.LOW, Side.HIGH):
                    if metric.fault not in (side, Side.EITHER):
                        continue
                    apart = 0
                    for past in range(minutes - rule.minutes, minutes):
                        levels = {i: own[past][i] for i in peers}
                        for t in range(past * minute, (past + 1) * minute):
                            apart += stands_apart(
                                job.values[row, :, t], levels, node, side, metric, rule
                            )
                    if apart >= rule.share * rule.span_s / job.step_s:
                        result.add((job.nodes[node], metric.name, side))
    assert kept > 0
    return result


def own_level(series, past, minute, rule):
    """The median of the means of the minutes before."""
    means = []
    for begin in range(max(0, past - rule.level_minutes), past):
        samples = [x for x in series[begin * minute : (begin + 1) * minute] if math.isfinite(x)]
        if len(samples) >= max(1.0, 0.5 * minute):
            means.append(np.float32(np.mean(np.asarray(samples, dtype=np.float64))))
    return float(np.median(means)) if len(means) >= rule.minutes else math.nan


def stands_apart(values, levels, node, side, metric, rule):
    changes = {i: values[i] - level for i, level in levels.items()}
    finite = [change for change in changes.values() if math.isfinite(change)]
    if len(finite) < 6 or not math.isfinite(changes[node]):
        return False
    mean = sum(finite) / len(finite)
    deviation = math.sqrt(sum((change - mean) ** 2 for change in finite) / len(finite))
    level = np.median([level for level in levels.values() if math.isfinite(level)])
    limits = metric.low is not None and metric.high is not None
    range_ = metric.high - metric.low if limits else abs(level)
    bound = max(rule.deviations * deviation, metric.floor, rule.effect * range_)
    change = changes[node] - mean
    return change < -bound if side is Side.LOW else change > bound


def random_job(seed):
    draws = np.random.default_rng(seed)
    nodes = int(draws.integers(5, 16))
    points = int(draws.integers(32, 50)) * 6
    metrics = tuple(draws.permutation(np.array([POWER, RETRANSMITS, HEAT], dtype=object)))[:2]
    values = np.empty((2, nodes, points))
    for row, metric in enumerate(metrics):
        scale = 700.0 if metric is POWER else 100.0
        values[row] = 0.5 * scale + 0.01 * scale * draws.standard_normal((nodes, points))
        values[row] += 0.05 * scale * draws.standard_normal((nodes, 1))
        for node in draws.choice(nodes, size=int(draws.integers(1, 3)), replace=False):
            begin = points - int(draws.integers(60, 110))
            toward = -scale if metric.fault is Side.LOW else scale
            values[row, node, begin:] += toward * draws.choice([-0.4, 0.07, 0.2, 0.4])
    values[draws.random(values.shape) < draws.choice([0.0, 0.0, 0.01, 0.03])] = np.nan
    if draws.random() < 0.3:
        values[:, draws.integers(nodes), points // 2 :] = np.nan
    groups = tuple(draws.choice(["a", "b"], size=nodes)) if draws.random() < 0.3 else ()
    return telemetry(values, metrics=metrics, groups=groups, step_s=10.0)


@pytest.mark.parametrize("seed", range(7))
def test_the_stream_names_the_nodes_that_the_written_rule_names(seed):
    job = random_job(seed)
    rule = OutlierRule(level_s=2400.0)
    cuts = sorted({0, job.points, *np.random.default_rng(seed).integers(1, job.points, 4).tolist()})
    pieces = [(max(0, first - 30), last) for first, last in itertools.pairwise(cuts)]
    assert named(heard(job, rule, pieces)) == as_written(job, rule)


def test_the_random_jobs_have_nodes_to_name():
    rule = OutlierRule(level_s=2400.0)
    assert sum(bool(named(heard(random_job(seed), rule))) for seed in range(7)) >= 4


# --- what it names -------------------------------------------------------------------------------


def test_a_node_that_loses_power_for_eleven_minutes_is_named_since_it_did():
    values = healthy()
    values[3, 15 * 60 :] -= 80
    (deviation,) = heard(telemetry(values)).deviations()["n3"]
    assert deviation.since == START + 15 * 60
    assert deviation.value == pytest.approx(320, abs=1)
    assert deviation.peers == pytest.approx(400, abs=1)
    assert deviation.effect == pytest.approx(80 / 700, abs=0.005)


def test_nine_minutes_are_not_enough():
    values = healthy(minutes=26)
    values[3, 15 * 60 : 24 * 60] -= 80
    assert not heard(telemetry(values)).deviations()


def test_more_power_than_its_peers_is_no_fault():
    values = healthy()
    values[3, 15 * 60 :] += 80
    assert not heard(telemetry(values)).deviations()


def test_a_change_on_all_nodes_together_names_none():
    values = healthy()
    values[:, 15 * 60 :] -= 300
    assert not heard(telemetry(values)).deviations()


@pytest.mark.parametrize(("nodes", "can"), [(5, False), (6, True)])
def test_among_five_nodes_none_can_be_two_deviations_apart(nodes, can):
    values = healthy(nodes=nodes)
    values[0, 15 * 60 :] = 70
    stream = heard(telemetry(values))
    assert bool(stream.deviations()) == can
    assert stream.unable() == (
        "" if can else "5 peers: among fewer than 6 nodes none can be 2 deviations from their mean"
    )


def test_stages_are_judged_among_their_own():
    values = healthy(nodes=14)
    values[:7, 15 * 60 :] -= 200  # one stage waits for another
    values[3, 15 * 60 :] -= 100
    job = telemetry(values, groups=("first",) * 7 + ("last",) * 7)
    assert set(heard(job).deviations()) == {"n3"}


def test_nodes_that_always_differ_are_not_named_though_two_deviations_alone_would_name_them():
    draws = np.random.default_rng(4)
    noise = 8.0 * draws.standard_normal((1500, 22 * 60))
    steady = 35.0 * draws.standard_normal((1500, 1))  # 95 % of the variance
    values = (400 + steady + noise).astype(np.float32)
    last = values[:, -600:]
    below = last < last.mean(axis=0) - 2 * last.std(axis=0)
    assert (below.mean(axis=1) >= 0.95).sum() >= 5
    assert not heard(telemetry(values)).deviations()


def test_samples_that_are_missing_are_not_apart():
    values = healthy()
    values[3, 15 * 60 :] -= 80
    values[3, 15 * 60 :: 10] = np.nan  # a tenth
    assert not heard(telemetry(values)).deviations()


def test_a_few_retransmissions_are_nothing():
    values = np.zeros((16, 30 * 60))
    values[3, 15 * 60 :] = 4
    assert not heard(telemetry(values, metrics=(RETRANSMITS,))).deviations()
    values[3, 15 * 60 :] = 6
    assert set(heard(telemetry(values, metrics=(RETRANSMITS,))).deviations()) == {"n3"}


def test_a_node_of_which_a_third_of_the_samples_is_missing_has_a_level_all_the_same():
    values = healthy()
    values[3, : 15 * 60 : 3] = np.nan
    values[3, 15 * 60 :] -= 80
    assert set(heard(telemetry(values)).deviations()) == {"n3"}


def test_before_ten_minutes_no_node_has_a_level():
    stream = heard(telemetry(healthy(minutes=9)))
    assert stream.unable() == "no node has reported for 10 minutes, so none has a level"


def test_a_node_that_comes_back_is_named_no_more():
    values = healthy(minutes=45)
    values[3, 15 * 60 : 30 * 60] -= 80
    job = telemetry(values)
    assert set(heard(job, pieces=[(0, 30 * 60 + 1)]).deviations()) == {"n3"}
    assert not heard(job).deviations()


def test_the_state_of_the_stream_does_not_grow():
    stream = OutlierStream((POWER,), tuple(f"n{i}" for i in range(8)))
    sizes = set()
    for minute in range(0, 180, 20):
        job = telemetry(healthy(nodes=8, minutes=20), start=START + 60 * minute)
        stream.hear(job)
        sizes.add(sum(part.nbytes for part in vars(stream).values() if hasattr(part, "nbytes")))
    assert len(sizes) == 1


def test_hours_of_silence_leave_nothing_to_judge_by():
    stream = heard(telemetry(healthy()))
    stream.hear(telemetry(healthy(minutes=2), start=START + 5 * 3600))
    assert "has a level" in stream.unable()


def test_a_level_shorter_than_the_span_is_refused():
    with pytest.raises(ValueError, match="a level of 60 s, expected at least the 600 s"):
        OutlierRule(level_s=60.0)


# --- what is kept between two looks --------------------------------------------------------------


def test_a_stream_that_goes_on_in_another_process_is_the_one_that_never_ended():
    values = np.stack([healthy(minutes=90), healthy(minutes=90, seed=1, level=50.0)])
    values[0, 3, 70 * 60 :] -= 80
    values[1, 5, 17 * 60 : 33 * 60 : 2] = np.nan
    job = telemetry(values, metrics=(POWER, HEAT), groups=("a",) * 8 + ("b",) * 8)
    through, at_once = None, heard(job)
    for first in range(0, job.points, 487):
        stream = OutlierStream(job.metrics, job.nodes, job.groups)
        assert through is None or resume_stream(stream, through)
        piece = job.values[:, :, max(0, first - 300) : first + 487]  # pieces overlap
        stream.hear(replace(job, start=job.start + max(0, first - 300), values=piece))
        through = pack_stream(stream)
    assert named(stream) == named(at_once) == {("n3", "gpu_power", Side.LOW)}
    assert stream.heard_s == at_once.heard_s == 90 * 60
    for name, array in at_once.state().items():
        np.testing.assert_array_equal(stream.state()[name], array)


@pytest.mark.parametrize("nodes", [7, 8])
def test_a_stream_begins_anew_for_other_nodes_peers_releases_or_damaged_bytes(nodes, monkeypatch):
    kept = pack_stream(heard(telemetry(healthy(nodes=8))))
    anew = OutlierStream((POWER,), tuple(f"n{i}" for i in range(nodes)), ("a",) * nodes)
    assert not resume_stream(anew, kept)
    alike = OutlierStream((POWER,), tuple(f"n{i}" for i in range(8)))
    half = len(kept) // 2
    for damaged in (b"", kept[:half], kept[:half] + b"x" + kept[half + 1 :], b"no archive"):
        assert not resume_stream(alike, damaged)
    monkeypatch.setattr("anubis.core.watch.outliers.VERSION", 2)
    assert not resume_stream(alike, kept)
    assert alike.heard_s == 0
    monkeypatch.undo()
    assert resume_stream(alike, kept)


def test_a_gap_longer_than_the_span_begins_the_hour_anew():
    stream = heard(telemetry(healthy(minutes=70)))
    assert stream.heard_s == 70 * 60
    stream.hear(telemetry(healthy(minutes=2), start=START + 75 * 60))
    assert stream.heard_s == 77 * 60
    stream.hear(telemetry(healthy(minutes=2), start=START + 120 * 60))
    assert stream.heard_s == 120
