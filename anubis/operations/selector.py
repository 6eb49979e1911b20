"""The Selector: makes the input of core.decision from the history and a risk model.

It reads and adds up; core decides which tests are worth their time.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Protocol

import numpy as np

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.core.arrays import Flags
from anubis.core.campaign.planning import MET, all_meet
from anubis.core.history.defects import Defect, defects
from anubis.core.history.events import EventRecord, FleetEvent, reported_incidents, reports
from anubis.core.history.logbook import RATES, Logbook
from anubis.core.history.maintenance import Windows, reported_windows
from anubis.core.history.past import Happened, index_after, index_from, logbook_of
from anubis.core.history.standing import ANY, Standing, bad_links, standing
from anubis.core.history.status import Instants, Statuses, Times
from anubis.core.history.strength import Strength
from anubis.core.history.tracks import IncidentColumns
from anubis.core.keep.objections import Objections
from anubis.core.records import IN_GROUPS, Demand, Plan, PlannedEntry, SelectionPolicy, Workload
from anubis.core.select.decision import Decision, Outlook, decide, horizon_s, mix_of
from anubis.core.select.selection import NEVER, Budget, learn_detection
from anubis.operations.library_output import silence_libraries
from anubis.store.history import ClusterHistory
from anubis.text import hostlist

MOST_NAMED = 8  # nodes, in a sentence
EXPECTED_H = 90 * 24.0  # between a node's incidents if nothing is known; counts as one incident
FAR_MORE = 1.5  # times the fleet's rate of incidents: then a group is mentioned
LOOKED_BACK_S = 365 * DAY_S  # older findings of benchmarks say little about today's


class Risk(Protocol):
    """A model of how likely an incident is, given a node's status."""

    @property
    def covariates(self) -> tuple[str, ...]: ...

    @property
    def assumed(self) -> str:
        """Assumption that a decision must state; empty if the model considers each node."""
        ...

    def chances_within(self, statuses: Statuses, hours: float) -> Times:
        """P(incident within so many hours | status, alive now), for each row."""
        ...


@dataclass(frozen=True, kw_only=True)
class BaseRate:
    """One rate for every node: the fleet's incidents per hour in service."""

    per_h: float
    seen: int  # incidents on which it rests; without any it is assumed
    covariates: tuple[str, ...] = ()

    @property
    def assumed(self) -> str:
        days = 1 / self.per_h / 24
        if not self.seen:
            return (
                "no model of risk is trained and no incident is known, so one incident in"
                f" {days:.0f} days is assumed for every node"
            )
        return (
            "no model of risk is trained, so every node has the fleet's base rate, one incident in"
            f" {days:.0f} days"
        )

    def chances_within(self, statuses: Statuses, hours: float) -> Times:
        return np.full(len(statuses), -np.expm1(-self.per_h * hours))


def base_rate(logbook: Logbook, now: float) -> BaseRate:
    """Base rate of the logbook up to now, with one incident in 90 days added."""
    uptimes = logbook.uptimes(logbook.returns(), now, ())
    hours = float(uptimes.duration_h.sum()) + EXPECTED_H
    seen = int(np.count_nonzero(uptimes.observed))
    return BaseRate(per_h=(seen + 1.0) / hours, seen=seen)


def instants_of_risk(past: Past, at: float, policy: SelectionPolicy) -> list[float]:
    """Instants at which the risk of a node is looked at: now, and the time up to which silence
    counts as health. The risk that was known by then remains."""
    vouched = 0.0 if past.heard_at is None else min(at, past.heard_at + policy.silence_d * DAY_S)
    return sorted({at, vouched}, reverse=True)


def _risk_known_at(past: Past, instants: Iterable[float]) -> Risk:
    """The model, or else the highest base rate that was known at one of these instants."""
    if past.risk:
        return past.risk
    return max((base_rate(past.logbook, instant) for instant in instants), key=attrgetter("per_h"))


def silence_remark(past: Past, at: float, policy: SelectionPolicy) -> str:
    """Sentence on a silence that is not taken for health; empty if there is none."""
    if past.heard_at is None:
        return "no incident was ever reported, and silence is not taken for health"
    if instants_of_risk(past, at, policy) == [at]:
        return ""
    return (
        f"no incident was reported for {(at - past.heard_at) / DAY_S:.0f} days, and silence"
        f" beyond {policy.silence_d:g} days is not taken for health"
    )


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """Chances of an incident on nodes, and what they follow from."""

    risk: Risk
    statuses: Statuses
    chances: Times


def assess_risk(
    past: Past, nodes: Sequence[str], at: float, hours: float, policy: SelectionPolicy
) -> Prospect:
    """Chances of an incident on nodes within so many hours, the same for all that ask."""
    instants = instants_of_risk(past, at, policy)
    risk = _risk_known_at(past, instants)
    views = [
        past.logbook.statuses(Instants.now(nodes, instant), risk.covariates) for instant in instants
    ]
    chances = np.array([risk.chances_within(view, hours) for view in views])
    riskiest = Instants(nodes=tuple(nodes), at=np.array(instants)[chances.argmax(axis=0)])
    return Prospect(
        risk=risk,
        statuses=views[0] if len(views) == 1 else past.logbook.statuses(riskiest, risk.covariates),
        chances=chances.max(axis=0),
    )


def risks(past: Past, nodes: Sequence[str], at: float, policy: SelectionPolicy) -> dict[str, float]:
    """Probability of an incident within the policy's horizon, by node; 1 if the node owes an
    answer."""
    chances = assess_risk(past, nodes, at, policy.horizon_h, policy).chances.tolist()
    owes = past.standing.owes
    return {node: 1.0 if node in owes else p for node, p in zip(nodes, chances, strict=True)}


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A benchmark of the suite, all its entries together, on one node."""

    benchmark: str
    duration_s: float
    alone: bool  # True if a single node can run it
    by_all: bool = False  # only all nodes at once: its result says nothing about a single node


def offers(
    plan: Plan, measured_s: Mapping[tuple[str, str], float], *, together: bool = False
) -> tuple[Offer, ...]:
    """Benchmarks of the suite, with their measured durations or else their declared ones.

    `together`: all nodes of the plan are partners of each other, as the suite says; otherwise each
    has other partners.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    met: Counter[str] = Counter()
    alone: dict[str, bool] = {}
    for phase in plan.phases:
        for entry in phase.entries:
            workload = entry.workload
            duration_s = measured_s.get((workload.benchmark, workload.parameters), entry.duration_s)
            alone[workload.benchmark] = entry.scope == "node"
            pair_tests = _rounds(entry, len(plan.nodes)) if together else _pair_tests(entry)
            seconds[workload.benchmark] += duration_s * entry.repeats * pair_tests
            met[workload.benchmark] += pair_tests
    return tuple(
        Offer(benchmark=name, duration_s=seconds[name], alone=alone[name], by_all=not met[name])
        for name in seconds
    )


def _rounds(entry: PlannedEntry, nodes: int) -> int:
    """Number of times that a node takes part in one repeat."""
    if entry.scope == "node" or (entry.scope == "group" and entry.groups in IN_GROUPS):
        return 1
    pair_tests = max(1, nodes - 1)
    return pair_tests if entry.rounds is None else min(entry.rounds, pair_tests)


def _pair_tests(entry: PlannedEntry) -> int:
    """The same for a node with partners of its own."""
    if entry.scope == "node":
        return 1
    return MET if all_meet(entry) else 0


@dataclass(frozen=True, kw_only=True)
class Past:
    """The history, read once for many decisions."""

    logbook: Logbook
    standing: Standing
    payable: Mapping[str, frozenset[str]]  # by node with debts: benchmarks that can pay them now
    risk: Risk | None  # None: no model is trained
    heard_at: float | None  # when the last reported incident began, or until when an import says
    # that nodes without any were watched; None: nothing was ever reported
    defects: Sequence[Defect]
    incidents: IncidentColumns  # that were imported and have begun
    categories: Mapping[str, Mapping[str, int]]  # number of incidents by node and category
    links: Mapping[tuple[str, ...], str]  # good nodes with something bad between them, and why
    measured_s: Mapping[tuple[str, str], float]
    windows: Windows  # of maintenance
    doubt: str = ""  # why no pass counts; empty: the clock is trusted
    cleared: Mapping[str, float] = field(default_factory=dict)  # time of a keeper's last verdict

    def doubting(self, doubt: str, tested: Collection[str] = ()) -> Past:
        """The past without passes, but for nodes that were `tested` just now, if there is a doubt
        about the clock; without a doubt, as it is."""
        return replace(self, standing=self.standing.apply_doubt(doubt, tested), doubt=doubt)

    def add_objections(self, objections: Objections) -> Past:
        """The past with the objections of a keeper to nodes."""
        standing = self.standing.apply_objections(objections.out, objections.unproven)
        return replace(self, standing=standing, cleared=objections.cleared)

    def links_among(self, nodes: Collection[str]) -> dict[tuple[str, ...], str]:
        return {link: why for link, why in self.links.items() if set(link) <= set(nodes)}


def read_past(
    history: ClusterHistory,
    now: float,
    risk: Risk | None = None,
    offered: Iterable[Demand] = (),
    nodes: AbstractSet[str] | None = None,
    standing: Standing | None = None,
) -> Past:
    """Read the past. `risk`: a trained model; without one every node has the fleet's base rate.
    `offered`: what can be chosen now; a pass counts only if it demanded as much. `nodes`: those
    whose standing and links are needed; None: all. `standing`: one by the same terms, if it is
    known already."""
    recall = history.memory.recall
    happened = history.experience.happenings(now - LOOKED_BACK_S)
    findings = history.experience.failed_tests()
    recent = happened.validations[index_from(happened.validations, now - LOOKED_BACK_S) :]
    by_now = recent[: index_after(recent, now)]
    imported = happened.incidents.select_begun(now)
    reported_by_now = happened.event_records[: index_after(happened.event_records, now)]
    incidents = recall(_add_reported, imported, reports(reported_by_now))
    strength = _strength(history, findings, offered)
    stand = standing or standing_of(happened, findings, now, strength, nodes)
    return Past(
        logbook=recall(logbook_of, *happened.logbook_inputs),
        standing=stand,
        payable={node: _payable(stand, node, strength) for node in stand.owes},
        risk=risk,
        heard_at=_heard_at(incidents, history, now),
        defects=recall(defects, by_now, findings, incidents),
        incidents=imported,
        categories=recall(_categories, incidents),
        links=bad_links(history.experience.part_verdicts(), by_now, strength),
        measured_s=history.experience.durations_s(),
        windows=recall(reported_windows, happened.event_records),
    )


def _heard_at(incidents: IncidentColumns, history: ClusterHistory, now: float) -> float | None:
    if len(incidents):
        return float(incidents.start.max())
    until = history.watches.imported_until()
    return None if until is None else min(until, now)


def _payable(stand: Standing, node: str, strength: Strength) -> frozenset[str]:
    owed = stand.owes[node]
    in_vain = {
        name
        for debt in owed
        for name in debt.benchmarks
        if not strength.would_answer(name, debt.campaign)
    }
    return frozenset(stand.owed_benchmarks(node)) - in_vain


@dataclass(frozen=True, kw_only=True)
class Present:
    """Present state of the nodes, which costs a third of reading the whole past."""

    standing: Standing
    incidents: IncidentColumns  # that were imported and have begun
    windows: Windows  # of maintenance


def read_present(
    history: ClusterHistory,
    now: float,
    required: Iterable[Demand] = (),
    recall: Callable[[ReadStanding], Standing] = lambda read: read(None).standing,
) -> Present:
    """Read the present as `read_past` does. `recall`: may know the standing already, or that of
    most nodes."""
    happened = history.experience.reports()
    return Present(
        standing=recall(partial(_read_standing, history, now, required)),
        incidents=happened.incidents.select_begun(now),
        windows=reported_windows(happened.event_records),
    )


@dataclass(frozen=True, kw_only=True)
class LastingStanding:
    standing: Standing
    until: float  # then time alone changes it
    required: str  # demands on a pass, the same for all nodes


@dataclass(frozen=True, kw_only=True)
class EarlierStanding:
    """A standing that still holds, except for the effects of some campaigns and event records
    since."""

    standing: LastingStanding
    campaigns: AbstractSet[str]
    event_records: AbstractSet[str]


ReadStanding = Callable[[EarlierStanding | None], LastingStanding]


def _read_standing(
    history: ClusterHistory, now: float, required: Iterable[Demand], earlier: EarlierStanding | None
) -> LastingStanding:
    """Read the standing. With an earlier one only nodes with newer records are read again."""
    happened = history.experience.bearing_on_standing(now - LOOKED_BACK_S)
    findings = history.experience.failed_tests()
    strength = _strength(history, findings, required)
    demanded = repr(sorted((name, sorted(map(repr, of))) for name, of in strength.required.items()))
    if earlier and earlier.standing.required == demanded:
        nodes = _nodes_with_news(earlier, happened)
        of_these = standing_of(happened, findings, now, strength, nodes)
        stand = earlier.standing.standing.replace_nodes(nodes, of_these)
    else:
        stand = standing_of(happened, findings, now, strength)
    return LastingStanding(standing=stand, until=_next_change(happened, now), required=demanded)


def _nodes_with_news(earlier: EarlierStanding, happened: Happened) -> set[str]:
    """Nodes with conclusions or event records since then."""
    event_records = (n.event.nodes for n in happened.event_records if n.id in earlier.event_records)
    concluded = (r.node for r in happened.validations if r.campaign in earlier.campaigns)
    return {*concluded}.union(*event_records)


def _next_change(happened: Happened, now: float) -> float:
    """Time when a pass gets too old, or a record is no longer dated in the future. An unanswered
    test dated in the future counts from the time of each reading."""
    recent = happened.validations[index_from(happened.validations, now - LOOKED_BACK_S) :]
    if any(result.owes for result in recent[index_after(recent, now) :]):
        return now
    instants = [
        *happened.incidents.start.tolist(),
        *happened.incidents.end.tolist(),
        *(end for repair in happened.repairs for end in (repair.start, repair.end) if end),
        *(event_record.at for event_record in happened.event_records),
        *(result.at for result in recent),
        *(result.at + LOOKED_BACK_S for result in recent[:1]),
    ]
    return min((instant for instant in instants if instant > now), default=math.inf)


def standing_of(
    happened: Happened,
    findings: Mapping[tuple[str, str], Collection[str]],  # by campaign and node
    now: float,
    strength: Strength = ANY,
    nodes: AbstractSet[str] | None = None,
) -> Standing:
    """Standing by what was found lately; of these nodes, or of all."""
    chosen = happened if nodes is None else happened.select_nodes(nodes)
    recent = chosen.validations[index_from(chosen.validations, now - LOOKED_BACK_S) :]
    happenings = (chosen.incidents, chosen.repairs, chosen.event_records)
    return standing(recent, findings, *happenings, now, strength)


def _add_reported(imported: IncidentColumns, reports: Sequence[EventRecord]) -> IncidentColumns:
    return imported + IncidentColumns.from_incidents(reported_incidents(reports, imported))


def _categories(incidents: IncidentColumns) -> dict[str, dict[str, int]]:
    """Number of incidents by node and category."""
    counts = Counter(zip(incidents.node, incidents.category, strict=True))
    categories = defaultdict[str, dict[str, int]](dict)
    for (node, category), count in counts.items():
        categories[node][category] = count
    return dict(categories)


def _strength(
    history: ClusterHistory,
    findings: Mapping[tuple[str, str], Collection[str]],
    offered: Iterable[Demand],
) -> Strength:
    """Demands on a pass. If a benchmark cannot be chosen now, its pass must demand as much as the
    runs that found defects."""
    demands = history.experience.demands()
    by_name = defaultdict[str, list[Demand]](list)
    for demand in offered:
        by_name[demand.workload.benchmark].append(demand)
    required: defaultdict[str, dict[Workload, None]] = defaultdict(dict)
    for name, own in by_name.items():
        required[name] = dict.fromkeys(demand.workload for demand in own)
    for (campaign, _), finders in findings.items():
        for name in {*finders} - by_name.keys():
            for demand in demands.get(campaign, {}).get(name, ()):
                required[name][demand.workload] = None
    return Strength(demands=demands, required=required, offered=by_name)


class Selector:
    """Answers events from the past."""

    def __init__(self, past: Past, policy: SelectionPolicy) -> None:
        self.past, self.policy = past, policy

    def weigh(
        self,
        event: FleetEvent,
        menu: Collection[Offer],
        *,
        at: float,
        together: bool = False,
        partners: Sequence[str] = (),
        budget: Budget | None = None,
    ) -> Decision:
        """Decide which tests an event is worth.

        Nodes that are down are neither tested nor counted: the decision is about the other nodes.
        `partners`: proven nodes, for tests that need several.
        """
        partners = () if together or len(partners) < MET else tuple(partners)
        offered = [
            offer for offer in menu if together or offer.alone or (partners and not offer.by_all)
        ]
        left_out = sorted(offer.benchmark for offer in menu if offer not in offered)
        is_down = self.past.standing.down
        down = [node for node in event.nodes if node in is_down]
        up = replace(event, nodes=tuple(node for node in event.nodes if node not in is_down))
        outlook = self._outlook(up, offered, at)
        unmet = [*_left_out_sentences(menu, left_out, partners), *_down_sentences(down)]
        outlook = replace(
            outlook,
            busy=[1 if together or offer.alone else 2 for offer in offered],  # and a partner
            partners=partners,
            assumed=(*outlook.assumed, *unmet),
        )
        with silence_libraries():
            made = decide(up, outlook, self.policy, at=at, together=together, budget=budget)
        return replace(made, down=tuple(down))

    def _outlook(self, event: FleetEvent, offered: Sequence[Offer], at: float) -> Outlook:
        past, policy = self.past, self.policy
        names = [offer.benchmark for offer in offered]
        finders = {name for defect in past.defects for name in defect.found_by}
        elsewhere = sorted(finders.difference(names))
        ahead_h = horizon_s(event, policy) / HOUR_S
        prospect = assess_risk(past, event.nodes, at, ahead_h, policy)
        stand, view = past.standing, prospect.statuses
        return Outlook(
            probabilities=prospect.chances,
            proven=np.array([stand.is_proven(node) for node in event.nodes], dtype=bool),
            mixes=[mix_of(past.categories.get(node, {})) for node in event.nodes],
            ages_s=self._ages_s(event.nodes, [*names, *elsewhere], at),
            detection=learn_detection(
                past.defects,
                names,
                elsewhere=elsewhere,
                prior=policy.prior_of(len(names)),
                category_prior=policy.category_prior,
            ),
            durations_s=[offer.duration_s for offer in offered],
            assumed=tuple(self._assumptions(event.nodes, prospect.risk, at)),
            noted={
                n: why for n, why in bad_groups(past.logbook, view).items() if stand.is_proven(n)
            },
            owed=self._payable_flags(event.nodes, names),
            presumed=self._presumed_lately(event.nodes, at),
        )

    def _presumed_lately(self, nodes: Sequence[str], at: float) -> Flags:
        """True for each node on which an event presumes a defect. Events older than a half-life are
        left to the risk model, which knows what followed. A later verdict known to the keeper, if
        it holds nothing against the node, clears it."""
        since = at - self.policy.half_life_h * HOUR_S
        happened, cleared = self.past.standing.happened, self.past.cleared
        return np.array(
            [
                happened.get(node, -math.inf) > max(since, cleared.get(node, -math.inf))
                for node in nodes
            ],
            dtype=bool,
        )

    def _payable_flags(self, nodes: Sequence[str], benchmarks: Sequence[str]) -> Flags | None:
        payable = self.past.payable
        if not any(node in payable for node in nodes):
            return None
        rows = [[name in payable.get(node, ()) for name in benchmarks] for node in nodes]
        return np.array(rows, dtype=bool).reshape(len(nodes), len(benchmarks))

    def _assumptions(self, nodes: Sequence[str], risk: Risk, at: float) -> Iterable[str]:
        """Assumptions that the decision must state."""
        past = self.past
        yield from filter(None, (risk.assumed, silence_remark(past, at, self.policy)))
        for grouping, alone in past.logbook.strangers_in_group(nodes, risk.covariates).items():
            yield f"the {grouping} of {_some(alone)} counts as usual: no other node of it is known"
        owing = [node for node in nodes if node in past.standing.owes]
        if owing:
            more = f"; also {_some(owing[1:])}" if owing[1:] else ""
            yield (
                f"a defect is presumed on {owing[0]}: {past.standing.owing_reason(owing[0])}{more}"
            )
        explained = {*past.standing.passed, *owing}
        unproven = defaultdict[str, list[str]](list)
        for node in nodes:
            if node not in explained:
                unproven[past.standing.doubt_reason(node)].append(node)
        if past.doubt:
            yield f"no pass counts: {past.doubt}"
            return
        for doubted, some in unproven.items():
            yield f"a defect is presumed on {_some(some)}: {doubted or self._unproven_reason(some)}"

    def _unproven_reason(self, nodes: Sequence[str]) -> str:
        reasons = dict.fromkeys(self.past.standing.unproven_reason(node) for node in nodes)
        if len(reasons) == 1 and (reason := next(iter(reasons))):
            return reason
        return (
            "no benchmark was passed there since the last incident, repair, defect or upgrade, or"
            " ever"
        )

    def _ages_s(self, nodes: Sequence[str], benchmarks: Sequence[str], at: float) -> Times:
        passed = [self.past.standing.counted.get(node, {}) for node in nodes]
        last = [[times.get(benchmark, -NEVER) for benchmark in benchmarks] for times in passed]
        return at - np.array(last).reshape(len(nodes), len(benchmarks))


def bad_groups(logbook: Logbook, statuses: Statuses) -> dict[str, str]:
    """Sentences on the rack, cage or sku of a node with far more incidents than the fleet, by
    node."""
    noted = defaultdict[str, list[str]](list)
    for place, grouping in enumerate(map(RATES.get, statuses.covariates)):
        if grouping:
            for row in np.flatnonzero(statuses.values[:, place] >= FAR_MORE).tolist():
                node, rate = statuses.nodes[row], statuses.values[row, place]
                name = getattr(logbook.attributes(node), grouping)
                noted[node].append(f"{grouping} {name} has {rate:.1f} times the incidents of all")
    return {node: ", ".join(texts) for node, texts in noted.items()}


def _left_out_sentences(
    menu: Iterable[Offer], benchmarks: Sequence[str], partners: Sequence[str]
) -> Iterable[str]:
    by_all = {offer.benchmark for offer in menu if offer.by_all}
    if at_once := [name for name in benchmarks if name in by_all]:
        yield (
            f"left out, because they measure all nodes at once: {', '.join(at_once)}; defects"
            " that only they find stay unknown"
        )
    if pairs := [name for name in benchmarks if name not in by_all]:
        yield (
            f"left out, because fewer than {MET} proven nodes could be their partners:"
            f" {', '.join(pairs)}; defects that only they find stay unknown"
        )


def _down_sentences(down: Sequence[str]) -> Iterable[str]:
    if down:
        yield f"not tested, because they are in an incident or a repair: {_some(down)}"


def _some(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - MOST_NAMED:,} more" if len(nodes) > MOST_NAMED else ""
    return f"{hostlist.compress(nodes[:MOST_NAMED])}{more}"
