"""The watch model: denoisers of metrics, thresholds of healthy nodes, and the order of metrics.

A denoiser is Minder's LSTM-VAE, evaluated without torch: it returns a window without its noise.
Encoder and decoder are LSTMs of one layer that read the window in both directions. Between them
each sample is one number, the mean of the encoder's distribution; so the same window always gives
the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

import numpy as np

from anubis.core.arrays import Floats32
from anubis.core.watch.distances import MANY

BLOCK = 1024  # windows at a time: intermediate results stay in the cache
FEW = 32  # windows for which no loop needs to be compiled


@dataclass(frozen=True, kw_only=True, eq=False)
class Lstm:
    """Weights of both directions, forwards and backwards in this order, with gates in the order of
    torch: input, forget, cell, output."""

    inputs: Floats32  # 2 x features x 4 hidden
    hidden: Floats32  # 2 x hidden x 4 hidden
    bias: Floats32  # 2 x 4 hidden

    def __post_init__(self) -> None:
        if (self.inputs.ndim, self.hidden.ndim) != (3, 3):
            raise ValueError("the weights of an LSTM do not fit each other")
        _, hidden, gates = self.hidden.shape
        shapes = self.inputs.shape[0], self.inputs.shape[2], self.hidden.shape[0], self.bias.shape
        if gates != 4 * hidden or shapes != (2, gates, 2, (2, gates)):
            raise ValueError("the weights of an LSTM do not fit each other")

    def run(self, steps: Floats32) -> Floats32:
        """Compute samples x features x windows → samples x 2 hidden x windows.

        One direction does at a sample what the other does at its mirror image, so both are one
        product. Every gate is a tanh, because sigmoid(x) = (1 + tanh(x / 2)) / 2.
        """
        half = self.hidden.shape[1]
        outputs = np.empty((len(steps), 2 * half, steps.shape[2]), dtype=np.float32)
        if steps.shape[1:2] == (1,) and steps.shape[2] >= FEW:
            from anubis.core.watch import compiled_distances

            compiled_distances.lstm(steps[:, 0], self.inputs[:, 0], self.hidden, self.bias, outputs)
            return outputs
        inputs, hidden, bias = self._both_ways
        output = np.zeros((2 * half, steps.shape[2]), dtype=np.float32)
        cell = np.zeros_like(output)
        for sample in range(len(steps)):
            gates = inputs @ np.concatenate([steps[sample], steps[-1 - sample]])
            gates += hidden @ output
            gates += bias
            np.tanh(gates, out=gates)
            enter, keep, change, leave = gates.reshape(4, 2 * half, -1)
            for gate in (enter, keep, leave):
                gate += 1
                gate *= np.float32(0.5)
            cell *= keep
            enter *= change
            cell += enter
            output = np.tanh(cell)
            output *= leave
            outputs[sample, :half] = output[:half]
            outputs[-1 - sample, half:] = output[half:]
        return outputs

    @cached_property
    def _both_ways(self) -> tuple[Floats32, Floats32, Floats32]:
        """Weights in the form of one product: rows by gate, direction and unit, with half the slope
        for sigmoid gates; weights between the directions are zero."""
        features, half = self.inputs.shape[1], self.hidden.shape[1]
        inputs = np.zeros((4, 2, half, 2, features), dtype=np.float32)
        hidden = np.zeros((4, 2, half, 2, half), dtype=np.float32)
        bias = np.zeros((4, 2, half), dtype=np.float32)
        for way in range(2):
            inputs[:, way, :, way] = self.inputs[way].T.reshape(4, half, features)
            hidden[:, way, :, way] = self.hidden[way].T.reshape(4, half, half)
            bias[:, way] = self.bias[way].reshape(4, half)
        for gate in (0, 1, 3):
            for weights in (inputs, hidden, bias):
                weights[gate] *= np.float32(0.5)
        rows = 8 * half
        return inputs.reshape(rows, -1), hidden.reshape(rows, -1), bias.reshape(rows, 1)


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
        if not all(np.isfinite(array).all() for array in self._arrays()):
            raise ValueError("a weight of a denoiser is not finite")

    def denoise(self, windows: Floats32) -> Floats32:
        """Windows without noise. `windows`: windows x samples, of values scaled to 0..1."""
        clean = np.empty(windows.shape, dtype=np.float32)
        for start in range(0, len(windows), BLOCK):
            part = slice(start, start + BLOCK)
            steps = np.ascontiguousarray(windows[part].T[:, None], dtype=np.float32)
            latent = self.mean.T @ self.encoder.run(steps) + self.mean_bias
            clean[part] = (self.output.T @ self.decoder.run(latent) + self.output_bias)[:, 0].T
        return clean

    @property
    def parameters(self) -> int:
        """Number of learned parameters."""
        return sum(int(array.size) for array in self._arrays())

    def _arrays(self) -> list[Floats32]:
        layers = (self.encoder, self.decoder)
        arrays = [getattr(layer, part.name) for layer in layers for part in fields(layer)]
        return [*arrays, self.mean, self.mean_bias, self.output, self.output_bias]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Score that healthy nodes hardly ever exceed, by the number of nodes compared. It is learned
    for some numbers, and interpolated between them in the logarithm of the number. Fewer nodes than
    `MANY` have another kind of score."""

    nodes: tuple[int, ...]  # rising
    scores: tuple[float, ...]

    def __post_init__(self) -> None:
        rises = all(a < b for a, b in zip(self.nodes, self.nodes[1:], strict=False))
        if not self.nodes or len(self.nodes) != len(self.scores) or not rises or self.nodes[0] < 1:
            raise ValueError("thresholds need a score for each of some rising numbers of nodes")
        if not all(np.isfinite(score) and score > 0 for score in self.scores):
            raise ValueError("a threshold is not a number above 0")

    def value_at(self, nodes: int) -> float:
        return _interpolate(self, nodes)


@lru_cache(maxsize=4096)  # asked once a window
def _interpolate(thresholds: Thresholds, nodes: int) -> float:
    counts = thresholds.nodes
    alike = [i for i, count in enumerate(counts) if (count >= MANY) == (nodes >= MANY)]
    rows = alike or range(len(counts))
    logs, scores = np.log([counts[i] for i in rows]), [thresholds.scores[i] for i in rows]
    return float(np.interp(np.log(nodes), logs, scores))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Quality of a denoiser on windows of a metric that it was not trained with."""

    windows: int  # used for training
    error: float  # mean squared error of values scaled to 0..1
    variance: float  # of the same values: the error of a constant denoiser


@dataclass(frozen=True, kw_only=True)
class WatchOrigin:
    """Training data of a watch model."""

    source: str  # in a sentence
    is_synthetic: bool
    jobs: int
    seed: int
    versions: Mapping[str, str]
    fits: Mapping[str, Fit]  # by metric
    order: str = ""  # where the order of the metrics comes from


@dataclass(frozen=True, kw_only=True, eq=False)
class WatchModel:
    denoisers: Mapping[str, Denoiser]  # by metric
    thresholds: Mapping[str, Thresholds]
    order: tuple[str, ...]  # of the metrics
    origin: WatchOrigin

    def __post_init__(self) -> None:
        if unknown := [name for name in self.order if name not in self.thresholds]:
            raise ValueError(f"no threshold for {', '.join(unknown)}")
