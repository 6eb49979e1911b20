"""Cox-Time: a network that predicts how a node's hazard differs from the baseline, at each time.

    H(t | x) = sum over the incident times s <= t of h0(s) exp(g(x, s))
    h0(s)    = incidents at s / sum over all at risk at s of exp(g(x_i, s))

(Kvamme, Borgan and Scheel, JMLR 20, 2019.) Evaluated as written, this needs the network for every
pair of a node and an incident time. Here it is evaluated at a few knots, and exp(g) is linear
between them: with hats k_j(s) around the knots, H is the product of exp(g(x, knot j)) and the
weights

    w_j(t) = sum over s <= t of h0(s) k_j(s).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.history.status import Statuses, Times, Uptimes
from anubis.models.risk.forecast import keep_on, life_table
from anubis.models.risk.perceptron import HazardNetwork, Scale
from anubis.models.risk.risk_model import learnable
from anubis.text.packages import require_package

KNOTS = 128  # as many keep the chances within 2e-4 of those by all incident times
TOGETHER = 512  # rows of about the same length: so many that the network's blocks are full
INCIDENTS_NEEDED = 30  # a network learns nothing from fewer


@dataclass(frozen=True, kw_only=True)
class CoxTime:
    name: ClassVar[str] = "cox-time"
    looks: ClassVar[bool] = True
    covariates: tuple[str, ...]
    scale: Scale  # of the covariates
    clock: Scale  # of the time
    network: HazardNetwork
    knots: Times  # on the clock
    incident_h: Times  # ascending
    baseline: Times  # h0 at those times
    watched_h: Times  # the longest uptime

    @classmethod
    def fit(cls, uptimes: Uptimes, seed: int) -> Self:
        for package in ("torch", "torchtuples", "pycox"):
            require_package(package, "training a risk model")
        from anubis.models.risk.cox_time_training import train  # torch and pycox: 4 s

        uptimes = learnable(uptimes, INCIDENTS_NEEDED)
        scale = Scale.from_table(uptimes.statuses.values)
        clock = Scale.from_table(uptimes.duration_h[:, None])
        x = scale.apply(uptimes.statuses.values)
        network = train(
            x,
            _scale_hours(clock, uptimes.duration_h),
            uptimes.observed,
            uptimes.statuses.nodes,
            seed,
        )
        return cls.around(network, uptimes, scale, clock)

    @classmethod
    def around(cls, network: HazardNetwork, uptimes: Uptimes, scale: Scale, clock: Scale) -> Self:
        """Model of a trained network, with the baseline hazard of these uptimes."""
        table = life_table(uptimes.duration_h, uptimes.observed)
        times = _scale_hours(clock, uptimes.duration_h)
        at = knots(times[uptimes.observed])
        left, right, share = hats(_scale_hours(clock, table.hours), at)
        longest_first = np.argsort(-uptimes.duration_h, kind="stable")
        x = scale.apply(uptimes.statuses.values)[longest_first]
        risks = _risks_while_at_risk(network, x, times[longest_first], at)
        added = np.cumsum(risks, axis=0, dtype=np.float64)
        last = table.at_risk - 1
        at_risk = added[last, left] * (1 - share) + added[last, right] * share
        return cls(
            covariates=uptimes.statuses.covariates,
            scale=scale,
            clock=clock,
            network=network,
            knots=at,
            incident_h=table.hours,
            baseline=table.incidents / at_risk,
            watched_h=np.array([uptimes.duration_h.max()]),
        )

    def cumulative_hazard(self, statuses: Statuses, hours: Times) -> Floats:
        weights = self._weights(hours)
        used = weights.any(axis=0)  # knots beyond the last hour have no weight
        risks = self.network.relative_risk(self.scale.apply(statuses.values), self.knots[used])
        hazard = risks @ weights[:, used].T.astype(np.float32)
        monotone = np.maximum.accumulate(hazard.astype(np.float64), axis=1)  # products are rounded
        return keep_on(monotone, hours, self.watched_h[0])

    def _weights(self, hours: Times) -> Floats:
        passed = np.searchsorted(self.incident_h, hours, side="right")
        to_the_left, to_the_right = self._gains
        return to_the_left.gains_until(passed) + to_the_right.gains_until(passed)

    @cached_property
    def _gains(self) -> tuple[_Gains, _Gains]:
        left, right, share = hats(_scale_hours(self.clock, self.incident_h), self.knots)
        return (
            _Gains.from_knots(left, self.baseline * (1 - share), self.knots.size),
            _Gains.from_knots(right, self.baseline * share, self.knots.size),
        )


@dataclass(frozen=True)
class _Gains:
    """Weight that each knot has gained from the first incidents, which are sorted by knot."""

    sums: Times  # of the gains from all incidents before
    first: Ints  # index of the first incident of each knot, then the number of incidents

    @classmethod
    def from_knots(cls, knot: Ints, gains: Times, knots: int) -> Self:
        sums = np.concatenate(([0.0], np.cumsum(gains)))
        return cls(sums, np.searchsorted(knot, np.arange(knots + 1)))

    def gains_until(self, incidents: Ints) -> Floats:
        begin, end = self.first[:-1], self.first[1:]
        gains: Floats = self.sums[np.clip(incidents[:, None], begin, end)] - self.sums[begin]
        return gains


def _risks_while_at_risk(network: HazardNetwork, x: Floats, ends: Times, at: Times) -> Floats32:
    """Relative risks at the knots until the first after the end of each row, the longest of which
    comes first. Most rows end early, so this is a third of all."""
    risks = np.zeros((len(x), at.size), dtype=np.float32)
    for start in range(0, len(x), TOGETHER):
        part = slice(start, start + TOGETHER)
        needed = int(np.searchsorted(at, ends[start])) + 1
        risks[part, :needed] = network.relative_risk(x[part], at[:needed])
    return risks


def knots(incidents: Times) -> Times:
    """Knots on the clock: half of them at quantiles of the incidents, half evenly spaced, ends
    included.

    Quantiles alone cover the long, thin tail with one stretch; even steps the crowded start.
    """
    share = np.linspace(0, 1, KNOTS // 2)
    even = np.linspace(incidents.min(), incidents.max(), KNOTS // 2)
    return np.union1d(np.quantile(incidents, share), even)


def hats(times: Times, at: Times) -> tuple[Ints, Ints, Times]:
    """Knots around each time, and its relative position between them."""
    left = np.maximum(np.searchsorted(at, times, side="left") - 1, 0)
    right = np.minimum(left + 1, at.size - 1)
    stretch = np.where(right > left, at[right] - at[left], 1.0)
    return left, right, np.clip((times - at[left]) / stretch, 0, 1)


def _scale_hours(clock: Scale, hours: Times) -> Times:
    return clock.apply(hours[:, None])[:, 0]
