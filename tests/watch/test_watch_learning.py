"""A watch model from jobs: from made ones, and from recordings."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from anubis.core.errors import WatchError
from anubis.core.watch.model import Thresholds
from anubis.core.watch.telemetry import Side, Telemetry, WatchedMetric
from anubis.core.watch.watch_settings import WatchSettings
from anubis.models.watch import lstm_vae_training, watch_model_files
from anubis.models.watch.watch_learning import (
    FaultyJob,
    complete,
    learn,
    windows_of,
)
from anubis.operations.watch_model import FIRST_FAULTY, RecordedJobs, SimulatedJobs

FACTS = {
    name: WatchedMetric(name=name, unit="%", low=0, high=100, fault=Side.LOW)
    for name in ("cpu_use", "gpu_duty")
}


def job(seed, nodes=16, points=600, metrics=tuple(FACTS)):
    random = np.random.default_rng(seed)
    shared = 30 + 40 * (np.arange(points) % 20 < 12)
    values = shared + random.normal(0, 2, (len(metrics), nodes, points))
    return Telemetry(
        metrics=tuple(FACTS[name] for name in metrics),
        nodes=tuple(f"n{i}" for i in range(nodes)),
        start=0.0,
        step_s=1.0,
        values=values.astype(np.float32),
    )


@dataclasses.dataclass
class FewJobs:
    """Two healthy jobs of sixteen nodes; in two others the duty of a GPU falls."""

    source: str = "two jobs"
    is_synthetic: bool = True
    jobs: int = 2
    nodes: int = 16
    faulty_jobs: int = 2
    suspected: tuple[()] = ()

    def healthy(self, metrics):
        return [job(seed, nodes=self.nodes, metrics=tuple(metrics)) for seed in range(self.jobs)]

    def faulty(self, metrics):
        for seed in range(self.faulty_jobs):
            telemetry = job(50 + seed, metrics=tuple(metrics))
            telemetry.series("gpu_duty")[3, 300:] = 5
            yield FaultyJob(telemetry=telemetry, since=300, until=700)


def quickly(patch):
    """Too few batches to learn much."""
    patch.setattr(lstm_vae_training, "STEPS", 10)
    patch.setattr(lstm_vae_training, "COLLAPSED", 9.0)


def learned(training_jobs, **how):
    how.setdefault("tell", lambda text: None)
    return learn(training_jobs, tuple(FACTS), tuple(FACTS), WatchSettings(), **how)


@pytest.fixture(scope="module")
def model():
    with pytest.MonkeyPatch.context() as patch:
        quickly(patch)
        return learned(FewJobs())


def test_the_metric_that_shows_the_faults_is_asked_first(model):
    assert model.order == ("gpu_duty", "cpu_use")
    assert "tree" in model.origin.order


def test_a_model_keeps_the_origin_of_its_data(model):
    origin = model.origin
    assert (origin.source, origin.is_synthetic, origin.jobs) == ("two jobs", True, 2)
    assert origin.versions["torch"].startswith("2.")
    assert 0 < origin.fits["cpu_use"].variance < 0.2


def test_all_metrics_as_one_have_a_threshold_too(model):
    assert set(model.thresholds) == {"cpu_use", "gpu_duty", "concatenated"}
    assert model.thresholds["concatenated"].nodes[-1] == 16


def test_the_same_training_jobs_give_the_same_bytes(model, monkeypatch):
    quickly(monkeypatch)
    assert watch_model_files.dump(learned(FewJobs())) == watch_model_files.dump(model)


def test_thresholds_for_other_numbers_of_nodes_come_from_another_model():
    few = Thresholds(nodes=(4, 8), scores=(5.0, 6.0))
    all_sizes = Thresholds(nodes=(4, 16, 64), scores=(3.0, 3.5, 4.0))
    assert complete(few, "cpu_use", all_sizes) == Thresholds(
        nodes=(4, 8, 16, 64), scores=(5.0, 6.0, 3.5, 4.0)
    )
    assert complete(None, "cpu_use", all_sizes) == all_sizes
    assert complete(few, "cpu_use", None) == few
    with pytest.raises(WatchError, match="cpu_use: no threshold can be learned"):
        complete(None, "cpu_use", None)


def test_windows_are_complete_and_shares_of_the_range_of_their_metric():
    with_holes = job(1)
    with_holes.series("cpu_use")[::2, ::9] = np.nan
    with_holes.series("cpu_use")[1, :] = np.nan
    windows = windows_of([with_holes], "cpu_use", seed=0)
    assert 200 < len(windows) < 600
    assert np.isfinite(windows).all()
    assert 0.2 < windows.min() < windows.max() < 0.8


def test_a_metric_that_never_changes_can_be_learned(monkeypatch):
    monkeypatch.setattr(lstm_vae_training, "STEPS", 150)
    monkeypatch.setattr(lstm_vae_training, "COLLAPSED", 0.5)
    still = job(1)
    still.series("cpu_use")[:] = 0
    windows = windows_of([still], "cpu_use", seed=0)
    denoiser, fit = lstm_vae_training.train(windows, 0, metric="cpu_use")
    assert fit.error < 0.5 * fit.variance
    assert np.isfinite(denoiser.denoise(windows)).all()


def test_a_metric_without_data_is_refused():
    silent = job(1)
    silent.series("cpu_use")[:] = np.nan
    with pytest.raises(WatchError, match="cpu_use: 0 complete windows"):
        lstm_vae_training.train(windows_of([silent], "cpu_use", seed=0), 0, metric="cpu_use")


def test_recorded_jobs_are_learned_from_as_recorded():
    training_jobs = RecordedJobs(recordings={"/some/a.parquet": job(4, nodes=5)})
    (recorded,) = training_jobs.healthy(["gpu_duty"])
    np.testing.assert_array_equal(recorded.series("gpu_duty"), job(4, nodes=5).series("gpu_duty"))
    assert [metric.name for metric in recorded.metrics] == ["gpu_duty"]
    assert training_jobs.source == "recorded: a.parquet"
    assert not training_jobs.is_synthetic


def test_made_training_jobs_keep_to_the_seeds_for_development():
    training_jobs = SimulatedJobs(jobs=2, faulty_jobs=2)
    assert [len(made.metrics) for made in training_jobs.healthy(["cpu_use"])] == [1, 1]
    for faulty in training_jobs.faulty(["cpu_use"]):
        assert faulty.telemetry.start < faulty.since < faulty.until
    whole = SimulatedJobs()
    assert FIRST_FAULTY + whole.faulty_jobs < 10_000
    assert whole.source == "synthetic: made jobs, seeds 0 to 23; 1,000 to 1,119 with faults"
