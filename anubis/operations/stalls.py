"""Keep reports that a running job stands still, once for each stall."""

from __future__ import annotations

from anubis.core.diagnose.stalls import WATCH, ToldStall, is_news
from anubis.core.history.events import EventRecord, JobStalled
from anubis.operations.tell import note
from anubis.store.history import ClusterHistory


def note_stall(
    job: str, nodes: tuple[str, ...], since: float, reason: str, part: ClusterHistory
) -> None:
    """Keep a stall found in what the job's nodes reported, if it is new."""
    if is_news(since, stalls_by_job(part).get(job, [])):
        note([stall_event_record(job, nodes, since, WATCH, reason)], part)


def stalls_by_job(part: ClusterHistory) -> dict[str, list[ToldStall]]:
    """Reported stalls by job, in the order of time."""
    by_job: dict[str, list[ToldStall]] = {}
    for event_record in part.event_records.read_kind(JobStalled):
        if isinstance(event := event_record.event, JobStalled):
            stall = ToldStall(
                job=event.job,
                at=event_record.at,
                source=event.source,
                nodes=event.nodes,
                reason=event.reason,
            )
            by_job.setdefault(event.job, []).append(stall)
    return by_job


def stall_event_record(
    job: str, nodes: tuple[str, ...], since: float, source: str, reason: str
) -> EventRecord:
    event = JobStalled(nodes=nodes, job=job, source=source, reason=reason)
    return EventRecord(
        id=f"job {job} has made no progress since {since:.0f}", at=since, event=event
    )
