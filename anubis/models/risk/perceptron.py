"""Cox-Time's relative risk exp(g(x, t)) for all nodes and times at once, without torch.

Columns of any size are first scaled to numbers of about one, as learned from the training data. g
is the mean of several perceptrons with two hidden layers. The time is one more input of the first
layer, so the contribution of the covariates there is computed once for a node, not once for each
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from anubis.core.arrays import Flags, Floats, Floats32
from anubis.core.history.status import Times


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Scale of each column. A value outside the range of training counts as the nearest one
    inside."""

    low: Times
    high: Times
    logged: Flags  # hours and counts span orders of magnitude
    mean: Times  # after that step
    spread: Times

    @classmethod
    def from_table(cls, table: Floats) -> Self:
        low, high = table.min(axis=0), table.max(axis=0)
        logged = (low >= 0) & (_skew(np.log1p(np.maximum(table, 0))) < _skew(table))
        plain = np.where(logged, np.log1p(np.maximum(table, 0)), table)
        spread = plain.std(axis=0)
        return cls(
            low=low,
            high=high,
            logged=logged,
            mean=plain.mean(axis=0),
            spread=np.where(spread > 1e-12 * np.maximum(1, np.abs(plain).max(axis=0)), spread, 1.0),
        )

    def apply(self, table: Floats) -> Floats:
        if table.shape[1:] != self.low.shape:
            raise ValueError(f"{table.shape[1:]} columns, expected {self.low.shape}")
        clipped = np.clip(table, self.low, self.high)
        plain = np.where(self.logged, np.log1p(np.maximum(clipped, 0)), clipped)
        return (plain - self.mean) / self.spread


def _skew(table: Floats) -> Times:
    centred = table - table.mean(axis=0)
    spread = np.maximum(table.std(axis=0), 1e-300)
    skew: Times = np.abs(np.mean((centred / spread) ** 3, axis=0))
    return skew


# nodes at a time: their hidden layers stay in the cache, and products are too small for threads
BLOCK = 128
LAYERS = ("first", "first_bias", "second", "second_bias", "last", "last_bias")
LARGEST = 60.0  # of g: far beyond anything learned, and e^60 is still a number


@dataclass(frozen=True, kw_only=True)
class HazardNetwork:
    """Perceptron relu(relu([x, t] first + first_bias) second + second_bias) last + last_bias

    Layers may be stacks: then it is the mean of several networks.
    """

    first: Floats32  # the last row belongs to the time
    first_bias: Floats32
    second: Floats32
    second_bias: Floats32
    last: Floats32
    last_bias: Floats32

    def __post_init__(self) -> None:
        *stack, inner, outer = self.second.shape
        last = (self.last.shape, self.last_bias.shape)
        hidden = (self.first.shape[-1:], self.first_bias.shape, self.second_bias.shape)
        if (
            hidden != ((inner,), (*stack, inner), (*stack, outer))
            or self.first.shape[:-2] != tuple(stack)
            or last != ((*stack, outer, 1), (*stack, 1))
        ):
            raise ValueError("the layers of the network do not fit each other")

    @classmethod
    def stack(cls, networks: Iterable[HazardNetwork]) -> Self:
        layers = zip(*(network._layers() for network in networks), strict=True)
        return cls(**dict(zip(LAYERS, map(np.stack, layers), strict=True)))

    def _layers(self) -> tuple[Floats32, ...]:
        return tuple(getattr(self, name) for name in LAYERS)

    def relative_risk(self, x: Floats, times: Times) -> Floats32:
        """Relative risk: a row for each row of `x`, a column for each time."""
        members = self._members()
        logs = np.zeros((len(x), times.size), dtype=np.float32)
        for member in members:
            logs += member._log_risk(x, times)
        logs /= len(members)
        return np.exp(np.clip(logs, -LARGEST, LARGEST, out=logs), out=logs)

    def _members(self) -> Sequence[HazardNetwork]:
        if self.second.ndim == 2:
            return (self,)
        stacks = zip(*self._layers(), strict=True)
        return [HazardNetwork(**dict(zip(LAYERS, layers, strict=True))) for layers in stacks]

    def _log_risk(self, x: Floats, times: Times) -> Floats32:
        by_time = np.outer(times.astype(np.float32), self.first[-1])
        risks = np.empty((len(x), times.size), dtype=np.float32)
        for start in range(0, len(x), BLOCK):
            part = slice(start, start + BLOCK)
            by_node = x[part].astype(np.float32) @ self.first[:-1] + self.first_bias
            hidden: Floats32 = by_node[:, None, :] + by_time[None, :, :]
            risks[part] = self._later_layers(hidden)
        return risks

    def _later_layers(self, hidden: Floats32) -> Floats32:
        """Logarithms of the risk. The product is made node by node: for so small products several
        threads cost seven times what they save."""
        np.maximum(hidden, 0, out=hidden)
        second = hidden @ self.second
        second += self.second_bias
        np.maximum(second, 0, out=second)
        last: Floats32 = np.einsum("nti,i->nt", second, self.last[:, 0])
        return np.add(last, self.last_bias, out=last)
