"""Settings of watching running jobs, and a site's policy for it.

Settings say how much telemetry is read and which deviations count. A policy adds the source of
telemetry and the site's names for faults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from anubis.core.errors import UsageError
from anubis.core.watch.alignment import GAP_S
from anubis.core.watch.likelihood import FAULTS


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    pull_s: float = 900.0  # the time that a look judges
    known_s: float = (
        1200.0  # the time that is read: the earlier part distinguishes roles from faults
    )
    interval_s: float = 480.0  # from one look to the next
    continuity_s: float = 240.0  # for so long a node must be unlike its peers
    continuity_ended_s: float | None = 60.0  # the same if the job has failed; None: no shorter
    patience: float = 1 / 30  # as a share of that: a shorter interruption does not end it
    remark_s: float = 60.0  # a node that left its peers for so long and returned is unsteady
    stalled_s: float = 600.0  # no node works for so long: the job stands still; 0: never
    vanished_s: float = 120.0  # its series are gone for so long while most continue
    gap_s: float = GAP_S  # a silence of the whole job that is worth a remark
    window: int = 8  # samples
    least_nodes: int = 4  # with fewer no majority shows what is normal
    min_effect: float = 0.05  # mean distance to the peers, as a share of the range, per sample
    most_suspects: float = 0.05  # of the nodes, and at least one
    candidates: Literal["all", "largest"] = "all"  # nodes that stand out of a window
    denoised: bool = True
    concatenated: bool = False  # the windows of all metrics compared as one
    contrast: bool = True  # nodes are named by the job's own past, before the watch model is asked
    returns: bool = True  # a node that returned, or was always apart, is no suspect

    def __post_init__(self) -> None:
        if self.pull_s - self.interval_s < self.continuity_s:
            raise UsageError(
                f"a pull of {self.pull_s:g} s every {self.interval_s:g} s can miss a fault of "
                f"{self.continuity_s:g} s: pull at least {self.interval_s + self.continuity_s:g} s"
            )
        if not 0 <= self.stalled_s < self.known_s:
            raise UsageError(
                f"stalled_s is {self.stalled_s:g}, expected 0 or more, and less than the "
                f"{self.known_s:g} s that are read at each look"
            )
        if self.window < 1 or self.least_nodes < 3:
            raise UsageError("watching needs windows of a sample or more, and three nodes or more")

    def windows_needed(self, step_s: float, *, ended: bool = False) -> int:
        """Number of consecutive windows that make a suspicion."""
        shorter = self.continuity_ended_s if ended else None
        return windows_in(self.continuity_s if shorter is None else shorter, step_s)

    def windows_remarkable(self, step_s: float) -> int:
        return min(windows_in(self.remark_s, step_s), self.windows_needed(step_s))

    def limit(self, nodes: int) -> int:
        """Largest number of nodes that one look may suspect."""
        return max(1, int(self.most_suspects * nodes))


def windows_in(seconds: float, step_s: float) -> int:
    return max(1, math.ceil(seconds / step_s - 1e-9))


# Minder's rule as published: no least effect, one candidate a window, no patience, and nodes
# that returned are suspects
PUBLISHED = WatchSettings(
    continuity_ended_s=None,
    patience=0.0,
    min_effect=0.0,
    candidates="largest",
    contrast=False,
    returns=False,
)


@dataclass(frozen=True, kw_only=True)
class WatchPolicy:
    summary: str = ""
    """What it is for, in one line."""
    telemetry: str = "default"
    """The file under configs/telemetry/ with the source of the telemetry."""
    model: str = "synthetic"
    """The watch model, under criteria/watching/, or a file."""
    pull_s: float = WatchSettings.pull_s
    """How far back each look goes."""
    interval_s: float = WatchSettings.interval_s
    """The time between two looks at a job."""
    continuity_s: float = WatchSettings.continuity_s
    """The time for which a node must be unlike its peers. A pull has to cover an interval and
    this time."""
    stalled_s: float = WatchSettings.stalled_s
    """The time without work on any of its nodes after which a job counts as making no progress.
    Less than 20 minutes. 0: never."""
    min_effect: float = WatchSettings.min_effect
    """The least distance from its peers, as a share of a metric's range, that counts for the watch
    model."""
    contrast: bool = WatchSettings.contrast
    """Whether nodes are first measured by the job's own past. False: the watch model alone names
    them."""
    categories: Mapping[str, str] = field(default_factory=dict)
    """What each kind of fault is called in this site's incidents: ecc, pcie-downgrade, nic-dropout,
    gpu-drop, nvlink, optical-cable, cuda-error, gpu-error, storage and unreachable. A kind that is
    not named keeps its own name."""

    def __post_init__(self) -> None:
        if unknown := sorted(self.categories.keys() - FAULTS.keys()):
            kinds = ", ".join(FAULTS)
            raise ValueError(f'categories has "{unknown[0]}", expected kinds of faults: {kinds}')
        try:
            self.settings  # noqa: B018 # is made to be refused
        except UsageError as error:
            raise ValueError(str(error)) from None

    @property
    def settings(self) -> WatchSettings:
        return WatchSettings(
            pull_s=self.pull_s,
            interval_s=self.interval_s,
            continuity_s=self.continuity_s,
            stalled_s=self.stalled_s,
            min_effect=self.min_effect,
            contrast=self.contrast,
        )
