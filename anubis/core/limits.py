"""Facts with a fixed meaning against their limits: an error is one, however many nodes have it.

The fleet teaches nothing here, and nobody's criterion is asked. A metric that only a limit judges
and for which the policy has none stays a fact without a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from anubis.core.records import CriterionKey, Limit, Samples
from anubis.core.units import Ints, Unit, Units

Known = Mapping[tuple[str, str], Limit]


def by_metric(limits: Iterable[Limit]) -> Known:
    return {(limit.benchmark, limit.metric): limit for limit in limits}


def limit_of(key: CriterionKey, limits: Known) -> Limit | None:
    """The one for this very metric, else the one for its family."""
    benchmark, family = key.workload.benchmark, key.metric.partition(":")[0]
    return limits.get((benchmark, key.metric)) or limits.get((benchmark, family))


def excess(samples: Samples, limit: Limit) -> Samples:
    """How far outside each sample is; 0 or less where it is within."""
    beyond = np.full(samples.shape, -np.inf)
    if limit.equals is not None:
        beyond = np.abs(samples - limit.equals)
    if limit.at_most is not None:
        beyond = np.maximum(beyond, samples - limit.at_most)
    if limit.at_least is not None:
        beyond = np.maximum(beyond, limit.at_least - samples)
    return beyond


def outside(alike: Units, limit: Limit) -> Ints:
    """The positions of the units of which any sample is outside."""
    worst = np.maximum.reduceat(excess(alike.values, limit), alike.edges[alike.firsts[:-1]])
    return np.flatnonzero(worst > 0)


def sentence(unit: Unit, limit: Limit) -> str:
    """What a person acts on: the value, the limit, where it comes from, what to do."""
    value = float(unit.samples[np.argmax(excess(unit.samples, limit))])
    measure = "" if unit.metric.unit == "1" else f" {unit.metric.unit}"
    hint = f": {limit.action}" if limit.action else ""
    return (
        f"{unit.key.metric} on {unit.device} is {value:.4g}{measure}, limit {limit} "
        f"({limit.source}){hint}"
    )
