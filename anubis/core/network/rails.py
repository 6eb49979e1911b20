"""The rails between which a pair of nodes measured, by the device names that a program reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anubis.core.fabric import Fabric, RailNic, RailNics, rail_of
from anubis.core.network.pairing import PairTest, pair_test_at

UP_ON_ONE_NODE = "agreement:rails"  # metric of a pair: are the same HCAs up on both nodes?
_ACROSS = re.compile(r"rails \+(\d+)")
_GPUS = re.compile(r"cuda:(\d+)-cuda:(\d+)")


def device_across(shift: int) -> str:
    """The device of a measurement across rails, if no program named one."""
    return f"rails +{shift}" if shift else ""


@dataclass(frozen=True)
class Rails:
    """The rails of a fabric, by the names of devices.

    `mlx5_4-mlx5_5` names the NICs of both nodes; with one rail, any device is on it. GPU i is on
    the i-th rail if there are as many rails as GPUs, as rail-optimised machines are wired.
    Otherwise the rail of a GPU is unknown, and not guessed.
    """

    fabric: Fabric
    gpus: int
    _halves: dict[str, list[tuple[str, str]]] = field(default_factory=dict, repr=False)

    @classmethod
    def from_devices(cls, fabric: Fabric, devices: Iterable[str]) -> Rails:
        """Make rails from all devices that the pairs of a campaign measured, to count the GPUs of a
        node."""
        pairs = (_GPUS.fullmatch(device) for device in set(devices))
        highest = max((int(end) for pair in pairs if pair for end in pair.groups()), default=-1)
        return cls(fabric, highest + 1)

    def rail_nics_between(self, names: Sequence[str], device: str) -> RailNics | None:
        """The NICs between which these two nodes measured; None if nothing shows them."""
        if len(names) != 2:
            return None
        if len(self.fabric.rails) == 1:
            rails = [self.fabric.rails * 2]
        elif of_gpus := self._gpu_rails(device):
            rails = [of_gpus]
        else:
            rails = sorted(self._ends(device), key=lambda ends: ends[0] != ends[1])
        every = ((RailNic(names[0], near), RailNic(names[1], far)) for near, far in rails)
        return next((ends for ends in every if all(map(self._is_taken, ends))), None)

    def pair_test(self, names: Sequence[str], device: str) -> PairTest | None:
        """The pair test of two nodes. If nothing shows their NICs, the shift is that in the
        device's name, else 0."""
        if ends := self.rail_nics_between(names, device):
            return pair_test_at(self.fabric, ends)
        if len(names) != 2:
            return None
        match = _ACROSS.fullmatch(device)
        return PairTest(names[0], names[1], int(match[1]) if match else 0)

    def _is_taken(self, rail_nic: RailNic) -> bool:
        return self.fabric.nic(*rail_nic) is not None

    def names_nics(self, device: str) -> bool:
        return any(end in self.fabric.rails for ends in self._ends(device) for end in ends)

    def _gpu_rails(self, device: str) -> tuple[str, str] | None:
        pair, rails = _GPUS.fullmatch(device), self.fabric.rails
        if not pair or self.gpus != len(rails):
            return None
        return rails[int(pair[1])], rails[int(pair[2])]

    def _ends(self, device: str) -> list[tuple[str, str]]:
        """The rails of both ends, for each dash that may separate them; names have dashes too."""
        if device not in self._halves:
            dashes = [place for place, letter in enumerate(device) if letter == "-"]
            self._halves[device] = [
                (rail_of(device[:dash]), rail_of(device[dash + 1 :])) for dash in dashes
            ]
        return self._halves[device]
