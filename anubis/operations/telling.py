"""What happened to nodes, as whoever owns them tells it: kept, with what follows from it for jobs,
repairs and watches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from anubis.core.errors import UsageError
from anubis.core.past.events import (
    JobAllocated,
    JobEnded,
    KeptEvent,
    NodeRemoved,
    Notice,
    RepairBegun,
    RepairDone,
)
from anubis.core.past.status import Job, Repair
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import resolve
from anubis.operations.naming import new_name
from anubis.store.history import ClusterHistory


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What became of an event."""

    id: str
    cluster: str
    is_new: bool  # told twice, it is one


def tell(
    event: KeptEvent,
    *,
    id: str = "",
    at: float | None = None,
    cluster: str | None = None,
    caller: Caller = NOBODY,
) -> Receipt:
    """Keep an event. It changes what is known of its nodes for whoever asks next.
    `id`: whoever may tell it twice gives it one. `at`: when it happened, if not now."""
    now = caller.clock()
    happened_at = now if at is None else at
    if happened_at > now:
        raise UsageError("an event cannot be told before it has happened: look at --at")
    with caller.history() as history:
        part = resolve(history, cluster, caller, event.nodes)
        notice = Notice(id=id or new_name(event.kind, now), at=happened_at, event=event)
        is_new = note(notice, part)
        return Receipt(id=notice.id, cluster=part.cluster, is_new=is_new)


def note(notice: Notice, part: ClusterHistory) -> bool:
    """First what follows from it, which may be written twice: a crash lets it be told again."""
    completed = _completed(notice, part)
    event, at = completed.event, completed.at
    match event:
        case NodeRemoved():
            part.watches.end(event.nodes, at)
        case JobAllocated() if event.job:
            job = Job(id=event.job, nodes=event.nodes, start=at, planned_s=event.duration_s)
            part.jobs.add([job])
        case JobEnded():
            part.jobs.add([_ended(event, at, part)])
        case RepairBegun():
            part.repairs.add(Repair(node=node, start=at) for node in event.nodes)
        case RepairDone():
            part.repairs.add(_done(event, at, part))
    return part.notices.add(completed)


def _completed(notice: Notice, part: ClusterHistory) -> Notice:
    """With the nodes of a job that ended: whoever tells of its end need not name them."""
    event = notice.event
    if not isinstance(event, JobEnded) or event.nodes:
        return notice
    jobs = [job for job in part.jobs.all() if job.id == event.job]
    if not jobs:
        raise UsageError(
            f'job "{event.job}" is not known to have begun: name the nodes that it ran on'
        )
    return replace(notice, event=replace(event, nodes=jobs[0].nodes))


def _ended(event: JobEnded, at: float, part: ClusterHistory) -> Job:
    jobs = [job for job in part.jobs.all() if job.id == event.job]
    begun = jobs[0] if jobs else Job(id=event.job, nodes=event.nodes, start=at)
    return replace(begun, end=max(at, begun.start))


def _done(event: RepairDone, at: float, part: ClusterHistory) -> Iterator[Repair]:
    begun = {repair.node: repair for repair in part.repairs.all() if repair.end is None}
    for node in event.nodes:
        repair = begun.get(node) or Repair(node=node, start=at)
        yield replace(repair, end=max(at, repair.start), action=event.action or repair.action)
