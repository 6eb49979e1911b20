"""A fleet in memory, on a virtual clock: the same events as on real nodes, in no time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from anubis.core.campaign.state_machine import (
    CampaignEvent,
    Failed,
    Kill,
    Launch,
    Measured,
    NodeLost,
    Started,
    TimedOut,
)
from anubis.core.fabric import Fabric
from anubis.core.network.pairing import joined_nics, pair_test_of
from anubis.core.records import BenchmarkSpec, Node, Readings, Result, Step
from anubis.lab.simulation.reckoning import network_of, plants_of
from anubis.lab.simulation.simulated_fleet import (
    SimulatedFleet,
    Trouble,
    measure,
    members,
    settings,
    share,
)
from anubis.lab.simulation.simulated_network import readings, share_left

START = 1_700_000_000.0  # any instant will do; a fixed one keeps outputs the same
SLICE_S = 1.0  # simulated seconds


@dataclass(frozen=True)
class _Run:
    step: Step
    begin: float
    end: float


class SimulatedExecutor:
    def __init__(
        self,
        fleet: SimulatedFleet,
        specs: Mapping[str, BenchmarkSpec],
        fabric: Fabric | None = None,
        nodes: Collection[str] = (),
    ) -> None:
        """Prepare a fleet. With a fabric, pairs measure the parts between them, with faults at
        these nodes, or at any."""
        self._fleet = fleet
        self._specs = specs
        self.planted = plants_of(fleet, specs.values())
        names = nodes or {node.name for node in members(fleet)}
        self.network = network_of(fleet, fabric, names) if fabric else None
        self._clock = START
        self._count = itertools.count()
        self._due: list[tuple[float, int, tuple[str, int], Callable[[], CampaignEvent]]] = []
        self._crossing: dict[str, _Run] = {}  # pairs between leaves, while others may have met them
        self._longest_s = 0.0  # of these
        self._killed: set[tuple[str, int]] = set()
        self._lost: set[str] = set()
        self._on_fabric: set[str] = set()  # steps by which the fabric is judged

    def nodes(self) -> tuple[Node, ...]:
        return members(self._fleet)

    def absent(self) -> dict[str, str]:
        return {}

    def now(self) -> float:
        return self._clock

    def launch(self, launch: Launch) -> None:
        step, attempt = launch.step, launch.attempt
        spec = self._specs[step.workload.benchmark]
        duration_s = spec.duration_s * (0.9 + 0.2 * share(self._fleet.seed, step.id))
        if launch.crosses_fabric:
            self._on_fabric.add(step.id)
        self._schedule(0.0, step, attempt, Started, {})
        if self._lost.intersection(step.participants):
            return  # the campaign is about to be told
        troubled = self._troubles(step)
        if "lost" in troubled:
            node, at = troubled["lost"], self._clock + duration_s / 2
            self._lost.add(node)
            event = NodeLost(node=node, at=at, reason="no longer answers (planted)")
            heapq.heappush(self._due, (at, next(self._count), ("", 0), lambda: event))
        elif "hang" in troubled:
            reason = f"no answer within {step.timeout_s:g} s (planted)"
            self._schedule(step.timeout_s, step, attempt, TimedOut, {"reason": reason})
        elif "crash" in troubled:
            reason = f"{step.workload.benchmark} was killed by SIGSEGV (planted)"
            self._schedule(duration_s / 2, step, attempt, Failed, {"reason": reason})
        else:
            self._note_crossing(step, duration_s)
            self._schedule(duration_s, step, attempt, partial(self._measurement, step, spec), {})

    def kill(self, kill: Kill) -> None:
        self._killed.add((kill.step_id, kill.attempt))
        self._crossing.pop(kill.step_id, None)

    def wait(self, until: float) -> list[CampaignEvent]:
        """Return all events within SLICE_S of the next one, as a busy driver would find them."""
        if not self._due or self._due[0][0] > until:
            self._clock = max(self._clock, until)
            return []
        until = min(until, self._due[0][0] + SLICE_S)
        events = []
        while self._due and self._due[0][0] <= until:
            at, _, run, event = heapq.heappop(self._due)
            self._clock = max(self._clock, at)
            if run not in self._killed:
                events.append(event())
        return events

    def close(self) -> None:
        self._due.clear()

    def _measurement(self, step: Step, spec: BenchmarkSpec, **about: Any) -> CampaignEvent:
        environment = settings(self.planted, step, spec)
        return Measured(
            result=Result(series=self._measure(step, spec), environment=environment), **about
        )

    def _measure(self, step: Step, spec: BenchmarkSpec) -> Readings:
        if self.network and step.id in self._on_fabric and len(step.participants) == 2:
            return readings(
                self.network,
                step,
                spec,
                self._fleet.samples,
                self._concurrent_steps(step),
                self._clock,
            )
        left = share_left(self.network, step) if self.network else 1.0
        return measure(self._fleet, self.planted, step, spec, left)

    def _note_crossing(self, step: Step, duration_s: float) -> None:
        """Note a pair whose nodes are under different leaves: only such pairs share cables with
        others."""
        if self.network and step.id in self._on_fabric and (pair_test := pair_test_of(step)):
            met = joined_nics(self.network.fabric, pair_test)
            if any(a.switch != b.switch for a, b in met):
                self._longest_s = max(self._longest_s, duration_s)
                run = _Run(step, self._clock, self._clock + duration_s)
                still = (
                    self._clock - self._longest_s
                )  # a pair that began then may still be under way
                self._crossing = {
                    id_: old for id_, old in self._crossing.items() if old.end >= still
                } | {step.id: run}

    def _concurrent_steps(self, step: Step) -> list[Step]:
        """List the pairs that were under way in the middle of this one."""
        if step.id not in self._crossing:
            return []
        own = self._crossing[step.id]
        middle = (own.begin + own.end) / 2
        return [
            run.step
            for run in self._crossing.values()
            if run is not own and run.begin <= middle < run.end
        ]

    def _schedule(
        self,
        after_s: float,
        step: Step,
        attempt: int,
        event: Callable[..., CampaignEvent],
        details: Mapping[str, object],
    ) -> None:
        at = self._clock + after_s
        made: Callable[[], CampaignEvent] = partial(
            event, step_id=step.id, attempt=attempt, at=at, **details
        )
        heapq.heappush(self._due, (at, next(self._count), (step.id, attempt), made))

    def _troubles(self, step: Step) -> dict[Trouble, str]:
        """Return the participants with a trouble in this benchmark, one for each kind of
        trouble."""
        return {
            plant.trouble: name
            for name in reversed(step.participants)
            if (plant := self.planted.get(name)) and plant.benchmark == step.workload.benchmark
        }
