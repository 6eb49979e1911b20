"""Which tests an event is worth: decided by the history, and kept in it. Nothing runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis import catalog, config, places
from anubis.core.campaign import planning
from anubis.core.choosing.decision import Decision, FleetEvent
from anubis.core.choosing.selection import Budget
from anubis.core.records import CampaignKind, Node
from anubis.operations.campaigns import WallClock
from anubis.operations.preparing import CampaignRequest
from anubis.selector import Offer, Past, Risk, Selector, offers, read_past
from anubis.store.history import History


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Which tests may be chosen, when one is worth its time, and what all may cost."""

    suite: str = "quick"
    policy: str = "default"
    benchmarks: tuple[Path, ...] = ()  # folders with programs beside the shipped ones
    budget: Budget = Budget()
    together: bool = False  # tests that several nodes run together are chosen from as well

    @property
    def are_limited(self) -> bool:
        return self.budget != Budget()

    def tests(self, cluster: str, criteria: Path | None) -> CampaignRequest:
        """The campaign that carries a decision out."""
        return CampaignRequest(
            kind=CampaignKind.VALIDATE,
            cluster=cluster,
            suite=self.suite,
            policy=self.policy,
            benchmarks=self.benchmarks,
            criteria=criteria,
        )


def select(
    event: FleetEvent,
    terms: Terms = Terms(),
    *,
    history_url: str | None = None,
    clock: WallClock = time.time,
) -> Decision:
    """No node is contacted."""
    at = clock()
    with History.open(history_url or places.history_url()) as history:
        return decide(event, terms, past_of(history, at), history, at)


def past_of(history: History, at: float) -> Past:
    """With the trained risk model, if there is one."""
    return read_past(history, at, _trained_risk())


def decide(event: FleetEvent, terms: Terms, past: Past, history: History, at: float) -> Decision:
    """The decision is in the history when it is returned."""
    selector = Selector(past, config.policy(terms.policy).selection, history)
    menu = _offers(terms, event.nodes, past)
    return selector.decide(event, menu, at=at, together=terms.together, budget=terms.budget)


def _trained_risk() -> Risk | None:
    file = places.risk_file()
    if not file.is_file():
        return None
    from anubis.risk import trained

    return trained.load(file)


def _offers(terms: Terms, nodes: Sequence[str], past: Past) -> tuple[Offer, ...]:
    """What the suite offers to so many nodes, whatever they are."""
    if not nodes:
        return ()
    suite = config.suite(terms.suite)
    in_suite = {entry.benchmark for entry in suite.benchmarks}
    programs = catalog.load((places.shipped("benchmarks"), *terms.benchmarks), in_suite)
    fleet = [Node(name=name, sku="") for name in nodes]
    return offers(planning.plan(suite, fleet, programs.specs), past.measured_s)
