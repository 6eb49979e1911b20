"""What the verdicts on pairs of nodes say of the fabric between them.

A pair that falls short blames nobody by itself: `localization` weighs all of them together, and its
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
class Seen:
    """What all pairs say of each flow: the worst of its metrics."""

    observations: tuple[Observation, ...]
    unmeasured: frozenset[Flow]  # that were tried: nothing got through, or the program failed

    def shortfalls(self) -> dict[tuple[str, str, str], float]:
        """Of each node to another on a rail; what went both ways at once counts for both."""
        found: dict[tuple[str, str, str], float] = {}
        for each in self.observations:
            flow = each.flow
            ways = [(flow.source, flow.target, flow.rail)]
            if flow.mutual:
                ways.append((flow.target, flow.source, flow.rail))
            for way in ways:
                found[way] = max(found.get(way, 0.0), each.shortfall)
        return found

    @cached_property
    def model(self) -> FaultPrior:
        """What is believed of them, with their own noise: that of the healthy that are worse."""
        good = [each.shortfall for each in self.observations if 0 < each.shortfall <= LIMIT]
        return FaultPrior(limit=LIMIT, noise=1.4826 * float(np.median(good)) if good else 0.0)


def observed(fabric: Fabric, alone: Iterable[Verdict], rulings: Iterable[Ruling]) -> Seen:
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
    return flows.seen()


@dataclass
class _Flows:
    """A row for each pair on a rail; in it the shortfall forth, back, and both ways at once."""

    fabric: Fabric
    numbers: dict[tuple[tuple[str, ...], str], int] = field(default_factory=dict)
    worst: dict[str, Shares] = field(default_factory=dict)
    missed: set[int] = field(default_factory=set)
    known: dict[tuple[int, int], tuple[Ruling, Numbers]] = field(default_factory=dict)

    def row(self, names: tuple[str, ...], rail: str | None) -> int:
        """-1 for what is no pair of this fabric."""
        if len(names) != 2 or rail is None:
            return -1
        if not all(self.fabric.nic(name, rail) for name in names):
            return -1
        return self.numbers.setdefault((names, rail), len(self.numbers))

    def rows_of(self, ruling: Ruling) -> Numbers:
        key = id(ruling.participants), id(ruling.devices)  # many metrics have the same pairs
        if key not in self.known:
            rows = [
                self.row(names, rail_of_unit(self.fabric, device))
                for names, device in zip(ruling.participants, ruling.devices, strict=True)
            ]
            self.known[key] = ruling, np.array(rows, dtype=np.int64)
        return self.known[key][1]

    def note(self, metric: str, rows: Numbers, shortfall: Shares) -> None:
        way = metric.partition(":")[2].partition("/")[0]
        way = way if way in ONE_WAY else ""
        have = self.worst.get(way, np.empty(0))
        if len(have) < len(self.numbers):
            more = np.full(max(64, len(self.numbers)), np.nan)
            have = self.worst[way] = np.concatenate([have, more])
        ours = rows >= 0
        np.fmax.at(have, rows[ours], shortfall[ours])

    def shortfall(self, way: str, row: int) -> float:
        """NaN where nothing was measured."""
        have = self.worst.get(way, ())
        return float(have[row]) if row < len(have) else np.nan

    def miss(self, row: int) -> None:
        if row >= 0:
            self.missed.add(row)

    def seen(self) -> Seen:
        found: list[Observation] = []
        unmeasured = set()
        for (names, rail), row in self.numbers.items():
            one, other = names
            for way, flow in (
                ("forth", Flow(one, other, rail)),
                ("back", Flow(other, one, rail)),
                ("", Flow(one, other, rail, mutual=True)),
            ):
                short = self.shortfall(way, row)
                if not np.isnan(short):
                    found.append(Observation(flow, short))
                elif not way and row in self.missed:
                    unmeasured.add(flow)
                    found.append(Observation(flow, 1.0))
        return Seen(observations=tuple(found), unmeasured=frozenset(unmeasured))


# --- verdicts --------------------------------------------------------------------------------


def part_verdicts(
    fabric: Fabric, seen: Seen, counters: Counters = NOTHING_COUNTED
) -> tuple[PartVerdict, ...]:
    """The causes of all that fell short, the surest first; with what the ports counted of them."""
    inspection = Inspection(fabric=fabric, counters=counters)
    return tuple(
        _part_verdict(inspection, cause, seen)
        for cause in locate(fabric, seen.observations, seen.model).causes
    )


def _part_verdict(inspection: Inspection, cause: Cause, seen: Seen) -> PartVerdict:
    fabric = inspection.fabric
    judgement, code = _judged(fabric, cause, seen)
    return PartVerdict(
        parts=cause.parts,
        subject=subject(fabric, cause),
        judgement=judgement,
        code=code,
        reason=_reason(fabric, cause, code),
        confidence=cause.confidence,
        evidence=(
            *(_evidence(fabric, each, seen) for each in _worst(cause)),
            *_beside_the_traffic(inspection, cause),
        ),
    )


def _reason(fabric: Fabric, cause: Cause, code: str) -> str:
    said = sentence(fabric, cause)
    if code == "NOT-MEASURED":
        where = ", ".join(describe(fabric, part) for part in cause.parts[:SHOWN])
        return f"{where}: none of {len(cause.bad)} flows across it could be measured"
    if code == "NO-CONTRAST":
        return f"{said}; every pair so far apart crosses it, so nobody can say what is normal"
    return said


def _judged(fabric: Fabric, cause: Cause, seen: Seen) -> tuple[Judgement, str]:
    """Several parts are a defect all the same, unless nodes are among them.

    Those would be blamed for each other.
    """
    if all(each.flow in seen.unmeasured for each in cause.bad):
        return Judgement.UNKNOWN, "NOT-MEASURED"
    if not _has_contrast(fabric, cause, seen):
        return Judgement.UNKNOWN, "NO-CONTRAST"
    nodes = any(part.kind in ("node", "nic") for part in cause.parts)
    if cause.confidence < SURE or (nodes and len(cause.parts) > 1):
        return Judgement.UNKNOWN, "CANNOT-TELL-APART"
    return Judgement.DEFECTIVE, f"NETWORK.{cause.parts[0].kind.upper()}"


def _has_contrast(fabric: Fabric, cause: Cause, seen: Seen) -> bool:
    """Whether any flow as far as the bad ones goes another way: else what is normal there?"""
    far = {hops_of(fabric, each.flow) for each in cause.bad}
    like = sum(hops_of(fabric, each.flow) in far for each in seen.observations)
    return len(cause.bad) + cause.good < like


def _beside_the_traffic(inspection: Inspection, cause: Cause) -> list[str]:
    """Where no pair can tell two parts apart, this may."""
    found = dict.fromkeys(said for part in cause.parts for said in inspection.about(part))
    return list(found)[:SHOWN]


def _worst(cause: Cause) -> list[Observation]:
    return sorted(cause.bad, key=lambda each: -each.shortfall)[:SHOWN]


def _evidence(fabric: Fabric, each: Observation, seen: Seen) -> str:
    flow = each.flow
    arrow = "↔" if flow.mutual else "→"
    rail = f" on rail {flow.rail}" if len(fabric.rails) > 1 else ""
    short = "nothing measured" if flow in seen.unmeasured else f"{each.shortfall:.0%} short"
    return f"{flow.source} {arrow} {flow.target}{rail}: {short}, {_path(fabric, flow)}"


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


def said_of_nodes(
    plan: Plan, fabric: Fabric, seen: Seen, parts: Sequence[PartVerdict]
) -> Iterator[Verdict]:
    """What the causes, and what the topology lacks, mean for single nodes."""

    def verdict(node: str, judgement: Judgement, code: str, reason: str) -> Verdict:
        return Verdict(
            participants=(node,),
            benchmark="",
            judgement=judgement,
            code=code,
            reason=reason,
        )

    blamed = set()
    for each in parts:
        for node in dict.fromkeys(p.name for p in each.parts if p.kind in ("node", "nic")):
            blamed.add(node)
            yield verdict(node, each.judgement, each.code, each.reason)
    well = {
        node
        for each in seen.observations
        if each.shortfall <= LIMIT
        for node in (each.flow.source, each.flow.target)
    }
    met = {node for each in seen.observations for node in (each.flow.source, each.flow.target)}
    known = set(fabric.nodes)
    for node in (each.name for each in plan.nodes):
        if node not in known:
            reason = "the topology does not know this node"
            yield verdict(node, Judgement.UNKNOWN, "NOT-PLACED", reason)
        elif node in met and node not in well | blamed:
            reason = _no_good_pair(fabric, node, parts)
            yield verdict(node, Judgement.UNKNOWN, "NO-GOOD-PAIR", reason)


def _no_good_pair(fabric: Fabric, node: str, parts: Sequence[PartVerdict]) -> str:
    nics = (fabric.nic(node, rail) for rail in fabric.rails)
    leaves = {nic.switch for nic in nics if nic}
    above = [p for each in parts for p in each.parts if leaves & {p.name, p.other}]
    if not above:
        return "every pair it was in fell short, and nothing says that it is to blame"
    return f"every pair it was in fell short: at fault is {describe(fabric, above[0])}"
