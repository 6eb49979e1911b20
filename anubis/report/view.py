"""Everything a report is made from, as one value, and the few facts every report repeats.

Reports only read. They never judge, and never run anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from anubis.core.network import observed, part_verdicts
from anubis.core.records import (
    WORST_FIRST,
    Assessment,
    Campaign,
    CriteriaSet,
    Execution,
    Judgement,
    NodeVerdict,
    PartVerdict,
)

GLYPH = {
    Judgement.HEALTHY: "✓",
    Judgement.DEFECTIVE: "✗",
    Judgement.UNKNOWN: "?",
    Judgement.NOT_APPLICABLE: "-",
}


@dataclass(frozen=True, kw_only=True)
class CampaignView:
    campaign: Campaign
    executions: tuple[Execution, ...]
    assessment: Assessment
    criteria: tuple[CriteriaSet, ...]

    @cached_property
    def parts(self) -> tuple[PartVerdict, ...]:
        """What a scan says of the fabric."""
        fabric = self.campaign.plan.fabric
        if fabric is None:
            return ()
        return part_verdicts(
            fabric, observed(fabric, self.assessment.alone, self.assessment.rulings)
        )

    @property
    def duration_s(self) -> float:
        """Until it finished or, when it was cut short, until the last thing that is known of it."""
        end = self.campaign.finished_at
        if end is None:
            ends = (e.started_at + e.duration_s for e in self.executions if e.started_at)
            end = max(ends, default=self.campaign.created_at)
        return max(0.0, end - self.campaign.created_at)

    @property
    def headline(self) -> str:
        """`3 healthy · 1 defective · 0 unknown`; not applicable is named only when there is any."""
        counts = {judgement: len(self.assessment.named(judgement)) for judgement in Judgement}
        shown = [Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN]
        if counts[Judgement.NOT_APPLICABLE]:
            shown.append(Judgement.NOT_APPLICABLE)
        return " · ".join(f"{counts[j]:,} {j.value.replace('-', ' ')}" for j in shown)

    def nodes_worst_first(self) -> list[NodeVerdict]:
        """Within one judgement the order of the assessment is kept."""
        return sorted(self.assessment.nodes, key=lambda node: WORST_FIRST.index(node.judgement))
