"""Thresholds that healthy nodes hardly ever exceed, in jobs of any size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from watched import CPU, DUTY, healthy

from anubis.core.watch.thresholds import LEAST, calibrate
from anubis.core.watch.watch_settings import WatchSettings

SETTINGS = WatchSettings()


def calibrated(jobs, metrics=("cpu_use",), **how):
    return calibrate(jobs, metrics, [None] * len(metrics), SETTINGS, **how)


@pytest.fixture(scope="module")
def thresholds():
    return calibrated([healthy(nodes=64, seed=seed) for seed in range(4)])


def naive_scores(windows):
    """Scores of each node, from all pairs of distances."""
    distances = squareform(pdist(windows)).sum(axis=1) / (len(windows) - 1) / np.sqrt(8)
    if len(windows) >= 16:
        return (distances - distances.mean()) / distances.std()
    middle = np.median(distances)
    return (distances - middle) / (1.4826 * np.median(np.abs(distances - middle)) + 0.01)


@pytest.fixture(scope="module")
def loud():
    """A job so loud that no threshold is the least one."""
    return calibrated([shaken(healthy(nodes=64, seed=seed)) for seed in range(4)])


def shaken(job):
    job.series("cpu_use")[:] = 40 + 10 * (job.series("cpu_use") - 40)
    return job


@pytest.mark.parametrize("nodes", [4, 10, 16, 40])
def test_about_one_healthy_node_in_a_thousand_exceeds_its_threshold(loud, nodes):
    other = shaken(healthy(nodes=nodes, points=80_000 // nodes, seed=99)).series("cpu_use") / 100
    windows = [other[:, start : start + 8] for start in range(0, other.shape[1] - 7, 4)]
    scores = np.concatenate([naive_scores(window) for window in windows])
    assert 0.0002 < np.mean(scores > loud.value_at(nodes)) < 0.004


def test_both_kinds_of_scores_are_learned_up_to_the_size_of_the_jobs(thresholds):
    assert thresholds.nodes == (4, 5, 6, 8, 11, 15, 16, 24, 32, 64)


def test_a_few_jitters_do_not_hide_the_faults_of_others(thresholds):
    """A threshold by the worst node of each window would be what one jitter reaches."""
    jobs = [healthy(nodes=64, seed=seed) for seed in range(4)]
    for job in jobs:
        job.series("cpu_use")[3, 100:140] = 0
    assert calibrated(jobs).value_at(64) < 1.5 * thresholds.value_at(64)


@pytest.mark.long
def test_nodes_of_other_stages_are_no_peers(thresholds):
    stages = ("a",) * 32 + ("b",) * 32
    jobs = [healthy(nodes=64, seed=seed, groups=stages) for seed in range(4)]
    for job in jobs:
        job.series("cpu_use")[32:] += 40
    parted, mixed = calibrated(jobs), calibrated([replace(job, groups=()) for job in jobs])
    assert parted.nodes[-1] == 32
    assert parted.value_at(32) == pytest.approx(thresholds.value_at(32), rel=0.2)
    assert mixed.value_at(8) > 10 * parted.value_at(
        8
    )  # of a few nodes, one may be of the other stage alone


def test_unknown_values_are_not_learned_from(thresholds):
    jobs = [healthy(nodes=70, seed=seed) for seed in range(4)]
    for job in jobs:
        job.series("cpu_use")[64:] = np.nan
    assert calibrated(jobs).nodes == thresholds.nodes
    assert np.isfinite(calibrated(jobs).scores).all()


@pytest.mark.parametrize(
    "jobs",
    [[], [healthy(nodes=3)], [healthy(nodes=6, points=30)], [healthy(nodes=8, points=5)]],
    ids=["none", "few nodes", "few windows", "no window"],
)
def test_from_too_little_nothing_is_learned(jobs):
    assert calibrated(jobs) is None


def test_a_metric_in_which_nodes_never_differ_keeps_a_threshold():
    job = healthy(nodes=16)
    job.series("cpu_use")[:] = 40
    assert set(calibrated([job] * 4).scores) == {LEAST}


def test_several_metrics_are_calibrated_as_one():
    jobs = [healthy(nodes=16, seed=seed, metrics=(CPU, DUTY)) for seed in range(4)]
    assert calibrated(jobs, ("cpu_use", "gpu_duty")).value_at(16) > 0


def test_the_same_jobs_teach_the_same(thresholds):
    jobs = [healthy(nodes=64, seed=seed) for seed in range(4)]
    assert calibrated(jobs) == thresholds


def test_75_minutes_of_four_nodes_are_enough_as_the_error_says_and_40_are_not():
    assert calibrated([healthy(nodes=4, points=75 * 60)]).nodes == (4,)
    assert calibrated([healthy(nodes=4, points=40 * 60)]) is None
