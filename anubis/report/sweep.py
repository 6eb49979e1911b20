"""The answer of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anubis.core.records import Judgement
from anubis.core.select.decision import Decision

if TYPE_CHECKING:
    from anubis.report.view import CampaignResult


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    decision: Decision
    campaign: CampaignResult | None  # that carried it out
    owing: Mapping[str, str]  # idle nodes that still owe an answer: what, and since when

    @property
    def judgement(self) -> Judgement:
        """Healthy if no test was worth its time, and no node owes an answer."""
        judgement = self.campaign.judgement if self.campaign else Judgement.HEALTHY
        return Judgement.UNKNOWN if judgement is Judgement.HEALTHY and self.owing else judgement
