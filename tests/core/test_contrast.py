"""Nodes that left their peers by the job's own past, independently of any watch model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from watched import CPU, DUTY, PFC, TENSOR, StandIn, healthy, set_values

from anubis.core.watch.contrast import LONG, SHORT, contrasts, quantiles
from anubis.core.watch.detector import look
from anubis.core.watch.findings import Sign
from anubis.core.watch.telemetry import Side, Span
from anubis.core.watch.watch_settings import WatchSettings

BLIND = StandIn(threshold=1e9)  # a model with which no node ever differs


def named(telemetry, *, ended=False, **settings):
    seen = look(telemetry, BLIND, WatchSettings(**settings), ended=ended)
    assert {one.deviations[0].sign for one in seen.suspicions} <= {Sign.CONTRAST}
    return [suspicion.node for suspicion in seen.suspicions]


def little_used(**how):
    """A job whose hosts use 8 % of their processors, as real ones do."""
    telemetry = healthy(metrics=(CPU,), **how)
    telemetry.values[:] = 8 + (telemetry.values - 40) / 4
    return telemetry


def contrasts_by_hand(values, metric, width, size, needed, steady, most):
    """The rule for one sample a second, a block and a node after the other."""
    points = values.shape[1]
    begins = range(points % size, points, size)
    blocks = np.array([[np.mean(row[begin : begin + size]) for begin in begins] for row in values])
    middle = [np.median(column) for column in blocks.T]
    past = len(begins) // 3
    found = {}
    own, usual = [], []
    for row in blocks:
        first = sorted(row[at] - middle[at] for at in range(past))
        own.append(first[-(-past // 2) - 1])
        moved = sorted(abs(row[at] - middle[at] - own[-1]) for at in range(past))
        usual.append(moved[int(np.ceil(0.95 * past)) - 1])
    level = sorted(map(abs, middle))[-(-len(middle) // 2) - 1]
    nows = [
        1.4826
        * np.median([abs(row[at] - middle[at] - o) for row, o in zip(blocks, own, strict=True)])
        for at in range(len(begins))
    ]
    least = max(np.median(usual), 2 * np.median(nows[past:]))
    for sign in (-1, 1):
        if metric.fault is not (Side.LOW if sign < 0 else Side.HIGH) and metric.family != "cpu":
            continue
        apart = {}
        for number, row in enumerate(blocks):
            beyond, counts, gone = [], [], []
            for at, value in enumerate(row):
                noise = 2 * max(usual[number], least, nows[at])
                limit = max(noise, metric.floor, 0.01 * width, 0.15 * level)
                gap, change = value - middle[at], value - middle[at] - own[number]
                beyond.append(sign * gap > limit and sign * change > limit)
                pause = metric.fault is Side.LOW and middle[at] < 2 * limit
                counts.append(beyond[-1] or not pause)
                toward = gap * change > 0 and sign * gap > 0
                gone.append((min(abs(gap), abs(change)) * (1 if toward else -1), pause))
            fits = [
                sum(beyond[end - needed : end])
                >= steady * max(sum(counts[end - needed : end]), 0.75 * needed)
                for end in range(needed, len(row) + 1)
            ]
            if any(fits):
                last = first = max(at for at, fit in enumerate(fits) if fit)
                while first and fits[first - 1]:
                    first -= 1
                where = [at for at in range(first, last + needed) if beyond[at]]
                run = gone[where[0] : where[-1] + 1]
                most = 0.8 * np.median([size for size, _ in run])
                parts = [1 if pause or size >= most else max(0, size / most) for size, pause in run]
                if sum(parts) >= 0.9 * needed:
                    apart[number] = where[-1] + 1
        if len(apart) <= most:
            found.update({(number, sign): end for number, end in apart.items()})
    return found


@pytest.mark.parametrize("seed", range(6))
def test_contrasts_are_those_of_a_block_and_a_node_after_the_other(seed):
    dice = np.random.default_rng(seed)
    metric = (CPU, DUTY, PFC)[seed % 3]
    values = dice.normal(40, dice.choice([0.5, 4]), (int(dice.integers(4, 9)), 1003))
    for _ in range(2):
        row, begin = dice.integers(len(values)), dice.integers(330, 850)
        values[row, begin : begin + dice.integers(100, 600)] *= dice.choice([0.3, 0.7, 1.6, 4])
    values[:, 900 : 900 + dice.integers(20)] = 1.0  # all pause
    values = values.astype(np.float32)
    peers = np.arange(len(values))
    found = contrasts(values, metric, Span(0, 100), peers, needed_s=160.0, step_s=1.0, limit=2)
    for grain in (SHORT, LONG):
        size = round(grain.block_s)
        needed = math.ceil(160 / size)
        by_hand = contrasts_by_hand(values, metric, 100, size, needed, grain.steady, most=2)
        ends = {
            (one.row, -1 if values[one.row, one.first : one.last].mean() < 40 else 1): one.last
            for one in found
            if one.smoothed == (1 if grain is SHORT else size)
        }
        assert ends == {who: 1003 % size + size * end - 1 for who, end in by_hand.items()}


def test_quantiles_of_known_values_are_those_of_numpy():
    values = np.random.default_rng(0).normal(size=(20, 31))
    values[np.random.default_rng(1).random(values.shape) < 0.3] = np.nan
    for share in (0.5, 0.95):
        theirs = np.nanquantile(values, share, axis=1, method="inverted_cdf")
        assert quantiles(values, share) == pytest.approx(theirs)


def test_a_node_that_does_half_of_little_is_named():
    telemetry = little_used()
    telemetry.values[0, 2, 500:] /= 2
    assert named(telemetry) == ["n2"]
    assert named(telemetry, contrast=False) == []


def test_a_change_that_is_lost_in_short_blocks_is_found_in_their_means():
    for seed in range(5):
        telemetry = healthy(points=1200, metrics=(DUTY,), seed=seed)
        telemetry.values[:] = np.random.default_rng(seed).normal(70, 20, telemetry.values.shape)
        assert named(telemetry) == []
        telemetry.values[0, 3, 800:] -= 20  # a long block deviates by 3, a short one by 7
        assert named(telemetry) == ["n3"]


def test_a_pause_of_all_interrupts_nothing():
    telemetry = set_values(healthy(), "cpu_use", "n2", 650, 900, 3.0)
    for begin in (700, 800):
        telemetry.series("cpu_use")[:, begin : begin + 15] = 1.0  # a checkpoint
    assert named(telemetry) == ["n2"]


def test_a_unit_or_a_site_of_another_size_changes_nothing():
    telemetry = healthy(metrics=(PFC,))
    set_values(telemetry, "pfc_tx", "n3", 500, 900, 500.0)
    telemetry.values[:] *= 1e6
    assert named(telemetry) == ["n3"]


def test_a_departure_of_several_nodes_alike_is_no_anomaly():
    telemetry = healthy()
    for node in ("n1", "n4"):
        set_values(telemetry, "cpu_use", node, 500, 900, 20.0)
    assert named(telemetry) == []


def test_a_node_that_always_differed_or_was_never_seen_with_its_peers_is_not_named():
    assert named(set_values(healthy(), "cpu_use", "n2", 0, 900, 20.0)) == []
    late = set_values(healthy(), "cpu_use", "n2", 0, 280, np.nan)
    assert named(set_values(late, "cpu_use", "n2", 280, 900, 20.0)) == []


def test_more_work_than_its_peers_do_is_no_fault_of_a_gpu_but_of_a_processor_taken_away():
    assert named(set_values(healthy(), "gpu_duty", "n2", 500, 900, 120.0)) == []
    assert named(set_values(healthy(), "cpu_use", "n2", 500, 900, 90.0)) == ["n2"]


def test_a_processor_that_does_more_is_no_fault_if_neither_its_node_nor_the_job_does_less():
    for name, rows, begin, share, culprits in (
        ("gpu_tensor", slice(None), 500, 1.0, []),  # a backup, a checkpoint that is sent away
        ("gpu_tensor", slice(None), 500, 0.93, []),  # a job's pace changes so by itself
        ("gpu_tensor", slice(None), 660, 0.0, []),  # minutes later another node hangs
        ("gpu_tensor", slice(None), 500, 0.8, ["n2"]),  # all wait for it
        ("gpu_duty", slice(2, 3), 500, 0.7, ["n2"]),
    ):
        telemetry = healthy(metrics=(CPU, DUTY, TENSOR))
        set_values(telemetry, "cpu_use", "n2", 500, 900, 90.0)
        telemetry.series(name)[rows, begin:] *= share
        assert named(telemetry) == culprits
        seen = look(telemetry, StandIn(order=("cpu_use",)), WatchSettings())  # by the model, too
        assert [suspicion.node for suspicion in seen.suspicions] == culprits
    busy = healthy(metrics=(CPU, DUTY))
    busy.series("gpu_duty")[:, :] /= 2
    set_values(busy, "gpu_duty", "n2", 500, 900, 95.0)
    assert not look(busy, StandIn(order=("gpu_duty",)), WatchSettings()).suspicions


def test_a_node_that_does_the_same_work_at_other_moments_is_not_named():
    telemetry = healthy(metrics=(CPU,))
    beats = np.where(np.arange(900) // 20 % 2, 30.0, -30.0)
    telemetry.series("cpu_use")[:] += beats
    telemetry.series("cpu_use")[2, 500:] -= 2 * beats[500:]
    assert named(telemetry) == []
    sensitive = StandIn(order=("cpu_use",))
    assert not look(telemetry, sensitive, WatchSettings()).suspicions
    assert look(telemetry, sensitive, WatchSettings(contrast=False)).suspicions  # as published


@pytest.mark.parametrize("length", [200, 250])
def test_a_stop_is_as_long_in_long_blocks_as_in_short_ones(length):
    for begin in range(900, 940, 8):
        telemetry = healthy(points=begin + length, metrics=(DUTY,))
        telemetry.values[0, 3, begin:] = 0.0
        assert named(telemetry) == ["n3"] * (length > 240)


@pytest.mark.parametrize("seed", range(4))
def test_a_node_is_named_only_if_it_was_apart_for_twice_as_long_as_all_but_one_other(seed):
    dice = np.random.default_rng(seed)
    telemetry = healthy(12, points=1200, metrics=(CPU, DUTY), seed=seed)
    *pausing, still = dice.choice(12, 4, replace=False)
    for row, begin in zip(pausing, (440, 600, 760), strict=True):
        length = dice.integers(136, 200)
        telemetry.values[dice.integers(2), row, begin : begin + length] *= 0.02
    for begin, culprits in ((1200 - 250, []), (640, [f"n{still}"])):
        telemetry.values[1, still, begin:] *= 0.02
        assert named(telemetry) == culprits


def test_once_the_end_of_a_job_is_explained_no_other_node_is_named_for_a_minute():
    telemetry = healthy(60)
    set_values(telemetry, "cpu_use", "n5", 820, 900, 3.0)
    assert named(telemetry) == []
    assert named(telemetry, ended=True) == ["n5"]
    set_values(telemetry, "gpu_duty", "n2", 700, 900, 0.0)
    set_values(telemetry, "cpu_use", "n2", 700, 900, 1.0)
    assert named(telemetry, ended=True) == ["n2"]


def test_a_node_must_differ_by_more_if_all_nodes_drift_apart():
    """Experts get more or fewer tokens for minutes: what a short past shows is not all of it."""
    telemetry = healthy(12, points=1200, metrics=(DUTY,))
    telemetry.series("gpu_duty")[:, 400:] += np.linspace(-10, 10, 12)[:, None]
    telemetry.series("gpu_duty")[0, 400:] -= 15
    assert named(telemetry) == []
    telemetry.series("gpu_duty")[0, 400:] -= 35
    assert named(telemetry) == ["n0"]


def test_a_node_that_was_always_restless_must_differ_by_more():
    telemetry = healthy()
    restless = np.random.default_rng(0).normal(0, 40, 900)
    telemetry.series("cpu_use")[5] += restless
    set_values(telemetry, "cpu_use", "n5", 500, 900, 25.0)
    assert named(telemetry) == []
    assert named(set_values(telemetry, "cpu_use", "n2", 500, 900, 25.0)) == ["n2"]


@pytest.mark.parametrize("step_s", [1.0, 15.0, 30.0])
def test_scrapes_of_any_interval_show_a_fault_of_four_minutes(step_s):
    points = round(1200 / step_s)
    telemetry = healthy(points=points, step_s=step_s)
    assert named(telemetry) == []
    last = -round(250 / step_s)
    assert named(set_values(telemetry, "cpu_use", "n2", last, points, 20.0)) == ["n2"]


def test_scrapes_too_rare_for_a_past_name_no_node():
    telemetry = healthy(points=20, step_s=60.0)
    assert named(set_values(telemetry, "cpu_use", "n2", 10, 20, 20.0)) == []
