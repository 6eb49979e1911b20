"""Derive the shortfall of each flow between nodes from the verdicts on pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType

import numpy as np

from anubis.core.fabric import Fabric, Numbers, RailNics, Shares
from anubis.core.network.crossing import Flow
from anubis.core.network.pairing import PairTest, joined_nics, pair_test_at, pair_test_of
from anubis.core.network.posterior import FaultPrior, Observation
from anubis.core.network.rails import UP_ON_ONE_NODE, Rails
from anubis.core.network.sharing import NEVER, SHARED, SHARED_AT_LEAF
from anubis.core.network.unexplained import NOT_MAPPED, UNEXPLAINED, Stray
from anubis.core.records import Assessment, BatchVerdict, Ended, Execution, Judgement, Plan, Verdict

PairTurns = Mapping[PairTest, tuple[int, ...]]  # in which a pair measured, the first one first

NO_PAIR_TURNS: PairTurns = MappingProxyType({})

# of pairs across the parts of a job: the first turn, and one that repeats what fell short. To run
# these undisturbed would take one turn for each, and fewer meet
SHARING_TURNS = 2
LIMIT = FaultPrior().limit
UNSTABLE = "UNSTABLE"  # bad once and good once
USUALLY_GONE, MOST_GONE = 0.05, 0.5  # share of flows that are bad for reasons that come and go
UNMEASURED = ("NOT-MEASURED", "TIMED-OUT")
TRIED = (Ended.MEASURED, Ended.FAILED, Ended.TIMED_OUT)
ONE_WAY = ("forth", "back")  # of a metric: first node to second, or back; others: both


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The shortfall of each flow: the worst of its metrics."""

    observations: tuple[Observation, ...]
    unmeasured: frozenset[Flow]  # tried without success: nothing got through, or the program failed
    strays: tuple[Stray, ...] = ()  # measured, but between no two NICs of the fabric
    unmapped: frozenset[tuple[str, str]] = frozenset()  # nodes, devices without good pair
    silent: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by rail, the nodes that
    # met on it: none of its flows was measured, while others were, so no part of it is at fault
    turns: PairTurns = field(default_factory=dict)
    is_merged: bool = False  # several devices of a node count as one NIC

    def shortfalls(self) -> dict[RailNics, float]:
        """The shortfall by source and target; a flow both ways at once counts for both."""
        shortfalls: dict[RailNics, float] = {}
        for observation in self.observations:
            flow = observation.flow
            if flow.gone:
                continue
            ways = [(flow.source, flow.target)]
            if flow.mutual:
                ways.append((flow.target, flow.source))
            for way in ways:
                shortfalls[way] = max(shortfalls.get(way, 0.0), observation.shortfall)
        return shortfalls

    def measured_flows(self) -> tuple[RailNics, ...]:
        """The source and target of each measured flow, without unmeasured ones."""
        flows = (seen.flow for seen in self.observations if seen.flow not in self.unmeasured)
        both_ways = (
            ways
            for flow in flows
            for ways in ((flow.source, flow.target), (flow.target, flow.source))[: 1 + flow.mutual]
        )
        return tuple(dict.fromkeys(both_ways))

    @cached_property
    def model(self) -> FaultPrior:
        """The prior, with the noise of those healthy flows that were slower than usual."""
        good = [
            observation.shortfall
            for observation in self.observations
            if 0 < observation.shortfall <= LIMIT and not observation.flow.gone
        ]
        return FaultPrior(limit=LIMIT, noise=1.4826 * float(np.median(good)) if good else 0.0)


def keep_crossing(plan: Plan, assessment: Assessment) -> Assessment:
    """The assessment without the verdicts that say nothing about the fabric."""
    return replace(
        assessment,
        alone=tuple(filter(plan.crosses, assessment.alone)),
        batch_verdicts=tuple(filter(plan.crosses, assessment.batch_verdicts)),
    )


def turns_of_pair_tests(plan: Plan, executions: Iterable[Execution]) -> PairTurns:
    """The turns in which each pair measured, or tried to. In those above 0 no two pairs may share a
    cable. Pairs across the parts of a job begin as late as they are needed, and their second turn
    is no different from the first: it is turn 0."""
    turns: dict[PairTest, list[int]] = {}
    for execution in executions:
        step = execution.step
        pair_test = pair_test_of(step) if step.workload in plan.crossing else None
        if pair_test and execution.ended in TRIED:
            turns.setdefault(pair_test, []).append(step.turn)
    every = sorted(set(chain.from_iterable(turns.values())))
    number = {turn: turn for turn in every}
    if plan.reproducing:
        number = {turn: place + 1 - SHARING_TURNS for place, turn in enumerate(every)}
    return {
        pair_test: tuple(number[turn] for turn in sorted(set(numbers)))
        for pair_test, numbers in turns.items()
    }


def chance_of_turn(earlier: int, *, across: bool) -> float:
    """The chance that a pair shares a cable, after so many earlier turns of its program."""
    if not earlier:
        return SHARED
    return SHARED_AT_LEAF if across and earlier < SHARING_TURNS else NEVER


def observe_traffic(
    fabric: Fabric,
    alone: Sequence[Verdict],
    batch_verdicts: Sequence[BatchVerdict],
    turns: PairTurns = NO_PAIR_TURNS,
) -> Traffic:
    """The traffic that these verdicts describe. A flow falls short by 1 - similarity; it is bad
    exactly if one of its verdicts is defective."""
    flows = _Flows(rails_of(fabric, alone, batch_verdicts), turns)
    for batch_verdict in batch_verdicts:
        rows = flows.rows_of(batch_verdict)
        if (
            batch_verdict.judgement is not Judgement.UNKNOWN
            and batch_verdict.similarities is not None
        ):
            flows.note(
                batch_verdict.metric, rows, np.minimum(1 - batch_verdict.similarities, LIMIT)
            )
    for verdict in alone:
        if len(verdict.participants) < 2:
            continue
        doubt = verdict.code, f"{verdict.benchmark}: {verdict.reason}"
        if verdict.judgement is Judgement.DEFECTIVE:
            row = flows.row(verdict.participants, verdict.device)
            flows.note(verdict.metric, np.array([row]), np.array([_shortfall(verdict)]))
            flows.doubts[row] = doubt
            if verdict.metric == UP_ON_ONE_NODE:
                flows.uneven.add(row)
        elif verdict.code in UNMEASURED and not verdict.metric:
            missed = flows.miss(verdict.participants, verdict.device)
            flows.doubts.update(dict.fromkeys(missed, doubt))
        elif verdict.judgement is Judgement.UNKNOWN:
            row = flows.row(verdict.participants, verdict.device)
            flows.doubts[row] = doubt
            flows.unjudged.add(row)
            if verdict.code == UNSTABLE:
                way = _quantity(verdict.metric)[1]
                flows.gone[row, way] = max(flows.gone.get((row, way), 0.0), _shortfall(verdict))
    for batch_verdict in batch_verdicts:
        if batch_verdict.judgement is Judgement.UNKNOWN:
            flows.leave_open(batch_verdict)
    return flows.traffic()


def rails_of(
    fabric: Fabric, alone: Sequence[Verdict], batch_verdicts: Sequence[BatchVerdict]
) -> Rails:
    """The rails of all devices that were measured."""
    devices = chain(
        (verdict.device for verdict in alone),
        *(batch_verdict.devices for batch_verdict in batch_verdicts),
    )
    return Rails.from_devices(fabric, devices)


def _shortfall(verdict: Verdict) -> float:
    return max(1 - (verdict.similarity or 0.0), float(np.nextafter(LIMIT, 1)))


def _quantity(metric: str) -> tuple[str, str]:
    """The name and direction of a metric, without the size of its messages."""
    return metric.partition(":")[0], direction_of(metric)


def direction_of(metric: str) -> str:
    """The direction of a metric; empty: both."""
    way = metric.partition(":")[2].partition("/")[0]
    return way if way in ONE_WAY else ""


@dataclass
class _Flows:
    """A row for each pair of NICs; in it the shortfall forth, back, and both ways at once.

    A measurement that is not between two NICs of the fabric has a row as well, without ends.
    """

    rails: Rails
    turns: PairTurns
    numbers: dict[tuple[tuple[str, ...], RailNics | None, str], int] = field(default_factory=dict)
    worst: dict[str, Shares] = field(default_factory=dict)
    missed: set[int] = field(default_factory=set)
    uneven: set[int] = field(default_factory=set)  # that say only that an HCA is up on one node
    doubts: dict[int, tuple[str, str]] = field(default_factory=dict)  # code, reason
    judged: dict[tuple[str, str], list[Numbers]] = field(default_factory=dict)
    unjudged: set[int] = field(default_factory=set)
    gone: dict[tuple[int, str], float] = field(default_factory=dict)  # row and way: shortfall, once
    devices: dict[RailNics, set[str]] = field(default_factory=dict)  # by which NICs met
    rows_by_pairs: dict[tuple[int, int], tuple[BatchVerdict, Numbers]] = field(default_factory=dict)

    def row(self, names: tuple[str, ...], device: str) -> int:
        ends = self.rails.rail_nics_between(names, device)
        unit = names, ends, device if ends is None else ""
        if ends and device:
            self.devices.setdefault(ends, set()).add(device)
        return self.numbers.setdefault(unit, len(self.numbers))

    def rows_of(self, batch_verdict: BatchVerdict) -> Numbers:
        key = (
            id(batch_verdict.participants),
            id(batch_verdict.devices),
        )  # many metrics have the same pairs
        if key not in self.rows_by_pairs:
            rows = [
                self.row(names, device)
                for names, device in zip(
                    batch_verdict.participants, batch_verdict.devices, strict=True
                )
            ]
            self.rows_by_pairs[key] = batch_verdict, np.array(rows, dtype=np.int64)
        return self.rows_by_pairs[key][1]

    def note(self, metric: str, rows: Numbers, shortfall: Shares) -> None:
        quantity = _quantity(metric)
        self.judged.setdefault(quantity, []).append(rows)
        way = quantity[1]
        have = self.worst.get(way, np.empty(0))
        if len(have) < len(self.numbers):
            more = np.full(max(64, len(self.numbers)), np.nan)
            have = self.worst[way] = np.concatenate([have, more])
        np.fmax.at(have, rows, shortfall)

    def leave_open(self, batch_verdict: BatchVerdict) -> None:
        """Put units that no criterion could judge in doubt, unless other sizes of the same quantity
        were judged."""
        rows, judged = self.rows_of(batch_verdict), self.judged.get(_quantity(batch_verdict.metric))
        left = (rows[~np.isin(rows, np.concatenate(judged))] if judged else rows).tolist()
        doubt = (
            batch_verdict.code,
            f"{batch_verdict.benchmark}: {batch_verdict.metric}: {batch_verdict.reason}",
        )
        self.unjudged.update(left)
        self.doubts.update(dict.fromkeys(left, doubt))

    def shortfall(self, way: str, row: int) -> float:
        """The shortfall of a row; NaN if nothing was measured."""
        have = self.worst.get(way, ())
        return float(have[row]) if row < len(have) else np.nan

    def miss(self, names: tuple[str, ...], device: str) -> list[int]:
        """Record a failure, and return its rows: that of the NICs that the device names, else those
        of all NICs by which these nodes could have met, else one without NICs."""
        ends = self.rails.rail_nics_between(names, device)
        pair_test = self.rails.pair_test(names, device)
        pairs = joined_nics(self.rails.fabric, pair_test) if pair_test and not ends else ()
        met: Sequence[RailNics | None] = [(a.rail_nic, b.rail_nic) for a, b in pairs] or [ends]
        rows = [self.numbers.setdefault((names, ends, ""), len(self.numbers)) for ends in met]
        self.missed.update(rows)
        return rows

    def traffic(self) -> Traffic:
        observations: list[Observation] = []
        unmeasured = set()
        silent = self.silent_rails()
        for (_, ends, _), row in self.numbers.items():
            if ends is None or not silent.keys().isdisjoint(rail_nic.rail for rail_nic in ends):
                continue
            for way, flow in self.flows(ends):
                short = self.shortfall(way, row)
                if (row, way) in self.gone:
                    gone = replace(flow, gone=True, excused=self.share_gone())
                    once = self.gone[row, way], 0.0
                    observations += (Observation(gone, shortfall) for shortfall in once)
                    continue
                if row in self.unjudged and short <= LIMIT:
                    continue  # a good result beside one that could not be judged clears no node
                if not way and short <= LIMIT and self.is_measured(row, ONE_WAY):
                    continue  # right bytes and low latency do not outweigh a slow direction
                if not np.isnan(short):
                    observations.append(Observation(flow, short))
                elif not way and row in self.missed:
                    unmeasured.add(flow)
                    observations.append(Observation(flow, 1.0))
        return Traffic(
            observations=tuple(observations),
            unmeasured=frozenset(unmeasured),
            strays=tuple(self.strays()),
            unmapped=self.devices_without_good_pair(),
            silent=silent,
            turns=self.turns,
            is_merged=any(len(devices) > 1 for devices in self.devices.values()),
        )

    def flows(self, ends: RailNics) -> Iterator[tuple[str, Flow]]:
        """Yield the flows from the first to the second, back, and both at once, by the routes."""
        fabric, (first, second) = self.rails.fabric, ends
        a, b = fabric.nic(*first), fabric.nic(*second)
        there, back = (fabric.route(a, b), fabric.route(b, a)) if a and b else ((), ())
        turns = self.turns.get(pair_test_at(fabric, ends), ()) if self.turns else ()
        forth = Flow(first, second, there, undisturbed=any(turn > 0 for turn in turns), turns=turns)
        yield "forth", forth
        yield "back", replace(forth, source=second, target=first, via=back)
        yield "", replace(forth, mutual=True, back=back)

    def share_gone(self) -> float:
        """The share of flows that were bad and became good, by which more would by chance."""
        return min(USUALLY_GONE + len(self.gone) / (2 * len(self.numbers)), MOST_GONE)

    def strays(self) -> Iterator[Stray]:
        """Yield the measurements that no flow represents. A good pair without NICs adds nothing if
        the same nodes met by their NICs, nor does an HCA that is up on one node only if a NIC of
        these nodes brought no result."""
        lacking = {
            names for (names, ends, _), row in self.numbers.items() if ends and row in self.missed
        }
        on_rails = {names for names, ends, _ in self.numbers if ends is not None}
        for (names, ends, device), row in self.numbers.items():
            code, reason = self.doubts.get(row, ("", ""))
            if ends is not None:
                if row in self.unjudged or (reason and not self.is_observed(row)):
                    yield Stray(nodes=names, device=device, code=code, reason=reason, ends=ends)
            elif row in self.uneven and names in lacking:
                continue
            elif len(names) == 2 and (reason or names not in on_rails):
                yield Stray(nodes=names, device=device, code=NOT_MAPPED, reason=reason)
            elif reason:
                yield Stray(nodes=names, device=device, code=UNEXPLAINED, reason=reason)

    def silent_rails(self) -> dict[str, frozenset[str]]:
        """The rails on which nothing was measured while another rail was, and the nodes that met
        there."""
        met: dict[str, set[str]] = {}
        measured = set[str]()
        for (_, ends, _), row in self.numbers.items():
            for rail_nic in ends or ():
                met.setdefault(rail_nic.rail, set()).add(rail_nic.node)
                if row in self.unjudged or self.is_measured(row, (*ONE_WAY, "")):
                    measured.add(rail_nic.rail)
        if not measured:
            return {}
        return {rail: frozenset(nodes) for rail, nodes in met.items() if rail not in measured}

    def devices_without_good_pair(self) -> frozenset[tuple[str, str]]:
        """Nodes, and devices that the topology does not show, which have no good pair."""
        good, bad = set[tuple[str, str]](), set[tuple[str, str]]()
        for (names, ends, device), row in self.numbers.items():
            if ends is None and len(names) == 2 and row not in self.missed:
                (bad if row in self.doubts else good).update((node, device) for node in names)
        return frozenset(bad - good)

    def is_observed(self, row: int) -> bool:
        """True if a flow represents the doubt of this row. A failure has one only if nothing else
        was measured both ways at once."""
        if row in self.missed:
            return bool(np.isnan(self.shortfall("", row)))
        return self.is_measured(row, (*ONE_WAY, ""))

    def is_measured(self, row: int, ways: Sequence[str]) -> bool:
        return not all(np.isnan(self.shortfall(way, row)) for way in ways)
