"""Facts with a fixed meaning against their limits: an error is an error, on however many nodes.

Nothing here is learned from the fleet, and no criterion is needed. A metric that only a limit
judges gets no verdict if the policy sets no limit. The remedy for a verdict follows from its code:
the action of a limit, else the table of the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.judge.sentences import (
    Finding,
    find_wrong_answers,
    is_state,
    metric_words,
    place_clause,
    unit_clause,
)
from anubis.core.judge.units import Units
from anubis.core.judge.verdicts import spelled_code
from anubis.core.records import BenchmarkSpec, Limit, Policy, Remedy, Result, Series

EVERY_PROGRAM = "*"  # instead of a benchmark
ANSWERS = "agreement"  # metric: right answers need no norm, so that its limit suffices

Limits = Mapping[tuple[str, str], Limit]


def limits_by_metric(limits: Iterable[Limit]) -> Limits:
    return {(limit.benchmark, limit.metric): limit for limit in limits}


def limit_of(benchmark: str, metric: str, limits: Limits) -> Limit | None:
    """The limit of this metric, else the one of its family; the program's own limit precedes one
    for all programs."""
    family = metric.partition(":")[0]
    places = product((benchmark, EVERY_PROGRAM), (metric, family))
    return next((limits[place] for place in places if place in limits), None)


def positions_outside(alike: Units, limit: Limit) -> Ints:
    """The positions of the units with any sample outside the limit."""
    worst = np.maximum.reduceat(limit.excess(alike.values), alike.edges[alike.firsts[:-1]])
    return np.flatnonzero(worst > 0)


def find_excess(benchmark: str, series: Series, unit: str, limit: Limit) -> Finding:
    """The finding for the operator: the value, the limit, and its source. A state has no value, and
    wrong answers are counted."""
    value = float(series.samples[np.argmax(limit.excess(series.samples))])
    words = metric_words(benchmark, series.metric)
    place = place_clause(series.device)
    if is_state(benchmark, series.metric):
        return Finding(reason=f"{words}{place} ({limit.source})", cause=words)
    if series.metric.partition(":")[0] == ANSWERS and 0 < value < 1:
        return find_wrong_answers(benchmark, series.metric, series.device, value)
    against = f"{value:.4g} instead of {limit}{unit_clause(unit)} ({limit.source})"
    return Finding(
        reason=f"{words or series.metric}{place}: {against}",
        cause=f"{words or f'{benchmark}: {series.metric}'} outside the limit ({limit})",
    )


def sentences_outside(
    result: Result, spec: BenchmarkSpec, limits: Iterable[Limit]
) -> Iterator[str]:
    """Yield a sentence for each device of a run that is outside a limit (for runs that no campaign
    judges)."""
    bounds = limits_by_metric(limits)
    for series in result.series:
        metric, limit = spec.metric(series.metric), limit_of(spec.name, series.metric, bounds)
        if metric and limit and (limit.excess(series.samples) > 0).any():
            yield find_excess(spec.name, series, metric.unit, limit).reason


def remedy_of(code: str, policy: Policy) -> Remedy | None:
    """The remedy for a code; None if the policy has none."""
    fitting = [remedy for remedy in policy.remedies if _fits(code, remedy)]
    by_table = fitting[-1] if fitting else None
    action = _action_of_limit(code, policy)
    if not action:
        return by_table
    return replace(by_table or Remedy(codes=(), action=""), codes=(code,), action=action)


def _fits(code: str, remedy: Remedy) -> bool:
    return any(fnmatchcase(code, pattern) for pattern in remedy.codes)


def _action_of_limit(code: str, policy: Policy) -> str:
    """The action of the limit with this code. A limit of the program precedes one for all programs;
    one of the metric precedes one of its family."""
    limited = [limit for limit in policy.limits if limit.action and _covers(limit, code)]
    nearest = max(limited, key=_nearness, default=None)
    return nearest.action if nearest else ""


def _nearness(limit: Limit) -> tuple[bool, int]:
    return limit.benchmark != EVERY_PROGRAM, len(limit.metric)


def _covers(limit: Limit, code: str) -> bool:
    program = code.partition(".")[0] if limit.benchmark == EVERY_PROGRAM else limit.benchmark
    limited = spelled_code(program, limit.metric)
    return code == limited or code.startswith(f"{limited}.")
