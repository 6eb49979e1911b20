"""What the keeper of a fleet may do, and how much of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from anubis.core.lifecycle.commands import Mode

DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class KeepingPolicy:
    """Every command is proposed only, until a site switches it on."""

    summary: str = ""
    """What it is for, in one line."""
    cordon: Mode = Mode.PROPOSE
    """Whether to keep defective nodes from jobs (act), or only to say so (propose)."""
    release: Mode = Mode.PROPOSE
    """The same for taking back a cordon of Anubis. A person's cordon always stays."""
    test: Mode = Mode.PROPOSE
    """The same for running the tests that nodes have to pass."""
    swap: Mode = Mode.PROPOSE
    """The same for bringing a spare into service in place of a node that is taken out."""
    ticket: Mode = Mode.PROPOSE
    """The same for opening and closing tickets."""
    out_of_fleet: float = 0.05
    """The largest share of the fleet that may be out at once; one node always may. Beyond it the
    breaker opens, and nothing more is taken out until a person closes it."""
    out_of_sku: float = 0.10
    """The same share, of the nodes of one sku."""
    out_of_job: float = 0.10
    """The same share, of the nodes of one job."""
    spares: Mapping[str, int] = field(default_factory=dict)
    """How many proven nodes to keep ready, by sku."""
    tested_at_once: float = 0.10
    """The largest share of the fleet under test at once; one node always may be."""
    suite: str = "quick"
    """From which tests are chosen for nodes that have something to prove."""
    selection: str = "default"
    """The policy by which they are chosen and judged."""
    check: str = "light"
    """The suite from which tests are chosen after a job, when its nodes fall idle."""
    check_limit_s: float = 600.0
    """How long such a check may take on a node; 0: nothing is checked after jobs."""
    away_s: float = 300.0
    """A node that does not answer its orchestrator for longer has to prove itself again."""
    tries: int = 3
    """After so many tests in a row without an answer a person is told."""
    pause_s: float = 600.0
    """From one such test to the next; it doubles every time."""
    resent_s: float = 60.0
    """After so long a command that shows no effect is sent again."""
    unsettled_s: float = 7 * DAY_S
    """After so long a suspicion that nobody could test is given up."""
    answered_s: float = DAY_S
    """After so long a test that says nothing is given up."""

    @property
    def checks_after_jobs(self) -> bool:
        return self.check_limit_s > 0

    @property
    def acts_on_nodes(self) -> bool:
        """Beyond the history: somebody has to own the nodes."""
        return Mode.ACT in (self.cordon, self.release)

    def __post_init__(self) -> None:
        for name in ("out_of_fleet", "out_of_sku", "out_of_job", "tested_at_once"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name):g}, expected a share from 0 to 1")


def allowed(share: float, among: int) -> int:
    return max(1, math.floor(share * among))
