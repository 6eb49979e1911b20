"""Whether nodes scatter with heavy tails: how much likelier Student's t with four degrees of
freedom makes their values than a normal distribution does.

A healthy node of a normal fleet is never five deviations off; one of a fleet with heavy tails is,
now and then. A few nodes seldom show which fleet they are. So the metrics of one program are asked
together, and the less they tell, the more a limit allows for both (calibration.py).

The worst nodes may be bad, so only their number counts. Better ones count as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from anubis.core.judge.calibration import (
    FEWEST,
    HEAVY,
    LEAST_SPREAD,
    fit_line,
    heavy_scale,
    usual_units,
)
from anubis.core.records import Samples

BEFORE = 0.15  # the probability of heavy tails before anything is measured
SURE = 30.0  # log odds; more change no limit
ENOUGH = 512  # nodes, which show the shape well
DISTINCT = 0.5  # of the values: fewer are rounded, which looks like tails


@dataclass(frozen=True)
class Tails:
    """The levels of nodes, as logarithms with the larger worse: a row for each metric of a
    program."""

    levels: Iterable[Samples]  # read once, if anybody asks

    @cached_property
    def chance(self) -> float:
        """The probability that the tails are heavy."""
        evidence = [(log_odds(of_metric), of_metric) for of_metric in self.levels]
        evidence = [(odds, of_metric) for odds, of_metric in evidence if odds]
        share = _independent_share([of_metric for _, of_metric in evidence])
        odds = share * sum(odds for odds, _ in evidence)
        odds += math.log(BEFORE / (1 - BEFORE))
        return 1 / (1 + math.exp(-min(SURE, max(-SURE, odds))))


def log_odds(levels: Samples) -> float:
    """The logarithm of how many times likelier heavy tails make these levels; 0 if they cannot
    tell."""
    from scipy.special import log_ndtr, stdtr

    levels = levels[:: -(-levels.size // ENOUGH)]
    if levels.size < FEWEST or np.unique(levels).size < DISTINCT * levels.size:
        return 0.0
    usual = usual_units(levels, np.arange(levels.size), LEAST_SPREAD)
    middle, spread, worst, beyond = fit_line(levels, usual, LEAST_SPREAD)
    scale = heavy_scale(spread, levels.size, usual.size)
    apart = levels[levels <= worst] - middle
    normal = -0.5 * float((apart / spread) @ (apart / spread))
    normal -= apart.size * math.log(spread * math.sqrt(2 * math.pi))
    normal += beyond * float(log_ndtr((middle - worst) / spread))
    heavy = -(HEAVY + 1) / 2 * float(np.log1p((apart / scale) ** 2 / HEAVY).sum())
    heavy -= apart.size * math.log(scale * math.sqrt(HEAVY) * _beta(0.5, HEAVY / 2))
    heavy += beyond * math.log(float(stdtr(HEAVY, (middle - worst) / scale)))
    return heavy - normal


def _beta(a: float, b: float) -> float:
    return math.gamma(a) * math.gamma(b) / math.gamma(a + b)


def _independent_share(levels: Sequence[Samples]) -> float:
    """The share of metrics that are evidence of their own: metrics that go together tell the same
    thing again."""
    if len({of_metric.size for of_metric in levels}) > 1:  # nodes lack metrics
        return 1 / len(levels)
    return len(levels) / float((np.corrcoef(levels) ** 2).sum()) if len(levels) > 1 else 1.0
