"""Train watch models on recordings or on simulated jobs, and read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis.core.errors import UsageError, WatchError, named_by_request
from anubis.core.keep.commands import Outcome
from anubis.core.watch.model import WatchModel
from anubis.core.watch.odd_windows import OddWindows, unpack_windows
from anubis.core.watch.telemetry import Telemetry
from anubis.core.watch.watch_settings import WatchSettings
from anubis.models.watch import watch_model_files
from anubis.models.watch.watch_learning import RecordedJobs, SimulatedJobs, TrainingJobs, learn
from anubis.operations.caller import NO_CALLER, Caller
from anubis.readers.telemetry.config import ORDER, shipped_settings, telemetry_settings
from anubis.readers.telemetry.recorded import read_recording


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
    together: bool = False,
    caller: Caller = NO_CALLER,
) -> KeptWatchModel:
    """Train a model of `metrics`, by default the shipped list. For numbers of nodes that no
    recorded job has, the shipped model is used. `together`: one set of weights for all metrics."""
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
        together=together,
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
