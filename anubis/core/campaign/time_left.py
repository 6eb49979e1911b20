"""The time that a campaign still takes: planned durations of what is left, at the pace of what has
ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from anubis.core.amounts import HOUR_S
from anubis.core.campaign.planning import estimate, schedule
from anubis.core.campaign.state_machine import CampaignEvent, CampaignMachine, EndOfStep, Started
from anubis.core.records import Plan, PlannedEntry

EntryNumbers = tuple[int, int]  # of phase and entry
RISE = 1.5  # a time left that grew by less is not worth a word


@dataclass(slots=True)
class TimeTaken:
    """How long steps took, and how long they were planned to take."""

    steps: int = 0
    took_s: float = 0.0
    planned_s: float = 0.0

    def add(self, took_s: float, planned_s: float) -> None:
        self.steps += 1
        self.took_s += took_s
        self.planned_s += planned_s

    @property
    def delay_factor(self) -> float:
        """Time taken by time planned, but at least 1: what ends early promises nothing of other
        programs."""
        return max(1.0, self.took_s / self.planned_s) if self.planned_s else 1.0


class TimeLeft:
    """Follows a campaign. While steps take as long as planned, its answer never rises."""

    def __init__(self, plan: Plan, parallel_nodes: int | None) -> None:
        scheduled = schedule(plan)
        self._plan = plan
        self._planned = [
            estimate(plan, phase, parallel_nodes, scheduled) for phase in range(len(plan.phases))
        ]
        self._parallel_nodes = parallel_nodes
        self._began: dict[tuple[str, int], float] = {}
        self._paces: defaultdict[EntryNumbers, TimeTaken] = defaultdict(TimeTaken)
        self._announced: tuple[float, int, int] | None = None  # seconds, phase, and its steps

    def hear(self, events: Iterable[CampaignEvent]) -> None:
        for event in events:
            if isinstance(event, Started):
                self._began[event.step_id, event.attempt] = event.at
            elif isinstance(event, EndOfStep):
                began = self._began.pop((event.step_id, event.attempt), None)
                if began is not None:
                    planned_s = self._entry(event.step_id).duration_s
                    self._paces[numbers_of(event.step_id)].add(event.at - began, planned_s)

    def announce(self, machine: CampaignMachine, clock_pace: float = 1.0) -> tuple[float, str]:
        """Return the seconds left by a clock of that pace, and why they are more than announced
        before. If they rose by less than half, what was announced stays."""
        left_s, why = clock_pace * self.seconds(machine), ""
        announced_s, phase, planned = self._announced or (left_s, machine.phase, machine.planned)
        if left_s > announced_s:
            if left_s < RISE * announced_s:
                return announced_s, ""
            added = machine.planned - planned if machine.phase == phase else 0
            why = f"{added:,} more to do" if added else self._slowest(machine)
        self._announced = left_s, machine.phase, machine.planned
        return left_s, why

    def seconds(self, machine: CampaignMachine) -> float:
        """Return the longest of what the busiest node needs, what all nodes that may work at once
        need, and this share of the phase's planned time; and the time of later phases."""
        busy_s: defaultdict[str, float] = defaultdict(float)
        delay_factor = self._overall(machine).delay_factor
        for step, began in machine.remaining():
            expected_s = self._expected_s(step.id, delay_factor)
            left_s = expected_s if began is None else max(0.0, began + expected_s - machine.now)
            for name in step.participants:
                busy_s[name] += left_s
        later_s = sum(phase.duration_s for phase in self._planned[machine.phase + 1 :])
        return self._phase_s(machine.phase, busy_s) + delay_factor * later_s

    def _phase_s(self, phase: int, busy_s: dict[str, float]) -> float:
        if not busy_s:
            return 0.0
        together_s, planned = sum(busy_s.values()), self._planned[phase]
        planned_s = HOUR_S * planned.node_hours
        return max(
            max(busy_s.values()),
            together_s / self._parallel_nodes if self._parallel_nodes else 0.0,
            planned.duration_s * together_s / planned_s if planned_s else 0.0,
        )

    def _expected_s(self, step_id: str, delay_factor: float) -> float:
        """Seconds of a step: as long as earlier runs of its entry, or else as planned, times what
        others took longer."""
        pace = self._paces.get(numbers_of(step_id))
        if pace:
            return pace.took_s / pace.steps
        return delay_factor * self._entry(step_id).duration_s

    def _slowest(self, machine: CampaignMachine) -> str:
        """Name the benchmark that lost most time against its plan."""
        taken = self._taken(machine)
        lost_s = {numbers: pace.took_s - pace.planned_s for numbers, pace in taken.items()}
        worst = max(lost_s, key=lost_s.__getitem__, default=None)
        if worst is None or lost_s[worst] <= 0:
            return "this driver has become slower"
        name = self._plan.phases[worst[0]].entries[worst[1]].workload.benchmark
        return f"{name} takes {taken[worst].delay_factor:.1f} times as long as planned"

    def _overall(self, machine: CampaignMachine) -> TimeTaken:
        overall = TimeTaken()
        for pace in self._taken(machine).values():
            overall.add(pace.took_s, pace.planned_s)
        return overall

    def _taken(self, machine: CampaignMachine) -> dict[EntryNumbers, TimeTaken]:
        """The time of all steps that ended, and of those that run longer than planned."""
        taken = {numbers: replace(pace) for numbers, pace in self._paces.items()}
        for step, began in machine.remaining():
            planned_s = self._entry(step.id).duration_s
            if began is not None and machine.now - began > planned_s:
                pace = taken.setdefault(numbers_of(step.id), TimeTaken())
                pace.add(machine.now - began, planned_s)
        return taken

    def _entry(self, step_id: str) -> PlannedEntry:
        phase, position = numbers_of(step_id)
        return self._plan.phases[phase].entries[position]


def numbers_of(step_id: str) -> EntryNumbers:
    phase, position = step_id.split(".", 2)[:2]
    return int(phase), int(position)
