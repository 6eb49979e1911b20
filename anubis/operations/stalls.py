"""Keep reports that a running job stands still, once for each stall."""

from __future__ import annotations

from anubis.core.diagnose.stalls import WATCH, ToldStall, is_news
from anubis.core.history.events import JobStalled, Notice
from anubis.operations.tell import note
from anubis.store.history import ClusterHistory


def note_stall(
    job: str, nodes: tuple[str, ...], since: float, reason: str, part: ClusterHistory
) -> None:
    """Keep a stall found in what the job's nodes reported, if it is new."""
    if is_news(since, stalls_by_job(part).get(job, [])):
        note([stall_notice(job, nodes, since, WATCH, reason)], part)


def stalls_by_job(part: ClusterHistory) -> dict[str, list[ToldStall]]:
    """Reported stalls by job, in the order of time."""
    by_job: dict[str, list[ToldStall]] = {}
    for notice in part.notices.read_kind(JobStalled):
        if isinstance(event := notice.event, JobStalled):
            stall = ToldStall(
                job=event.job,
                at=notice.at,
                source=event.source,
                nodes=event.nodes,
                reason=event.reason,
            )
            by_job.setdefault(event.job, []).append(stall)
    return by_job


def stall_notice(
    job: str, nodes: tuple[str, ...], since: float, source: str, reason: str
) -> Notice:
    event = JobStalled(nodes=nodes, job=job, source=source, reason=reason)
    return Notice(id=f"job {job} stands still since {since:.0f}", at=since, event=event)
