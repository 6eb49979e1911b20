"""Which tests an event is worth: decided by the history, kept in it, and carried out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis import catalog, config, places
from anubis.core.campaign import planning
from anubis.core.choosing.decision import Decision
from anubis.core.choosing.selection import Budget
from anubis.core.errors import UsageError
from anubis.core.past.events import FleetEvent, KeptEvent, Notice, Tick
from anubis.core.records import WORST_FIRST, CampaignKind, Judgement, Node
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.campaigns import CampaignResult, new_name, run_campaign
from anubis.operations.preparing import CampaignRequest
from anubis.selector import Offer, Past, Selector, offers, read_past
from anubis.store.history import History


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Which tests may be chosen, what all may cost, and how they are run."""

    suite: str = "quick"
    policy: str = "default"
    benchmarks: Sequence[Path] = ()  # folders with programs beside the shipped ones
    budget: Budget = Budget()
    together: bool = False  # tests that several nodes run together are chosen from as well
    cluster: str = "local"
    criteria: Path | None = None


USUAL: Terms = Terms()


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    decision: Decision
    campaigns: tuple[CampaignResult, ...]  # that carried it out

    @property
    def judgement(self) -> Judgement:
        """The worst of all; healthy where no test was worth its time."""
        judgements = [campaign.judgement for campaign in self.campaigns]
        return min(judgements, key=WORST_FIRST.index, default=Judgement.HEALTHY)


def select(event: FleetEvent, terms: Terms = USUAL, caller: Caller = NOBODY) -> Decision:
    """Nothing runs, and no node is contacted. That nodes were added or upgraded or had an incident
    is kept: whoever asks about them next presumes a defect until they pass."""
    at = caller.clock()
    with caller.history() as history:
        if isinstance(event, KeptEvent):
            history.notices.add(Notice(id=new_name(event.kind, at), at=at, event=event))
        return decide(event, terms, past_of(history, at), history, at)


def sweep(
    nodes: Sequence[str] | None = None, terms: Terms = USUAL, caller: Caller = NOBODY
) -> SweepResult:
    """The idle nodes most at risk, tested within a budget: of these, or of all in the history."""
    at = caller.clock()
    with caller.history() as history:
        past = past_of(history, at)
        decision = decide(_idle(nodes, past, history, at), terms, past, history, at)
    caller.decided(decision)
    return SweepResult(decision=decision, campaigns=carry_out_tests(decision, terms, caller))


def past_of(history: History, at: float) -> Past:
    """With the trained risk model, if there is one."""
    file = places.risk_file()
    if not file.is_file():
        return read_past(history, at, None)
    from anubis.risk import trained

    return read_past(history, at, trained.load(file))


def decide(event: FleetEvent, terms: Terms, past: Past, history: History, at: float) -> Decision:
    """The decision is in the history when it is returned."""
    selector = Selector(past, config.policy(terms.policy).selection, history)
    menu = _offers(terms, event.nodes, past)
    return selector.decide(event, menu, at=at, together=terms.together, budget=terms.budget)


def carry_out_tests(decision: Decision, terms: Terms, caller: Caller) -> tuple[CampaignResult, ...]:
    """One campaign for the nodes that run the same tests."""
    results = []
    for chosen, nodes in _nodes_by_tests(decision).items():
        request = CampaignRequest(
            kind=CampaignKind.VALIDATE,
            nodes=nodes,
            cluster=terms.cluster,
            suite=terms.suite,
            policy=terms.policy,
            benchmarks=terms.benchmarks,
            criteria=terms.criteria,
            chosen=chosen,
        )
        results.append(run_campaign(request, caller))
        caller.concluded(results[-1].view)
    return tuple(results)


def _nodes_by_tests(decision: Decision) -> dict[frozenset[str], list[str]]:
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for test in decision.tests:
        for node in test.nodes:
            tests[node].add(test.benchmark)
    groups: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for node in decision.nodes:
        if tests[node]:
            groups[frozenset(tests[node])].append(node)
    return groups


def _offers(terms: Terms, nodes: Sequence[str], past: Past) -> tuple[Offer, ...]:
    """What the suite offers to so many nodes, whatever they are."""
    if not nodes:
        return ()
    suite = config.suite(terms.suite)
    in_suite = {entry.benchmark for entry in suite.benchmarks}
    programs = catalog.load((places.shipped("benchmarks"), *terms.benchmarks), in_suite)
    fleet = [Node(name=name, sku="") for name in nodes]
    return offers(planning.plan(suite, fleet, programs.specs), past.measured_s)


def _idle(nodes: Sequence[str] | None, past: Past, history: History, at: float) -> Tick:
    """Without the nodes that are at work, held, or out of service."""
    candidates = past.logbook.nodes if nodes is None else nodes
    if not candidates:
        raise UsageError("the history has no nodes yet: name them, or begin with anubis accept")
    busy = {node for job in history.jobs.all() if job.end is None for node in job.nodes}
    busy |= {hold.node for hold in history.holds.current(at)}
    return Tick(
        nodes=tuple(node for node in candidates if node not in busy | past.standing.unfit.keys())
    )
