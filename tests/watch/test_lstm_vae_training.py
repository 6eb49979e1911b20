"""LSTM-VAEs as they are trained by torch, and asked without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from anubis.core.errors import WatchError
from anubis.core.watch.model import BLOCK
from anubis.models.risk.determinism import alone
from anubis.models.watch import lstm_vae_training
from anubis.models.watch.lstm_vae_training import LstmVae, denoiser_of, train


def windows_of_steps(count=600, seed=0):
    """Windows of a metric that falls and rises with the steps of a training, and some noise."""
    random = np.random.default_rng(seed)
    starts, times = random.integers(0, 20, count), np.arange(8)
    computing = (starts[:, None] + times) % 20 < 14
    values = 0.2 + 0.6 * computing + 0.01 * random.standard_normal((count, 8))
    return values.astype(np.float32)


@pytest.fixture(scope="module")
def trained():
    """A model trained on fewer batches than the product's, so that it is quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lstm_vae_training, "STEPS", 400)
        return train(windows_of_steps(), 0, metric="gpu_duty")


@pytest.mark.parametrize("seed", range(3))
def test_without_torch_the_answer_is_that_of_torch(seed):
    with alone(seed):
        vae = LstmVae()
        windows = torch.rand(BLOCK + 3, 8) * 3 - 1
        latent = vae.mean(vae.encoder(windows.unsqueeze(2))[0])
        expected = vae.output(vae.decoder(latent)[0]).squeeze(2).detach().numpy()
    answer = denoiser_of(vae).denoise(windows.numpy())
    np.testing.assert_allclose(answer, expected, atol=1e-5)
    assert answer.dtype == np.float32
    assert denoiser_of(vae).denoise(windows.numpy()[:0]).shape == (0, 8)


def test_weights_that_do_not_fit_or_are_no_numbers_are_refused():
    denoiser = denoiser_of(LstmVae())
    with pytest.raises(ValueError, match="the weights of an LSTM do not fit"):
        replace(denoiser.encoder, bias=denoiser.encoder.bias[:, 1:])
    with pytest.raises(ValueError, match="the layers of a denoiser do not fit"):
        replace(denoiser, mean=denoiser.mean[1:])
    with pytest.raises(ValueError, match="not finite"):
        replace(denoiser, output=denoiser.output * np.nan)


def test_the_same_windows_and_seed_train_the_same_weights(monkeypatch):
    monkeypatch.setattr(lstm_vae_training, "STEPS", 20)
    monkeypatch.setattr(lstm_vae_training, "COLLAPSED", 9.0)
    answers = []
    for _ in range(2):
        torch.manual_seed(len(answers))  # whatever happened before
        denoiser, fit = train(windows_of_steps(), 3, metric="gpu_duty")
        answers.append((denoiser.denoise(windows_of_steps(seed=1)).tobytes(), fit))
    assert answers[0] == answers[1]


def test_windows_it_has_not_seen_are_given_back(trained):
    denoiser, fit = trained
    windows = windows_of_steps(seed=9)
    assert np.mean((denoiser.denoise(windows) - windows) ** 2) < 0.05 * windows.var()
    assert fit.error < 0.05 * fit.variance


def test_a_level_that_no_healthy_node_had_is_given_back(trained):
    """A denoiser that answered with what is usual would hide a fault."""
    denoiser, _ = trained
    levels = np.array([0.02, 0.4, 0.6, 0.98], dtype=np.float32)
    answers = denoiser.denoise(np.repeat(levels[:, None], 8, axis=1)).mean(axis=1)
    np.testing.assert_allclose(answers, levels, atol=0.08)


def test_a_network_that_ignores_its_input_is_refused(monkeypatch):
    monkeypatch.setattr(lstm_vae_training, "STEPS", 1)
    with pytest.raises(WatchError, match="gpu_duty: what was learned ignores what it is asked"):
        train(windows_of_steps(), 0, metric="gpu_duty")


@pytest.mark.parametrize(
    "windows",
    [windows_of_steps()[:10], np.full((600, 8), np.nan, dtype=np.float32)],
    ids=["few", "unknown"],
)
def test_too_little_to_learn_from_is_refused(windows):
    with pytest.raises(WatchError, match="complete windows, expected 256 or more"):
        train(windows, 0, metric="gpu_duty")


def test_training_leaves_global_generators_and_threads_as_they_were():
    state, threads = np.random.get_state()[1].copy(), torch.get_num_threads()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    with alone(0):
        torch.rand(3)
        np.random.rand(3)
    assert (np.random.get_state()[1] == state).all()
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), before)
