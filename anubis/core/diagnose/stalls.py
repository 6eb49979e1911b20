"""Jobs that are said to stand still: which of it is news, and when a silent log says so.

A stall is diagnosed once. Who watches a job knows when it worked last, so they tell a stall only if
it began after all that were told before; of people's words within an hour the first counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

SAME_S = 60.0  # two watchers see the same stall begin within so long
AGAIN_S = 3600.0  # people speak of the same stall within so long
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
    """`earlier`: of the same job."""
    return all(since > stall.at + SAME_S for stall in earlier)


def silent_since(
    written_at: float, began: float, now: float, limit_s: float, earlier: Collection[ToldStall]
) -> float | None:
    """Since when a job wrote nothing to its logs, if that is longer than it usually is, and not
    told yet. A job that wrote on after it was said to stand still has twice the time."""
    since = max(written_at, began)
    mistaken = sum(stall.source == LOGS for stall in earlier)
    limit_s *= 2.0 ** min(mistaken, 20)
    return since if limit_s and now - since >= limit_s and is_news(since, earlier) else None


def undiagnosed(
    stalls: Iterable[ToldStall], diagnosed: Mapping[str, Collection[float]]
) -> list[ToldStall]:
    """Stalls of jobs that nobody has diagnosed since. `diagnosed`: when each job was."""
    last = {job: max(times) for job, times in diagnosed.items() if times}
    due = []
    for stall in sorted(stalls, key=lambda stall: stall.at):
        if stall.job not in last or stall.at > last[stall.job] + stall.repeated_s:
            due.append(stall)
            last[stall.job] = stall.at
    return due
