"""A saved watch model answers as before; an incomplete one is refused in a sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from anubis.config import criteria_files
from anubis.core.errors import WatchError
from anubis.core.watch.model import Denoiser, Fit, Lstm, Thresholds, WatchModel, WatchOrigin
from anubis.models.watch import watch_model_files


def random_denoiser(seed=0, units=4):
    random = np.random.default_rng(seed)

    def array(*shape):
        return random.normal(size=shape).astype(np.float32)

    def lstm():
        gates = 4 * units
        return Lstm(inputs=array(2, 1, gates), hidden=array(2, units, gates), bias=array(2, gates))

    return Denoiser(
        encoder=lstm(),
        mean=array(2 * units, 1),
        mean_bias=array(1),
        decoder=lstm(),
        output=array(2 * units, 1),
        output_bias=array(1),
    )


MODEL = WatchModel(
    denoisers={"cpu_use": random_denoiser(1), "gpu_duty": random_denoiser(2, units=3)},
    thresholds={
        "cpu_use": Thresholds(nodes=(4, 16), scores=(6.5, 1 / 3)),
        "gpu_duty": Thresholds(nodes=(4, 16), scores=(7.0, 3.0)),
        "concatenated": Thresholds(nodes=(4, 16), scores=(7.0, 3.0)),
    },
    order=("gpu_duty", "cpu_use"),
    origin=WatchOrigin(
        source="jobs that were made",
        is_synthetic=True,
        jobs=3,
        seed=1,
        versions={"torch": "2.13"},
        fits={"cpu_use": Fit(windows=9, error=1e-4, variance=0.1)},
    ),
)


@pytest.fixture
def file(tmp_path):
    watch_model_files.save(MODEL, tmp_path / "deep" / "m.json")
    return tmp_path / "deep" / "m.json"


def changed(file, change):
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    return file


def test_a_saved_model_answers_to_the_last_bit_as_it_did(file):
    model = watch_model_files.load(file)
    windows = np.random.default_rng(5).random((20, 8), dtype=np.float32)
    for name, denoiser in MODEL.denoisers.items():
        answer = model.denoisers[name].denoise(windows)
        assert answer.tobytes() == denoiser.denoise(windows).tobytes()
    assert (model.order, model.origin, model.thresholds) == (
        MODEL.order,
        MODEL.origin,
        MODEL.thresholds,
    )


def test_a_model_that_is_read_and_written_has_the_same_bytes(file):
    assert (
        watch_model_files.dump(watch_model_files.load(file))
        == file.read_text()
        == watch_model_files.dump(MODEL)
    )


def test_each_array_has_a_line_of_its_own(file):
    lines = file.read_text().splitlines()
    assert sum('"hidden": [' in line for line in lines) == 4
    assert max(map(len, lines)) < 2000


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda d: d.update(schema="anubis.watch-weights/9"),
            'its schema is "anubis.watch-weights/9"',
        ),
        (lambda d: d.pop("order"), 'the key "order" is missing'),
        (lambda d: d.update(order=["gpu_duty", "pfc_tx"]), '"order" names "pfc_tx"'),
        (lambda d: d.update(order=[]), '"order" must name each metric once'),
        (lambda d: d["denoisers"]["cpu_use"]["mean"].pop(), "7 numbers, expected 8 x 1"),
        (lambda d: d["denoisers"]["cpu_use"].update(hidden=0), '"cpu_use": its weights do not fit'),
        (lambda d: d["denoisers"]["cpu_use"].update(hidden=10**30), "its weights do not fit"),
        (lambda d: d["denoisers"]["cpu_use"]["encoder"].pop("bias"), "expected inputs, hidden"),
        (lambda d: d["denoisers"]["cpu_use"]["output_bias"].__setitem__(0, 1e300), "not finite"),
        (lambda d: d["denoisers"]["cpu_use"]["output_bias"].__setitem__(0, "x"), "a number"),
        (lambda d: d["thresholds"]["cpu_use"]["scores"].pop(), "thresholds need a score"),
        (lambda d: d["thresholds"]["cpu_use"].update(more=1), 'unknown key "more"'),
    ],
)
def test_a_file_that_is_no_whole_model_is_refused_in_one_sentence(file, change, sentence):
    with pytest.raises(WatchError) as refused:
        watch_model_files.load(changed(file, change))
    assert sentence in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '"anubis"', "\x00\xff", '{"schema": NaN}'])
def test_any_other_file_is_refused(file, text):
    file.write_text(text)
    with pytest.raises(WatchError, match=r"complete JSON document|its schema is"):
        watch_model_files.load(file)


def test_a_file_cut_off_anywhere_is_refused(file):
    text = file.read_text()
    for end in range(0, len(text) - 2, 97):
        file.write_text(text[:end])
        with pytest.raises(WatchError, match="complete JSON document"):
            watch_model_files.load(file)


def test_a_model_that_is_not_there_is_named_with_those_that_are(monkeypatch, tmp_path):
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path))
    watch_model_files.save(MODEL, watch_model_files.own("ours"))
    assert watch_model_files.place("ours") == watch_model_files.own("ours")
    assert watch_model_files.place("./some.json").name == "some.json"
    with pytest.raises(WatchError, match=r'no watch model "ourz" .*did you mean "ours"'):
        watch_model_files.place("ourz")


def test_a_folder_of_criteria_takes_no_watch_model_for_a_suite(tmp_path):
    watch_model_files.save(MODEL, tmp_path / "watching" / "m.json")
    assert criteria_files.suites(tmp_path) == ()


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WatchError, match="cannot write the watch model"):
        watch_model_files.save(replace(MODEL, order=("cpu_use",)), tmp_path / "file" / "m.json")
