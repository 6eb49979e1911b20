"""Learns a watch model from jobs: denoisers of metrics, thresholds, and the order of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from anubis import __version__
from anubis.core.arrays import Flags, Floats32
from anubis.core.errors import WatchError
from anubis.core.watch.detector import CONCATENATED
from anubis.core.watch.model import Denoiser, Fit, Thresholds, WatchModel, WatchOrigin
from anubis.core.watch.odd_windows import OddWindows
from anubis.core.watch.telemetry import Telemetry, span_of
from anubis.core.watch.thresholds import calibrate, grow, oddness, rank
from anubis.core.watch.watch_settings import WatchSettings
from anubis.text.packages import require_package

LIBRARIES = ("numpy", "torch")  # what the weights depend on
FEWEST_CONFIRMED = 10  # suspicions: fewer show no order
OF_A_JOB = 1000  # windows, so that all jobs have equal weight


@dataclass(frozen=True, kw_only=True)
class FaultyJob:
    """A job with a faulty node, and the times of its fault."""

    telemetry: Telemetry
    since: float
    until: float


class TrainingJobs(Protocol):
    """Training data: jobs, with only the metrics that are asked for."""

    @property
    def source(self) -> str: ...
    @property
    def is_synthetic(self) -> bool: ...
    @property
    def jobs(self) -> int: ...
    def healthy(self, metrics: Sequence[str]) -> Iterable[Telemetry]: ...
    def faulty(self, metrics: Sequence[str]) -> Iterable[FaultyJob]: ...
    @property
    def suspected(self) -> Sequence[tuple[OddWindows, bool]]: ...  # and whether it was confirmed


def learn(
    training_jobs: TrainingJobs,
    metrics: Sequence[str],
    order: Sequence[str],
    settings: WatchSettings,
    *,
    seed: int = 0,
    basis: WatchModel | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> WatchModel:
    """Watch model of these training jobs. `order`: the metrics to compare, reordered by what jobs
    with faults show, if there are any. `basis`: a model whose thresholds are used for numbers of
    nodes that the jobs do not have."""
    denoisers, fits = _denoisers(training_jobs, metrics, seed, tell)
    thresholds: dict[str, Thresholds] = {}
    for metric in metrics:
        limits = calibrate(
            training_jobs.healthy([metric]), [metric], [denoisers[metric]], settings, seed
        )
        thresholds[metric] = complete(
            limits, metric, basis.thresholds.get(metric) if basis else None
        )
    judged = [metric for metric in order if metric in denoisers]
    all_as_one = calibrate(
        training_jobs.healthy(judged),
        judged,
        [denoisers[metric] for metric in judged],
        settings,
        seed,
    )
    if all_as_one:
        thresholds[CONCATENATED] = all_as_one
    ranked, why = _rank_metrics(training_jobs, judged, settings)
    return WatchModel(
        denoisers=denoisers,
        thresholds=thresholds,
        order=ranked,
        origin=WatchOrigin(
            source=training_jobs.source,
            is_synthetic=training_jobs.is_synthetic,
            jobs=training_jobs.jobs,
            seed=seed,
            versions=_versions(),
            fits={metric: _round(fit) for metric, fit in fits.items()},
            order=why,
        ),
    )


def _denoisers(
    training_jobs: TrainingJobs,
    metrics: Sequence[str],
    seed: int,
    tell: Callable[[str], None],
) -> tuple[dict[str, Denoiser], dict[str, Fit]]:
    require_package("torch", "training a watch model")
    from anubis.models.watch.lstm_vae_training import train

    denoisers, fits = {}, {}
    for metric in metrics:
        windows = windows_of(training_jobs.healthy([metric]), metric, seed)
        denoisers[metric], fits[metric] = train(windows, seed, metric=metric)
        tell(f"{metric}: {describe(fits[metric])}")
    return denoisers, fits


def _round(fit: Fit) -> Fit:
    return Fit(
        windows=fit.windows, error=float(f"{fit.error:.3g}"), variance=float(f"{fit.variance:.3g}")
    )


def describe(fit: Fit) -> str:
    return (
        f"{fit.windows:,} windows; on others a mean square error of {fit.error:.1e}, where values"
        f" vary by {fit.variance:.1e}"
    )


def windows_of(jobs: Iterable[Telemetry], metric: str, seed: int, window: int = 8) -> Floats32:
    """Complete windows, scaled as in a look, equally many of each job."""
    random = np.random.default_rng(seed)
    parts = [np.zeros((0, window), dtype=np.float32)]
    for job in jobs:
        values = job.series(metric)
        facts = next(facts for facts in job.metrics if facts.name == metric)
        if job.points < window or not len(values):
            continue
        rows = random.integers(len(values), size=OF_A_JOB)
        starts = random.integers(job.points - window + 1, size=OF_A_JOB)
        windows = values[rows[:, None], starts[:, None] + np.arange(window)]
        complete = np.isfinite(windows).all(axis=1)
        parts.append(span_of(facts, values).scale(windows[complete]))
    return np.concatenate(parts)


def complete(learned: Thresholds | None, metric: str, basis: Thresholds | None) -> Thresholds:
    """Thresholds completed with another model's for larger and smaller jobs."""
    pairs: dict[int, float] = {}
    for kept in (basis, learned):
        pairs |= dict(zip(kept.nodes, kept.scores, strict=True)) if kept else {}
    if not pairs:
        raise WatchError(
            f"{metric}: no threshold can be learned from jobs of so few nodes or minutes, expected"
            " 75 minutes of four nodes or more, sampled each second"
        )
    nodes = sorted(pairs)
    return Thresholds(nodes=tuple(nodes), scores=tuple(pairs[count] for count in nodes))


def _rank_metrics(
    training_jobs: TrainingJobs, metrics: Sequence[str], settings: WatchSettings
) -> tuple[tuple[str, ...], str]:
    features, faulty = [], []
    for job in training_jobs.faulty(metrics):
        features.append(oddness(job.telemetry, settings.window))
        faulty.append(_faulty_windows(job, len(features[-1]), settings.window))
    origin = "jobs with faults"
    suspected = training_jobs.suspected
    if sum(is_confirmed for _, is_confirmed in suspected) >= FEWEST_CONFIRMED:
        origin = "suspicions whose tests ended"
        features += [windows.columns(metrics) for windows, _ in suspected]
        faulty += [windows.faulty(is_confirmed=confirmed) for windows, confirmed in suspected]
    if not features:
        return tuple(metrics), "as it was given"
    labels = np.concatenate(faulty)
    ranked = rank(grow(np.concatenate(features), labels), metrics)
    rest = tuple(metric for metric in metrics if metric not in ranked)
    return (*ranked, *rest), (
        f"a decision tree on {len(labels):,} windows of {len(faulty):,} {origin}"
    )


def _faulty_windows(job: FaultyJob, windows: int, window: int) -> Flags:
    """Flags of the windows that begin during the fault. Few windows are at its edges."""
    starts = job.telemetry.start + job.telemetry.step_s * window * np.arange(windows)
    return np.asarray((starts >= job.since) & (starts <= job.until))


def _versions() -> dict[str, str]:
    from importlib.metadata import version  # loads an email parser, and is wanted in training only

    return {"anubis": __version__, **{name: version(name) for name in LIBRARIES}}
