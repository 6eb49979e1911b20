"""The units of several campaigns as one: what a node measured on many days is one unit of it.

Which campaigns are asked for is decided by who calls; here they are only put together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from anubis.core.errors import CriteriaError
from anubis.core.judgement import Unit
from anubis.core.records import CriterionKey, Workload


def pool(campaigns: Iterable[Sequence[Unit]]) -> list[Unit]:
    """One unit per (key, participants, device), its repeats in the order of the campaigns."""
    pooled: dict[tuple[CriterionKey, tuple[str, ...], str], Unit] = {}
    for measured in campaigns:
        for unit in measured:
            place = (unit.key, unit.participants, unit.device)
            known = pooled.get(place)
            if known is None:
                pooled[place] = Unit(*place, unit.metric, list(unit.repeats))
                continue
            before = (known.metric.unit, known.metric.direction)
            now = (unit.metric.unit, unit.metric.direction)
            if before != now:
                raise CriteriaError(
                    f"{unit.key.workload} {unit.key.metric} was {before[0]} ({before[1]} is "
                    f"better) and became {now[0]} ({now[1]} is better) without a new version: "
                    "learn from the later campaigns only"
                )
            known.repeats += unit.repeats
    return list(pooled.values())


def relevant(
    units: Iterable[Unit], workloads: Collection[Workload], excluded: Collection[str]
) -> list[Unit]:
    """Those of the workloads, and of groups in which nobody is excluded."""
    return [
        unit
        for unit in units
        if unit.key.workload in workloads and not any(n in excluded for n in unit.participants)
    ]
