"""Scores of an evaluation, as stored in the model's file.

Reading them needs nothing that computes them: a gate waits for every import.
"""

from __future__ import annotations

from dataclasses import dataclass

from anubis.models.risk.splits import SplitKind


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """1 - |p - t| / max(p, t), in whole hours up to the horizon; no further incident is t = H."""

    relative: float
    over_horizon: float  # 1 - |p - t| / H
    on_observed: float | None  # relative, on the uptimes that ended in an incident


@dataclass(frozen=True, kw_only=True)
class RiskGroup:
    """Uptimes of about the same risk: what was predicted, and the share that had an incident."""

    uptimes: int
    predicted: float
    found: float


@dataclass(frozen=True, kw_only=True)
class Score:
    """One model, trained on one part of a split and tested on the other."""

    model: str
    split: SplitKind
    seed: int
    uptimes: int
    incidents: int
    accuracy: Accuracy
    concordance: float | None
    brier: float
    slope: float | None
    groups: tuple[RiskGroup, ...]
    log_likelihood: float = 0.0  # of what happened; 0 in older files without it
