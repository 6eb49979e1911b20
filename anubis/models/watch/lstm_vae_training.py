"""Trains the LSTM-VAE of a metric (Minder, NSDI '25): the one place of watching that knows torch.

The result is evaluated without torch: core/watch/model.py.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from anubis.core.arrays import Floats32
from anubis.core.errors import WatchError
from anubis.core.watch.model import Denoiser, Fit, Lstm
from anubis.models.risk.determinism import alone

HIDDEN = 4  # units: windows of one metric have a simple shape
STEPS = 1500  # of the optimizer
BATCH = 256  # windows
LEARNING_RATE = 0.01  # at first; it falls to nothing along a cosine
KL_WEIGHT = 1e-5  # reached in the middle of the training; a full weight at once leaves a constant
HELD_OUT = 0.1  # share of windows by which the model is checked
COLLAPSED = 0.05  # of the variance: an error above it means that the output ignores the input
MOVED = 0.5  # share of the windows moved to another level, because faults reach unusual levels


class LstmVae(nn.Module):
    """LSTM-VAE with one latent number for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(1, HIDDEN, batch_first=True, bidirectional=True)
        self.mean = nn.Linear(2 * HIDDEN, 1)
        self.log_variance = nn.Linear(2 * HIDDEN, 1)
        self.decoder = nn.LSTM(1, HIDDEN, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * HIDDEN, 1)

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Reconstruction, and the divergence of the latent numbers from N(0, 1)."""
        hidden, _ = self.encoder(windows.unsqueeze(2))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        latent = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=(1, 2)).mean() / 2
        return self.output(self.decoder(latent)[0]).squeeze(2), divergence


def train(windows: Floats32, seed: int, *, metric: str) -> tuple[Denoiser, Fit]:
    """Denoiser and its quality. `windows`: windows x samples, of values scaled to 0..1, nearly all
    healthy."""
    if len(windows) < BATCH or not np.isfinite(windows).all():
        raise WatchError(
            f"{metric}: {len(windows):,} complete windows, expected {BATCH} or more to learn from"
        )
    random = np.random.default_rng(seed)
    shown = _move_levels(windows[random.permutation(len(windows))].astype(np.float32), random)
    held = max(1, int(HELD_OUT * len(shown)))
    with alone(seed):
        vae = LstmVae()
        _fit(vae, torch.from_numpy(shown[held:]))
        denoiser = denoiser_of(vae)
    fit = _fit_on(denoiser, shown[:held], len(shown) - held)
    if not fit.error < COLLAPSED * fit.variance:
        raise WatchError(
            f"{metric}: what was learned ignores what it is asked: an error of {fit.error:.2g}"
            f" on windows whose values vary by {fit.variance:.2g}, expected less than"
            f" {COLLAPSED:.0%} of that; train with more windows or another seed"
        )
    return denoiser, fit


def _move_levels(windows: Floats32, random: np.random.Generator) -> Floats32:
    """Copy of the windows, some of them shifted to another level, so that training sees every
    level."""
    moved = windows.copy()
    rows = np.flatnonzero(random.random(len(windows)) < MOVED)
    levels = windows[rows].mean(axis=1, keepdims=True)
    moved[rows] += random.random((len(rows), 1), dtype=np.float32) - levels
    return np.clip(moved, 0, 1)


def _fit(vae: LstmVae, windows: Tensor) -> None:
    optimizer = torch.optim.Adam(vae.parameters(), LEARNING_RATE)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(STEPS):
        batch = windows[torch.randint(len(windows), (BATCH,))]
        optimizer.zero_grad()
        clean, divergence = vae(batch)
        weight = KL_WEIGHT * min(1.0, 2 * step / STEPS)
        loss = nn.functional.mse_loss(clean, batch) + weight * divergence
        loss.backward()
        optimizer.step()
        rate.step()


def _fit_on(denoiser: Denoiser, windows: Floats32, learned_from: int) -> Fit:
    error = float(np.mean((denoiser.denoise(windows) - windows) ** 2, dtype=np.float64))
    return Fit(windows=learned_from, error=error, variance=float(windows.var(dtype=np.float64)))


def denoiser_of(vae: LstmVae) -> Denoiser:
    return Denoiser(
        encoder=_lstm_of(vae.encoder),
        mean=_array(vae.mean.weight.T),
        mean_bias=_array(vae.mean.bias),
        decoder=_lstm_of(vae.decoder),
        output=_array(vae.output.weight.T),
        output_bias=_array(vae.output.bias),
    )


def _lstm_of(lstm: nn.LSTM) -> Lstm:
    weights = lstm.state_dict()
    ways = ("l0", "l0_reverse")
    return Lstm(
        inputs=np.stack([_array(weights[f"weight_ih_{way}"].T) for way in ways]),
        hidden=np.stack([_array(weights[f"weight_hh_{way}"].T) for way in ways]),
        bias=np.stack(
            [_array(weights[f"bias_ih_{way}"] + weights[f"bias_hh_{way}"]) for way in ways]
        ),
    )


def _array(tensor: Tensor) -> Floats32:
    return np.ascontiguousarray(tensor.detach().numpy())
