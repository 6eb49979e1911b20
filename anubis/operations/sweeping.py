"""The idle nodes most at risk, tested within a budget."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from anubis import places
from anubis.core.choosing.decision import Decision, Tick
from anubis.core.errors import UsageError
from anubis.core.records import WORST_FIRST, Judgement
from anubis.operations.caller import Caller
from anubis.operations.campaigns import CampaignResult, WallClock
from anubis.operations.deciding import Terms, decide, past_of
from anubis.operations.testing import carry_out_tests
from anubis.selector import Past
from anubis.store.history import History


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    nodes: tuple[str, ...] | None = None  # None: all that the history knows
    terms: Terms = Terms()
    cluster: str = "local"
    criteria: Path | None = None


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    decision: Decision
    campaigns: tuple[CampaignResult, ...]  # that carried it out

    @property
    def judgement(self) -> Judgement:
        """The worst of all; healthy where no test was worth its time."""
        judgements = [campaign.judgement for campaign in self.campaigns]
        return min(judgements, key=WORST_FIRST.index, default=Judgement.HEALTHY)


def sweep(
    request: SweepRequest,
    caller: Caller | None = None,
    *,
    history_url: str | None = None,
    clock: WallClock = time.time,
) -> SweepResult:
    caller = caller or Caller()
    at = clock()
    with History.open(history_url or places.history_url()) as history:
        past = past_of(history, at)
        decision = decide(_idle(request.nodes, past, history), request.terms, past, history, at)
    caller.decided(decision)
    tests = request.terms.tests(request.cluster, request.criteria)
    campaigns = carry_out_tests(decision, tests, caller, history_url=history_url, clock=clock)
    return SweepResult(decision=decision, campaigns=campaigns)


def _idle(nodes: tuple[str, ...] | None, past: Past, history: History) -> Tick:
    """The named nodes, or all in the history; without those at work or out of service."""
    named = past.logbook.nodes if nodes is None else nodes
    if not named:
        raise UsageError("the history has no nodes yet: name them, or begin with anubis accept")
    busy = {node for job in history.jobs.all() if job.end is None for node in job.nodes}
    return Tick(nodes=tuple(node for node in named if node not in busy | past.unfit.keys()))
