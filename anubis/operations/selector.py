"""The Selector: from the history and a model of risk to what core.decision decides by.

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

from anubis.core.arrays import Flags
from anubis.core.campaign.planning import IN_GROUPS, MET, all_meet
from anubis.core.history.changes import index_after, index_from
from anubis.core.history.defects import Defect, defects
from anubis.core.history.events import FleetEvent, Notice, reported_incidents, reports
from anubis.core.history.logbook import RATES, Logbook
from anubis.core.history.maintenance import Windows, windows_told
from anubis.core.history.past import Happened, logbook_of
from anubis.core.history.paths import bad_links
from anubis.core.history.standing import ANY, Standing, standing
from anubis.core.history.status import Instants, Statuses, Times
from anubis.core.history.strength import Strength
from anubis.core.history.tracks import IncidentColumns
from anubis.core.keep.objections import Objections
from anubis.core.records import Demand, Plan, PlannedEntry, SelectionPolicy, Workload
from anubis.core.select.decision import Decision, Outlook, decide, horizon_s, mix_of
from anubis.core.select.selection import NEVER, Budget, learn_detection
from anubis.store.history import ClusterHistory
from anubis.text import hostlist

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
MOST_NAMED = 8  # nodes, in a sentence
EXPECTED_H = 90 * 24.0  # between incidents of a node if nothing is known; counts as one incident
FAR_MORE = 1.5  # times the incidents of all: a group that is worth a word
LOOKED_BACK_S = 365 * DAY_S  # older findings of benchmarks say little about today's


class Risk(Protocol):
    """A model of how likely an incident is, given a node's status."""

    @property
    def covariates(self) -> tuple[str, ...]: ...

    @property
    def assumed(self) -> str:
        """What a decision must tell of it; empty where it looks at each node."""
        ...

    def chances_within(self, statuses: Statuses, hours: float) -> Times:
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

    def chances_within(self, statuses: Statuses, hours: float) -> Times:
        return np.full(len(statuses), -np.expm1(-self.per_h * hours))


def base_rate(logbook: Logbook, now: float) -> BaseRate:
    """From the logbook up to now, with one incident in 90 days added."""
    spells = logbook.spells(logbook.returns(), now, ())
    hours = float(spells.duration_h.sum()) + EXPECTED_H
    return BaseRate(per_h=(float(np.count_nonzero(spells.observed)) + 1) / hours)


def risks(past: Past, nodes: Sequence[str], at: float, hours: float) -> dict[str, float]:
    """By node: how likely an incident is within so many hours; certain if it owes an answer."""
    risk = past.risk or base_rate(past.logbook, at)
    statuses = past.logbook.statuses(Instants.now(nodes, at), risk.covariates)
    chances = dict(zip(nodes, risk.chances_within(statuses, hours).tolist(), strict=True))
    return {node: 1.0 if node in past.standing.owes else p for node, p in chances.items()}


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A benchmark of the suite, all its entries together, on one node."""

    benchmark: str
    duration_s: float
    alone: bool  # whether a single node can run it
    by_all: bool = False  # only all nodes at once: what comes of it says nothing of one of them


def offers(
    plan: Plan, measured_s: Mapping[tuple[str, str], float], *, together: bool = False
) -> tuple[Offer, ...]:
    """The benchmarks of the suite, with their measured durations or else their declared ones.

    `together`: all nodes of the plan meet, as the suite says; otherwise each meets partners.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    met: Counter[str] = Counter()
    alone: dict[str, bool] = {}
    for phase in plan.phases:
        for entry in phase.entries:
            workload = entry.workload
            duration_s = measured_s.get((workload.benchmark, workload.parameters), entry.duration_s)
            alone[workload.benchmark] = entry.scope == "node"
            meetings = _rounds(entry, len(plan.nodes)) if together else _meetings(entry)
            seconds[workload.benchmark] += duration_s * entry.repeats * meetings
            met[workload.benchmark] += meetings
    return tuple(
        Offer(benchmark=name, duration_s=seconds[name], alone=alone[name], by_all=not met[name])
        for name in seconds
    )


def _rounds(entry: PlannedEntry, nodes: int) -> int:
    """How often a node takes part in one repeat."""
    if entry.scope == "node" or (entry.scope == "group" and entry.groups in IN_GROUPS):
        return 1
    meetings = max(1, nodes - 1)
    return meetings if entry.rounds is None else min(entry.rounds, meetings)


def _meetings(entry: PlannedEntry) -> int:
    """The same for a node that meets partners."""
    if entry.scope == "node":
        return 1
    return MET if all_meet(entry) else 0


@dataclass(frozen=True, kw_only=True)
class Past:
    """What the history says, read once for many decisions."""

    logbook: Logbook
    standing: Standing
    payable: Mapping[str, frozenset[str]]  # by node that owes: what can be chosen now answers these
    risk: Risk | None  # None: no model is trained
    heard_at: float | None  # when the last incident began that anybody told; None: nobody ever did
    defects: Sequence[Defect]
    incidents: IncidentColumns  # that were imported and have begun
    categories: Mapping[str, Mapping[str, int]]  # by node: how many incidents of each category
    links: Mapping[tuple[str, ...], str]  # good nodes with something bad between them, and why
    measured_s: Mapping[tuple[str, str], float]
    windows: Windows  # of maintenance
    doubt: str = ""  # why no pass counts; empty: the clock is trusted
    cleared: Mapping[str, float] = field(default_factory=dict)  # by a keeper, with its last verdict

    def doubting(self, doubt: str) -> Past:
        """The same while nobody knows how old a pass is; without a doubt, as it is."""
        return replace(self, standing=self.standing.apply_doubt(doubt), doubt=doubt)

    def objected(self, objections: Objections) -> Past:
        """The same for whoever goes by what a keeper holds against nodes, too."""
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
    """`risk`: a trained model; without one every node has the fleet's base rate. `offered`: what
    can be chosen now; only a pass that asked for as much counts for it. `nodes`: of which standing
    and links are asked; None: of all. `standing`: by the same terms, if it is known already."""
    recall = history.memory.recall
    happened = history.experience.happened(now - LOOKED_BACK_S)
    findings = history.experience.failed_tests()
    recent = happened.validations[index_from(happened.validations, now - LOOKED_BACK_S) :]
    by_now = recent[: index_after(recent, now)]
    imported = happened.incidents.select_begun(now)
    told_by_now = happened.notices[: index_after(happened.notices, now)]
    incidents = recall(_with_reported, imported, reports(told_by_now))
    strength = _strength(history, findings, offered)
    stand = standing or standing_of(happened, findings, now, strength, nodes)
    return Past(
        logbook=recall(logbook_of, *happened.logbook_inputs),
        standing=stand,
        payable={node: _payable(stand, node, strength) for node in stand.owes},
        risk=risk,
        heard_at=float(incidents.start.max()) if len(incidents) else None,
        defects=recall(defects, by_now, findings, incidents),
        incidents=imported,
        categories=recall(_categories, incidents),
        links=bad_links(history.experience.faulty_paths(), by_now, strength),
        measured_s=history.experience.durations_s(),
        windows=recall(windows_told, happened.notices),
    )


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
    """Where nodes stand now, which costs a third of all that the history says."""

    standing: Standing
    incidents: IncidentColumns  # that were imported and have begun
    windows: Windows  # of maintenance


def read_present(
    history: ClusterHistory,
    now: float,
    required: Iterable[Demand] = (),
    recall: Callable[[ReadStanding], Standing] = lambda read: read(None).standing,
) -> Present:
    """As `read_past` has it. `recall`: may know the standing already, or that of most nodes."""
    happened = history.experience.told()
    return Present(
        standing=recall(partial(_read_standing, history, now, required)),
        incidents=happened.incidents.select_begun(now),
        windows=windows_told(happened.notices),
    )


@dataclass(frozen=True, kw_only=True)
class LastingStanding:
    standing: Standing
    until: float  # then time alone changes it
    required: str  # of a pass, so that it counts, whatever node it is of


@dataclass(frozen=True, kw_only=True)
class EarlierStanding:
    """One that is so still, but for what bears on it since: some campaigns, and some notices."""

    standing: LastingStanding
    campaigns: AbstractSet[str]
    notices: AbstractSet[str]


ReadStanding = Callable[[EarlierStanding | None], LastingStanding]


def _read_standing(
    history: ClusterHistory,
    now: float,
    required: Iterable[Demand],
    earlier: EarlierStanding | None,
) -> LastingStanding:
    """With an earlier one only the nodes are looked at of which anything was told since."""
    happened = history.experience.bearing_on_standing(now - LOOKED_BACK_S)
    findings = history.experience.failed_tests()
    strength = _strength(history, findings, required)
    demanded = repr(sorted((name, sorted(map(repr, of))) for name, of in strength.required.items()))
    if earlier and earlier.standing.required == demanded:
        nodes = _told_of(earlier, happened)
        of_these = standing_of(happened, findings, now, strength, nodes)
        stand = earlier.standing.standing.replace_nodes(nodes, of_these)
    else:
        stand = standing_of(happened, findings, now, strength)
    return LastingStanding(standing=stand, until=_next_change(happened, now), required=demanded)


def _told_of(earlier: EarlierStanding, happened: Happened) -> set[str]:
    """Nodes of which anything was concluded or told since then."""
    notices = (n.event.nodes for n in happened.notices if n.id in earlier.notices)
    concluded = (r.node for r in happened.validations if r.campaign in earlier.campaigns)
    return {*concluded}.union(*notices)


def _next_change(happened: Happened, now: float) -> float:
    """When a pass gets too old, or something is no longer dated in the future. What was left
    unanswered in the future is owed since the instant at which it is looked at."""
    recent = happened.validations[index_from(happened.validations, now - LOOKED_BACK_S) :]
    if any(result.owes for result in recent[index_after(recent, now) :]):
        return now
    instants = [
        *happened.incidents.start.tolist(),
        *happened.incidents.end.tolist(),
        *(end for repair in happened.repairs for end in (repair.start, repair.end) if end),
        *(notice.at for notice in happened.notices),
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
    """By what was found lately; of these nodes, or of all."""
    chosen = happened if nodes is None else happened.select_nodes(nodes)
    recent = chosen.validations[index_from(chosen.validations, now - LOOKED_BACK_S) :]
    happenings = (chosen.incidents, chosen.repairs, chosen.notices)
    return standing(recent, findings, *happenings, now, strength)


def _with_reported(imported: IncidentColumns, reports: Sequence[Notice]) -> IncidentColumns:
    return imported + IncidentColumns.from_incidents(reported_incidents(reports, imported))


def _categories(incidents: IncidentColumns) -> dict[str, dict[str, int]]:
    """By node: how many incidents of each category."""
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
    """Of a benchmark that cannot be chosen now, a pass has to ask for what found defects."""
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
    """Answers events from what was read in the history."""

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
        """What would be decided.

        What is down is neither tested nor counted: the decision is about the other nodes.
        `partners`: proven nodes, for the others to meet in tests that need several.
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
        unmet = [*_left_out(menu, left_out, partners), *_not_tested(down)]
        outlook = replace(
            outlook,
            busy=[1 if together or offer.alone else 2 for offer in offered],  # and a partner
            partners=partners,
            assumed=(*outlook.assumed, *unmet),
        )
        made = decide(up, outlook, self.policy, at=at, together=together, budget=budget)
        return replace(made, down=tuple(down))

    def _outlook(self, event: FleetEvent, offered: Sequence[Offer], at: float) -> Outlook:
        past, policy = self.past, self.policy
        names = [offer.benchmark for offer in offered]
        finders = {name for defect in past.defects for name in defect.found_by}
        elsewhere = sorted(finders.difference(names))
        instants = sorted({at, self._vouched_until(at)})
        risk = self._risk(instants)
        ahead_h = horizon_s(event, policy) / HOUR_S
        statuses = [
            past.logbook.statuses(Instants.now(event.nodes, instant), risk.covariates)
            for instant in instants
        ]
        stand, view = past.standing, statuses[-1]
        return Outlook(
            probabilities=np.max([risk.chances_within(view, ahead_h) for view in statuses], axis=0),
            proven=np.array([stand.is_proven(node) for node in event.nodes], dtype=bool),
            mixes=[mix_of(past.categories.get(node, {})) for node in event.nodes],
            ages_s=self._ages_s(event.nodes, [*names, *elsewhere], at),
            detection=learn_detection(
                past.defects,
                names,
                elsewhere=elsewhere,
                prior=policy.prior,
                category_prior=policy.category_prior,
            ),
            durations_s=[offer.duration_s for offer in offered],
            assumed=tuple(self._assumed(event.nodes, risk, at)),
            noted={
                n: why for n, why in bad_groups(past.logbook, view).items() if stand.is_proven(n)
            },
            owed=self._owed(event.nodes, names),
            presumed=self._presumed_lately(event.nodes, at),
        )

    def _presumed_lately(self, nodes: Sequence[str], at: float) -> Flags:
        """Of what happened longer ago than a half-life the risk model knows how it went on; and a
        keeper that has heard a verdict since, and holds nothing against a node, has had its proof.
        """
        since = at - self.policy.half_life_h * HOUR_S
        happened, cleared = self.past.standing.happened, self.past.cleared
        return np.array(
            [
                happened.get(node, -math.inf) > max(since, cleared.get(node, -math.inf))
                for node in nodes
            ],
            dtype=bool,
        )

    def _owed(self, nodes: Sequence[str], benchmarks: Sequence[str]) -> Flags | None:
        payable = self.past.payable
        if not any(node in payable for node in nodes):
            return None
        rows = [[name in payable.get(node, ()) for name in benchmarks] for node in nodes]
        return np.array(rows, dtype=bool).reshape(len(nodes), len(benchmarks))

    def _risk(self, instants: Iterable[float]) -> Risk:
        """Without a model, the highest base rate that was known at one of these instants."""
        if self.past.risk:
            return self.past.risk
        rates = (base_rate(self.past.logbook, instant) for instant in instants)
        return max(rates, key=attrgetter("per_h"))

    def _vouched_until(self, at: float) -> float:
        """Up to when silence was health. Whatever risk there was by then, is there still."""
        heard_at = self.past.heard_at
        return 0.0 if heard_at is None else min(at, heard_at + self.policy.silence_d * DAY_S)

    def _assumed(self, nodes: Sequence[str], risk: Risk, at: float) -> Iterable[str]:
        """The assumptions that the decision must state."""
        past, policy = self.past, self.policy
        if risk.assumed:
            yield risk.assumed
        if past.heard_at is None:
            yield "no incident was ever told, and silence is not taken for health"
        elif self._vouched_until(at) < at:
            yield (
                f"no incident was told for {(at - past.heard_at) / DAY_S:.0f} days, and silence"
                f" beyond {policy.silence_d:g} days is not taken for health"
            )
        for grouping, alone in past.logbook.strangers_in_group(nodes, risk.covariates).items():
            yield f"the {grouping} of {_some(alone)} is as all are: no other node of it is known"
        owing = [node for node in nodes if node in past.standing.owes]
        if owing:
            more = f"; also {_some(owing[1:])}" if owing[1:] else ""
            yield (
                f"a defect is presumed on {owing[0]}: {past.standing.owing_reason(owing[0])}{more}"
            )
        explained = {*past.standing.passed, *owing}
        unproven = [node for node in nodes if node not in explained]
        if past.doubt:
            yield f"no pass counts: {past.doubt}"
        elif unproven:
            yield (
                f"a defect is presumed on {_some(unproven)}: no benchmark was passed there since"
                " the last incident, repair, defect or upgrade, or ever"
            )
        early = [node for node in nodes if node in past.standing.early]
        if early:
            yield (
                f"passes of {_some(early)} count for nothing, because they are dated in the"
                " future: a clock was wrong"
            )

    def _ages_s(self, nodes: Sequence[str], benchmarks: Sequence[str], at: float) -> Times:
        passed = [self.past.standing.counted.get(node, {}) for node in nodes]
        last = [[times.get(benchmark, -NEVER) for benchmark in benchmarks] for times in passed]
        return at - np.array(last).reshape(len(nodes), len(benchmarks))


def bad_groups(logbook: Logbook, statuses: Statuses) -> dict[str, str]:
    """By node, which rack, cage or sku of it has far more incidents than all."""
    noted = defaultdict[str, list[str]](list)
    for place, grouping in enumerate(map(RATES.get, statuses.covariates)):
        if grouping:
            for row in np.flatnonzero(statuses.values[:, place] >= FAR_MORE).tolist():
                node, rate = statuses.nodes[row], statuses.values[row, place]
                name = getattr(logbook.traits(node), grouping)
                noted[node].append(f"{grouping} {name} has {rate:.1f} times the incidents of all")
    return {node: ", ".join(texts) for node, texts in noted.items()}


def _left_out(
    menu: Iterable[Offer], benchmarks: Sequence[str], partners: Sequence[str]
) -> Iterable[str]:
    by_all = {offer.benchmark for offer in menu if offer.by_all}
    if at_once := [name for name in benchmarks if name in by_all]:
        yield (
            f"left out, because they measure all nodes at once: {', '.join(at_once)}; what only"
            " they find stays unknown"
        )
    if pairs := [name for name in benchmarks if name not in by_all]:
        yield (
            f"left out, because fewer than {MET} proven nodes could be their partners:"
            f" {', '.join(pairs)}; what only they find stays unknown"
        )


def _not_tested(down: Sequence[str]) -> Iterable[str]:
    if down:
        yield f"not tested, because they are in an incident or a repair: {_some(down)}"


def _some(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - MOST_NAMED:,} more" if len(nodes) > MOST_NAMED else ""
    return f"{hostlist.compress(nodes[:MOST_NAMED])}{more}"
