"""From the verdicts on pairs of nodes to verdicts on the fabric between them.

One slow pair proves nothing against either node: `localization` weighs all pairs together, and its
causes become verdicts here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from anubis.core.fabric import Fabric, Numbers, Shares, rail_of_unit
from anubis.core.network.crossing import Flow
from anubis.core.network.inspection import Inspection
from anubis.core.network.localization import Cause, describe, hops_of, locate, sentence, subject
from anubis.core.network.posterior import FaultPrior, Observation
from anubis.core.records import (
    Counters,
    Judgement,
    PartVerdict,
    Plan,
    Ruling,
    Verdict,
)

LIMIT = FaultPrior().limit
NOTHING_COUNTED = Counters()
SURE = 0.9  # of a cause, before it is called defective
MOST_OR = 2  # switches of a path that are named
SHOWN = 4  # flows that stand as evidence beside a cause
UNMEASURED = ("NOT-MEASURED", "TIMED-OUT")
ONE_WAY = ("forth", "back")  # of a metric: first node to second, or back; others are of both


# --- flows -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The shortfall of each flow: the worst of its metrics."""

    observations: tuple[Observation, ...]
    unmeasured: frozenset[Flow]  # tried in vain: nothing got through, or the program failed

    def shortfalls(self) -> dict[tuple[str, str, str], float]:
        """By source, target and rail; a flow that went both ways at once counts for both."""
        shortfalls: dict[tuple[str, str, str], float] = {}
        for observation in self.observations:
            flow = observation.flow
            ways = [(flow.source, flow.target, flow.rail)]
            if flow.mutual:
                ways.append((flow.target, flow.source, flow.rail))
            for way in ways:
                shortfalls[way] = max(shortfalls.get(way, 0.0), observation.shortfall)
        return shortfalls

    @cached_property
    def model(self) -> FaultPrior:
        """The prior, with the noise of those healthy flows that were slower than usual."""
        good = [
            observation.shortfall
            for observation in self.observations
            if 0 < observation.shortfall <= LIMIT
        ]
        return FaultPrior(limit=LIMIT, noise=1.4826 * float(np.median(good)) if good else 0.0)


def observe_traffic(fabric: Fabric, alone: Iterable[Verdict], rulings: Iterable[Ruling]) -> Traffic:
    """A flow falls short by 1 - similarity; it is bad exactly if one of its verdicts says so."""
    flows = _Flows(fabric)
    for ruling in rulings:
        if ruling.judgement is Judgement.HEALTHY and ruling.similarities is not None:
            rows = flows.rows_of(ruling)
            flows.note(ruling.metric, rows, np.minimum(1 - ruling.similarities, LIMIT))
    for verdict in alone:
        if len(verdict.participants) != 2:
            continue
        if verdict.judgement is Judgement.DEFECTIVE:
            short = max(1 - (verdict.similarity or 0.0), float(np.nextafter(LIMIT, 1)))
            row = flows.row(verdict.participants, rail_of_unit(fabric, verdict.device))
            flows.note(verdict.metric, np.array([row]), np.array([short]))
        elif verdict.code in UNMEASURED:
            for rail in fabric.rails:
                flows.miss(flows.row(verdict.participants, rail))
    return flows.traffic()


@dataclass
class _Flows:
    """A row for each pair on a rail; in it the shortfall forth, back, and both ways at once."""

    fabric: Fabric
    numbers: dict[tuple[tuple[str, ...], str], int] = field(default_factory=dict)
    worst: dict[str, Shares] = field(default_factory=dict)
    missed: set[int] = field(default_factory=set)
    rows_by_pairs: dict[tuple[int, int], tuple[Ruling, Numbers]] = field(default_factory=dict)

    def row(self, names: tuple[str, ...], rail: str | None) -> int:
        """-1 if the names are no pair of this fabric."""
        if len(names) != 2 or rail is None:
            return -1
        if not all(self.fabric.nic(name, rail) for name in names):
            return -1
        return self.numbers.setdefault((names, rail), len(self.numbers))

    def rows_of(self, ruling: Ruling) -> Numbers:
        key = id(ruling.participants), id(ruling.devices)  # many metrics have the same pairs
        if key not in self.rows_by_pairs:
            rows = [
                self.row(names, rail_of_unit(self.fabric, device))
                for names, device in zip(ruling.participants, ruling.devices, strict=True)
            ]
            self.rows_by_pairs[key] = ruling, np.array(rows, dtype=np.int64)
        return self.rows_by_pairs[key][1]

    def note(self, metric: str, rows: Numbers, shortfall: Shares) -> None:
        way = metric.partition(":")[2].partition("/")[0]
        way = way if way in ONE_WAY else ""
        have = self.worst.get(way, np.empty(0))
        if len(have) < len(self.numbers):
            more = np.full(max(64, len(self.numbers)), np.nan)
            have = self.worst[way] = np.concatenate([have, more])
        placed = rows >= 0
        np.fmax.at(have, rows[placed], shortfall[placed])

    def shortfall(self, way: str, row: int) -> float:
        """NaN where nothing was measured."""
        have = self.worst.get(way, ())
        return float(have[row]) if row < len(have) else np.nan

    def miss(self, row: int) -> None:
        if row >= 0:
            self.missed.add(row)

    def traffic(self) -> Traffic:
        observations: list[Observation] = []
        unmeasured = set()
        for (names, rail), row in self.numbers.items():
            first, second = names
            for way, flow in (
                ("forth", Flow(first, second, rail)),
                ("back", Flow(second, first, rail)),
                ("", Flow(first, second, rail, mutual=True)),
            ):
                short = self.shortfall(way, row)
                if not np.isnan(short):
                    observations.append(Observation(flow, short))
                elif not way and row in self.missed:
                    unmeasured.add(flow)
                    observations.append(Observation(flow, 1.0))
        return Traffic(observations=tuple(observations), unmeasured=frozenset(unmeasured))


# --- verdicts --------------------------------------------------------------------------------


def part_verdicts(
    fabric: Fabric, traffic: Traffic, counters: Counters = NOTHING_COUNTED
) -> tuple[PartVerdict, ...]:
    """The causes of all shortfalls, the surest first, with what their ports counted."""
    inspection = Inspection(fabric=fabric, counters=counters)
    return tuple(
        _part_verdict(inspection, cause, traffic)
        for cause in locate(fabric, traffic.observations, traffic.model).causes
    )


def _part_verdict(inspection: Inspection, cause: Cause, traffic: Traffic) -> PartVerdict:
    fabric = inspection.fabric
    judgement, code = _judge(fabric, cause, traffic)
    return PartVerdict(
        parts=cause.parts,
        subject=subject(fabric, cause),
        judgement=judgement,
        code=code,
        reason=_reason(fabric, cause, code),
        confidence=cause.confidence,
        evidence=(
            *(_evidence(fabric, observation, traffic) for observation in _worst(cause)),
            *_inspect(inspection, cause),
        ),
    )


def _reason(fabric: Fabric, cause: Cause, code: str) -> str:
    summary = sentence(fabric, cause)
    if code == "NOT-MEASURED":
        parts = ", ".join(describe(fabric, part) for part in cause.parts[:SHOWN])
        return f"{parts}: none of {len(cause.bad)} flows across it could be measured"
    if code == "NO-CONTRAST":
        return f"{summary}; every pair at this distance crosses it: nothing to compare it with"
    return summary


def _judge(fabric: Fabric, cause: Cause, traffic: Traffic) -> tuple[Judgement, str]:
    """Several parts that cannot be told apart are still a defect, unless nodes are among them.

    A good node would be blamed together with the bad one.
    """
    if all(observation.flow in traffic.unmeasured for observation in cause.bad):
        return Judgement.UNKNOWN, "NOT-MEASURED"
    if not _has_contrast(fabric, cause, traffic):
        return Judgement.UNKNOWN, "NO-CONTRAST"
    nodes = any(part.kind in ("node", "nic") for part in cause.parts)
    if cause.confidence < SURE or (nodes and len(cause.parts) > 1):
        return Judgement.UNKNOWN, "CANNOT-TELL-APART"
    return Judgement.DEFECTIVE, f"NETWORK.{cause.parts[0].kind.upper()}"


def _has_contrast(fabric: Fabric, cause: Cause, traffic: Traffic) -> bool:
    """Whether a flow over the same distance as the bad ones avoids the cause."""
    distances = {hops_of(fabric, observation.flow) for observation in cause.bad}
    comparable = sum(
        hops_of(fabric, observation.flow) in distances for observation in traffic.observations
    )
    return len(cause.bad) + cause.good < comparable


def _inspect(inspection: Inspection, cause: Cause) -> list[str]:
    """What missing uplinks and counters say of these parts, where pairs cannot tell them apart."""
    remarks = dict.fromkeys(remark for part in cause.parts for remark in inspection.about(part))
    return list(remarks)[:SHOWN]


def _worst(cause: Cause) -> list[Observation]:
    return sorted(cause.bad, key=lambda observation: -observation.shortfall)[:SHOWN]


def _evidence(fabric: Fabric, observation: Observation, traffic: Traffic) -> str:
    flow = observation.flow
    arrow = "↔" if flow.mutual else "→"
    rail = f" on rail {flow.rail}" if len(fabric.rails) > 1 else ""
    rate = f"{observation.shortfall:.0%} below normal"
    if flow in traffic.unmeasured:
        rate = "nothing measured"
    return f"{flow.source} {arrow} {flow.target}{rail}: {rate}, {_path(fabric, flow)}"


def _path(fabric: Fabric, flow: Flow) -> str:
    """`4 hops: leaf1, spine1 or spine2, leaf3`."""
    a, b = fabric.nic(flow.source, flow.rail), fabric.nic(flow.target, flow.rail)
    hops = fabric.hops(a, b) if a and b else None
    if a is None or b is None or hops is None:
        return "no path is known"
    steps: dict[int, list[str]] = {}
    for switch in fabric.between(a.switch, b.switch)[1]:
        steps.setdefault(fabric.steps_between(switch, a.switch), []).append(fabric.name(switch))
    return f"{hops} hops: " + ", ".join(
        " or ".join(names) if len(names) <= MOST_OR else f"one of {len(names)}"
        for _, names in sorted(steps.items())
    )


def node_verdicts(
    plan: Plan, fabric: Fabric, traffic: Traffic, parts: Sequence[PartVerdict]
) -> Iterator[Verdict]:
    """Nodes that a cause names, that the topology lacks, or that were in no good pair."""

    def about(node: str, judgement: Judgement, code: str, reason: str) -> Verdict:
        return Verdict(
            participants=(node,),
            benchmark="",
            judgement=judgement,
            code=code,
            reason=reason,
        )

    blamed = set()
    for blame in parts:
        for node in dict.fromkeys(p.name for p in blame.parts if p.kind in ("node", "nic")):
            blamed.add(node)
            yield about(node, blame.judgement, blame.code, blame.reason)
    well = {
        node
        for observation in traffic.observations
        if observation.shortfall <= LIMIT
        for node in (observation.flow.source, observation.flow.target)
    }
    met = {
        node
        for observation in traffic.observations
        for node in (observation.flow.source, observation.flow.target)
    }
    placed = set(fabric.nodes)
    for node in (member.name for member in plan.nodes):
        if node not in placed:
            reason = "this node is missing from the topology"
            yield about(node, Judgement.UNKNOWN, "NOT-PLACED", reason)
        elif node in met and node not in well | blamed:
            reason = _no_good_pair(fabric, node, parts)
            yield about(node, Judgement.UNKNOWN, "NO-GOOD-PAIR", reason)


def _no_good_pair(fabric: Fabric, node: str, parts: Sequence[PartVerdict]) -> str:
    nics = (fabric.nic(node, rail) for rail in fabric.rails)
    leaves = {nic.switch for nic in nics if nic}
    above = [
        part for verdict in parts for part in verdict.parts if leaves & {part.name, part.other}
    ]
    if not above:
        return (
            "every pair with this node is below normal, and nothing shows whether the node is to"
            " blame"
        )
    return f"every pair with this node is below normal; the cause is {describe(fabric, above[0])}"
