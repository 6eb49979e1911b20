"""Consequences of events for jobs and repairs, one event after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from anubis.core.history.events import (
    JobAllocated,
    JobEnded,
    JobStalled,
    KeptEvent,
    RepairBegun,
    RepairDone,
)
from anubis.core.history.status import Job, Repair


class UnknownJob(Exception):
    """A job ended or stands still, and its nodes are unknown."""


def jobs_in(events: Iterable[KeptEvent]) -> set[str]:
    """Jobs that these events are about."""
    kinds = (JobAllocated, JobStalled, JobEnded)
    return {event.job for event in events if isinstance(event, kinds) and event.job}


def repaired_nodes(events: Iterable[KeptEvent]) -> set[str]:
    """Nodes with repairs among these events."""
    kinds = (RepairBegun, RepairDone)
    return {node for event in events if isinstance(event, kinds) for node in event.nodes}


class Consequences:
    """Jobs and repairs, updated event by event. `jobs` and `repairs`: the earlier ones that the
    events are about."""

    def __init__(self, jobs: Iterable[Job], repairs: Iterable[Repair]) -> None:
        self._known = {job.id: job for job in jobs}
        self._repairs = defaultdict[str, dict[float, Repair]](dict)
        for repair in repairs:
            self._repairs[repair.node][repair.start] = repair
        self.jobs: list[Job] = []  # those that began or ended
        self.repairs: list[Repair] = []

    def follow(self, event: KeptEvent, at: float) -> KeptEvent:
        """Event, completed with the nodes of a job that ended or stands still: its sender need not
        name them."""
        match event:
            case JobAllocated() if event.job:
                self._begin_job(event, at)
            case JobEnded():
                return self._end_job(event, at)
            case JobStalled():
                return replace(event, nodes=self._nodes_of(event))
            case RepairBegun():
                self.repairs += [self._begin_repair(node, at) for node in event.nodes]
            case RepairDone():
                self.repairs += [self._end_repair(event, node, at) for node in event.nodes]
        return event

    def _begin_job(self, event: JobAllocated, at: float) -> None:
        job = Job(id=event.job, nodes=event.nodes, start=at, planned_s=event.duration_s)
        self.jobs.append(self._known.setdefault(job.id, job))

    def _end_job(self, event: JobEnded, at: float) -> JobEnded:
        nodes = self._nodes_of(event)
        job = self._known.get(event.job) or Job(id=event.job, nodes=nodes, start=at)
        self._known[job.id] = replace(job, end=max(at, job.start))
        self.jobs.append(self._known[job.id])
        return replace(event, nodes=nodes)

    def _nodes_of(self, event: JobStalled | JobEnded) -> tuple[str, ...]:
        job = self._known.get(event.job)
        nodes = event.nodes or (job.nodes if job else ())
        if not nodes:
            raise UnknownJob(event.job)
        return nodes

    def _begin_repair(self, node: str, at: float) -> Repair:
        return self._repairs[node].setdefault(at, Repair(node=node, start=at))

    def _end_repair(self, event: RepairDone, node: str, at: float) -> Repair:
        """Latest open repair of the node, ended. A repair without a reported begin begins as it
        ends."""
        open_ = [repair for repair in self._repairs[node].values() if repair.end is None]
        begun = max(open_, key=attrgetter("start"), default=Repair(node=node, start=at))
        action = event.action or begun.action
        repair = replace(begun, end=max(at, begun.start), action=action)
        self._repairs[node][repair.start] = repair
        return repair
