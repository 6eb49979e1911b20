"""Track records of benchmarks: what each has found, and how well it repeats (Table 6 of the ANUBIS
paper)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from anubis.core.history.defects import Defect
from anubis.core.records import CriteriaSet, Criterion


@dataclass(frozen=True, kw_only=True)
class Repeatability:
    """Similarity of the healthy nodes in the metrics of a benchmark."""

    mean: float
    lowest: float
    metric: str  # the one that repeats worst


@dataclass(frozen=True, kw_only=True)
class TrackRecord:
    """Record of one benchmark."""

    benchmark: str
    nodes: tuple[str, ...]  # on which it found a defect
    alone: tuple[str, ...]  # on which it found a defect that no other benchmark found
    defects: int  # those that it found
    tried: int  # defects on whose node it was measured at that time
    coverage: float | None  # the share that it found of all known defects; None: none is known
    repeatability: Repeatability | None  # None: nothing was learned


def track_records(
    defects: Collection[Defect],
    benchmarks: Iterable[str],
    criteria: Iterable[Sequence[CriteriaSet]],
) -> list[TrackRecord]:
    """Track records, those with the most defects first. `benchmarks`: all that ever measured, also
    those that found nothing; `criteria`: of campaigns, the latest first."""
    finders = {name for defect in defects for name in defect.found_by}
    names = sorted({*benchmarks, *finders})
    repeats = repeatabilities(names, criteria)
    records = [_record(name, defects, repeats.get(name)) for name in names]
    return sorted(records, key=lambda record: (-record.defects, -len(record.nodes)))


def _record(
    benchmark: str, defects: Collection[Defect], repeatability: Repeatability | None
) -> TrackRecord:
    found_here = [defect for defect in defects if benchmark in defect.found_by]
    alone = [defect for defect in found_here if len(defect.found_by) == 1]
    return TrackRecord(
        benchmark=benchmark,
        nodes=_nodes(found_here),
        alone=_nodes(alone),
        defects=len(found_here),
        tried=len(found_here) + sum(benchmark in defect.tried for defect in defects),
        coverage=len(found_here) / len(defects) if defects else None,
        repeatability=repeatability,
    )


def _nodes(defects: Iterable[Defect]) -> tuple[str, ...]:
    return tuple(sorted({defect.node for defect in defects}))


def repeatabilities(
    benchmarks: Collection[str], criteria: Iterable[Sequence[CriteriaSet]]
) -> dict[str, Repeatability]:
    """Repeatability of each benchmark by its latest criteria. Reads no more of `criteria` than
    needed."""
    missing, learned = set(benchmarks), dict[str, Repeatability]()
    for sets in criteria:
        if not missing:
            break
        of_benchmark: dict[str, list[Criterion]] = {}
        for criterion in (
            criterion for criteria_set in sets for criterion in criteria_set.criteria
        ):
            of_benchmark.setdefault(criterion.key.workload.benchmark, []).append(criterion)
        for name in missing & of_benchmark.keys():
            if repeatability := _repeatability(of_benchmark[name]):
                learned[name] = repeatability
        missing -= learned.keys()
    return learned


def _repeatability(criteria: Iterable[Criterion]) -> Repeatability | None:
    """Repeatability, or None if no metric was measured twice."""
    values = [
        (criterion.repeatability, criterion.key.metric)
        for criterion in criteria
        if criterion.repeatability is not None
    ]
    if not values:
        return None
    lowest, metric = min(values)
    return Repeatability(mean=fmean(value for value, _ in values), lowest=lowest, metric=metric)
