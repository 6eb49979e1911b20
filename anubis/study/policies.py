"""When to validate what: the Selector, and what it has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anubis.core.choosing.selection import (
    Detection,
    Menu,
    break_even,
    choose,
    expected_loss_s,
    expose,
    freshness,
    joint,
)
from anubis.study.incidents import HOUR_S, Foresight, Histories

STALE = 1e-6  # what was passed so long ago says nothing; most nodes are such, and cost less time


@dataclass(frozen=True, kw_only=True)
class Absence:
    """Nobody looks: incidents are repaired, and that is all."""

    knows_all: bool = False

    def choose(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Sequence[int]:
        return [0] * len(nodes)


@dataclass(frozen=True, kw_only=True)
class Ideal(Absence):
    """Nobody has to look: every defect is known, and repaired when it would have struck."""

    knows_all: bool = True


@dataclass(frozen=True, kw_only=True)
class FullSet:
    """Everything, whenever a job gets nodes, and again when an incident has interrupted it."""

    benchmarks: int
    knows_all: bool = False

    def choose(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Sequence[int]:
        return [(1 << self.benchmarks) - 1] * len(nodes)


@dataclass(frozen=True, kw_only=True)
class Cron:
    """Everything, on nodes that were not validated for so long, or not since a repair.

    It waits until they are between two jobs.
    """

    benchmarks: int
    every_h: float
    knows_all: bool = False

    def choose(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Sequence[int]:
        everything = (1 << self.benchmarks) - 1
        last_h = histories.validated_h[np.asarray(nodes, dtype=np.intp)].min(axis=1, initial=np.inf)
        return [everything if now_h - last >= self.every_h else 0 for last in last_h.tolist()]


@dataclass(frozen=True, kw_only=True)
class RandomSubsets:
    """Each benchmark with the same chance: a share of the full set's time, spent blindly."""

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
    """Algorithm 1 on what it knows: the risk of nodes, and what found the defects of the past."""

    risk: Foresight
    detection: Detection  # its benchmarks in the order of the site's
    durations_s: tuple[float, ...]
    p0: float | Literal["job"]  # "job": where an incident is expected to cost what the suite does
    incident_costs_h: float | None  # node-hours; None: half of the job, on all its nodes
    half_life_h: float  # of what a passed benchmark says
    knows_all: bool = False

    def choose(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Sequence[int]:
        p = self.risk.within(nodes, hours, now_h, histories)
        chosen = [0] * len(nodes)
        loss_s = expected_loss_s(hours * HOUR_S)
        p0 = break_even(sum(self.durations_s), loss_s) if self.p0 == "job" else self.p0
        if joint(p) <= p0:
            return chosen  # as Algorithm 1 would find, only sooner
        age_h = now_h - histories.validated_h[np.asarray(nodes, dtype=np.intp)]
        fresh = freshness(age_h * HOUR_S, self.half_life_h * HOUR_S)
        exposure = expose(
            self.detection,
            p,
            mixes=self.risk.mixes(nodes, histories),
            fresh=fresh if (fresh > STALE).any() else None,
        )
        menu = Menu(
            exposure=exposure,
            detection=self.detection,
            durations_s=self.durations_s,
            together=False,
        )
        cost_s = len(nodes) * loss_s
        if self.incident_costs_h is not None:
            cost_s = self.incident_costs_h * HOUR_S
        choice = choose(menu, p0=p0, worth=1 / cost_s)
        place = {name: i for i, name in enumerate(self.detection.benchmarks)}
        for pick in choice.picks:
            for row in pick.nodes:
                chosen[row] |= 1 << place[pick.benchmark]
        return chosen
