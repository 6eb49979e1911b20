"""Validation policies: the Selector, and the policies that it must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.history.events import JobAllocated
from anubis.core.records import SelectionPolicy
from anubis.core.select.decision import Outlook, choose_tests
from anubis.core.select.selection import Detection
from anubis.lab.study.incidents import Foresight, Histories


@dataclass(frozen=True, kw_only=True)
class Absence:
    """No validation: incidents are only repaired."""

    knows_all: bool = False

    def choose(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Sequence[int]:
        return [0] * len(nodes)


@dataclass(frozen=True, kw_only=True)
class Ideal(Absence):
    """Knowledge of every defect without a test, and its repair when it would have struck."""

    knows_all: bool = True


@dataclass(frozen=True, kw_only=True)
class FullSet:
    """All benchmarks whenever a job gets nodes, and again after an incident has interrupted it."""

    benchmarks: int
    knows_all: bool = False

    def choose(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Sequence[int]:
        return [(1 << self.benchmarks) - 1] * len(nodes)


@dataclass(frozen=True, kw_only=True)
class Cron:
    """All benchmarks on nodes not validated for so long or since a repair, between two jobs."""

    benchmarks: int
    every_h: float
    knows_all: bool = False

    def choose(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Sequence[int]:
        everything = (1 << self.benchmarks) - 1
        last_h = histories.validated_h[list(nodes)].min(axis=1, initial=np.inf)
        return [everything if now_h - last >= self.every_h else 0 for last in last_h.tolist()]


@dataclass(frozen=True, kw_only=True)
class RandomSubsets:
    """Each benchmark with the same chance: a share of the full set's time, spent at random."""

    benchmarks: int
    share: float
    rng: np.random.Generator
    knows_all: bool = False

    def choose(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Sequence[int]:
        drawn = self.rng.random((len(nodes), self.benchmarks)) < self.share
        return [sum(1 << place for place in np.flatnonzero(row).tolist()) for row in drawn]


@dataclass(frozen=True, kw_only=True)
class GreedySelection:
    """Production's decision when a job gets nodes, from what production would know about them."""

    risk: Foresight
    detection: Detection  # its benchmarks in the order of the site's
    durations_s: tuple[float, ...]
    policy: SelectionPolicy
    incident_costs_h: float | None  # node-hours; None: half of the job, on all its nodes
    knows_all: bool = False

    def choose(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Sequence[int]:
        passed_h = histories.validated_h[list(nodes)]
        outlook = Outlook(
            probabilities=self.risk.chances_within(nodes, hours, now_h, histories),
            proven=np.asarray(np.isfinite(passed_h).any(axis=1)),
            mixes=self.risk.mixes(nodes, histories),
            ages_s=(now_h - passed_h) * HOUR_S,
            detection=self.detection,
            durations_s=self.durations_s,
        )
        job = JobAllocated(nodes=tuple(map(str, nodes)), duration_s=hours * HOUR_S)
        cost_s = None if self.incident_costs_h is None else self.incident_costs_h * HOUR_S
        often = replace(self.policy, search="greedy")
        choice = choose_tests(job, outlook, often, incident_costs_s=cost_s)
        chosen = [0] * len(nodes)
        bit = {name: 1 << place for place, name in enumerate(self.detection.benchmarks)}
        for pick in choice.picks:
            for row in pick.nodes:
                chosen[row] |= bit[pick.benchmark]
        return chosen
