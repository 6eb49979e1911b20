"""How long each node spent in each state."""

from __future__ import annotations

import math

WORKING, STALLED, VALIDATING, REPAIR, FREE, HELD = range(6)


class NodeTimes:
    """Time that each node spent in each state."""

    def __init__(self, nodes: int) -> None:
        self._state = [FREE] * nodes
        self._since_h = [0.0] * nodes
        self._until_h = [0.0] * nodes  # of a validation, after which it is held
        self._spent_h = [[0.0] * nodes for _ in range(6)]

    def enter(self, node: int, state: int, now_h: float, until_h: float = 0.0) -> None:
        before, since_h = self._state[node], self._since_h[node]
        if before == VALIDATING and self._until_h[node] < now_h:
            self._spent_h[HELD][node] += now_h - self._until_h[node]
            self._spent_h[VALIDATING][node] += self._until_h[node] - since_h
        else:
            self._spent_h[before][node] += now_h - since_h
        self._state[node], self._since_h[node], self._until_h[node] = state, now_h, until_h

    def total(self, now_h: float) -> list[float]:
        """Sum of each state over the nodes."""
        for node, state in enumerate(self._state):
            self.enter(node, state, now_h, self._until_h[node])
        return [math.fsum(spent) for spent in self._spent_h]
