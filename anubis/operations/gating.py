"""Decides whether nodes are good for a job: by history, or by the tests worth their time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from anubis.core.choosing.decision import Decision
from anubis.core.choosing.selection import Budget
from anubis.core.past.events import JobAllocated
from anubis.core.records import Criterion, Judgement, SelectionPolicy
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import resolve
from anubis.operations.deciding import (
    USUAL,
    Terms,
    decide,
    past_of,
    read_repertoire,
)

if TYPE_CHECKING:
    from anubis.operations.campaigns import CampaignResult

BadLinks = Mapping[tuple[str, ...], str]  # nodes that do badly together, and why


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The verdict on each node and on parts between them, with the reasons."""

    decision: Decision
    judged: Mapping[str, Judgement]
    links: BadLinks
    unfit: Mapping[str, str]  # nodes that are out of service, and why
    campaign: CampaignResult | None  # that carried the decision out
    is_tested: bool  # whatever the decision asked for was run; else the answer was known before
    doubt: Literal["budget", "policy", ""]  # what lets no node pass while too much risk is left
    unknown_passes: bool

    def named(self, judgement: Judgement) -> list[str]:
        return [node for node, judged in self.judged.items() if judged is judgement]

    @property
    def unknown(self) -> list[str]:
        settled = (Judgement.HEALTHY, Judgement.DEFECTIVE)
        return [node for node, judged in self.judged.items() if judged not in settled]

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
    def is_by_itself(self) -> bool:
        """Whether a node was compared with nothing but what it measured itself."""
        return any(criterion.from_repeats for criterion in _criteria(self.campaign))

    @property
    def judgement(self) -> Judgement:
        if self.links or self.named(Judgement.DEFECTIVE):
            return Judgement.DEFECTIVE
        passes = self.unknown_passes or not self.unknown
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


def gate(
    nodes: Sequence[str],
    duration_s: float,
    terms: Terms = USUAL,
    *,
    unknown_passes: bool = False,
    caller: Caller = NOBODY,
) -> GateResult:
    """Nothing runs on nodes that are unfit according to the history.
    `unknown_passes`: a node may pass that a test could not judge."""
    job = JobAllocated(nodes=tuple(nodes), duration_s=duration_s)
    at = caller.clock()
    with caller.history() as history:
        part = resolve(history, terms.cluster, caller, nodes)
        repertoire = read_repertoire(terms)
        past = past_of(part, at, repertoire)
        decision = decide(job, terms, repertoire, past, part, at)
    caller.decided(decision)
    standing = past.standing
    unfit = {node: why for node in nodes if (why := standing.unfit.get(node))}
    links = past.links_among(nodes)
    runs = not unfit and not links
    campaign = _campaign(decision, terms, caller) if runs else None
    if any(criterion.from_repeats and criterion.refusal for criterion in _criteria(campaign)):
        caller.remark(
            "what a node measured of itself alone differs too much from run to run to judge it by: "
            "give criteria of 3 or more nodes of its kind (--criteria PATH), or a policy with "
            "wider limits (--policy shared-machine), or let it pass (--on-unknown pass)"
        )
    doubt = _doubt(decision, terms, repertoire.policy)
    tested = _tested(campaign)
    judged = {node: tested.get(node, standing.judgement(node)) for node in nodes}
    return GateResult(
        decision=decision,
        judged=_doubted(judged) if doubt else judged,
        links={**links, **_tested_links(campaign, nodes)},
        unfit=unfit,
        campaign=campaign,
        is_tested=runs,
        doubt=doubt,
        unknown_passes=unknown_passes,
    )


def _campaign(decision: Decision, terms: Terms, caller: Caller) -> CampaignResult | None:
    if not decision.tests:
        return None
    from anubis.operations.testing import carry_out_tests  # half of what a gate would have to load

    return carry_out_tests(decision, terms, caller)


def _doubt(
    decision: Decision, terms: Terms, policy: SelectionPolicy
) -> Literal["budget", "policy", ""]:
    if decision.is_bearable:
        return ""
    if terms.budget != Budget():
        return "budget"
    return "policy" if policy.above_p0 == "unknown" else ""


def _criteria(campaign: CampaignResult | None) -> list[Criterion]:
    sets = campaign.view.criteria if campaign else ()
    return [criterion for criteria in sets for criterion in criteria.criteria]


def _tested(campaign: CampaignResult | None) -> dict[str, Judgement]:
    nodes = campaign.view.assessment.nodes if campaign else ()
    return {verdict.node: verdict.judgement for verdict in nodes}


def _tested_links(campaign: CampaignResult | None, nodes: Collection[str]) -> BadLinks:
    """By the assessment's verdicts on the paths between these nodes."""
    return {
        part.nodes: part.reason.removeprefix(f"{part.subject}: ")
        for part in (campaign.view.assessment.parts if campaign else ())
        if part.nodes and part.judgement is Judgement.DEFECTIVE and set(part.nodes) <= set(nodes)
    }


def _doubted(judged: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """Where too much stays untested, no node passes."""
    return {
        node: Judgement.UNKNOWN if judgement is Judgement.HEALTHY else judgement
        for node, judgement in judged.items()
    }
