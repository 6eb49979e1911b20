"""The tree that puts metrics in order, held against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from anubis.core.watch.telemetry import Side, Telemetry, WatchedMetric
from anubis.core.watch.thresholds import Split, grow, oddness, rank


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
