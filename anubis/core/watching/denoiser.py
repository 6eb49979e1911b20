"""Minder's LSTM-VAE, asked without torch: what a window looks like without its noise.

Encoder and decoder are LSTMs of one layer that read the window both ways. Between them each sample
is one number, the mean of what the encoder thinks likely; so the same window has the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from anubis.core.arrays import Floats32


@dataclass(frozen=True, kw_only=True, eq=False)
class Lstm:
    """Forwards and backwards, in this order; gates as torch orders them: input, forget, cell,
    output."""

    inputs: Floats32  # 2 x features x 4 hidden
    hidden: Floats32  # 2 x hidden x 4 hidden
    bias: Floats32  # 2 x 4 hidden

    def __post_init__(self) -> None:
        _, hidden, gates = self.hidden.shape
        shapes = self.inputs.shape[0], self.inputs.shape[2], self.hidden.shape[0], self.bias.shape
        if gates != 4 * hidden or shapes != (2, gates, 2, (2, gates)):
            raise ValueError("the weights of an LSTM do not fit each other")

    def run(self, series: Floats32) -> Floats32:
        """Windows x samples x features → windows x samples x 2 hidden."""
        both_ways = np.stack([series, series[:, ::-1]])
        driven = both_ways @ self.inputs[:, None] + self.bias[:, None, None]
        outputs = self._states(driven.astype(np.float32))
        return np.concatenate([outputs[0], outputs[1, :, ::-1]], axis=2)

    def _states(self, driven: Floats32) -> Floats32:
        size = self.hidden.shape[1]
        ways, windows, samples, _ = driven.shape
        outputs = np.empty((ways, windows, samples, size), dtype=np.float32)
        output = np.zeros((ways, windows, size), dtype=np.float32)
        cell = np.zeros_like(output)
        for sample in range(samples):
            gates = driven[:, :, sample] + output @ self.hidden
            opening = _sigmoid(gates)
            enter, keep, leave = (opening[..., i * size : (i + 1) * size] for i in (0, 1, 3))
            cell = keep * cell + enter * np.tanh(gates[..., 2 * size : 3 * size])
            output = leave * np.tanh(cell)
            outputs[:, :, sample] = output
        return outputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Denoiser:
    encoder: Lstm
    mean: Floats32  # 2 hidden x 1
    mean_bias: Floats32  # 1
    decoder: Lstm
    output: Floats32  # 2 hidden x 1
    output_bias: Floats32  # 1

    def __post_init__(self) -> None:
        width = 2 * self.encoder.hidden.shape[1], 2 * self.decoder.hidden.shape[1]
        if (self.encoder.inputs.shape[1], self.decoder.inputs.shape[1]) != (1, 1) or (
            self.mean.shape,
            self.output.shape,
            self.mean_bias.shape,
            self.output_bias.shape,
        ) != ((width[0], 1), (width[1], 1), (1,), (1,)):
            raise ValueError("the layers of a denoiser do not fit each other")

    def denoise(self, windows: Floats32) -> Floats32:
        """Windows x samples, of values scaled to 0..1."""
        latent = self.encoder.run(windows[:, :, None]) @ self.mean + self.mean_bias
        clean: Floats32 = self.decoder.run(latent) @ self.output + self.output_bias
        return clean[:, :, 0]

    @property
    def parameters(self) -> int:
        """How many numbers it was to learn."""
        layers = (self.encoder, self.decoder)
        arrays = [getattr(layer, part.name) for layer in layers for part in fields(layer)]
        own = (self.mean, self.mean_bias, self.output, self.output_bias)
        return sum(int(array.size) for array in (*arrays, *own))


def _sigmoid(x: Floats32) -> Floats32:
    shares: Floats32 = np.tanh(x * np.float32(0.5)) * np.float32(0.5) + np.float32(0.5)
    return shares
