"""The front door of Anubis for show-chaos: each verb as it is, but for two things. Tests run on
simulated nodes, in real time, as the site's Slurm lets them have nodes; and the clock shows what a
file says it is wrong by.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import chaos_clock  # noqa: F401 # before anything that takes the time
from chaos_slurm import Allocation

from anubis.core.campaign.state_machine import CampaignEvent, Judged, Kill, Launch, Measured
from anubis.core.records import BenchmarkSpec, Node
from anubis.lab.simulation.simulated_fleet import Plant, SimulatedFleet
from anubis.operations import executors
from anubis.reach.executors.executor import SteadyClock
from anubis.reach.executors.simulated import START, SimulatedExecutor
from anubis.text import hostlist

SITE, PACE = Path(os.environ["CHAOS_SITE"]), float(os.environ["CHAOS_PACE"])
SKU = "chaos"


class PacedNodes:
    """Simulated nodes in real time: PACE seconds of a test pass in one."""

    def __init__(self, names: list[str], specs: Mapping[str, BenchmarkSpec], nodes: list[str]):
        self._allocation = Allocation(str(SITE / "slurm" / "socket"), nodes or names)
        allocated = self._allocation.given
        self._absent = dict.fromkeys({*(nodes or names)} - {*allocated}, "busy, or not up")
        fleet = SimulatedFleet(nodes=hostlist.compress(allocated or names[:1]), sku=SKU, seed=1)
        self._is_empty = not allocated
        self._inner, self._clock = SimulatedExecutor(fleet, specs), SteadyClock()
        self._began = self._clock.now()
        self._done: list[list[Any]] = []
        self._truth: dict[str, Any] = self._allocation.report([])

    def nodes(self) -> tuple[Node, ...]:
        return () if self._is_empty else self._inner.nodes()

    def absent(self) -> dict[str, str]:
        return self._absent

    def now(self) -> float:
        return self._clock.now()

    def launch(self, launch: Launch) -> None:
        benchmark = launch.step.workload.benchmark
        for name in launch.step.participants:
            is_slow = self._truth["slow"].get(name) == benchmark
            trouble = "lost" if name in self._truth["dark"] else "slow" if is_slow else ""
            self._inner.planted.pop(name, None)
            if trouble:
                self._inner.planted[name] = Plant(trouble, benchmark)  # type: ignore[arg-type]
        self._inner.launch(launch)
        slow = self._truth["slow"]
        self._done += [
            [name, benchmark, slow.get(name) == benchmark] for name in launch.step.participants
        ]

    def kill(self, kill: Kill) -> None:
        self._inner.kill(kill)

    def wait(self, until: float) -> list[CampaignEvent]:
        events = self._inner.wait(self._virtual(until))
        ends = self._real(self._inner.now()) - self._clock.now()
        time.sleep(max(0.0, ends))
        if any(isinstance(event, Measured) for event in events) or len(self._done) > 1000:
            self._truth, self._done = self._allocation.report(self._done), []
        return [
            event if isinstance(event, Judged) else replace(event, at=self._real(event.at))
            for event in events
        ]

    def close(self) -> None:
        self._inner.close()
        self._allocation.end()

    def _virtual(self, real: float) -> float:
        return START + (real - self._began) * PACE

    def _real(self, virtual: float) -> float:
        return self._began + (virtual - START) / PACE


def open_paced(
    cluster: Any, programs: Any, caller: Any, nodes: Any, missing_is_fine: bool, until: Any
) -> PacedNodes:
    return PacedNodes(hostlist.expand(cluster.nodes), programs.specs, list(nodes))


def main() -> None:
    sys.executable = str(SITE / "python")
    executors._open_ray = open_paced  # type: ignore[assignment]
    from anubis.cli.main import main as anubis

    sys.argv = ["anubis", *sys.argv[1:]]
    anubis()


if __name__ == "__main__":
    main()
