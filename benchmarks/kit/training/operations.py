"""The arithmetic that a training step needs, counted by torch on tensors without content."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from kit.training.models import Model


def operations(model: Model, batch: int) -> float:
    """Count multiplications and additions of forward and backward, per sample.

    Every step of an LSTM costs the same, so two of them give the price of all. Causal attention
    needs the lower half of the square of scores that torch counts.
    """
    if model.data == "sequences":
        one_step, two_steps = (_count(model, batch, length) for length in (1, 2))
        return (one_step + (model.length - 1) * (two_steps - one_step)) / batch
    total = _count(model, batch, model.length) / batch
    if model.causal:
        scores = model.length * (model.length - 1) / 2  # those that look ahead
        products = 2 + 4  # by the keys and by the values; each again for both sides' gradients
        total -= products * 2 * model.shape["layers"] * model.shape["width"] * scores
    return total


def _count(model: Model, batch: int, length: int) -> int:
    with torch.device("meta"):
        network = model.build()
        inputs = {
            "pictures": lambda: torch.empty(batch, 3, length, length),
            "sequences": lambda: torch.empty(batch, length, model.shape["features"]),
            "tokens": lambda: torch.empty(batch, length, dtype=torch.int64),
        }[model.data]()
    with FlopCounterMode(display=False) as counter:
        network(inputs).sum().backward()
    return counter.get_total_flops()
