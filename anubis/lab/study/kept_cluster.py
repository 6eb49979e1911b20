"""A cluster whose faults show only in jobs, and whose bad nodes have to be found.

A fault strikes a node. The job that the node works in stops, hangs or is slow until the node is
named, fails a test, or is found by a search. How long each takes is for `response` to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from anubis.lab.study.cluster import (
    HELD,
    STALLED,
    VALIDATING,
    PolicyOutcome,
    Site,
    StudiedCluster,
    StudiedJob,
    StudiedPolicy,
)
from anubis.lab.study.incidents import Draws, Incidents, LatentDefect, exponential
from anubis.lab.study.response import FaultAnswer, FaultCare, Luck, respond
from anubis.lab.study.traces import TracedJob

CHANCES = tuple(field.name for field in fields(Luck))  # that a fault needs
OF_NODES, OF_JOBS, OF_TESTS = (kind << 33 for kind in (1, 2, 3))  # seeds of other draws


def run_kept(
    site: Site,
    jobs: Sequence[TracedJob],
    incidents: Incidents,
    policy: StudiedPolicy,
    upkeep: FaultCare,
) -> PolicyOutcome:
    return KeptCluster(site, jobs, incidents, policy, upkeep).run()


@dataclass(frozen=True, kw_only=True)
class MetFault:
    """A fault that a job has met. Without a node the job's program is at fault."""

    answer: FaultAnswer
    node: int | None = None
    defect: LatentDefect | None = None


class KeptJob(StudiedJob):
    """A running job, and what has befallen it."""

    __slots__ = ("notice", "restart_h", "saved_h", "trip", "trip_h", "trips", "trouble")

    def __init__(self, number: int, nodes: int) -> None:
        super().__init__(number, nodes)
        self.saved_h = 0.0  # work done when it last began
        self.restart_h = 0.0  # before it begins again
        self.notice = 0  # the number of the event by which that becomes known
        self.trip_h = math.inf  # work until its program hangs
        self.trip = self.trips = 0  # the number of that event; how often it happened
        self.trouble: MetFault | None = None


class KeptCluster(StudiedCluster[KeptJob]):
    """A fault is known once it shows in a job, and its node once it is found."""

    def __init__(
        self,
        site: Site,
        jobs: Sequence[TracedJob],
        incidents: Incidents,
        policy: StudiedPolicy,
        upkeep: FaultCare,
    ) -> None:
        self._upkeep, self._rates = upkeep, upkeep.rates
        self._struck = set[int]()  # nodes that a fault has struck and that are not out yet
        self._met = set[int]()  # of them: those whose fault a job has met
        self._node_luck = Draws(site.nodes, upkeep.seed + OF_NODES, len(CHANCES))
        self._test_luck = Draws(site.nodes, upkeep.seed + OF_TESTS, 1)
        self._called = [0] * site.nodes  # how often a test called the node, though it was sound
        self._suspect: int | None = None
        self._passes_left = [self._draw_passes(node) for node in range(site.nodes)]
        super().__init__(site, jobs, incidents, policy, KeptJob)

    # --- events ----------------------------------------------------------------------------

    def _strike(self, struck: tuple[int, LatentDefect], _: int) -> None:
        """Strike a node. Until it works in a job, the fault shows nowhere."""
        node, defect = struck
        if self._defects[node] is not defect:
            return  # found and repaired in time
        self._struck.add(node)
        job = self._job_of[node]
        if job is not None and job.worked_since_h is not None:
            self._disturb(job, node, defect)

    def _trip(self, job: KeptJob, number: int) -> None:
        """Let a job hang by its own program."""
        if job.trip != number:
            return
        luck = Luck(*self._draw_for(job, 0, len(CHANCES)))
        answer = respond("hangs", self._rates, self._upkeep.means, luck, by_program=True)
        job.trips, job.trip_h = job.trips + 1, math.inf
        self._suffer(job, MetFault(answer=answer), pace=0.0)

    def _learn_of(self, job: KeptJob, number: int) -> None:
        """A fault becomes known: its node is named, or all nodes of the job are tested."""
        if job.notice != number or job.trouble is None:
            return
        if job.worked_since_h is not None:
            self._halt(job)
        if job.trouble.answer.is_named:
            self._end_trouble(job)
        else:
            self._histories.validated_h[job.nodes] = -np.inf  # what they passed counts no longer
            job.unchecked = list(job.nodes)
            self._check(job)

    def _end_search(self, job: KeptJob, number: int) -> None:
        if job.alarm == number:
            self._end_trouble(job)

    def _begin_again(self, job: KeptJob, number: int) -> None:
        if job.alarm == number:
            self._work(job)

    def _finish(self, job: KeptJob, number: int) -> None:
        if job.alarm != number:
            return
        job.notice = job.trip = 0
        self._suspect = self._wrong_suspect(job)
        super()._finish(job, number)

    def _return(self, node: int, number: int) -> None:
        """Return a node from its repair, or from the tests of a suspect, first to its proof."""
        if not self._upkeep.means.proves:
            super()._return(node, number)
            return
        self._expect(self._test_all(node), self._pass, node)

    def _pass(self, node: int, _: int) -> None:
        self._histories.bring_back(node, self._now_h)
        self._put_to_service(node)
        self._histories.validated_h[node] = self._now_h
        self._give_nodes()

    def _clear(self, node: int, _: int) -> None:
        """End the test of a suspect that had no fault when it was suspected."""
        defect = self._defects[node]
        everything = (1 << len(self._site.durations_h)) - 1
        if defect is not None and self._is_found(defect, everything, 0.0):
            self._repair(node, defect, in_time=True)
        elif self._is_called_wrongly(node):
            self._repair(node, None, in_time=True)
        else:
            self._histories.validated_h[node] = self._now_h
            self._count_spares()
            super()._release(node)
            self._give_nodes()

    # --- consequences ----------------------------------------------------------------------

    def _disturb(self, job: KeptJob, node: int, defect: LatentDefect) -> None:
        """Let a job meet a fault of one of its nodes."""
        if node not in self._met:
            self._count_incident(node, defect, at_work=True)
            self._met.add(node)
        course, pace = self._upkeep.courses[defect.category]
        luck = Luck(*self._node_luck.numbers(node, self._drawn[node]))
        answer = respond(course, self._rates, self._upkeep.means, luck)
        trouble = MetFault(answer=answer, node=node, defect=defect)
        self._suffer(job, trouble, pace if course == "slow" else 0.0)

    def _suffer(self, job: KeptJob, trouble: MetFault, pace: float) -> None:
        job.trouble = trouble
        if pace:
            self._stop_work(job)
            job.pace = pace
            super()._work(job)
            self._expect_trip(job)
        else:
            self._halt(job)
        job.notice = self._expect(self._now_h + trouble.answer.until_h, self._learn_of, job)

    def _halt(self, job: KeptJob) -> None:
        """Stop the work of a job, which goes back to its last checkpoint."""
        self._stop_work(job)
        self._fall_back(job, job.saved_h)
        self._restarts += 1
        job.pace, job.alarm, job.trip = 1.0, 0, 0
        job.restart_h = self._rates.restart_h
        self._enter(job, STALLED)

    def _end_trouble(self, job: KeptJob) -> None:
        """Take out the node that is at fault, if one is, and begin again."""
        trouble, job.trouble = job.trouble, None
        assert trouble is not None
        if trouble.node is None:
            self._work(job)
            return
        job.nodes.remove(trouble.node)
        job.missing += 1
        self._repair(trouble.node, trouble.defect, in_time=False)
        job.unchecked = list(job.nodes)
        self._enter(job, HELD)
        self._short.append(job)
        self._give_nodes()

    def _work(self, job: KeptJob) -> None:
        """Work, unless a fault has to be searched first, or the job has to begin again."""
        trouble = job.trouble
        if trouble is not None and self._is_open(trouble):
            self._stall(job, trouble.answer.search_h, self._end_search)
            return
        job.trouble = None
        if job.restart_h:
            hours, job.restart_h = job.restart_h, 0.0
            self._stall(job, hours, self._begin_again)
            return
        self._begin(job)

    def _begin(self, job: KeptJob) -> None:
        job.saved_h = float(self._done_h[job.number])
        if job.trip_h == math.inf:
            job.trip_h = self._draw_trip_h(job)
        super()._work(job)
        self._expect_trip(job)
        if not self._struck.isdisjoint(job.nodes):
            node = min(self._struck.intersection(job.nodes))
            defect = self._defects[node]
            assert defect is not None
            self._disturb(job, node, defect)

    def _stop_work(self, job: KeptJob) -> None:
        assert job.worked_since_h is not None
        job.trip_h -= self._now_h - job.worked_since_h
        super()._stop_work(job)

    def _stall(self, job: KeptJob, hours: float, then: Callable[[Any, int], None]) -> None:
        self._enter(job, STALLED)
        job.alarm = self._expect(self._now_h + hours, then, job)

    def _enter(self, job: KeptJob, state: int) -> None:
        for node in job.nodes:
            self._times.enter(node, state, self._now_h)

    def _repair(self, node: int, defect: LatentDefect | None, in_time: bool) -> None:
        super()._repair(node, defect, in_time and node not in self._met)
        self._struck.discard(node)
        self._met.discard(node)

    def _release(self, node: int) -> None:
        """Let a node go, or test it first if the watch has suspected it."""
        if node != self._suspect:
            super()._release(node)
            return
        self._suspect = None
        self._alarms += 1
        self._expect(self._test_all(node), self._clear, node)

    def _wrong_suspect(self, job: KeptJob) -> int | None:
        """Choose the node of a job that the watch suspected though nothing was wrong, if it did."""
        alarms = self._rates.watch_alarms if self._upkeep.means.watches else 0.0
        if not alarms:
            return None
        is_one, place = self._draw_for(job, len(CHANCES), 2)
        if is_one >= -math.expm1(-alarms * self._jobs[job.number].duration_h):
            return None
        return job.nodes[int(place * len(job.nodes))]

    def _test_all(self, node: int) -> float:
        """Begin all benchmarks on a node outside of jobs, and return when they end."""
        ends_h = self._now_h + sum(self._site.durations_h)
        self._validations += 1
        self._queries += 1
        self._times.enter(node, VALIDATING, self._now_h, ends_h)
        return ends_h

    def _is_open(self, trouble: MetFault) -> bool:
        """Return whether its node is still to be found; a test may have found it."""
        return trouble.node is None or self._defects[trouble.node] is trouble.defect

    def _is_called_wrongly(self, node: int) -> bool:
        self._passes_left[node] -= 1
        if self._passes_left[node] > 0:
            return False
        self._called[node] += 1
        self._passes_left[node] = self._draw_passes(node)
        return True

    # --- chance ----------------------------------------------------------------------------

    def _draw_passes(self, node: int) -> float:
        """Tests of a sound node up to the next that calls it defective: geometric."""
        share = self._rates.test_alarms
        if not share:
            return math.inf
        (uniform,) = self._test_luck.numbers(node, self._called[node])
        return max(1.0, math.ceil(math.log1p(-uniform) / math.log1p(-share)))

    def _draw_trip_h(self, job: KeptJob) -> float:
        """Draw the hours of work until a job hangs by its own program."""
        mtbi_h = self._rates.program_mtbi_h
        if mtbi_h is None:
            return math.inf
        (uniform,) = self._draw_for(job, len(CHANCES) + 2, 1)
        return exponential(uniform) * mtbi_h / self._jobs[job.number].nodes

    def _expect_trip(self, job: KeptJob) -> None:
        left_h = self._jobs[job.number].duration_h - float(self._done_h[job.number])
        if job.trip_h < left_h / job.pace:
            job.trip = self._expect(self._now_h + job.trip_h, self._trip, job)

    def _draw_for(self, job: KeptJob, first: int, count: int) -> list[float]:
        """Draw uniform numbers that belong to a job and the number of its hangs."""
        rng = np.random.default_rng([self._upkeep.seed, OF_JOBS, job.number, job.trips])
        drawn: list[float] = rng.random(first + count)[first:].tolist()
        return drawn
