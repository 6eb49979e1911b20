"""Jobs to look at now: running jobs repeatedly, a job that ended once more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anubis.core.amounts import DAY_S

KEPT_S = DAY_S  # for which the look at a job that ended is kept
EARLY_S = 60.0  # rounds begin about each minute: look before the interval is over, not after it


@dataclass(frozen=True, kw_only=True)
class KeptLook:
    """The last look at a job."""

    job: str
    at: float  # the time of the attempt
    nodes: int
    suspects: int = 0
    anomalies: int = 0
    job_ended: bool = False  # so there is no further look
    trouble: str = ""  # why nothing could be seen; empty: it was seen


@dataclass(frozen=True, kw_only=True)
class WatchedJob:
    """A job to look at."""

    id: str
    nodes: tuple[str, ...]
    began_at: float = -math.inf
    ended_at: float | None = None  # None: it runs


def due_jobs(
    jobs: Iterable[WatchedJob],
    looks: Mapping[str, KeptLook],
    now: float,
    *,
    interval_s: float,
    pull_s: float,
) -> list[WatchedJob]:
    """Jobs that are due, those with the oldest look first."""
    due = [job for job in jobs if _is_due(job, looks.get(job.id), now, interval_s, pull_s)]
    return sorted(due, key=lambda job: (looks[job.id].at if job.id in looks else 0.0, job.id))


def _is_due(
    job: WatchedJob, last: KeptLook | None, now: float, interval_s: float, pull_s: float
) -> bool:
    if job.ended_at is not None:
        is_recent = now - job.ended_at <= pull_s
        return is_recent and not (last and last.job_ended)
    if last is None or last.at > now:  # dated by a wrong clock
        return True
    return now - last.at >= max(0.0, interval_s - EARLY_S)


def gone_jobs(
    jobs: Iterable[WatchedJob], looks: Iterable[KeptLook], now: float, *, pull_s: float
) -> list[str]:
    """Jobs whose last look is no longer of use: they ended long ago, or are unknown."""
    ended_at = {job.id: job.ended_at for job in jobs}
    kept_s = {True: KEPT_S, False: pull_s}  # by whether it was the look after the end
    return [
        look.job
        for look in looks
        if look.job not in ended_at or now - (ended_at[look.job] or now) > kept_s[look.job_ended]
    ]
