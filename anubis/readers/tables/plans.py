"""The plan of every imported campaign: steps that were run elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from anubis.core.records import Ended, Execution, Phase, PlannedEntry, Result, Step, Workload

ASSUMED_S = 1.0  # how long a step took: files do not say, and a specification must
NOTHING = Result()


def phase(workloads: Iterable[Workload]) -> Phase:
    return Phase(name="imported", entries=tuple(map(_entry, workloads)))


def step(workload: Workload, node: str, *, position: int = 0, repeat: int = 0) -> Step:
    """Return a step; `position`: of the workload in its phase."""
    return Step(
        id=f"0.{position}.{repeat}/{workload.benchmark}/{node}",
        workload=workload,
        participants=(node,),
        phase=0,
        repeat=repeat,
        timeout_s=ASSUMED_S,
        exclusive=True,
    )


def execution(
    step: Step,
    ended: Ended,
    *,
    reason: str = "",
    result: Result = NOTHING,
    started_at: float | None = None,
    duration_s: float = 0.0,
) -> Execution:
    return Execution(
        step=step,
        attempt=1,
        ended=ended,
        final=True,
        reason=reason,
        result=result,
        started_at=started_at,
        duration_s=duration_s,
    )


def _entry(workload: Workload) -> PlannedEntry:
    return PlannedEntry(
        workload=workload,
        scope="node",
        exclusive=True,
        repeats=1,
        timeout_s=ASSUMED_S,
        duration_s=ASSUMED_S,
        groups="all",
        rounds=None,
        min_nodes=1,
    )
