"""Which rail a pair of nodes measured, by the names that a program gave the devices at its ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anubis.core.fabric import Fabric, rail_of

_GPUS = re.compile(r"cuda:(\d+)-cuda:(\d+)")


@dataclass(frozen=True)
class Rails:
    """`mlx5_4-mlx5_4` names the NICs of both nodes; with one rail, any device is on it.

    GPU i is on the i-th rail where there are as many rails as GPUs, as rail-optimised machines are
    wired. Otherwise nothing says which rail a GPU uses, and no rail is guessed.
    """

    fabric: Fabric
    gpus: int
    _halves: dict[str, list[tuple[str, str]]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, fabric: Fabric, devices: Iterable[str]) -> Rails:
        """`devices`: all that the pairs of a campaign measured, to count the GPUs of a node."""
        pairs = (_GPUS.fullmatch(device) for device in set(devices))
        highest = max((int(end) for pair in pairs if pair for end in pair.groups()), default=-1)
        return cls(fabric, highest + 1)

    def between(self, names: Sequence[str], device: str) -> str | None:
        """None if nothing shows which rail of the fabric these two nodes measured."""
        if len(self.fabric.rails) == 1:
            rails = [self.fabric.rails[0]]
        elif rail := self._of_gpus(device):
            rails = [rail]
        else:
            rails = [near for near, far in self._ends(device) if near == far]
        return next((rail for rail in rails if self.joins(names, rail)), None)

    def joins(self, names: Sequence[str], rail: str) -> bool:
        """Whether these are two nodes with a NIC on the rail."""
        return len(names) == 2 and all(self.fabric.nic(name, rail) for name in names)

    def names_nics(self, device: str) -> bool:
        return any(end in self.fabric.rails for ends in self._ends(device) for end in ends)

    def _of_gpus(self, device: str) -> str | None:
        pair = _GPUS.fullmatch(device)
        if not pair or pair[1] != pair[2] or self.gpus != len(self.fabric.rails):
            return None
        return self.fabric.rails[int(pair[1])]

    def _ends(self, device: str) -> list[tuple[str, str]]:
        """The rails of both ends, for each dash that may part them: names have dashes as well."""
        if device not in self._halves:
            dashes = [place for place, letter in enumerate(device) if letter == "-"]
            self._halves[device] = [
                (rail_of(device[:dash]), rail_of(device[dash + 1 :])) for dash in dashes
            ]
        return self._halves[device]
