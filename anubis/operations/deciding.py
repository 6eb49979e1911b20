"""Which tests an event is worth: decided by the history, kept in it, and carried out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anubis import catalog, config, places
from anubis.core.campaign import planning
from anubis.core.campaign.planning import MET
from anubis.core.choosing.decision import Decision
from anubis.core.choosing.selection import Budget
from anubis.core.errors import NothingLearnedError, UsageError
from anubis.core.past.events import FleetEvent, JobAllocated, KeptEvent, Notice, Tick
from anubis.core.records import (
    BenchmarkSpec,
    CampaignKind,
    Judgement,
    Node,
    Plan,
    Suite,
    Workload,
)
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.campaigns import CampaignResult, new_name, run_campaign
from anubis.operations.clusters import THIS_MACHINE, refuse_unreachable, resolve
from anubis.operations.preparing import CampaignRequest
from anubis.selector import Past, Selector, offers, read_past
from anubis.store.history import ClusterHistory


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Which tests may be chosen, what all may cost, and how they are run."""

    suite: str = "quick"
    policy: str = "default"
    benchmarks: Sequence[Path] = ()  # folders with programs beside the shipped ones
    budget: Budget = Budget()
    together: bool = False  # all nodes run the same tests, and meet each other
    partners: Sequence[str] = ()  # idle nodes beside those asked about, to be met if proven
    cluster: str | None = None  # None: the only one that the history knows, or this machine
    criteria: Path | None = None


USUAL: Terms = Terms()
FEWEST_PARTNERS = 4  # if one of them turns out to be bad, others are there


@dataclass(frozen=True, kw_only=True)
class Repertoire:
    """A suite, and the programs that it names."""

    suite: Suite
    specs: Mapping[str, BenchmarkSpec]

    def plan(self, nodes: Collection[str]) -> Plan:
        """For so many nodes, whatever they are."""
        return planning.plan(self.suite, [Node(name=name, sku="") for name in nodes], self.specs)

    @property
    def workloads(self) -> list[Workload]:
        return [demand.workload for demand in self.plan(("a node", "and its partner")).demands]


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    decision: Decision
    campaign: CampaignResult | None  # that carried it out

    @property
    def judgement(self) -> Judgement:
        """Healthy where no test was worth its time."""
        return self.campaign.judgement if self.campaign else Judgement.HEALTHY


def select(event: FleetEvent, terms: Terms = USUAL, caller: Caller = NOBODY) -> Decision:
    """Nothing runs, and no node is contacted. That nodes were added or upgraded or had an incident
    is kept: whoever asks about them next presumes a defect until they pass."""
    at = caller.clock()
    with caller.history() as history:
        part = resolve(history, terms.cluster, caller, event.nodes)
        if isinstance(event, KeptEvent):
            part.notices.add(Notice(id=new_name(event.kind, at), at=at, event=event))
        repertoire = read_repertoire(terms)
        return decide(event, terms, repertoire, past_of(part, at, repertoire), part, at)


def sweep(
    nodes: Sequence[str] | None = None, terms: Terms = USUAL, caller: Caller = NOBODY
) -> SweepResult:
    """The idle nodes most at risk, tested within a budget: of these, or of all in the history."""
    at = caller.clock()
    with caller.history() as history:
        part = resolve(history, terms.cluster, caller, nodes or ())
        repertoire = read_repertoire(terms)
        past = past_of(part, at, repertoire)
        decision = decide(_idle(nodes, past, part, at), terms, repertoire, past, part, at)
    caller.decided(decision)
    return SweepResult(decision=decision, campaign=carry_out_tests(decision, terms, caller))


def read_repertoire(terms: Terms) -> Repertoire:
    suite = config.suite(terms.suite)
    in_suite = {entry.benchmark for entry in suite.benchmarks}
    programs = catalog.load((places.shipped("benchmarks"), *terms.benchmarks), in_suite)
    return Repertoire(suite=suite, specs=programs.specs)


def past_of(history: ClusterHistory, at: float, repertoire: Repertoire) -> Past:
    """With the risk model that was trained for this cluster, if there is one."""
    file, required = places.risk_file(history.cluster), repertoire.workloads
    if not file.is_file():
        return read_past(history, at, None, required)
    from anubis.risk import trained

    return read_past(history, at, trained.load(file), required)


def decide(
    event: FleetEvent,
    terms: Terms,
    repertoire: Repertoire,
    past: Past,
    history: ClusterHistory,
    at: float,
) -> Decision:
    """The decision is in the history when it is returned."""
    selector = Selector(past, config.policy(terms.policy).selection, history)
    partners = _partners(event, terms, past, history, at)
    nodes = {*event.nodes, *partners}
    menu = (
        offers(repertoire.plan(nodes), past.measured_s, together=terms.together)
        if event.nodes
        else ()
    )
    return selector.decide(
        event,
        menu,
        at=at,
        together=terms.together,
        partners=partners,
        budget=terms.budget,
    )


def carry_out_tests(decision: Decision, terms: Terms, caller: Caller) -> CampaignResult | None:
    """One campaign, in which each node runs its own tests; None where nothing is to run.
    Where nothing was learned of such nodes yet, they teach in it what is normal."""
    if not decision.tests:
        return None
    refuse_unreachable(decision.cluster, terms.cluster)
    tests = {test.benchmark: frozenset(test.nodes) for test in decision.tests}
    tested = frozenset().union(*tests.values())
    partners = _met(decision)
    request = CampaignRequest(
        kind=CampaignKind.VALIDATE,
        nodes=list(dict.fromkeys([*(n for n in decision.nodes if n in tested), *partners])),
        cluster=terms.cluster or THIS_MACHINE,
        suite=terms.suite,
        policy=terms.policy,
        benchmarks=terms.benchmarks,
        criteria=terms.criteria,
        tests=tests,
        partners=partners,
    )
    try:
        result = run_campaign(request, caller)
    except NothingLearnedError:
        if terms.criteria or terms.budget != Budget():
            raise
        result = _accept(request, tested, caller)
    caller.concluded(result.view)
    return result


def _accept(request: CampaignRequest, nodes: Collection[str], caller: Caller) -> CampaignResult:
    """Who asks first has no criteria yet: nobody has to know that these come first."""
    caller.remark(
        f"nothing was learned of such nodes yet: they run the whole suite {request.suite} now, and "
        "teach what is normal for them"
    )
    tested = [name for name in request.nodes or () if name in nodes]
    first = replace(request, kind=CampaignKind.ACCEPT, nodes=tested, tests=None, partners=())
    return run_campaign(first, caller)


def _met(decision: Decision) -> list[str]:
    """As many partners as the tested nodes need; first those that have nothing else to do."""
    meeting = {node for test in decision.tests if test.busy > 1 for node in test.nodes}
    idle_first = sorted(decision.partners, key=meeting.__contains__)
    return idle_first[: max(FEWEST_PARTNERS, MET * len(meeting))]


def _partners(
    event: FleetEvent, terms: Terms, past: Past, history: ClusterHistory, at: float
) -> tuple[str, ...]:
    """Nodes that are proven: of a job or of idle nodes their own, otherwise any that are idle; and
    those named."""
    match event:
        case JobAllocated() | Tick():
            own = list(event.nodes)
        case _:
            busy = _busy(history, at)
            own = [node for node in past.standing.passed if node not in busy]
    candidates = dict.fromkeys([*own, *terms.partners])
    return tuple(n for n in candidates if past.standing.judgement(n) is Judgement.HEALTHY)


def _idle(nodes: Sequence[str] | None, past: Past, history: ClusterHistory, at: float) -> Tick:
    """Without the nodes that are at work, held, or out of service."""
    candidates = past.logbook.nodes if nodes is None else nodes
    if not candidates:
        raise UsageError(
            f'the history has no nodes of cluster "{history.cluster}" yet: name them, or begin with'
            " anubis accept"
        )
    out = _busy(history, at) | past.standing.unfit.keys()
    return Tick(nodes=tuple(node for node in candidates if node not in out))


def _busy(history: ClusterHistory, at: float) -> set[str]:
    """Nodes that are at work or held."""
    at_work = {node for job in history.jobs.all() if job.end is None for node in job.nodes}
    return at_work | {hold.node for hold in history.holds.current(at)}
