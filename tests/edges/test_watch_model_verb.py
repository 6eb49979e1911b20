"""`anubis criteria learn-watching`: a model from recordings, as a person asks for it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import anubis
from anubis.cli import main
from anubis.core.errors import UsageError, WatchError
from anubis.core.watch.telemetry import Side, Telemetry, WatchedMetric
from anubis.models.watch import lstm_vae_training, watch_model_files
from anubis.readers.telemetry.config import ORDER
from anubis.readers.telemetry.recorded import write_recording

CPU = WatchedMetric(name="cpu_use", unit="%", low=0, high=100, fault=Side.LOW)


@pytest.fixture
def recording(tmp_path, monkeypatch):
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(lstm_vae_training, "STEPS", 5)
    monkeypatch.setattr(lstm_vae_training, "COLLAPSED", 9.0)
    random = np.random.default_rng(0)
    telemetry = Telemetry(
        metrics=(CPU,),
        nodes=tuple(f"n{i}" for i in range(6)),
        start=1_790_000_000.0,
        step_s=1.0,
        values=random.normal(40, 2, (1, 6, 400)).astype(np.float32),
    )
    write_recording(telemetry, tmp_path / "monday.csv")
    return tmp_path / "monday.csv"


class Listener(anubis.Caller):
    def __init__(self):
        super().__init__()
        self.remarks = []

    def remark(self, sentence):
        self.remarks.append(sentence)


def test_recordings_teach_a_model_of_the_metrics_that_they_have(recording):
    listener = Listener()
    kept = anubis.train_watch_model([recording], caller=listener)
    assert kept.file == watch_model_files.own("ours")
    assert kept.model.order == ("cpu_use",)
    assert any("learned without pfc_tx" in remark for remark in listener.remarks)
    assert anubis.watch_model("ours").model.order == ("cpu_use",)
    assert not kept.model.origin.is_synthetic


def test_larger_jobs_than_the_recorded_have_the_thresholds_of_the_shipped_model(recording):
    kept = anubis.train_watch_model([recording], name=str(recording.with_name("m.json")))
    shipped = watch_model_files.load(watch_model_files.place(watch_model_files.SHIPPED))
    assert kept.model.thresholds["cpu_use"].value_at(1024) == shipped.thresholds[
        "cpu_use"
    ].value_at(1024)


def test_without_recordings_nothing_is_made_up(recording):
    with pytest.raises(UsageError, match="expected recordings"):
        anubis.train_watch_model()
    with pytest.raises(UsageError, match="not both"):
        anubis.train_watch_model([recording], synthetic=True)
    recording.write_text("time,node,gpu_duty\n1790000000,n1,\n1790000001,n1,\n")
    with pytest.raises(WatchError, match="have none of gpu_duty"):
        anubis.train_watch_model([recording], metrics=["gpu_duty"])


def test_the_shipped_watch_model_describes_itself(capsys):
    assert main.command()(["criteria", "show-watching"], standalone_mode=False) in (None, 0)
    shown = capsys.readouterr()
    assert "synthetic" in shown.err
    assert "cpu_use" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_the_shipped_model_is_whole_and_was_learned_well():
    model = watch_model_files.load(watch_model_files.place(watch_model_files.SHIPPED))
    assert model.origin.is_synthetic
    assert set(model.order) == set(ORDER)
    for metric, fit in model.origin.fits.items():
        assert fit.error < lstm_vae_training.COLLAPSED * fit.variance, metric
    for thresholds in model.thresholds.values():
        assert {4, 15, 16, 1024} <= set(thresholds.nodes)
    assert watch_model_files.place(watch_model_files.SHIPPED).stat().st_size < 300_000


def test_a_model_is_printed_as_json(capsys):
    main.command()(["criteria", "show-watching", "--json"], standalone_mode=False)
    head, *metrics = map(json.loads, capsys.readouterr().out.splitlines())
    assert (head["type"], head["is_synthetic"]) == ("watch-model", True)
    assert {line["type"] for line in metrics} == {"modelled-metric"}
    assert [line["metric"] for line in metrics if line["is_asked"]] == head["order"]
