"""Decide which tests an event is worth, with all reasons.

The input is an event and the state of its nodes; the output a decision: skip, or run these tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import compress
from typing import ClassVar

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Flags, Floats
from anubis.core.history.defects import UNKNOWN
from anubis.core.history.events import (
    FleetEvent,
    FleetUpgraded,
    IncidentReported,
    JobAllocated,
    NodeAdded,
    NodesSuspected,
    Tick,
)
from anubis.core.records import UNNAMED, SelectionPolicy
from anubis.core.select.selection import (
    Budget,
    Choice,
    Detection,
    Exposure,
    Menu,
    Pick,
    break_even,
    choose,
    expected_loss_s,
    expose,
    freshness,
)

MOST_REASONS = 5  # nodes and gaps that a decision names
LEAST_GAP = 0.001  # share of the expected incidents; smaller gaps come from smoothing
OF_THE_FLEET = 1.0  # incidents of any category that are added to a node's own


# --- the decision --------------------------------------------------------------------------


class Action(StrEnum):
    SKIP = "skip"  # the risk is bearable, or no test would lower it
    VALIDATE = "validate"
    ACCEPT = "accept"  # all tests, and criteria learned from them


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A node, and its share of the incidents to expect."""

    node: str
    p: float
    share: float
    because: str = ""  # its rack, cage or sku, if it fares far worse than all


@dataclass(frozen=True, kw_only=True)
class ChosenTest:
    __test__: ClassVar[bool] = False  # pytest is to look elsewhere

    benchmark: str
    nodes: tuple[str, ...]
    drop: float  # the drop of p (1 - C) by all its runs
    drop_per_s: float  # the drop per second of a node
    duration_s: float  # on one node
    busy: int = 1  # busy nodes while one is tested: itself, and a partner


@dataclass(frozen=True, kw_only=True)
class Gap:
    """What stays uncovered: a kind of defect, by who would find it."""

    finders: tuple[str, ...]  # none: no known benchmark finds it
    share: float  # of the expected incidents


@dataclass(frozen=True, kw_only=True)
class Decision:
    cluster: str = UNNAMED  # the cluster of its nodes
    event: str
    at: float  # seconds since the epoch
    nodes: tuple[str, ...]
    down: tuple[str, ...] = ()  # also asked for, but in an incident or a repair: not counted
    horizon_s: float  # the time for which p holds
    category: str = ""  # of the reported incident, or the likeliest suspected one
    action: Action
    p: float  # the probability of an incident on any of the nodes
    p0: float
    because: str  # the source of p0
    covered_before: float  # C of recent measurements
    coverage: float  # C of these and the tests
    remaining: float  # p (1 - C)
    missed: float  # the chance of an incident on some node that no test foresees
    drivers: tuple[Driver, ...]  # the riskiest first
    tests: tuple[ChosenTest, ...]  # the most valuable per second first
    partners: tuple[str, ...] = ()  # proven nodes, as partners for tests that need several
    gaps: tuple[Gap, ...]  # the largest first
    longest_s: float  # the longest time of tests on any one node
    node_seconds: float
    greedy_node_seconds: float | None = None  # of the greedy choice, if the cheapest was looked for
    assumed: tuple[str, ...]  # assumptions for lack of knowledge
    refused: tuple[str, ...] = ()  # why a gate said no-go at once, whatever the risk: no test ran

    def __post_init__(self) -> None:
        if (self.action is Action.SKIP) is bool(self.tests):
            raise ValueError(f"{self.action.value} with {len(self.tests)} tests")

    @property
    def is_bearable(self) -> bool:
        """True if the tests, once passed, leave no more risk than is accepted."""
        return self.remaining <= self.p0


@dataclass(frozen=True, kw_only=True, eq=False)
class Outlook:
    """The state of the nodes of an event when it is decided, a row for each."""

    probabilities: Floats  # of an incident within the horizon, by the risk model alone
    proven: Flags  # the node passed a test since its last incident or defect, and owes nothing
    mixes: Sequence[Mapping[str, float]]  # frequency of each category
    ages_s: Floats  # nodes x benchmarks: since each was passed; infinite if it was not
    detection: Detection
    durations_s: Sequence[float]  # on one node; later benchmarks cannot be chosen
    busy: Sequence[int] = ()  # busy nodes while one is tested; none: only itself
    partners: tuple[str, ...] = ()  # proven nodes, as partners
    assumed: tuple[str, ...] = ()
    noted: Mapping[str, str] = field(default_factory=dict)  # by node: the problem of its group
    owed: Flags | None = None  # nodes x benchmarks: what each has to pass in any case
    presumed: Flags | None = None  # nodes on which an event recently presumed a defect


def mix_of(incidents: Mapping[str, int]) -> Mapping[str, float]:
    """The expected frequency of each category on a node that had these incidents."""
    return {UNKNOWN: OF_THE_FLEET, **incidents}


def horizon_s(event: FleetEvent, policy: SelectionPolicy) -> float:
    return event.duration_s if isinstance(event, JobAllocated) else policy.horizon_h * HOUR_S


def choose_tests(
    event: FleetEvent, outlook: Outlook, policy: SelectionPolicy, *, incident_costs_s: float | None
) -> Choice:
    """Choose the tests to run, without explanation; the study makes thousands of such choices."""
    return _choices(event, outlook, policy, False, None, incident_costs_s)[0]


def _choices(
    event: FleetEvent,
    outlook: Outlook,
    policy: SelectionPolicy,
    together: bool,
    budget: Budget | None,
    incident_costs_s: float | None = None,
) -> tuple[Choice, Choice]:
    """The choice by the policy, and the greedy one.

    `together`: one subset for all nodes of the event; otherwise each gets its own.
    `incident_costs_s`: in node-seconds; by default the cost that the event implies.
    """
    menu = Menu(
        exposure=_exposure(event, outlook, policy),
        detection=outlook.detection,
        durations_s=outlook.durations_s,
        busy=outlook.busy,
        together=together,
        budget=budget or Budget(),
        owed=outlook.owed,
    )
    p0, _ = _bearable_risk(event, outlook, policy)
    if policy.above_p0 == "run" and isinstance(event, JobAllocated):
        worth = 0.0
    elif incident_costs_s is None:
        worth = _worth(event, menu.exposure, policy)
    else:
        worth = 1 / incident_costs_s
    greedy = choose(menu, p0=p0, worth=worth)
    if policy.search == "greedy" or not menu.leaves_more_than(p0):
        return greedy, greedy
    from anubis.core.select.optimum import optimum  # loads scipy's solver only if needed

    return optimum(menu, p0=p0, worth=worth, greedy=greedy), greedy


def decide(
    event: FleetEvent,
    outlook: Outlook,
    policy: SelectionPolicy,
    *,
    at: float,
    together: bool = False,
    budget: Budget | None = None,
) -> Decision:
    """Choose tests, and give every reason for the choice."""
    choice, greedy = _choices(event, outlook, policy, together, budget)
    p0, because = _bearable_risk(event, outlook, policy)
    tests = tuple(_tests(choice, event.nodes))
    action = Action.VALIDATE if tests else Action.SKIP
    if tests and isinstance(event, FleetUpgraded) and event.criteria == "refused":
        action = Action.ACCEPT
    return Decision(
        event=event.kind,
        at=at,
        nodes=event.nodes,
        horizon_s=horizon_s(event, policy),
        category=next(iter(_categories(event)), ""),
        action=action,
        p=choice.p,
        p0=p0,
        because=because,
        covered_before=choice.covered_before,
        coverage=choice.coverage,
        remaining=choice.remaining,
        missed=choice.missed,
        drivers=_drivers(
            event.nodes, _presumed_probabilities(event, outlook, policy), outlook.noted
        ),
        tests=tests,
        partners=outlook.partners if any(test.busy > 1 for test in tests) else (),
        gaps=_gaps(choice, outlook.detection),
        longest_s=choice.longest_s,
        node_seconds=choice.node_seconds,
        greedy_node_seconds=None if policy.search == "greedy" else greedy.node_seconds,
        assumed=(*outlook.assumed, *_thin_history_remarks(event, outlook.detection, policy)),
    )


def _bearable_risk(
    event: FleetEvent, outlook: Outlook, policy: SelectionPolicy
) -> tuple[float, str]:
    """The p0 of an event, and its source."""
    match event:
        case NodeAdded():
            return 0.0, "as nothing is known of a node that is added"
        case FleetUpgraded(criteria="refused"):
            return 0.0, "as criteria are learned again from everything"
    if policy.p0 != "job":
        return policy.p0, "by the policy"
    lost_s = expected_loss_s(horizon_s(event, policy))
    return break_even(sum(outlook.durations_s), lost_s), (
        "at which an incident is expected to cost as much as the whole suite"
    )


def _worth(event: FleetEvent, exposure: Exposure, policy: SelectionPolicy) -> float:
    """The drop per node-second below which a test takes more node time than it is expected to save.

    An incident costs a job half of its time on all of its nodes. Each idle node counts as a job of
    its own, so p, which counts the incidents of many nodes as one, is divided among them. Without
    this limit, a test that just ran would run again whenever p0 is out of reach.
    """
    lost_s = expected_loss_s(horizon_s(event, policy))
    match event:
        case JobAllocated(nodes=nodes):
            return 1 / (max(1, len(nodes)) * lost_s)
        case Tick() if exposure.p > 0:
            return exposure.p / (float(exposure.probabilities.sum()) * lost_s)
    return 0.0


def _presumed_probabilities(event: FleetEvent, outlook: Outlook, policy: SelectionPolicy) -> Floats:
    """The probability of an incident on each node. A defect is presumed after an event, and on
    nodes that never passed a test. A suspicion has the confidence of its source."""
    match event:
        case IncidentReported() | NodeAdded() | FleetUpgraded():
            return np.ones(len(event.nodes))
        case NodesSuspected(nodes=nodes, confidences=confidences):
            suspected = np.array([confidences[node] for node in nodes], dtype=np.float64)
            return 1 - (1 - outlook.probabilities) * (1 - suspected)
    proven = outlook.proven & ~_presumption_flags(event, outlook, policy)
    return np.where(proven, outlook.probabilities, 1.0)


def _presumption_flags(event: FleetEvent, outlook: Outlook, policy: SelectionPolicy) -> Flags:
    """Flags for nodes whose passes since the event leave more than p0 of the presumed defect.
    Otherwise any pass would lift the presumption, and the same question would get two answers."""
    if outlook.presumed is None or not outlook.presumed.any():
        return np.zeros(len(event.nodes), dtype=bool)
    p0, _ = _bearable_risk(event, outlook, policy)
    passed = np.isfinite(outlook.ages_s).astype(np.float64)
    exposure = expose(
        outlook.detection, np.ones(len(event.nodes)), mixes=outlook.mixes, fresh=passed
    )
    still: Flags = outlook.presumed & (exposure.uncovered.sum(axis=1) > p0)
    return still


def _exposure(event: FleetEvent, outlook: Outlook, policy: SelectionPolicy) -> Exposure:
    detection, p = outlook.detection, _presumed_probabilities(event, outlook, policy)
    match event:
        case IncidentReported(category=category):
            return expose(detection, p, mixes=[{category: 1.0}] * len(p))
        case NodesSuspected(nodes=nodes, mixes=mixes):
            return expose(detection, p, mixes=[mixes[node] for node in nodes])
        case NodeAdded() | FleetUpgraded(criteria="refused"):
            return expose(detection, p)
        case FleetUpgraded():
            return expose(detection, p, mixes=outlook.mixes)
    fresh = freshness(outlook.ages_s, policy.half_life_h * HOUR_S)
    return expose(detection, p, mixes=outlook.mixes, fresh=fresh)


def _tests(choice: Choice, nodes: Sequence[str]) -> Iterable[ChosenTest]:
    """Yield the picks, those of one benchmark as one test, at the place of the first of them."""
    of_each: dict[str, list[Pick]] = {}
    for pick in choice.picks:
        of_each.setdefault(pick.benchmark, []).append(pick)
    for benchmark, picks in of_each.items():
        rows = sorted(row for pick in picks for row in pick.nodes)
        drop = sum(pick.drop for pick in picks)
        seconds = sum(pick.cost_s for pick in picks)
        yield ChosenTest(
            benchmark=benchmark,
            nodes=tuple(nodes[row] for row in rows),
            drop=drop,
            drop_per_s=drop / seconds if seconds else drop,
            duration_s=picks[0].duration_s,
            busy=picks[0].busy,
        )


def _drivers(
    nodes: Sequence[str], probabilities: Floats, noted: Mapping[str, str]
) -> tuple[Driver, ...]:
    total = float(probabilities.sum())
    if not total > 0:
        return ()
    order = np.argsort(-probabilities, kind="stable")[:MOST_REASONS]
    riskiest = ((nodes[i], float(probabilities[i])) for i in order)
    return tuple(
        Driver(node=node, p=p, share=p / total, because=noted.get(node, ""))
        for node, p in riskiest
        if p > 0
    )


def _gaps(choice: Choice, detection: Detection) -> tuple[Gap, ...]:
    shares = choice.left.sum(axis=0)
    order = np.argsort(-shares, kind="stable")[:MOST_REASONS]
    return tuple(
        Gap(
            finders=tuple(compress(detection.benchmarks, detection.finders[kind])),
            share=float(shares[kind]),
        )
        for kind in order
        if shares[kind] >= LEAST_GAP
    )


def _thin_history_remarks(
    event: FleetEvent, detection: Detection, policy: SelectionPolicy
) -> Iterable[str]:
    """Yield a remark for each lack of known defects in the history."""
    if detection.known == 0:
        yield "no defect is known yet, so each benchmark is taken to find as much as any other"
        return
    for category in _categories(event):
        count = detection.defects.get(category, 0)
        if count == 0:
            yield f'no defect behind "{category}" is known, so those of all categories count'
        elif count < policy.category_prior:
            defects = "1 defect" if count == 1 else f"{count} defects"
            yield (
                f'only {defects} behind "{category}" known, so those of all categories'
                " count as well"
            )


def _categories(event: FleetEvent) -> tuple[str, ...]:
    """The categories of incidents that an event is about, the likeliest first."""
    match event:
        case IncidentReported(category=category):
            return (category,)
        case NodesSuspected():
            return tuple(event.mix)
    return ()
