"""Thresholds that healthy nodes hardly ever exceed, in jobs of any size; and the tree that puts
metrics in order, held against scikit-learn's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from sklearn.tree import DecisionTreeClassifier
from watched import CPU, DUTY, healthy

from anubis.core.watch.telemetry import Side, Telemetry, WatchedMetric
from anubis.core.watch.thresholds import LEAST, Split, calibrate, grow, oddness, rank
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
    other = shaken(healthy(nodes=nodes, points=40_000 // nodes, seed=99)).series("cpu_use") / 100
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


def metric(name):
    return WatchedMetric(name=name, unit="%", low=0, high=100, fault=Side.LOW)


def telemetry(values):
    values = np.asarray(values, dtype=np.float32)
    return Telemetry(
        metrics=tuple(metric(f"m{i}") for i in range(len(values))),
        nodes=tuple(f"n{i}" for i in range(values.shape[1])),
        start=0.0,
        step_s=1.0,
        values=values,
    )


def windows(seed, count=1500, metrics=6):
    random = np.random.default_rng(seed)
    features = random.random((count, metrics))
    faulty = features[:, 2] + 0.5 * features[:, 4] + 0.3 * random.random(count) > 1.1
    return features, faulty ^ (random.random(count) < 0.1)  # no small leaf is pure: no ties


def splits_of_scikit_learn(features, faulty, deepest):
    tree = DecisionTreeClassifier(max_depth=deepest, random_state=0).fit(features, faulty).tree_

    def walk(node, depth):
        left, right = tree.children_left[node], tree.children_right[node]
        if left < 0:
            return
        share = tree.n_node_samples / tree.n_node_samples[0]
        after = share[left] * tree.impurity[left] + share[right] * tree.impurity[right]
        gain = share[node] * tree.impurity[node] - after
        yield tree.feature[node], tree.threshold[node], depth, gain
        yield from walk(left, depth + 1)
        yield from walk(right, depth + 1)

    return list(walk(0, 0))


@pytest.mark.parametrize("seed", range(8))
def test_the_tree_is_that_of_scikit_learn(seed):
    features, faulty = windows(seed)
    mine = [(s.metric, s.above, s.depth, s.gain) for s in grow(features, faulty, 3)]
    np.testing.assert_allclose(mine, splits_of_scikit_learn(features, faulty, 3), rtol=1e-6)


def test_no_tree_is_deeper_than_eight():
    random = np.random.default_rng(0)
    splits = grow(random.random((2000, 3)), random.random(2000) < 0.5)
    assert max(split.depth for split in splits) == 7


@pytest.mark.parametrize("faulty", [np.zeros(9, bool), np.ones(9, bool)])
def test_windows_of_one_kind_put_nothing_in_order(faulty):
    assert grow(np.arange(18.0).reshape(9, 2), faulty) == ()


def test_equal_values_are_never_parted():
    assert grow(np.ones((6, 1)), np.array([True, False] * 3)) == ()


def split(column, depth, gain):
    return Split(metric=column, above=0.0, depth=depth, gain=gain)


def test_the_metric_nearest_the_root_is_first_and_of_two_as_near_the_one_that_parts_more():
    splits = [split(2, 0, 0.2), split(0, 1, 0.01), split(1, 1, 0.05), split(0, 2, 0.9)]
    assert rank(splits, ("cpu", "gpu", "pfc", "disk")) == ("pfc", "gpu", "cpu")


def test_a_node_that_falls_makes_a_window_as_odd_as_one_that_rises():
    random = np.random.default_rng(3)
    values = 50 + random.standard_normal((1, 64, 32))
    values[0, 5, 8:16] -= 20
    values[0, 9, 24:] += 20
    odd = oddness(telemetry(values), 8)[:, 0]
    assert odd[1] == pytest.approx(odd[3], rel=0.05)
    assert odd[1] > 2 * max(odd[0], odd[2])
    signed = (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, keepdims=True)
    assert signed[0, :, 8:16].max(axis=0).mean() < 1.5  # as it was published: less than in health


def test_nodes_that_all_say_the_same_are_not_odd_nor_is_one_that_says_nothing():
    values = np.full((1, 4, 8), 33.3)
    assert oddness(telemetry(values), 8).tolist() == [[0.0]]
    values[0, 2] = np.nan
    assert oddness(telemetry(values), 8).tolist() == [[0.0]]
