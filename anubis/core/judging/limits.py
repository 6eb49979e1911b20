"""Facts with a fixed meaning against their limits: an error is an error, on however many nodes.

Nothing here is learned from the fleet, and no criterion is needed. A metric that only a limit
judges stays a fact without a verdict where the policy sets no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.judging.units import Unit, Units
from anubis.core.records import CriterionKey, Limit

EVERY_PROGRAM = "*"  # instead of a benchmark

Limits = Mapping[tuple[str, str], Limit]


def by_metric(limits: Iterable[Limit]) -> Limits:
    return {(limit.benchmark, limit.metric): limit for limit in limits}


def limit_of(key: CriterionKey, limits: Limits) -> Limit | None:
    """The limit for this very metric, else the one for its family; the program's own before one
    that is for all."""
    family = key.metric.partition(":")[0]
    places = product((key.workload.benchmark, EVERY_PROGRAM), (key.metric, family))
    return next((limits[place] for place in places if place in limits), None)


def outside(alike: Units, limit: Limit) -> Ints:
    """The positions of the units with any sample outside the limit."""
    worst = np.maximum.reduceat(limit.excess(alike.values), alike.edges[alike.firsts[:-1]])
    return np.flatnonzero(worst > 0)


def sentence(unit: Unit, limit: Limit) -> str:
    """What an operator looks into: the value, the limit, and where it comes from."""
    value = float(unit.samples[np.argmax(limit.excess(unit.samples))])
    measure = "" if unit.metric.unit == "1" else f" {unit.metric.unit}"
    return (
        f"{unit.key.metric} on {unit.device} is {value:.4g}{measure}, limit {limit} "
        f"({limit.source})"
    )
