"""A cluster at work, event by event: jobs queue for nodes, nodes fail, a policy tests them.

Jobs and free nodes queue, first come, first served. Jobs get as many nodes as there are besides the
spares. The spares, the hot buffer, replace nodes that failed or were found defective, until as many
are in repair. Incidents strike nodes in any state except repair. The job of such a node continues
where it stopped, or at its last checkpoint, as soon as the node is replaced.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from anubis.lab.study.incidents import Histories, Hours, Incidents, LatentDefect
from anubis.lab.study.traces import TracedJob

WORKING, STALLED, VALIDATING, REPAIR, FREE, HELD = range(6)


class NodeTimes:
    """Time that each node spent in each state."""

    def __init__(self, nodes: int) -> None:
        self._state = [FREE] * nodes
        self._since_h = [0.0] * nodes
        self._until_h = [0.0] * nodes  # of a validation, after which it is held
        self._spent_h = [[0.0] * nodes for _ in range(6)]

    def enter(self, node: int, state: int, now_h: float, until_h: float = 0.0) -> None:
        before, since_h = self._state[node], self._since_h[node]
        if before == VALIDATING and self._until_h[node] < now_h:
            self._spent_h[HELD][node] += now_h - self._until_h[node]
            self._spent_h[VALIDATING][node] += self._until_h[node] - since_h
        else:
            self._spent_h[before][node] += now_h - since_h
        self._state[node], self._since_h[node], self._until_h[node] = state, now_h, until_h

    def total(self, now_h: float) -> list[float]:
        """Sum of each state over the nodes."""
        for node, state in enumerate(self._state):
            self.enter(node, state, now_h, self._until_h[node])
        return [math.fsum(spent) for spent in self._spent_h]


@dataclass(frozen=True, kw_only=True)
class Site:
    """Size of the cluster, and durations."""

    nodes: int
    spares: int
    span_h: float
    durations_h: tuple[float, ...]  # of each benchmark
    incident_repair_h: float  # mean
    defect_repair_h: float  # mean, if a benchmark has found the defect
    shows_h: float | None  # time before its incident in which a defect can be found; None: any that
    # would strike during a job can be found at the job's start, which is the paper's assumption
    catch: float  # share of those that the right benchmark finds
    checkpoint_h: float  # an incident loses the work since the last one; 0: it loses none


class StudiedPolicy(Protocol):
    """Chooses the benchmarks to run on nodes that a job is about to get."""

    @property
    def knows_all(self) -> bool:
        """Return whether no incident takes it by surprise: the node is replaced in time, and soon
        repaired."""

    def choose(
        self, nodes: Sequence[int], hours: float, now_h: float, histories: Histories
    ) -> Sequence[int]:
        """A set of benchmarks, as bits, for each of the nodes. `hours`: time for which the job
        wants them."""


@dataclass(frozen=True, kw_only=True)
class PolicyOutcome:
    """Outcome of one policy. Hours are sums over all nodes."""

    nodes: int
    span_h: float
    working_h: float
    lost_h: float  # working hours that an incident undid, or that a slow job wasted
    slow_h: float  # of them: wasted by slow jobs
    stalled_h: float  # in a job that hangs, is searched or begins again
    validating_h: float
    repair_h: float
    idle_h: float  # free, or waiting for the other nodes of their job
    spare_h: float  # free, in the hot buffer
    incidents: int
    hits: int  # incidents that interrupted work, or slowed it
    restarts: int  # of jobs that a fault had stopped
    alarms: int  # sound nodes that were tested as suspects, or called defective
    repaired_early: int  # defects that were repaired before they became incidents
    queries: int  # questions to the policy about a node
    validations: int  # each of one node
    too_large: int  # jobs that can never run here
    done_h: Hours = field(repr=False)  # of each job's duration
    first_h: Hours = field(repr=False)  # when each job first worked; nan: never
    finished_h: Hours = field(repr=False)  # when each job was done; nan: not yet
    working: tuple[Hours, Hours] = field(repr=False)  # times, and nodes working from then on


class StudiedJob:
    """A job that has been given nodes."""

    __slots__ = (
        "alarm",
        "missing",
        "nodes",
        "number",
        "pace",
        "rejected",
        "unchecked",
        "worked_since_h",
    )

    def __init__(self, number: int, nodes: int) -> None:
        self.number = number
        self.missing = nodes
        self.nodes: list[int] = []
        self.unchecked: list[int] = []  # nodes that the policy was not asked about yet
        self.rejected: list[tuple[int, LatentDefect | None]] = []  # by the running validation
        self.worked_since_h: float | None = None
        self.alarm = 0  # the number of its next event; earlier ones are void
        self.pace = 1.0


AnyJob = TypeVar("AnyJob", bound=StudiedJob)


def run(
    site: Site, jobs: Sequence[TracedJob], incidents: Incidents, policy: StudiedPolicy
) -> PolicyOutcome:
    """Run a cluster in which each fault is known at once."""
    return StudiedCluster(site, jobs, incidents, policy, StudiedJob).run()


class StudiedCluster(Generic[AnyJob]):
    """A cluster in which each fault is known at once, and its node replaced."""

    def __init__(
        self,
        site: Site,
        jobs: Sequence[TracedJob],
        incidents: Incidents,
        policy: StudiedPolicy,
        new_job: Callable[[int, int], AnyJob],
    ) -> None:
        """Prepare a run. `new_job`: makes a job of its number and its nodes."""
        self._new_job = new_job
        self._site, self._jobs, self._incidents, self._policy = site, jobs, incidents, policy
        self._now_h = 0.0
        self._events: list[tuple[float, int, Callable[[Any, int], None], Any]] = []
        self._numbers = count(1)
        self._queue: deque[int] = deque()
        self._short: deque[AnyJob] = deque()  # jobs that wait for a replacement
        self._free: OrderedDict[int, None] = OrderedDict()
        self._most = self._for_jobs = max(0, site.nodes - site.spares)  # nodes still for jobs
        self._job_of: list[AnyJob | None] = [None] * site.nodes
        self._defects: list[LatentDefect | None] = [None] * site.nodes
        self._drawn = [0] * site.nodes
        self._histories = incidents.histories(len(site.durations_h))
        self._times = NodeTimes(site.nodes)
        self._checks: dict[int, tuple[float, list[int]]] = {}
        self._spare_h = self._spare_until_h = 0.0
        self._working: list[tuple[float, int]] = [(0.0, 0)]
        self._lost_h = self._slow_h = 0.0
        self._incident_count = self._hits = self._repaired_early = self._too_large = 0
        self._restarts = self._alarms = 0
        self._queries = self._validations = 0
        self._done_h = np.zeros(len(jobs))
        self._first_h = np.full(len(jobs), np.nan)
        self._finished_h = np.full(len(jobs), np.nan)

    def run(self) -> PolicyOutcome:
        for node in range(self._site.nodes):
            self._put_to_service(node)
        self._expect_arrival(0)
        while self._events and self._events[0][0] < self._site.span_h:
            self._now_h, number, happen, subject = heappop(self._events)
            happen(subject, number)
        self._now_h = self._site.span_h
        return self._outcome()

    # --- events ----------------------------------------------------------------------------

    def _arrive(self, job: int, _: int) -> None:
        if self._jobs[job].nodes > self._most:
            self._too_large += 1
        else:
            self._queue.append(job)
            self._give_nodes()
        self._expect_arrival(job + 1)

    def _strike(self, struck: tuple[int, LatentDefect], _: int) -> None:
        node, defect = struck
        if self._defects[node] is not defect:
            return  # found and repaired in time
        job = self._job_of[node]
        at_work = job is not None and job.worked_since_h is not None
        surprise = not self._policy.knows_all
        if surprise:
            self._count_incident(node, defect, at_work)
        if job is None:
            self._count_spares()
            del self._free[node]
        else:
            if at_work:
                self._interrupt(job, surprise)
            job.nodes.remove(node)
            job.missing += 1
            if node in job.unchecked:
                job.unchecked.remove(node)
        self._repair(node, defect, in_time=not surprise)
        self._give_nodes()

    def _count_incident(self, node: int, defect: LatentDefect, at_work: bool) -> None:
        self._incident_count += 1
        self._hits += at_work
        self._histories.incidents[node, defect.category] += 1
        self._histories.last_incident_h[node, defect.category] = self._now_h

    def _return(self, node: int, _: int) -> None:
        self._histories.bring_back(node, self._now_h)
        self._put_to_service(node)
        self._give_nodes()

    def _end_validation(self, job: AnyJob, number: int) -> None:
        if job.alarm != number:
            return
        for node, defect in job.rejected:
            job.nodes.remove(node)
            job.missing += 1
            self._repair(node, defect, in_time=True)
        job.rejected = []
        if job.missing:
            self._short.append(job)
            self._give_nodes()
        else:
            self._work(job)

    def _finish(self, job: AnyJob, number: int) -> None:
        if job.alarm != number:
            return
        self._stop_work(job)
        self._done_h[job.number] = self._jobs[job.number].duration_h
        self._finished_h[job.number] = self._now_h
        self._count_spares()
        for node in job.nodes:
            self._job_of[node] = None
            self._release(node)
        self._for_jobs += len(job.nodes)
        self._give_nodes()

    # --- consequences ----------------------------------------------------------------------

    def _release(self, node: int) -> None:
        self._times.enter(node, FREE, self._now_h)
        self._free[node] = None

    def _give_nodes(self) -> None:
        """Give free nodes first to jobs that wait for a replacement, then to queued jobs."""
        while self._short and self._free:
            job = self._short[0]
            self._take(job, min(job.missing, len(self._free)))
            if job.missing:
                return
            self._short.popleft()
            self._check(job)
        while self._queue:
            number = self._jobs[self._queue[0]].nodes
            if number > min(len(self._free), self._for_jobs):
                return
            job = self._new_job(self._queue.popleft(), number)
            self._take(job, number)
            self._for_jobs -= number
            self._check(job)

    def _take(self, job: AnyJob, number: int) -> None:
        self._count_spares()
        for _ in range(number):
            node, _unused = self._free.popitem(last=False)
            self._times.enter(node, HELD, self._now_h)
            self._job_of[node] = job
            job.nodes.append(node)
            job.unchecked.append(node)
        job.missing -= number

    def _check(self, job: AnyJob) -> None:
        """Ask the policy about the nodes not asked about yet, and begin its tests."""
        nodes, job.unchecked = job.unchecked, []
        hours = self._jobs[job.number].duration_h - float(self._done_h[job.number])
        self._queries += len(nodes)
        chosen = self._policy.choose(nodes, hours, self._now_h, self._histories)
        checks = [
            self._validate(node, benchmarks) for node, benchmarks in zip(nodes, chosen, strict=True)
        ]
        longest_h = max(checks, default=0.0)
        for node, benchmarks in zip(nodes, chosen, strict=True):
            defect = self._defects[node]
            if defect is not None and self._is_found(defect, benchmarks, longest_h + hours):
                job.rejected.append((node, defect))
                self._defects[node] = None
            elif benchmarks and self._is_called_wrongly(node):
                job.rejected.append((node, None))
                self._defects[node] = None
        if longest_h or job.rejected:
            job.alarm = self._expect(self._now_h + longest_h, self._end_validation, job)
        else:
            self._work(job)

    def _validate(self, node: int, benchmarks: int) -> float:
        if not benchmarks:
            return 0.0
        if benchmarks not in self._checks:
            durations = self._site.durations_h
            columns = [place for place in range(len(durations)) if benchmarks >> place & 1]
            self._checks[benchmarks] = (sum(durations[place] for place in columns), columns)
        duration_h, columns = self._checks[benchmarks]
        self._validations += 1
        self._times.enter(node, VALIDATING, self._now_h, self._now_h + duration_h)
        self._histories.validated_h[node, columns] = self._now_h + duration_h
        return duration_h

    def _is_called_wrongly(self, node: int) -> bool:
        """Return whether a test calls the node defective, though it is sound."""
        return False

    def _is_found(self, defect: LatentDefect, benchmarks: int, until_done_h: float) -> bool:
        shows_h = until_done_h if self._site.shows_h is None else self._site.shows_h
        return (
            bool(defect.found_by & benchmarks)
            and defect.luck < self._site.catch
            and defect.due_h <= self._now_h + shows_h
        )

    def _work(self, job: AnyJob) -> None:
        job.worked_since_h = self._now_h
        if math.isnan(self._first_h[job.number]):
            self._first_h[job.number] = self._now_h
        for node in job.nodes:
            self._times.enter(node, WORKING, self._now_h)
        self._working.append((self._now_h, self._working[-1][1] + len(job.nodes)))
        left_h = self._jobs[job.number].duration_h - float(self._done_h[job.number])
        job.alarm = self._expect(self._now_h + left_h / job.pace, self._finish, job)

    def _interrupt(self, job: AnyJob, surprise: bool) -> None:
        """Stop the work of a job. After a surprise it keeps the work up to its last checkpoint."""
        before_h = float(self._done_h[job.number])
        self._stop_work(job)
        if surprise:
            self._fall_back(job, before_h)
        for node in job.nodes:
            self._times.enter(node, HELD, self._now_h)
        job.unchecked = list(job.nodes)
        job.alarm = 0
        self._short.append(job)

    def _fall_back(self, job: AnyJob, begun_h: float) -> None:
        """Undo the work since the last checkpoint, or since the job last began to work."""
        if not self._site.checkpoint_h:
            return
        done_h = float(self._done_h[job.number])
        held_h = done_h // self._site.checkpoint_h * self._site.checkpoint_h
        self._done_h[job.number] = max(begun_h, held_h)
        self._lost_h += len(job.nodes) * (done_h - float(self._done_h[job.number]))

    def _stop_work(self, job: AnyJob) -> None:
        assert job.worked_since_h is not None
        worked_h = self._now_h - job.worked_since_h
        self._done_h[job.number] += worked_h * job.pace
        wasted_h = len(job.nodes) * worked_h * (1 - job.pace)
        self._slow_h += wasted_h
        self._lost_h += wasted_h
        job.worked_since_h = None
        self._working.append((self._now_h, self._working[-1][1] - len(job.nodes)))

    def _repair(self, node: int, defect: LatentDefect | None, in_time: bool) -> None:
        """Take a node out. Without a defect it is sound, and looked at as long as is usual."""
        self._repaired_early += in_time and defect is not None
        self._alarms += defect is None
        hours = self._site.defect_repair_h if in_time else self._site.incident_repair_h
        patience = 1.0 if defect is None else defect.patience
        self._histories.out_of_service_h[node] = self._now_h
        self._job_of[node] = self._defects[node] = None
        self._times.enter(node, REPAIR, self._now_h)
        self._expect(self._now_h + hours * patience, self._return, node)

    def _put_to_service(self, node: int) -> None:
        """Return a node to service with its next defect drawn and without any measurement."""
        defect = self._incidents.next(node, self._drawn[node], self._now_h, self._histories)
        self._histories.validated_h[node] = -np.inf
        self._drawn[node] += 1
        self._defects[node] = defect
        if defect is not None and defect.due_h < self._site.span_h:
            self._expect(defect.due_h, self._strike, (node, defect))
        self._count_spares()
        self._release(node)

    def _expect_arrival(self, job: int) -> None:
        if job < len(self._jobs):
            self._expect(self._jobs[job].arrival_h, self._arrive, job)

    def _expect(self, when_h: float, happen: Callable[[Any, int], None], subject: Any) -> int:
        number = next(self._numbers)
        heappush(self._events, (when_h, number, happen, subject))
        return number

    def _count_spares(self) -> None:
        """Add up the time of spares before the free nodes change: free nodes that jobs could not
        have are the hot buffer."""
        spares = max(0, len(self._free) - self._for_jobs)
        self._spare_h += spares * (self._now_h - self._spare_until_h)
        self._spare_until_h = self._now_h

    def _outcome(self) -> PolicyOutcome:
        at_work = {job.number: job for job in self._job_of if job is not None}
        for job in at_work.values():
            if job.worked_since_h is not None:
                self._stop_work(job)
        self._count_spares()
        spent_h = self._times.total(self._now_h)
        times, counts = zip(*self._working, strict=True)
        return PolicyOutcome(
            nodes=self._site.nodes,
            span_h=self._site.span_h,
            working_h=spent_h[WORKING],
            lost_h=self._lost_h,
            slow_h=self._slow_h,
            stalled_h=spent_h[STALLED],
            validating_h=spent_h[VALIDATING],
            repair_h=spent_h[REPAIR],
            idle_h=spent_h[FREE] + spent_h[HELD] - self._spare_h,
            spare_h=self._spare_h,
            incidents=self._incident_count,
            hits=self._hits,
            restarts=self._restarts,
            alarms=self._alarms,
            repaired_early=self._repaired_early,
            queries=self._queries,
            validations=self._validations,
            too_large=self._too_large,
            done_h=self._done_h,
            first_h=self._first_h,
            finished_h=self._finished_h,
            working=(np.array(times), np.array(counts, dtype=np.float64)),
        )
