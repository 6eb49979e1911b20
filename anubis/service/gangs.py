"""The nodes of each gang whose pods asked for a gate lately: each pod knows only its own.

What one token names counts for that token alone: another one can neither put a bad node into its
gang nor have the gang forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

REMEMBERED_S = 600.0  # pods of a gang ask within minutes
MOST_GANGS, MOST_NODES = 10_000, 10_000  # more than a cluster starts within minutes


class Gang(NamedTuple):
    cluster: str
    token: str  # by its name
    name: str  # empty: no gang


class Gangs:
    """In memory: after a restart of the service, pods that ask are again asked about alone."""

    def __init__(self) -> None:
        self._asked: OrderedDict[Gang, dict[str, float]] = OrderedDict()

    def together(self, gang: Gang, nodes: Sequence[str], at: float) -> tuple[str, ...]:
        """The nodes, and those that asked for the same gang before them."""
        members = self._asked.get(gang, {})
        lately = (name for name, asked_at in members.items() if at - asked_at < REMEMBERED_S)
        return tuple(dict.fromkeys((*nodes, *lately)))

    def note(self, gang: Gang, nodes: Sequence[str], at: float, *, is_stopped: bool) -> None:
        """Remember who asked. A gang that was stopped is forgotten: its pods begin anew, maybe
        elsewhere."""
        if is_stopped or not gang.name:
            self._asked.pop(gang, None)
            return
        members = self._asked.setdefault(gang, {})
        members.update(dict.fromkeys(nodes, at))
        self._asked.move_to_end(gang)
        if len(members) > MOST_NODES:
            members.clear()
        if len(self._asked) > MOST_GANGS:
            self._asked.popitem(last=False)
