"""Jobs that a watch model is learned from: recorded or simulated ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from anubis.core.watch.telemetry import Telemetry
from anubis.lab.simulation.jobs import HEALTHY, generate
from anubis.models.watch.watch_learning import FaultyJob

MADE_JOBS = 24  # healthy ones, to learn normal answers
FAULTY_JOBS = 120  # to learn which metrics show faults first
MINUTES = 20.0  # of each job
NAMED = 5  # files
FIRST_FAULTY = 1000  # seed of the generator: healthy and faulty jobs are different ones


@dataclass(frozen=True, kw_only=True)
class SimulatedJobs:
    """Jobs from the generator's seeds for development: synthetic, and labelled so."""

    jobs: int = MADE_JOBS
    faulty_jobs: int = FAULTY_JOBS

    @property
    def source(self) -> str:
        last = FIRST_FAULTY + self.faulty_jobs - 1
        faults = f"; {FIRST_FAULTY:,} to {last:,} with faults" if self.faulty_jobs else ""
        return f"synthetic: made jobs, seeds 0 to {self.jobs - 1}{faults}"

    @property
    def is_synthetic(self) -> bool:
        return True

    def healthy(self, metrics: Sequence[str]) -> Iterator[Telemetry]:
        for seed in range(self.jobs):
            yield generate(seed, metrics=metrics, fault=HEALTHY, minutes=MINUTES).telemetry

    def faulty(self, metrics: Sequence[str]) -> Iterator[FaultyJob]:
        for seed in range(FIRST_FAULTY, FIRST_FAULTY + self.faulty_jobs):
            job = generate(seed, metrics=metrics, minutes=MINUTES)
            for fault in job.faults:
                yield FaultyJob(telemetry=job.telemetry, since=fault.onset, until=fault.halt)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedJobs:
    """Telemetry of jobs without faults, by the file of the recording."""

    recordings: Mapping[str, Telemetry]

    @property
    def source(self) -> str:
        names = [Path(file).name for file in self.recordings]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"recorded: {', '.join(names[:NAMED])}{more}"

    @property
    def is_synthetic(self) -> bool:
        return False

    @property
    def jobs(self) -> int:
        return len(self.recordings)

    def reports(self, metric: str) -> bool:
        return any(np.isfinite(job.series(metric)).any() for job in self.recordings.values())

    def healthy(self, metrics: Sequence[str]) -> Iterator[Telemetry]:
        for job in self.recordings.values():
            names = [metric.name for metric in job.metrics]
            rows = [names.index(metric) for metric in metrics]
            yield replace(
                job, metrics=tuple(job.metrics[row] for row in rows), values=job.values[rows]
            )

    def faulty(self, metrics: Sequence[str]) -> Iterator[FaultyJob]:
        return iter(())
