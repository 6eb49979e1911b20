"""Cox-Time's relative risk exp(g(x, t)) for all nodes and times at once, without torch.

g is a perceptron with two hidden layers. The time is one more input of its first layer, so what
the covariates add there is computed once for a node, and not once for each of its times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anubis.core.arrays import Floats
from anubis.core.past.status import Times

Floats32 = npt.NDArray[np.float32]

BLOCK = 128  # nodes at a time, so that their hidden layers stay in the cache
LARGEST = 60.0  # of g: far beyond anything learned, and e^60 is still a number


@dataclass(frozen=True, kw_only=True)
class HazardNetwork:
    """relu(relu([x, t] first + first_bias) second + second_bias) last + last_bias"""

    first: Floats32  # the last row belongs to the time
    first_bias: Floats32
    second: Floats32
    second_bias: Floats32
    last: Floats32
    last_bias: Floats32

    def __post_init__(self) -> None:
        inner, outer = self.second.shape
        shapes = (self.first.shape[1:], self.first_bias.shape, self.second_bias.shape)
        if shapes != ((inner,), (inner,), (outer,)) or self.last.shape != (outer, 1):
            raise ValueError("the layers of the network do not fit each other")

    def relative_risk(self, x: Floats, times: Times) -> Floats32:
        """A row for each row of `x`, a column for each time."""
        by_node = x.astype(np.float32) @ self.first[:-1] + self.first_bias
        by_time = np.outer(times.astype(np.float32), self.first[-1])
        risks = np.empty((len(x), times.size), dtype=np.float32)
        for start in range(0, len(x), BLOCK):
            part = slice(start, start + BLOCK)
            hidden: Floats32 = by_node[part, None, :] + by_time[None, :, :]
            risks[part] = self._after_first_layer(hidden.reshape(-1, hidden.shape[-1])).reshape(
                -1, times.size
            )
        return np.exp(np.clip(risks, -LARGEST, LARGEST, out=risks), out=risks)

    def _after_first_layer(self, hidden: Floats32) -> Floats32:
        np.maximum(hidden, 0, out=hidden)
        second = hidden @ self.second
        second += self.second_bias
        np.maximum(second, 0, out=second)
        last: Floats32 = np.matmul(second, self.last)
        return np.add(last, self.last_bias, out=last)
