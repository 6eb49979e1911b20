"""Facts with a fixed meaning against their limits: an error is one, however many nodes have it.

The fleet teaches nothing here, and nobody's criterion is asked. A metric that only a limit judges
and for which the policy has none stays a fact without a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.judging.units import Unit, Units
from anubis.core.records import CriterionKey, Limit

Known = Mapping[tuple[str, str], Limit]


def by_metric(limits: Iterable[Limit]) -> Known:
    return {(limit.benchmark, limit.metric): limit for limit in limits}


def limit_of(key: CriterionKey, limits: Known) -> Limit | None:
    """The one for this very metric, else the one for its family."""
    benchmark, family = key.workload.benchmark, key.metric.partition(":")[0]
    return limits.get((benchmark, key.metric)) or limits.get((benchmark, family))


def outside(alike: Units, limit: Limit) -> Ints:
    """The positions of the units of which any sample is outside."""
    worst = np.maximum.reduceat(limit.excess(alike.values), alike.edges[alike.firsts[:-1]])
    return np.flatnonzero(worst > 0)


def sentence(unit: Unit, limit: Limit) -> str:
    """What a person acts on: the value, the limit, where it comes from, what to do."""
    value = float(unit.samples[np.argmax(limit.excess(unit.samples))])
    measure = "" if unit.metric.unit == "1" else f" {unit.metric.unit}"
    hint = f": {limit.action}" if limit.action else ""
    return (
        f"{unit.key.metric} on {unit.device} is {value:.4g}{measure}, limit {limit} "
        f"({limit.source}){hint}"
    )
