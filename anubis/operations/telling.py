"""What happened to nodes, as whoever owns them tells it: kept, with what follows from it for jobs,
repairs and watches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from anubis.core.errors import AnubisError, StoreError, UsageError
from anubis.core.past.events import (
    JobAllocated,
    JobEnded,
    KeptEvent,
    NodeAdded,
    NodeRemoved,
    Notice,
    OperatorSaid,
    Order,
    RepairBegun,
    RepairDone,
)
from anubis.core.past.status import Job, Repair
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import resolve
from anubis.operations.naming import new_name
from anubis.store.history import ClusterHistory, History


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What became of an event."""

    id: str
    cluster: str
    is_new: bool  # told twice, it is one


@dataclass(frozen=True, kw_only=True)
class Telling:
    """An event, and what whoever tells it says of it."""

    event: KeptEvent
    id: str = ""
    at: float | None = None
    cluster: str | None = None


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
    with caller.history() as history:
        (answer,) = tell_all([Telling(event=event, id=id, at=at, cluster=cluster)], history, caller)
    if isinstance(answer, AnubisError):
        raise answer
    return answer


def tell_all(
    tellings: Sequence[Telling], history: History, caller: Caller
) -> list[Receipt | AnubisError]:
    """All in one transaction, because a commit takes longer than an event: for each its receipt,
    or why it was refused. Where the history fails, none of them is kept."""
    answers: dict[int, Receipt | AnubisError] = {}
    parts: dict[str | None, ClusterHistory] = {}
    notices: defaultdict[str | None, dict[int, Notice]] = defaultdict(dict)
    with history.together():
        for place, telling in enumerate(tellings):
            name = telling.cluster
            try:
                if name not in parts:
                    parts[name] = resolve(history, name, caller, telling.event.nodes)
                notices[name][place] = _followed(_notice(telling, caller.clock()), parts[name])
            except StoreError:
                raise
            except AnubisError as error:
                answers[place] = error
        for name, placed in notices.items():
            are_new = parts[name].notices.add_all(list(placed.values()))
            for (place, notice), is_new in zip(placed.items(), are_new, strict=True):
                cluster = parts[name].cluster
                answers[place] = Receipt(id=notice.id, cluster=cluster, is_new=is_new)
    return [answers[place] for place in range(len(tellings))]


def _notice(telling: Telling, now: float) -> Notice:
    happened_at = now if telling.at is None else telling.at
    if happened_at > now:
        raise UsageError("an event cannot be told before it has happened: look at --at")
    name = telling.id or new_name(telling.event.kind, now)
    return Notice(id=name, at=happened_at, event=telling.event)


def note(notice: Notice, part: ClusterHistory) -> bool:
    """Whether it is new."""
    return part.notices.add(_followed(notice, part))


def _followed(notice: Notice, part: ClusterHistory) -> Notice:
    """First what follows from it, which may be written twice: a crash lets it be told again."""
    completed = _completed(notice, part)
    event, at = completed.event, completed.at
    match event:
        case NodeAdded() | OperatorSaid(order=Order.RETURN):
            part.watches.begin(event.nodes, at)
        case NodeRemoved() | OperatorSaid(order=Order.RETIRE):
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
    return completed


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
