"""Decides whether nodes are good for a job: by history, or by the tests worth their time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anubis import places
from anubis.core.choosing.decision import Decision, JobAllocated
from anubis.core.records import Judgement
from anubis.operations.caller import Caller
from anubis.operations.campaigns import CampaignResult, WallClock
from anubis.operations.deciding import Terms, decide, past_of
from anubis.operations.testing import carry_out_tests
from anubis.selector import Past
from anubis.store.history import History

BadLinks = Mapping[tuple[str, ...], str]  # nodes that do badly together, and why


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    nodes: tuple[str, ...]
    duration_s: float  # of the job
    unknown_passes: bool = False  # whether a node may pass that a test could not judge
    terms: Terms = Terms()
    cluster: str = "local"
    criteria: Path | None = None


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The verdict on each node and on parts between them, with the reasons."""

    decision: Decision
    judged: Mapping[str, Judgement]
    links: BadLinks
    unfit: Mapping[str, str]  # nodes that are out of service, and why
    campaigns: tuple[CampaignResult, ...]  # that carried the decision out
    is_tested: bool  # whatever the decision asked for was run; else the answer was known before
    budget_short: bool  # the risk that is left is above p0
    unknown_passes: bool

    def named(self, judgement: Judgement) -> list[str]:
        return [node for node, judged in self.judged.items() if judged is judgement]

    @property
    def unknown(self) -> list[str]:
        settled = (Judgement.HEALTHY, Judgement.DEFECTIVE)
        return [node for node, judged in self.judged.items() if judged not in settled]

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
    request: GateRequest,
    caller: Caller | None = None,
    *,
    history_url: str | None = None,
    clock: WallClock = time.time,
) -> GateResult:
    """Nothing runs on nodes that are unfit according to the history."""
    caller = caller or Caller()
    past, decision = _decide(request, history_url, clock())
    caller.decided(decision)
    unfit = {node: why for node in request.nodes if (why := past.unfit.get(node))}
    links = _known_links(past, request.nodes)
    runs = not unfit and not links
    campaigns: tuple[CampaignResult, ...] = ()
    if runs:
        tests = request.terms.tests(request.cluster, request.criteria)
        campaigns = carry_out_tests(decision, tests, caller, history_url=history_url, clock=clock)
    short = request.terms.are_limited and decision.remaining > decision.p0
    judged = {**_settled_by_history(past, request.nodes, unfit), **_tested(campaigns)}
    return GateResult(
        decision=decision,
        judged=_doubted(judged) if short else judged,
        links={**links, **_tested_links(campaigns)},
        unfit=unfit,
        campaigns=campaigns,
        is_tested=runs,
        budget_short=short,
        unknown_passes=request.unknown_passes,
    )


def _decide(request: GateRequest, history_url: str | None, at: float) -> tuple[Past, Decision]:
    job = JobAllocated(nodes=request.nodes, duration_s=request.duration_s)
    with History.open(history_url or places.history_url()) as history:
        past = past_of(history, at)
        return past, decide(job, request.terms, past, history, at)


def _settled_by_history(
    past: Past, nodes: Sequence[str], unfit: Mapping[str, str]
) -> dict[str, Judgement]:
    """By the history alone."""
    passed = {
        node: Judgement.HEALTHY if past.passed.get(node) else Judgement.UNKNOWN for node in nodes
    }
    return passed | dict.fromkeys(unfit, Judgement.DEFECTIVE)


def _known_links(past: Past, nodes: Sequence[str]) -> BadLinks:
    return {
        group.nodes: f"{group.benchmark} was defective in campaign {group.campaign}"
        for group in past.links_among(nodes)
    }


def _tested(campaigns: Iterable[CampaignResult]) -> dict[str, Judgement]:
    return {
        verdict.node: verdict.judgement
        for campaign in campaigns
        for verdict in campaign.view.assessment.nodes
    }


def _tested_links(campaigns: Iterable[CampaignResult]) -> BadLinks:
    """By the assessments' verdicts on the paths between nodes."""
    return {
        part.nodes: part.reason.removeprefix(f"{part.subject}: ")
        for campaign in campaigns
        for part in campaign.view.assessment.parts
        if part.nodes and part.judgement is Judgement.DEFECTIVE
    }


def _doubted(judged: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """Where too much stays untested, no node passes."""
    return {
        node: Judgement.UNKNOWN if judgement is Judgement.HEALTHY else judgement
        for node, judgement in judged.items()
    }
