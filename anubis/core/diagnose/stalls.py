"""Stalls of jobs as they are reported: which reports are news, and when a silent log is a stall.

A stall is diagnosed once. A watcher knows when the job last worked, so its report is new only if
the stall began after all stalls that were reported before. Of the reports of people within an hour
only the first counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from anubis.core.amounts import HOUR_S

SAME_S = 60.0  # two watchers date the begin of the same stall no further apart
AGAIN_S = HOUR_S  # people report the same stall again within so long
WATCH, LOGS = "watch", "logs"  # sources that know when a job worked last


@dataclass(frozen=True, kw_only=True)
class ToldStall:
    job: str
    at: float
    source: str
    nodes: tuple[str, ...] = ()
    reason: str = ""

    @property
    def repeated_s(self) -> float:
        return SAME_S if self.source in (WATCH, LOGS) else AGAIN_S


def is_news(since: float, earlier: Iterable[ToldStall]) -> bool:
    """Return whether the job has `earlier` stalls only from before this one."""
    return all(since > stall.at + SAME_S for stall in earlier)


def silence_begin(
    written_at: float, began: float, now: float, limit_s: float, earlier: Collection[ToldStall]
) -> float | None:
    """Time since which a job has written nothing to its logs, if its silence exceeds the limit and
    was not reported yet. The limit doubles with each reported silence after which the job wrote
    on."""
    since = max(written_at, began)
    mistaken = sum(stall.source == LOGS for stall in earlier)
    limit_s *= 2.0 ** min(mistaken, 20)
    return since if limit_s and now - since >= limit_s and is_news(since, earlier) else None


def undiagnosed_stalls(
    stalls: Iterable[ToldStall], diagnosed: Mapping[str, Collection[float]]
) -> list[ToldStall]:
    """Stalls of jobs that were not diagnosed afterwards. `diagnosed`: the times of each job's
    diagnoses."""
    last = {job: max(times) for job, times in diagnosed.items() if times}
    due = []
    for stall in sorted(stalls, key=lambda stall: stall.at):
        if stall.job not in last or stall.at > last[stall.job] + stall.repeated_s:
            due.append(stall)
            last[stall.job] = stall.at
    return due
