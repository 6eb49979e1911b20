"""Find what a cluster's keeper has left undone, for its monitoring: failed orders, late periodic
tasks, jobs that wait for a diagnosis, missing spares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anubis.core.amounts import HOUR_S
from anubis.core.keep.commands import LifeAction
from anubis.core.keep.periodic_tasks import PeriodicTask, next_due
from anubis.operations.diagnose_due import undiagnosed_since
from anubis.store.history import ClusterHistory

FAILED_LATELY_S = HOUR_S  # the keeper retries what it still wants much sooner


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    failed: tuple[LifeAction, ...] = ()  # lately
    overdue: Mapping[PeriodicTask, float] = field(default_factory=dict)  # since when
    undiagnosed: tuple[float, ...] = ()  # since when each of these jobs waits
    spares: Mapping[str, int] = field(default_factory=dict)  # that are wanted, by sku


def upkeep_of(part: ClusterHistory, now: float) -> Upkeep:
    """Upkeep of a cluster by the policy in the history, if there is one."""
    failed = tuple(part.keeping.failed_actions(now - FAILED_LATELY_S))
    kept = part.keeping.kept_by(or_none=True)
    if kept is None:
        return Upkeep(failed=failed)
    policy, succeeded = kept.policy, part.periodic_tasks.successes()
    due = {
        task: next_due(rhythm, max(kept.since, succeeded.get(task, kept.since)))
        for task, rhythm in policy.rhythms.items()
    }
    return Upkeep(
        failed=failed,
        overdue={task: at for task, at in due.items() if at <= now},
        undiagnosed=undiagnosed_since(part, now) if policy.diagnose else (),
        spares=policy.spares,
    )
