"""The Selector's answer to an event, with all its reasons.

An event and what is known of its nodes go in; out comes a decision: skip, or run this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import compress
from typing import ClassVar

import numpy as np

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

HOUR_S = 3600.0
MOST_REASONS = 5  # nodes and gaps that a decision names
LEAST_GAP = 0.001  # of the incidents to expect; smaller ones are smoothing
OF_THE_FLEET = 1.0  # incidents of any category that a node's own are filled up with


# --- the decision --------------------------------------------------------------------------


class Action(StrEnum):
    SKIP = "skip"  # the risk is bearable, or nothing to be run would lower it
    VALIDATE = "validate"
    ACCEPT = "accept"  # everything, and criteria learned from it


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A node, and its share of the incidents to expect."""

    node: str
    p: float
    share: float
    because: str = ""  # of its rack, cage or sku, where these fare far worse than all


@dataclass(frozen=True, kw_only=True)
class ChosenTest:
    __test__: ClassVar[bool] = False  # pytest is to look elsewhere

    benchmark: str
    nodes: tuple[str, ...]
    drop: float  # of p (1 - C), by all that is run of it
    drop_per_s: float  # per second of a node
    duration_s: float  # on one node
    busy: int = 1  # nodes, while one of them is tested: itself, and a partner


@dataclass(frozen=True, kw_only=True)
class Gap:
    """What stays uncovered: a kind of defect, by who would find it."""

    finders: tuple[str, ...]  # none: nothing known does
    share: float  # of the incidents to expect


@dataclass(frozen=True, kw_only=True)
class Decision:
    cluster: str = UNNAMED  # that its nodes are of
    event: str
    at: float  # seconds since the epoch
    nodes: tuple[str, ...]
    down: tuple[str, ...] = ()  # asked about as well, and in an incident or a repair: not counted
    horizon_s: float  # how far ahead p looks
    category: str = ""  # of the incident that was reported, or the likeliest that is suspected
    action: Action
    p: float  # of an incident on any of the nodes
    p0: float
    because: str  # where p0 comes from
    covered_before: float  # C of what was measured lately
    coverage: float  # C of that and the tests
    remaining: float  # p (1 - C)
    missed: float  # the chance that some node has an incident that nothing foresees
    drivers: tuple[Driver, ...]  # the riskiest first
    tests: tuple[ChosenTest, ...]  # worth most per second first
    partners: tuple[str, ...] = ()  # proven nodes, for those to meet whose tests need several
    gaps: tuple[Gap, ...]  # the largest first
    longest_s: float  # of tests on any one node
    node_seconds: float
    assumed: tuple[str, ...]  # for want of knowledge

    def __post_init__(self) -> None:
        if (self.action is Action.SKIP) is bool(self.tests):
            raise ValueError(f"{self.action.value} with {len(self.tests)} tests")

    @property
    def is_bearable(self) -> bool:
        """Whether the tests, if they are passed, leave no more risk than is accepted."""
        return self.remaining <= self.p0


@dataclass(frozen=True, kw_only=True, eq=False)
class Outlook:
    """What is known of the nodes of an event, a row for each, when it is decided."""

    probabilities: Floats  # of an incident within the horizon, going by the risk model alone
    proven: (
        Flags  # whether a node passed anything since its last incident or defect, and owes nothing
    )
    mixes: Sequence[Mapping[str, float]]  # how often which category
    ages_s: Floats  # nodes x benchmarks: since each was passed; infinite where it was not
    detection: Detection
    durations_s: Sequence[float]  # on one node; benchmarks that come after cannot be chosen
    busy: Sequence[int] = ()  # nodes, while one is tested; none: only itself
    partners: tuple[str, ...] = ()  # nodes that are proven, to be met
    assumed: tuple[str, ...] = ()
    noted: Mapping[str, str] = field(default_factory=dict)  # by node: what is bad about its group
    owed: Flags | None = None  # nodes x benchmarks: what each has to pass, whatever else is known
    presumed: Flags | None = None  # nodes on which an event presumed a defect lately


def mix_of(incidents: Mapping[str, int]) -> Mapping[str, float]:
    """How often each category is to be expected on a node that had these incidents."""
    return {UNKNOWN: OF_THE_FLEET, **incidents}


def horizon_s(event: FleetEvent, policy: SelectionPolicy) -> float:
    return event.duration_s if isinstance(event, JobAllocated) else policy.horizon_h * HOUR_S


def choose_tests(
    event: FleetEvent,
    outlook: Outlook,
    policy: SelectionPolicy,
    *,
    together: bool = False,
    budget: Budget | None = None,
    incident_costs_s: float | None = None,
) -> Choice:
    """What is to run, without a word of explanation; the study takes thousands of such choices.

    `together`: one subset for all nodes of the event; otherwise each gets its own.
    `incident_costs_s`: in node-seconds; by default what the event says.
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
    p0, _ = _bearable(event, outlook, policy)
    if policy.above_p0 == "run" and isinstance(event, JobAllocated):
        worth = 0.0
    elif incident_costs_s is None:
        worth = _worth(event, menu.exposure, policy)
    else:
        worth = 1 / incident_costs_s
    if policy.search == "greedy":
        return choose(menu, p0=p0, worth=worth)
    from anubis.core.select.optimum import optimum  # scipy's solver loads where it is used

    return optimum(menu, p0=p0, worth=worth)


def decide(
    event: FleetEvent,
    outlook: Outlook,
    policy: SelectionPolicy,
    *,
    at: float,
    together: bool = False,
    budget: Budget | None = None,
) -> Decision:
    """The choice of tests, and every reason for it."""
    choice = choose_tests(event, outlook, policy, together=together, budget=budget)
    p0, because = _bearable(event, outlook, policy)
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
        drivers=_drivers(event.nodes, _presumed(event, outlook, policy), outlook.noted),
        tests=tests,
        partners=outlook.partners if any(test.busy > 1 for test in tests) else (),
        gaps=_gaps(choice, outlook.detection),
        longest_s=choice.longest_s,
        node_seconds=choice.node_seconds,
        assumed=(*outlook.assumed, *_thin(event, outlook.detection, policy)),
    )


def _bearable(event: FleetEvent, outlook: Outlook, policy: SelectionPolicy) -> tuple[float, str]:
    """p0, and where it comes from."""
    match event:
        case NodeAdded():
            return 0.0, "as nothing is known of a node that is added"
        case FleetUpgraded(criteria="refused"):
            return 0.0, "as criteria are learned again from everything"
    if policy.p0 != "job":
        return policy.p0, "by the policy"
    lost_s = expected_loss_s(horizon_s(event, policy))
    return break_even(sum(outlook.durations_s), lost_s), (
        "where an incident is expected to cost what the whole suite does"
    )


def _worth(event: FleetEvent, exposure: Exposure, policy: SelectionPolicy) -> float:
    """The drop per node-second below which a test takes more node time than it is expected to save.

    An incident costs a job half of its time on all of its nodes; of idle nodes each is one job's,
    and p, which counts the incidents of many nodes as one, has to be counted out to each.
    What was just measured would be measured again otherwise, whenever p0 is out of reach.
    """
    lost_s = expected_loss_s(horizon_s(event, policy))
    match event:
        case JobAllocated(nodes=nodes):
            return 1 / (max(1, len(nodes)) * lost_s)
        case Tick() if exposure.p > 0:
            return exposure.p / (float(exposure.probabilities.sum()) * lost_s)
    return 0.0


def _presumed(event: FleetEvent, outlook: Outlook, policy: SelectionPolicy) -> Floats:
    """The chance of an incident on each node: a defect is presumed where something has happened,
    and where nothing was ever proven. A suspicion is as good as its source has been."""
    match event:
        case IncidentReported() | NodeAdded() | FleetUpgraded():
            return np.ones(len(event.nodes))
        case NodesSuspected(nodes=nodes, confidences=confidences):
            suspected = np.array([confidences[node] for node in nodes], dtype=np.float64)
            return 1 - (1 - outlook.probabilities) * (1 - suspected)
    proven = outlook.proven & ~_still_presumed(event, outlook, policy)
    return np.where(proven, outlook.probabilities, 1.0)


def _still_presumed(event: FleetEvent, outlook: Outlook, policy: SelectionPolicy) -> Flags:
    """Nodes whose passes since the event leave more than p0 of the presumed defect. Any pass would
    lift the presumption else, and the same question asked twice would get two answers."""
    if outlook.presumed is None or not outlook.presumed.any():
        return np.zeros(len(event.nodes), dtype=bool)
    p0, _ = _bearable(event, outlook, policy)
    passed = np.isfinite(outlook.ages_s).astype(np.float64)
    exposure = expose(
        outlook.detection, np.ones(len(event.nodes)), mixes=outlook.mixes, fresh=passed
    )
    still: Flags = outlook.presumed & (exposure.uncovered.sum(axis=1) > p0)
    return still


def _exposure(event: FleetEvent, outlook: Outlook, policy: SelectionPolicy) -> Exposure:
    detection, p = outlook.detection, _presumed(event, outlook, policy)
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
    """The picks, those of one benchmark as one, where the first of them stood."""
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


def _thin(event: FleetEvent, detection: Detection, policy: SelectionPolicy) -> Iterable[str]:
    """Where history knows too little of defects to go by it alone."""
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
    """That it is about, the likeliest first."""
    match event:
        case IncidentReported(category=category):
            return (category,)
        case NodesSuspected():
            return tuple(event.mix)
    return ()
