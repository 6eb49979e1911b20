"""Results of a campaign, a gate and a sweep, as callers receive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from anubis.core.records import Criterion, Judgement
from anubis.core.select.decision import ChosenTest, Decision

if TYPE_CHECKING:
    from anubis.report.view import CampaignView

# tests: they would have to run, and may not; owed: no test that can be chosen answers what is owed;
# busy: another job runs on some of the nodes
Doubt = Literal["budget", "policy", "tests", "owed", "busy", ""]
BadLinks = Mapping[tuple[str, ...], str]  # nodes that do badly together, and why


@dataclass(frozen=True, kw_only=True)
class CampaignResult:
    """A campaign at its end."""

    view: CampaignView
    criteria_files: tuple[Path, ...] = ()  # what it learned, one for each sku

    @property
    def judgement(self) -> Judgement:
        return self.view.assessment.judgement


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The verdict on each node and on parts between them, with the reasons."""

    decision: Decision
    judged: Mapping[str, Judgement]
    links: BadLinks
    unfit: Mapping[str, str]  # nodes that are out of service or under maintenance, and why
    owing: Mapping[str, str]  # nodes that still owe an answer: what, and since when
    busy: Mapping[str, str]  # nodes on which another job runs, and which one
    campaign: CampaignResult | None  # that carried the decision out
    is_tested: bool  # the decided tests were run; else the answer was known before
    doubt: Doubt  # what lets no node pass while too much risk is left
    unknown_passes: bool
    clock: str = ""  # why nothing is known by its age; empty: the clock is trusted

    def named(self, judgement: Judgement) -> list[str]:
        return [node for node, judged in self.judged.items() if judged is judgement]

    @property
    def unknown(self) -> list[str]:
        settled = (Judgement.HEALTHY, Judgement.DEFECTIVE)
        unsettled = [node for node, judged in self.judged.items() if judged not in settled]
        return [node for node in unsettled if node not in self.unfit]

    @property
    def missing_tests(self) -> tuple[ChosenTest, ...]:
        """Tests that would have to run before the answer can be go."""
        return self.decision.tests if self.doubt == "tests" else ()

    @property
    def doubts(self) -> dict[str, str]:
        """The nodes that a test could not judge, and why."""
        verdicts = self.campaign.view.assessment.nodes if self.campaign else ()
        return {
            verdict.node: verdict.reason
            for verdict in verdicts
            if verdict.judgement is Judgement.UNKNOWN and verdict.node in self.judged
        }

    @property
    def criteria(self) -> list[Criterion]:
        """Criteria with which nodes were compared."""
        sets = self.campaign.view.criteria if self.campaign else ()
        return [criterion for criteria in sets for criterion in criteria.criteria]

    @property
    def is_by_itself(self) -> bool:
        """True if a node was compared only with its own measurements."""
        return any(criterion.from_repeats for criterion in self.criteria)

    @property
    def judgement(self) -> Judgement:
        if self.links or self.unfit or self.named(Judgement.DEFECTIVE):
            return Judgement.DEFECTIVE
        may_pass = self.unknown_passes and self.doubt != "tests"  # a test could still judge them
        passes = may_pass or not self.unknown
        return Judgement.HEALTHY if passes else Judgement.UNKNOWN

    @property
    def answer(self) -> Literal["go", "no-go", "unknown"]:
        match self.judgement:
            case Judgement.HEALTHY:
                return "go"
            case Judgement.DEFECTIVE:
                return "no-go"
            case _:
                return "unknown"


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
