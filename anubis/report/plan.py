"""The plan of a campaign, phase by phase, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anubis.core.campaign.planning import Estimate
from anubis.core.records import Phase


@dataclass(frozen=True, kw_only=True)
class PhaseLine:
    phase: str
    benchmarks: Sequence[str]
    steps: int
    turns: int
    """How often steps wait for others before they begin."""
    fewest_turns: int
    """The least number of turns of pairs that share cables, in whatever order; 0 if none wait."""
    duration_s: float
    node_hours: float


def phase_fields(phase: Phase, cost: Estimate) -> PhaseLine:
    return PhaseLine(
        phase=phase.name,
        benchmarks=[str(entry.workload) for entry in phase.entries],
        steps=cost.steps,
        turns=cost.turns,
        fewest_turns=cost.fewest_turns,
        duration_s=round(cost.duration_s, 1),
        node_hours=round(cost.node_hours, 4),
    )
