"""Train watch models on recordings or on simulated jobs, and read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from anubis.core.errors import UsageError, WatchError, named_by_request
from anubis.core.keep.commands import Outcome
from anubis.core.watch.model import WatchModel
from anubis.core.watch.odd_windows import OddWindows, unpack_windows
from anubis.core.watch.telemetry import Telemetry
from anubis.core.watch.watch_settings import WatchSettings
from anubis.lab.simulation.jobs import HEALTHY, generate
from anubis.models.watch import watch_model_files
from anubis.models.watch.watch_learning import FaultyJob, TrainingJobs, learn
from anubis.operations.caller import NO_CALLER, Caller
from anubis.readers.telemetry.config import ORDER, shipped_settings, telemetry_settings
from anubis.readers.telemetry.recorded import read_recording

MADE_JOBS = 24  # healthy ones, to learn normal answers
FAULTY_JOBS = 120  # to learn which metrics show faults first
MINUTES = 20.0  # of each job
NAMED = 5  # files
FIRST_FAULTY = 1000  # seed of the generator: healthy and faulty jobs are different ones


@dataclass(frozen=True, kw_only=True)
class KeptWatchModel:
    model: WatchModel
    file: Path


def train_watch_model(
    recordings: Sequence[Path] = (),
    *,
    synthetic: bool = False,
    name: str = "ours",
    telemetry: Path | None = None,
    metrics: Sequence[str] = (),
    seed: int = 0,
    caller: Caller = NO_CALLER,
) -> KeptWatchModel:
    """Train a model of `metrics`, by default the shipped list. For numbers of nodes that no
    recorded job has, the shipped model is used."""
    if bool(recordings) == synthetic:
        raise UsageError("expected recordings of healthy jobs, or --synthetic, not both")
    path = watch_model_files.own(name) if watch_model_files.is_name(name) else Path(name)
    training_jobs: TrainingJobs = (
        SimulatedJobs()
        if synthetic
        else _read_training_jobs(recordings, telemetry, metrics, caller)
    )
    names = tuple(metrics) or ORDER
    if isinstance(training_jobs, RecordedJobs):
        names = _reported_metrics(training_jobs, names, caller)
    model = learn(
        training_jobs,
        names,
        names,
        WatchSettings(),
        seed=seed,
        basis=None
        if synthetic
        else watch_model_files.load(watch_model_files.place(watch_model_files.SHIPPED)),
        tell=caller.doing,
    )
    watch_model_files.save(model, path)
    return KeptWatchModel(model=model, file=path)


def watch_model(name: str = watch_model_files.SHIPPED) -> KeptWatchModel:
    """The model of that name, or in that file."""
    with named_by_request():
        path = watch_model_files.place(name)
        return KeptWatchModel(model=watch_model_files.load(path), file=path)


def _read_training_jobs(
    recordings: Sequence[Path], telemetry: Path | None, metrics: Sequence[str], caller: Caller
) -> RecordedJobs:
    settings = telemetry_settings(telemetry) if telemetry else shipped_settings()
    jobs: dict[str, Telemetry] = {}
    for file in recordings:
        caller.doing(f"reads {file.name}")
        with named_by_request():
            pulled = read_recording(file, settings, tuple(metrics) or ORDER)
        for remark in pulled.remarks:
            caller.remark(f"{file.name}: {remark}")
        jobs[str(file)] = pulled.telemetry
    return RecordedJobs(recordings=jobs, suspected=_suspected(caller))


def _suspected(caller: Caller) -> list[tuple[OddWindows, bool]]:
    """Windows of the watch's suspicions whose tests ended, and whether these confirmed them."""
    with caller.history() as history:
        kept = [entry for part in history.every() for entry in part.keeping.suspicions()]
    return [
        (windows, entry.outcome is Outcome.CONFIRMED)
        for entry in kept
        if entry.outcome in (Outcome.CONFIRMED, Outcome.REFUTED)
        and (windows := unpack_windows(entry.windows))
    ]


def _reported_metrics(
    training_jobs: RecordedJobs, metrics: Sequence[str], caller: Caller
) -> tuple[str, ...]:
    """Metrics that the recordings have: no model of the others can be learned."""
    reported = tuple(metric for metric in metrics if training_jobs.reports(metric))
    if not reported:
        raise WatchError(
            f"these recordings have none of {', '.join(metrics)}: name others by --metrics"
        )
    if silent := [metric for metric in metrics if metric not in reported]:
        caller.remark(f"learned without {', '.join(silent)}: these recordings do not have it")
    return reported


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
        watched = shipped_settings().watched_metrics(metrics)
        for seed in range(self.jobs):
            yield generate(seed, watched, fault=HEALTHY, minutes=MINUTES).telemetry

    @property
    def suspected(self) -> Sequence[tuple[OddWindows, bool]]:
        return ()

    def faulty(self, metrics: Sequence[str]) -> Iterator[FaultyJob]:
        watched = shipped_settings().watched_metrics(metrics)
        for seed in range(FIRST_FAULTY, FIRST_FAULTY + self.faulty_jobs):
            job = generate(seed, watched, minutes=MINUTES)
            for fault in job.faults:
                yield FaultyJob(telemetry=job.telemetry, since=fault.onset, until=fault.halt)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedJobs:
    """Telemetry of jobs without faults, by the file of the recording, and what the site's tests
    said of its suspicions."""

    recordings: Mapping[str, Telemetry]
    suspected: Sequence[tuple[OddWindows, bool]] = ()

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
