"""Weigh by the history which tests an event is worth, and keep the decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from anubis.config import catalog, configs, criteria_files
from anubis.core.campaign import planning
from anubis.core.errors import named_by_request
from anubis.core.history.events import FleetEvent, JobAllocated, NodeAdded, Tick
from anubis.core.history.maintenance import open_windows
from anubis.core.history.standing import Standing
from anubis.core.history.status import jobs_on_nodes
from anubis.core.records import (
    BenchmarkSpec,
    ClusterIdentity,
    Demand,
    Judgement,
    Node,
    Plan,
    SelectionPolicy,
    Suite,
    Workload,
)
from anubis.core.select.decision import Decision
from anubis.core.select.selection import Budget
from anubis.operations.caller import Caller
from anubis.operations.clusters import (
    enter,
    refuse_partners_of_themselves,
    refuse_strangers,
    time_in,
)
from anubis.operations.requests import Terms
from anubis.operations.selector import Offer, Past, Selector, offers, read_past
from anubis.store.history import ClusterHistory, History
from anubis.text import places

USUAL: Terms = Terms()


@dataclass(frozen=True, kw_only=True)
class Repertoire:
    """What terms name: a suite, its programs, and the policy by which they are chosen."""

    terms: Terms
    suite: Suite
    specs: Mapping[str, BenchmarkSpec]
    policy: SelectionPolicy

    def plan(self, nodes: Collection[str]) -> Plan:
        """Plan of the suite for these nodes, regardless of their hardware."""
        return planning.plan(self.suite, [Node(name=name, sku="") for name in nodes], self.specs)

    @property
    def demands(self) -> tuple[Demand, ...]:
        return self.plan(("a node", "and its partner")).demands

    @property
    def workloads(self) -> list[Workload]:
        return [demand.workload for demand in self.demands]


def refuse_nodes(part: ClusterHistory, event: FleetEvent, terms: Terms, *, may_test: bool) -> None:
    """Refuse nodes and partners that the cluster does not have, unless they are being added, and
    nodes that are their own partners."""
    added = event.nodes if isinstance(event, NodeAdded) else ()
    nodes = [node for node in (*event.nodes, *terms.partners) if node not in added]
    refuse_partners_of_themselves(event.nodes, terms.partners)
    refuse_strangers(part, nodes, terms.cluster, may_be_reached=may_test)


def read_repertoire(
    terms: Terms,
    described: Callable[[AbstractSet[str]], Mapping[str, BenchmarkSpec]] = lambda missing: {},
) -> Repertoire:
    """Read what the terms name. `described`: knows programs of the suite that no folder has."""
    suite = configs.suite(terms.suite).leave_out(repaired=terms.repaired)
    if terms.criteria:  # unusable ones are refused now, also if no test will read them
        with named_by_request():
            criteria_files.load(terms.criteria.expanduser(), suite.name)
    in_suite = {entry.benchmark for entry in suite.benchmarks}
    programs = catalog.load((places.shipped_folder("benchmarks"), *terms.benchmarks), in_suite)
    policy = configs.policy(terms.policy).selection
    missing = in_suite - programs.specs.keys()
    specs = {**programs.specs, **described(missing)} if missing else programs.specs
    return Repertoire(terms=terms, suite=suite, specs=specs, policy=policy)


def past_of(
    history: ClusterHistory,
    at: float,
    repertoire: Repertoire,
    nodes: AbstractSet[str] | None = None,
    standing: Standing | None = None,
) -> Past:
    """Read the past with this cluster's trained risk model, if there is one. `nodes`: those in
    question. `standing`: as in `read_past`."""
    file, offered = places.risk_file(history.cluster), repertoire.demands
    if not file.is_file():
        return read_past(history, at, None, offered, nodes, standing)
    from anubis.models.risk import risk_files

    return read_past(history, at, risk_files.load_trained(file), offered, nodes, standing)


def keep(
    decision: Decision, cluster: ClusterIdentity | None, history: History, caller: Caller
) -> None:
    """Write a decision to the history, and enter its cluster if the history does not know it
    yet."""
    with history.together():
        if cluster:
            enter(history, cluster, caller, decision.nodes)
        time_in(history.cluster(decision.cluster), caller, is_kept=True)
        add(decision, history)


def add(decision: Decision, history: History) -> None:
    history.cluster(decision.cluster).decisions.add(decision)


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """All that is read of a cluster to weigh which tests an event is worth."""

    repertoire: Repertoire
    past: Past
    history: ClusterHistory
    at: float

    def decide(self, event: FleetEvent) -> Decision:
        """Decide, without writing the decision to the history."""
        terms, partners = self.repertoire.terms, self.partners(event)
        nodes = {*event.nodes, *partners}
        menu = self._offers(nodes, terms.together) if event.nodes else ()
        decision = Selector(self.past, self.repertoire.policy).weigh(
            event,
            menu,
            at=self.at,
            together=terms.together,
            partners=partners,
            budget=terms.budget or Budget(),
        )
        return replace(decision, cluster=self.history.cluster)

    def partners(self, event: FleetEvent) -> tuple[str, ...]:
        """Proven nodes as partners: those of the job or of the idle nodes themselves, for other
        events any that are idle; and those named."""
        if isinstance(event, JobAllocated | Tick):
            own = list(event.nodes)
        else:
            not_free = busy_nodes(self.history, self.at) | self.history.keeping.left_alone()
            not_free |= open_windows(self.past.windows, self.at).keys()
            own = [node for node in self.past.standing.passed if node not in not_free]
        return tuple(
            filter(self._is_proven, dict.fromkeys([*own, *self.repertoire.terms.partners]))
        )

    def partners_in_tests(self, event: FleetEvent) -> list[str]:
        """Proven nodes that other tests hold, if without them there are too few partners for a
        benchmark of the suite; else none. A test that left it out would clear a node of defects
        that only it finds."""
        held = {hold.node for hold in self.history.holds.current(self.at)}
        held &= self.past.standing.passed.keys() - set(event.nodes)
        proven = sorted(filter(self._is_proven, held))
        idle = len(self.partners(event))
        if not idle < planning.MET <= idle + len(proven):
            return []
        menu = self._offers({*event.nodes, *proven})
        return proven if any(not (offer.alone or offer.by_all) for offer in menu) else []

    def _is_proven(self, node: str) -> bool:
        return self.past.standing.judgement(node) is Judgement.HEALTHY

    def _offers(self, nodes: AbstractSet[str], together: bool = False) -> Sequence[Offer]:
        return offers(self.repertoire.plan(nodes), self.past.measured_s, together=together)


def busy_nodes(history: ClusterHistory, at: float) -> set[str]:
    """Nodes that are at work or held."""
    return jobs_on_nodes(history.jobs.open_jobs(), at).keys() | {
        hold.node for hold in history.holds.current(at)
    }
