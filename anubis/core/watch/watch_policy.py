"""A site's policy for watching running jobs: the source of telemetry, the least deviation that
counts, and the site's names for faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anubis.core.errors import UsageError
from anubis.core.watch.likelihood import FAULTS
from anubis.core.watch.watch_settings import Distance, WatchSettings


@dataclass(frozen=True, kw_only=True)
class WatchPolicy:
    summary: str = ""
    """What it is for, in one line."""
    telemetry: str = "default"
    """The file under configs/telemetry/ that says where telemetry comes from."""
    model: str = "synthetic"
    """The watch model, under criteria/watching/, or a file."""
    pull_s: float = WatchSettings.pull_s
    """How far back each look goes."""
    interval_s: float = WatchSettings.interval_s
    """The time between two looks at a job."""
    continuity_s: float = WatchSettings.continuity_s
    """The time for which a node must be unlike its peers. A pull has to hold an interval and
    this."""
    stalled_s: float = WatchSettings.stalled_s
    """The time without work on any of its nodes after which a job counts as making no progress.
    Less than 20 minutes; 0: never."""
    min_effect: float = WatchSettings.min_effect
    """The least distance from its peers, as a share of a metric's range, that counts for the watch
    model."""
    contrast: bool = WatchSettings.contrast
    """Whether nodes are first measured by the job's own past. False: the watch model alone names
    them."""
    distance: Distance = WatchSettings.distance
    """How windows are compared: l2, l1 or chebyshev."""
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
            distance=self.distance,
        )
