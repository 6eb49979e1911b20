"""What `select`, `gate` and `sweep` share: an event to a decision, and a decision carried out."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from anubis import catalog, config, hostlist, places
from anubis.cli import running, showing
from anubis.core.campaign import planning
from anubis.core.choosing.decision import Decision, FleetEvent
from anubis.core.choosing.selection import Budget
from anubis.core.errors import UsageError
from anubis.core.records import CampaignKind, Judgement, Node
from anubis.report import decision as told
from anubis.report.view import CampaignView
from anubis.selector import Offer, Past, Risk, Selector, offers, read_past
from anubis.store.history import History

Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line says beside the event."""

    suite: str
    policy: str
    benchmarks: tuple[Path, ...]
    budget: Budget
    together: bool
    json: bool

    def order(self, nodes: str | None, cluster: str, criteria: Path | None) -> running.Order:
        """The campaign that is to carry the decision out."""
        return running.Order(
            kind=CampaignKind.VALIDATE,
            nodes=nodes,
            cluster=cluster,
            suite=self.suite,
            policy=self.policy,
            benchmarks=self.benchmarks,
            criteria=criteria,
            json=self.json,
        )


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A decision, and what the history says of its nodes."""

    decision: Decision
    past: Past


def decide(request: Request, event_of: Callable[[Past, History], FleetEvent]) -> Answer:
    """Decide now, keep the decision and show it; nothing runs, and no node is asked anything."""
    policy = config.policy(request.policy).selection
    now = time.time()
    with History.open(places.history_url()) as history:
        past = read_past(history, now, _risk())
        event = event_of(past, history)
        decision = Selector(past, policy, history).decide(
            event,
            _offers(request, event.nodes, past),
            at=now,
            together=request.together,
            budget=request.budget,
        )
    if request.json:
        print(told.line(decision))
    else:
        showing.paragraph(told.paragraph(decision))
    return Answer(decision=decision, past=past)


def _risk() -> Risk | None:
    """The model that was trained, if any was."""
    file = places.risk_file()
    if not file.is_file():
        return None
    from anubis.risk import trained

    return trained.load(file)


def _offers(request: Request, nodes: Sequence[str], past: Past) -> tuple[Offer, ...]:
    """What the suite offers to so many nodes, whatever they are."""
    if not nodes:
        return ()
    suite = config.suite(request.suite)
    wanted = {entry.benchmark for entry in suite.benchmarks}
    programs = catalog.load((places.shipped("benchmarks"), *request.benchmarks), wanted)
    fleet = [Node(name=name, sku="") for name in nodes]
    plan = planning.plan(suite, fleet, programs.specs)
    return offers(plan, past.measured_s)


def named(nodes: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hostlist.read(nodes)))


@dataclass(frozen=True, kw_only=True)
class Found:
    """What each node was judged to be, and which did badly together, of whom none is blamed."""

    judged: Mapping[str, Judgement]
    links: Mapping[tuple[str, ...], str]  # and why

    def those(self, judgement: Judgement) -> list[str]:
        return [node for node, found in self.judged.items() if found is judgement]


def carry_out(decision: Decision, order: running.Order) -> Found:
    """A campaign for the nodes that run the same tests."""
    running.turn_termination_into_interrupt()
    judged: dict[str, Judgement] = {}
    links: dict[tuple[str, ...], str] = {}
    for chosen, nodes in _alike(decision).items():
        mine = dataclasses.replace(order, nodes=hostlist.compress(nodes), chosen=chosen)
        view = running.carry_out_new(mine)
        showing.campaign(view, as_json=order.json)
        judged |= {each.node: each.judgement for each in view.assessment.nodes}
        links |= _links(view)
    return Found(judged=judged, links=links)


def _links(view: CampaignView) -> dict[tuple[str, ...], str]:
    """Who did badly together, where none of them is blamed for it."""
    blamed = set(view.assessment.named(Judgement.DEFECTIVE))
    return {
        each.participants: each.reason
        for each in view.assessment.alone
        if each.judgement is Judgement.DEFECTIVE and blamed.isdisjoint(each.participants)
    }


def doubted(found: Found) -> Found:
    """Where too much stays untested, nobody passes."""
    unsure = dict.fromkeys(found.those(Judgement.HEALTHY), Judgement.UNKNOWN)
    return dataclasses.replace(found, judged={**found.judged, **unsure})


def _alike(decision: Decision) -> dict[frozenset[str], list[str]]:
    """The nodes by what they are to run."""
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for test in decision.tests:
        for node in test.nodes:
            tests[node].add(test.benchmark)
    groups: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for node in decision.nodes:
        if tests[node]:
            groups[frozenset(tests[node])].append(node)
    return groups


def leave(found: Found, *, unknown_passes: bool) -> None:
    """Exit as every verb does: 1 for a defect, 2 where something is not known."""
    judged = set(found.judged.values())
    if found.links or Judgement.DEFECTIVE in judged:
        sys.exit(1)
    if judged - {Judgement.HEALTHY} and not unknown_passes:
        sys.exit(2)


def one_of(option: str, value: str, words: Sequence[Word]) -> Word:
    for word in words:
        if word == value:
            return word
    raise UsageError(f'{option} is "{value}", expected {" or ".join(words)}')
