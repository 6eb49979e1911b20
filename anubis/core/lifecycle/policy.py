"""What the keeper of a fleet may do, and how much of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from anubis.core.lifecycle.commands import Cordon, LifeCommand, Mode, Prove, Swap

DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class KeepingPolicy:
    """Every command is proposed only, until a site switches it on."""

    cordon: Mode = Mode.PROPOSE
    release: Mode = Mode.PROPOSE
    test: Mode = Mode.PROPOSE
    swap: Mode = Mode.PROPOSE
    ticket: Mode = Mode.PROPOSE
    out_of_fleet: float = 0.05  # the share that may be out at once; one node always may
    out_of_sku: float = 0.10
    out_of_job: float = 0.10
    spares: Mapping[str, int] = field(default_factory=dict)  # how many, by sku
    tested_at_once: float = 0.10  # of the fleet; one node always may
    tries: int = 3  # tests in a row that come to nothing, before a person is asked
    pause_s: float = 600.0  # between them
    resent_s: float = 60.0  # after a command that shows no effect
    unsettled_s: float = 7 * DAY_S  # a suspicion that nobody could test for so long is given up
    answered_s: float = DAY_S  # a test that says nothing for so long is given up

    def __post_init__(self) -> None:
        for name in ("out_of_fleet", "out_of_sku", "out_of_job", "tested_at_once"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name):g}, expected a share from 0 to 1")

    def mode_of(self, command: type[LifeCommand]) -> Mode:
        modes = {Cordon: self.cordon, Prove: self.test, Swap: self.swap}
        return modes[command]


def allowed(share: float, among: int) -> int:
    return max(1, math.floor(share * among))
