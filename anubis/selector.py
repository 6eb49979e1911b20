"""The Selector: from the history and a model of risk to what core.decision decides by.

It reads and adds up; core decides which tests are worth their time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from anubis import hostlist
from anubis.core.choosing.decision import Decision, FleetEvent, Outlook, decide, horizon_s, mix_of
from anubis.core.choosing.selection import NEVER, Budget, learn_detection
from anubis.core.past.defects import Defect, defects
from anubis.core.past.logbook import Logbook
from anubis.core.past.paths import bad_links
from anubis.core.past.status import Incident, Instants, Statuses, Times, Validation
from anubis.core.records import Judgement, Plan, PlannedEntry, SelectionPolicy
from anubis.store.history import History

HOUR_S = 3600.0
MOST_NAMED = 8  # nodes, in a sentence
EXPECTED_H = 90 * 24.0  # between incidents of a node if nothing is known; counts as one incident
LOOKED_BACK_S = 365 * 24 * HOUR_S  # older findings of benchmarks say little about today's


class Risk(Protocol):
    """A model of how likely an incident is, given a node's status."""

    @property
    def covariates(self) -> tuple[str, ...]: ...

    @property
    def assumed(self) -> str:
        """What a decision must tell of it; empty where it looks at each node."""
        ...

    def within(self, statuses: Statuses, hours: float) -> Times:
        """P(incident within so many hours | status, alive now), for each row."""
        ...


@dataclass(frozen=True, kw_only=True)
class BaseRate:
    """The same for every node: incidents of the fleet per hour that its nodes were in service."""

    per_h: float
    covariates: tuple[str, ...] = ()

    @property
    def assumed(self) -> str:
        days = 1 / self.per_h / 24
        return (
            "no model of risk is trained, so every node has the fleet's base rate, one incident in"
            f" {days:.0f} days"
        )

    def within(self, statuses: Statuses, hours: float) -> Times:
        return np.full(len(statuses), -np.expm1(-self.per_h * hours))


def base_rate(logbook: Logbook, now: float) -> BaseRate:
    """From the logbook up to now, with one incident in 90 days added."""
    spells = logbook.spells(logbook.returns(), now, ())
    hours = float(spells.duration_h.sum()) + EXPECTED_H
    return BaseRate(per_h=(float(np.count_nonzero(spells.observed)) + 1) / hours)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A benchmark of the suite, all its entries together, on one node."""

    benchmark: str
    duration_s: float
    alone: bool  # whether a single node can run it


def offers(plan: Plan, measured_s: Mapping[tuple[str, str], float]) -> tuple[Offer, ...]:
    """The benchmarks of the suite, with their measured durations or else their declared ones."""
    seconds: defaultdict[str, float] = defaultdict(float)
    alone: dict[str, bool] = {}
    for phase in plan.phases:
        for entry in phase.entries:
            workload = entry.workload
            duration_s = measured_s.get((workload.benchmark, workload.parameters), entry.duration_s)
            seconds[workload.benchmark] += (
                duration_s * entry.repeats * _rounds(entry, len(plan.nodes))
            )
            alone[workload.benchmark] = entry.scope == "node"
    return tuple(
        Offer(benchmark=name, duration_s=seconds[name], alone=alone[name]) for name in seconds
    )


def _rounds(entry: PlannedEntry, nodes: int) -> int:
    """How often a node takes part in one repeat."""
    if entry.scope == "node" or (entry.scope == "group" and entry.groups == "all"):
        return 1
    meetings = max(1, nodes - 1)
    return meetings if entry.rounds is None else min(entry.rounds, meetings)


@dataclass(frozen=True, kw_only=True)
class Past:
    """What the history says, read once for many decisions."""

    logbook: Logbook
    risk: Risk
    defects: Sequence[Defect]
    categories: Mapping[str, Mapping[str, int]]  # by node: how many incidents of each category
    passed: Mapping[str, Mapping[str, float]]  # by node: when it last passed each benchmark
    unfit: Mapping[str, str]  # nodes that are out of service, and why
    links: Mapping[tuple[str, ...], str]  # good nodes with something bad between them, and why
    measured_s: Mapping[tuple[str, str], float]

    def links_among(self, nodes: Collection[str]) -> dict[tuple[str, ...], str]:
        return {link: why for link, why in self.links.items() if set(link) <= set(nodes)}


def read_past(history: History, now: float, risk: Risk | None = None) -> Past:
    """`risk`: a trained model; without one every node has the fleet's base rate."""
    validations = history.experience.validations(now - LOOKED_BACK_S)
    incidents = [incident for incident in history.incidents.all() if incident.start <= now]
    logbook = history.experience.logbook()
    categories: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for incident in incidents:
        categories[incident.node][incident.category] += 1
    return Past(
        logbook=logbook,
        risk=risk or base_rate(logbook, now),
        defects=defects(validations, history.experience.failed_tests(), incidents),
        categories=categories,
        passed=_passed(validations, incidents),
        unfit=_unfit(validations, incidents, now),
        links=bad_links(history.experience.faulty_paths(), validations),
        measured_s=history.experience.durations_s(),
    )


def _passed(
    validations: Iterable[Validation], incidents: Iterable[Incident]
) -> dict[str, dict[str, float]]:
    """What a node passed before its last incident no longer counts."""
    last: dict[str, float] = {}
    for incident in incidents:
        last[incident.node] = max(incident.start, last.get(incident.node, incident.start))
    passed: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for validation in sorted(validations, key=lambda validation: validation.at):
        if validation.judgement is Judgement.DEFECTIVE:
            passed.pop(validation.node, None)
        elif validation.judgement is Judgement.HEALTHY and validation.at >= last.get(
            validation.node, -np.inf
        ):
            passed[validation.node].update(dict.fromkeys(validation.benchmarks, validation.at))
    return passed


def _unfit(
    validations: Iterable[Validation], incidents: Iterable[Incident], now: float
) -> dict[str, str]:
    """Nodes whose last validation found them defective, or that have an incident now."""
    unfit: dict[str, str] = {}
    for validation in sorted(validations, key=lambda validation: validation.at):
        if validation.judgement is Judgement.DEFECTIVE:
            unfit[validation.node] = (
                f"it was defective in campaign {validation.campaign} ({validation.code})"
            )
        elif validation.judgement is Judgement.HEALTHY:
            unfit.pop(validation.node, None)
    for incident in incidents:
        if incident.end is not None and incident.end > now:
            unfit[incident.node] = f'its incident "{incident.category}" is not over'
    return unfit


class Selector:
    """Answers events from what it read in the history, and stores every answer there."""

    def __init__(self, past: Past, policy: SelectionPolicy, history: History) -> None:
        self.past, self.policy, self.history = past, policy, history

    def decide(
        self,
        event: FleetEvent,
        menu: Collection[Offer],
        *,
        at: float,
        together: bool = False,
        budget: Budget | None = None,
    ) -> Decision:
        """The decision is stored in the history before it is returned."""
        offered = [offer for offer in menu if together or offer.alone]
        left_out = sorted(offer.benchmark for offer in menu if not (together or offer.alone))
        outlook = self._outlook(event, offered, left_out, at)
        decision = decide(event, outlook, self.policy, at=at, together=together, budget=budget)
        self.history.decisions.add(decision)
        return decision

    def _outlook(
        self, event: FleetEvent, offered: Sequence[Offer], left_out: Sequence[str], at: float
    ) -> Outlook:
        past, policy = self.past, self.policy
        names = [offer.benchmark for offer in offered]
        statuses = past.logbook.statuses(Instants.now(event.nodes, at), past.risk.covariates)
        ahead_h = horizon_s(event, policy) / HOUR_S
        return Outlook(
            probabilities=past.risk.within(statuses, ahead_h),
            proven=np.array([bool(past.passed.get(node)) for node in event.nodes], dtype=bool),
            mixes=[mix_of(past.categories.get(node, {})) for node in event.nodes],
            ages_s=self._ages_s(event.nodes, names, at),
            detection=learn_detection(
                past.defects, names, prior=policy.prior, category_prior=policy.category_prior
            ),
            durations_s=[offer.duration_s for offer in offered],
            assumed=tuple(self._assumed(event, left_out)),
        )

    def _assumed(self, event: FleetEvent, left_out: Sequence[str]) -> Iterable[str]:
        """The assumptions that the decision must state."""
        if self.past.risk.assumed:
            yield self.past.risk.assumed
        unproven = [node for node in event.nodes if not self.past.passed.get(node)]
        if unproven:
            some = hostlist.compress(unproven[:MOST_NAMED])
            more = f" and {len(unproven) - MOST_NAMED:,} more" if len(unproven) > MOST_NAMED else ""
            yield (
                f"a defect is presumed on {some}{more}: no benchmark was passed there since the"
                " last incident or defect, or ever"
            )
        if left_out:
            yield f"left out, because they need several nodes: {', '.join(left_out)}"

    def _ages_s(self, nodes: Sequence[str], benchmarks: Sequence[str], at: float) -> Times:
        passed = [self.past.passed.get(node, {}) for node in nodes]
        last = [[times.get(benchmark, -NEVER) for benchmark in benchmarks] for times in passed]
        return at - np.array(last).reshape(len(nodes), len(benchmarks))
