"""Runs of windows, found by few probes, against all windows gone through."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from anubis.core.watch.window_search import Run, runs


class Flags:
    """Windows x rows."""

    def __init__(self, flags):
        self.flags, self.probes = flags, set()

    def rows(self, window):
        self.probes.add(window)
        return set(np.flatnonzero(self.flags[window]).tolist())

    def holds(self, window, row):
        self.probes.add(window)
        return bool(self.flags[window, row])


def stretches(flags):
    """First and last of each, of one row."""
    places = groupby(range(len(flags)), key=lambda place: bool(flags[place]))
    members = [list(group) for stands, group in places if stands]
    return [(group[0], group[-1]) for group in members]


def naive(flags, least, patience):
    patience, joined = min(patience, least // 4), set()
    for row in range(flags.shape[1]):
        long = [(a, b) for a, b in stretches(flags[:, row]) if b - a + 1 >= 4 * patience]
        while len(long) > 1:
            (a, b), (c, d) = long[-2:]
            if c - b - 1 <= patience:
                long[-2:] = [(a, d)]
            else:
                joined.add((row, c, d))
                long.pop()
        joined |= {(row, a, b) for a, b in long}
    return {Run(row, a, b) for row, a, b in joined if b - a + 1 >= least}


def random_flags(random):
    windows, rows = int(random.integers(1, 60)), int(random.integers(1, 4))
    flags = random.random((windows, rows)) < random.choice([0.3, 0.7, 0.9, 0.97])
    return np.repeat(flags, int(random.choice([1, 1, 3])), axis=0)


def test_runs_are_those_of_all_windows_with_and_without_patience():
    random = np.random.default_rng(7)
    bridged = 0
    for _ in range(1500):
        flags, least = random_flags(random), int(random.integers(1, 20))
        patience = int(random.choice([0, 1, 2, 5, 30]))
        expected = naive(flags, least, patience)
        listed = list(runs(Flags(flags), len(flags), least, len(flags), patience))
        assert set(listed) == expected
        assert len(listed) == len(expected)
        blocks = [(len(flags) - 1 - run.last) // least for run in listed]
        assert patience or blocks == sorted(blocks)  # newest first
        bridged += any(not flags[run.first : run.last + 1, run.row].all() for run in expected)
    assert bridged > 100  # the cases are about something


def test_a_run_is_followed_as_far_as_is_enough_and_no_further():
    random = np.random.default_rng(8)
    for _ in range(600):
        flags, least = random_flags(random), int(random.integers(1, 12))
        enough = least + int(random.integers(0, 8))
        patience = int(random.choice([0, 2, 5]))
        clipped = {
            Run(run.row, max(run.first, run.last - enough + 1), run.last)
            for run in naive(flags, least, patience)
        }
        assert set(runs(Flags(flags), len(flags), least, enough, patience)) == clipped


def test_a_healthy_job_is_asked_for_few_of_893_windows():
    for least, patience, probed in ((240, 0, 3), (240, 8, 6), (60, 0, 14)):
        probe = Flags(np.zeros((893, 4), dtype=bool))
        assert not list(runs(probe, 893, least, 240, patience))
        assert len(probe.probes) == probed


def test_a_run_is_followed_window_by_window_and_no_further_than_is_needed():
    probe = Flags(np.zeros((893, 4), dtype=bool))
    probe.flags[100:, 2] = True
    assert next(runs(probe, 893, 60, 240)) == Run(2, 653, 892)
    assert len(probe.probes) == 240


def test_a_checkpoint_of_a_few_seconds_does_not_end_a_run():
    flags = np.ones((300, 1), dtype=bool)
    flags[100:108] = flags[200:205] = False
    assert list(runs(Flags(flags), 300, 240, 300, 8)) == [Run(0, 0, 299)]
    assert list(runs(Flags(flags), 300, 240, 300, 7)) == []
    assert list(runs(Flags(flags), 300, 240, 300)) == []
