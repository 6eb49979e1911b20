"""Stalls of jobs that are due for a diagnosis, and jobs whose trouble no diagnosis explained.

A stall is diagnosed once. A watcher knows when the job last worked, so its report is new only if
the stall began after all stalls that were reported before. Of the reports of people within an hour
only the first counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.core.diagnose.cures import PastDiagnosis
from anubis.core.diagnose.facts import FactKind

SAME_S = 60.0  # two watchers date the begin of the same stall no further apart
AGAIN_S = HOUR_S  # people report the same stall again within so long
UNEXPLAINED_S = DAY_S  # in which failures of several jobs are compared
LASTED = (FactKind.STANDSTILL, FactKind.MISSING, FactKind.SLOWED)  # codes of hangs and slowness
WATCH, LOGS = "watch", "logs"  # sources that know when a job worked last


@dataclass(frozen=True, kw_only=True)
class ReportedStall:
    job: str
    at: float
    source: str
    nodes: tuple[str, ...] = ()
    reason: str = ""

    @property
    def repeated_s(self) -> float:
        return SAME_S if self.source in (WATCH, LOGS) else AGAIN_S


def is_news(since: float, earlier: Iterable[ReportedStall]) -> bool:
    """Return whether the job has `earlier` stalls only from before this one."""
    return all(since > stall.at + SAME_S for stall in earlier)


def silence_begin(
    written_at: float, began: float, now: float, limit_s: float, earlier: Collection[ReportedStall]
) -> float | None:
    """Time since which a job has written nothing to its logs, if its silence exceeds the limit and
    was not reported yet. The limit doubles with each reported silence after which the job wrote
    on."""
    since = max(written_at, began)
    mistaken = sum(stall.source == LOGS for stall in earlier)
    limit_s *= 2.0 ** min(mistaken, 20)
    return since if limit_s and now - since >= limit_s and is_news(since, earlier) else None


def undiagnosed_stalls(
    stalls: Iterable[ReportedStall], diagnosed: Mapping[str, Collection[float]]
) -> list[ReportedStall]:
    """Stalls of jobs that were not diagnosed afterwards. `diagnosed`: the times of each job's
    diagnoses."""
    last = {job: max(times) for job, times in diagnosed.items() if times}
    due = []
    for stall in sorted(stalls, key=lambda stall: stall.at):
        if stall.job not in last or stall.at > last[stall.job] + stall.repeated_s:
            due.append(stall)
            last[stall.job] = stall.at
    return due


def unexplained(
    job: str,
    diagnoses: Iterable[PastDiagnosis],
    nodes_of: Mapping[str, Sequence[str]],
    *,
    has_stalled: bool,
) -> tuple[tuple[str, ...], str] | None:
    """Nodes among which the fault must be that troubled a job, and its last diagnosis; None if a
    culprit is known. A failure may come from the job itself, so it takes two: then the fault is at
    nodes that both jobs had."""
    by_job: defaultdict[str, list[PastDiagnosis]] = defaultdict(list)
    for diagnosis in diagnoses:
        by_job[diagnosis.job].append(diagnosis)
    if not (troubles := _unexplained(by_job.pop(job, []))):
        return None
    nodes = tuple(nodes_of[job])
    if not has_stalled and all(trouble.code not in LASTED for trouble in troubles):
        failed = [name for name, of_job in by_job.items() if _unexplained(of_job)]
        shared = [tuple(n for n in nodes if n in nodes_of.get(name, ())) for name in failed]
        nodes = max(shared, key=len, default=())
    return (nodes, troubles[-1].headline) if len(nodes) > 1 else None


def _unexplained(of_job: Sequence[PastDiagnosis]) -> list[PastDiagnosis]:
    """Diagnoses of one job with trouble and no culprit; none if another one knows a culprit."""
    if any(diagnosis.is_explained for diagnosis in of_job):
        return []
    return [diagnosis for diagnosis in of_job if diagnosis.is_unexplained]
