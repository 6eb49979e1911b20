"""Periodic tasks of the keeper: how each ended, and when it is due next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.core.keep.periodic_tasks import PeriodicTaskEnd, PeriodicTaskRecord, PeriodicTaskState
from anubis.report.json import json_line


def sentences(standings: Iterable[PeriodicTaskState], now: float) -> Iterator[str]:
    for standing in standings:
        happened = _describe_last(standing.last, now) if standing.last else "never done"
        ahead = f"; next in {_roughly(standing.next_at - now)}" if standing.next_at else ""
        yield f"{standing.task}: {happened}{ahead}"


def _describe_last(last: PeriodicTaskRecord, now: float) -> str:
    if last.ended is None:
        again = f", for the {last.tries}. time" if last.tries > 1 else ""
        return f"runs since {_roughly(now - last.began)}{again}"
    ago = f"{_roughly(now - last.ended)} ago"
    match last.end:
        case PeriodicTaskEnd.FAILED:
            return f"failed {ago}: {last.sentence}"
        case PeriodicTaskEnd.PROPOSED:
            return f"proposed {ago}: {last.sentence}"
    return f"last {ago}: {last.sentence}"


def _roughly(seconds: float) -> str:
    if seconds >= 2 * DAY_S:
        return f"{seconds / DAY_S:.0f} days"
    return f"{seconds / HOUR_S:.0f} h" if seconds >= HOUR_S else f"{max(0, seconds) / 60:.0f} min"


@dataclass(frozen=True, kw_only=True)
class PeriodicTaskLine:
    cluster: str
    task: Literal["sweep", "criteria", "risk", "pings"]
    due: float | None
    """When it was due last; null: it was never done."""
    began: float | None
    ended: float | None
    """null: it runs, or its process died and the next turn takes it up."""
    end: Literal["done", "unchanged", "proposed", "failed"] | None
    """unchanged: nothing was worth doing; proposed: a person decides."""
    sentence: str
    campaign: str
    """The campaign of a sweep."""
    proposal: str
    """The folder of criteria or the file of a model that was proposed."""
    last_success: float | None
    """When it last ended without failing."""
    next_at: float | None
    """When it is due next; null: the policy states no times."""


def periodic_task_fields(standing: PeriodicTaskState) -> PeriodicTaskLine:
    last = standing.last
    return PeriodicTaskLine(
        cluster=standing.cluster,
        task=standing.task.value,
        due=last.due if last else None,
        began=last.began if last else None,
        ended=last.ended if last else None,
        end=last.end.value if last and last.end else None,
        sentence=last.sentence if last else "",
        campaign=last.campaign if last else "",
        proposal=last.proposal if last else "",
        last_success=standing.succeeded_at,
        next_at=standing.next_at,
    )


def periodic_task_line(standing: PeriodicTaskState) -> str:
    return json_line("periodic-task", periodic_task_fields(standing))
