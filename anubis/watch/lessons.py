"""The jobs that a watch model is learned from: recorded ones, or made ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis.core.watching.telemetry import Telemetry
from anubis.simulation.jobs import HEALTHY, generate
from anubis.telemetry.config import TelemetrySettings
from anubis.telemetry.recorded import read_recording
from anubis.watch.learning import FaultyJob

MADE_JOBS = 24
FAULTY_JOBS = 120
MINUTES = 20.0
FIRST_FAULTY = 1000  # seed of the generator: what is healthy and what has faults are other jobs


@dataclass(frozen=True, kw_only=True)
class MadeLessons:
    """From the generator's seeds for development: synthetic, and called so."""

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


@dataclass(frozen=True, kw_only=True)
class RecordedLessons:
    """From files, each with the telemetry of one job in which nothing was wrong."""

    files: tuple[Path, ...]
    settings: TelemetrySettings

    @property
    def source(self) -> str:
        names = ", ".join(file.name for file in self.files[:5])
        more = len(self.files) - 5
        return f"recorded: {names}" + (f" and {more} more" if more > 0 else "")

    @property
    def is_synthetic(self) -> bool:
        return False

    @property
    def jobs(self) -> int:
        return len(self.files)

    def healthy(self, metrics: Sequence[str]) -> Iterator[Telemetry]:
        for file in self.files:
            yield read_recording(file, self.settings, metrics).telemetry

    def faulty(self, metrics: Sequence[str]) -> Iterator[FaultyJob]:
        return iter(())
