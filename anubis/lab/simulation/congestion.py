"""Rates of simultaneous flows that share cables: max-min fairness.

No flow can get more unless another with no more gets less, as with fair queues and the usual
congestion control.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from anubis.core.fabric import Shares

Thing = TypeVar("Thing", bound=Hashable)
NEARLY = 1 + 1e-9  # so that rounding never leaves a full link open


def max_min_rates(
    ways: Sequence[Sequence[Thing]], limits: Sequence[float], carried: Mapping[Thing, float]
) -> Shares:
    """Rate of each flow. `ways`: the things that each flow passes; `limits`: its rate alone;
    `carried`: the capacity of each thing.

    All rates rise together. A flow stops at its own limit, or when something that it passes is
    full.
    """
    number = {thing: place for place, thing in enumerate(dict.fromkeys(t for w in ways for t in w))}
    flow = np.array([row for row, way in enumerate(ways) for _ in way], dtype=np.int64)
    passed = np.array([number[thing] for way in ways for thing in way], dtype=np.int64)
    left = np.array([carried[thing] for thing in number], dtype=np.float64)
    limit = np.array(limits, dtype=np.float64)
    rate, rising = np.zeros(len(ways)), np.ones(len(ways), dtype=bool)
    while rising.any():
        on = rising[flow]
        count = np.bincount(passed[on], minlength=len(left))
        room = np.divide(left, count, out=np.full(len(left), np.inf), where=count > 0)
        step = min(room.min(initial=np.inf), (limit - rate)[rising].min())
        rate[rising] += step
        left -= step * count
        full = (count > 0) & (room <= step * NEARLY)
        stopped = np.bincount(flow[full[passed]], minlength=len(ways)) > 0
        rising &= ~(stopped | (rate * NEARLY >= limit))
    return rate
