"""Find units that other programs slowed: the time that these took is no evidence against the host.

Programs report, for each sample, the largest share of its time that others may have cost it
(`benchmarks/kit/possession.py`). A unit is defective only if it falls short with that time given
back. Otherwise it is unknown and measured again. If it was good one time, the other is excused. A
host that is slow while its program has its processors gets nothing back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.judge.criteria import shortfalls, to_similarity
from anubis.core.judge.second_measurements import GOOD, judge_by_both_times, judge_each_time
from anubis.core.judge.siblings import number_nodes
from anubis.core.judge.units import SAMPLED, Units, are_usable
from anubis.core.records import Criterion, Execution, Result, Samples, Workload

TAKEN = "taken_by_others"  # in a document's environment: shares by metric and device
CODE = "FOREIGN-LOAD"
MOST = 0.999  # given back: a sample that others had wholly shows nothing


@dataclass(frozen=True)
class ForeignLoad:
    """The results of nodes on which a program noticed others, in the order of their runs."""

    runs: Mapping[tuple[str, Workload], Sequence[Result]]

    @classmethod
    def from_executions(cls, executions: Iterable[Execution]) -> Self:
        runs: defaultdict[tuple[str, Workload], list[Result]] = defaultdict(list)
        noticed = set()
        for run in executions:
            if run.ended in SAMPLED and len(run.step.participants) == 1:
                place = run.step.participants[0], run.step.workload
                runs[place].append(run.result)
                if isinstance(run.result.environment.get(TAKEN), dict):
                    noticed.add(place)
        return cls({place: runs[place] for place in noticed})

    def shares(self, alike: Units) -> Samples | None:
        """The share that others may have cost each value; None if nothing is known of any."""
        shares = np.zeros(alike.values.size)
        for i, names in enumerate(alike.participants if self.runs else ()):
            results = self.runs.get((names[0], alike.key.workload)) if len(names) == 1 else None
            if results is None:
                continue
            of_unit = _shares_of(results, alike.key.metric, alike.devices[i])
            begin, end = alike.edges[alike.firsts[[i, i + 1]]]
            if of_unit.size == end - begin:
                shares[begin:end] = of_unit
        return shares if shares.any() else None


def mean_shares(executions: Iterable[Execution]) -> Mapping[str, float]:
    """The mean share of its time that others may have cost each program on a typical node."""
    by_run: defaultdict[str, list[float]] = defaultdict(list)
    for run in executions:
        if run.ended in SAMPLED and len(run.step.participants) == 1:
            result = run.result
            taken = result.environment.get(TAKEN)
            shares = [
                _read(taken, series.metric, series.device, series.samples.size)
                for series in (result.series if isinstance(taken, dict) else ())
            ]
            means = (float(share.mean()) for share in shares if share.size)
            by_run[run.step.workload.benchmark].append(max(means, default=0.0))
    return {name: float(np.median(of_runs)) for name, of_runs in by_run.items()}


def _shares_of(results: Iterable[Result], metric: str, device: str) -> Samples:
    """The shares of one metric on one device, run after run; 0 if a program noticed nothing."""
    return np.concatenate(
        [
            _read(result.environment.get(TAKEN), metric, device, series.samples.size)
            for result in results
            for series in result.whole_series
            if (series.metric, series.device) == (metric, device)
            and are_usable(series.samples, may_be_0=False).all()
        ]
        or [np.empty(0)]
    )


def _read(taken: object, metric: str, device: str, samples: int) -> Samples:
    """The shares in a document, which a node may have written as it likes."""
    for name in (metric, device):
        taken = taken.get(name) if isinstance(taken, dict) else None
    shares = taken if isinstance(taken, (list, tuple)) and len(taken) == samples else ()
    if all(isinstance(share, (int, float)) and 0 <= share <= 1 for share in shares):
        return np.array(shares or [0.0] * samples, dtype=np.float64)
    return np.zeros(samples)


def give_back(alike: Units, shares: Samples, normal: float | None = None) -> Units:
    """The units as they would be if others had taken nothing, in the best case: no sample becomes
    better than normal, if that is given."""
    kept, values = 1 - np.minimum(shares, MOST), alike.values
    if alike.metric.direction == "lower":
        best = np.minimum(values, np.maximum(values * kept, normal or 0.0))
    else:
        best = np.maximum(values, np.minimum(values / kept, normal or np.inf))
    return replace(alike, values=best)


@dataclass(frozen=True)
class UnderLoad:
    """The units that fall short only because of others, as far as is known."""

    doubts: Mapping[int, str]
    excused: Flags  # they were good when others took little


def judge_under_load(
    alike: Units,
    criterion: Criterion,
    planned_runs: int,
    similarity: Samples,
    in_doubt: Iterable[int],
    shares: Samples | None,
) -> UnderLoad:
    """Find the units that fall short only because of others.

    In `similarity`, that of the good time replaces the one of an excused unit. Units that are
    `in_doubt` anyway stay so unless they are excused."""
    excused = np.zeros(len(alike), dtype=bool)
    if shares is None or criterion.direction == "either":
        return UnderLoad({}, excused)
    begins, ends = alike.edges[alike.firsts[:-1]], alike.edges[alike.firsts[1:]]
    cost = np.add.reduceat(shares, begins) / (ends - begins)
    short = np.flatnonzero((similarity <= criterion.alpha) & (cost > 0))
    if not short.size:
        return UnderLoad({}, excused)
    at_best_units = give_back(alike, shares, float(np.median(criterion.reference)))
    owners = number_nodes(alike.participants)
    best = to_similarity(
        shortfalls(at_best_units.samples, criterion, owners).shortfall(criterion), criterion
    )
    at_best = judge_by_both_times(at_best_units, criterion, planned_runs, best, None)
    doubts = {}
    for i in short.tolist():
        passes = best[i] > criterion.alpha
        good = _good_time(alike, i, criterion, planned_runs) if passes else None
        if good is not None:
            excused[i], similarity[i] = True, good
        elif i not in in_doubt and (passes or i in at_best.reasons):
            doubts[i] = f"other programs may have cost it {cost[i]:.0%} of the time"
    return UnderLoad(doubts, excused)


def _good_time(alike: Units, i: int, criterion: Criterion, planned_runs: int) -> float | None:
    """The similarity of the better time, if the unit was measured again and was good once."""
    unit = alike[i]
    if len(unit.repeats) <= planned_runs:
        return None
    times = judge_each_time([unit], criterion, planned_runs)
    better = max(float(to_similarity(t.suspicion(criterion), criterion)[0]) for t in times)
    return better if 1 - better <= GOOD * (1 - criterion.alpha) else None
