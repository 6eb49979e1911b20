"""Recency of the measurements of a fabric, over several campaigns, its open suspicions, and what
comes and goes.

A suspicion of a part is open if no later campaign has crossed the part, by NICs that are as fast as
those that showed it. What came and went in one campaign is no fault; what did so more often than
chance explains is suspected.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from anubis.core.fabric import Fabric, Part, RailNics
from anubis.core.network.coverage import ASSURED, Coverage, coverage_by_job, coverage_of
from anubis.core.network.localization import describe, locate
from anubis.core.network.posterior import Observation
from anubis.core.records import Judgement, PartVerdict

T = TypeVar("T")
NICS = (0, 1)  # the tiers at both ends of a node's cable
LEAST_RETURNS = 2  # campaigns
BY_CHANCE = 0.01  # the largest chance that any healthy part of its kind came and went as often


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """The measurements of one campaign across a fabric."""

    campaign: str
    at: float
    fabric: Fabric
    measured: Sequence[RailNics]
    short: frozenset[RailNics]  # flows below normal
    parts: tuple[PartVerdict, ...] = ()
    vanished: frozenset[Part] = frozenset()  # what came and went

    @cached_property
    def coverage(self) -> Coverage:
        return self._coverage_by(self.measured)

    @cached_property
    def links(self) -> frozenset[frozenset[str]]:
        """The links that were crossed almost surely, by both ends."""
        return frozenset(frozenset((link.a, link.b)) for link in self.coverage.links(ASSURED))

    @cached_property
    def blamed(self) -> frozenset[Part]:
        return frozenset(part for verdict in self.parts for part in verdict.parts)

    @cached_property
    def nodes(self) -> frozenset[str]:
        return frozenset(rail_nic.node for rail_nics in self.measured for rail_nic in rail_nics)

    def has_crossed(self, part: Part, gbit_s: float = 0.0) -> bool:
        """Return whether flows between NICs of this speed at least crossed the part almost surely.
        A NIC of unknown speed counts as fast."""
        return self._coverage_from(gbit_s).chance(part) >= ASSURED

    def speed_needed(self, parts: Collection[Part]) -> float:
        """Return the lowest speed of NICs whose flows across these parts fell short. Slower ones
        may load them too little to show a defect. No more is needed than the fastest known speed,
        because a later campaign may know the speed of each NIC."""
        by_speed = defaultdict[float, list[RailNics]](list)
        for rail_nics in self.short:
            by_speed[min(self._speed(rail_nics), self.fastest)].append(rail_nics)
        if len(by_speed) < 2:
            return min(by_speed, default=0.0)
        return next(
            (
                speed
                for speed, flows in sorted(by_speed.items())
                if any(self._coverage_by(flows).chance(part) > 0 for part in parts)
            ),
            0.0,
        )

    @cached_property
    def fastest(self) -> float:
        return max((nic.gbit_s or 0.0 for nic in self.fabric.nics), default=0.0)

    def _speed(self, rail_nics: RailNics) -> float:
        """Speed of the slower NIC of a flow."""
        nics = (self.fabric.nic(*rail_nic) for rail_nic in rail_nics)
        return min((nic.gbit_s or math.inf for nic in nics if nic), default=math.inf)

    def _coverage_by(self, flows: Iterable[RailNics]) -> Coverage:
        ends = ((self.fabric.nic(*a), self.fabric.nic(*b)) for a, b in flows)
        return coverage_of(self.fabric, [(a, b) for a, b in ends if a and b])

    def _coverage_from(self, gbit_s: float) -> Coverage:
        """Coverage by the flows between NICs of this speed at least."""
        if gbit_s <= self._slowest:
            return self.coverage
        if gbit_s not in self._coverages:
            flows = (flow for flow in self.measured if self._speed(flow) >= gbit_s)
            self._coverages[gbit_s] = self._coverage_by(flows)
        return self._coverages[gbit_s]

    @cached_property
    def _slowest(self) -> float:
        return min(map(self._speed, self.measured), default=math.inf)

    @cached_property
    def _coverages(self) -> dict[float, Coverage]:
        """Coverages that were computed so far, by speed."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Recency:
    """The recency of the links between two tiers, or of the pairs at one distance."""

    every: int
    measured: int
    short: int = 0  # pairs that were below normal in their last measurement
    oldest: float | None = None
    newest: float | None = None


def links_by_tier(crossings: Sequence[Crossing]) -> dict[tuple[int, int], Recency]:
    """The recency of the links of the newest fabric, by the tiers that they join; `crossings`
    starts with the newest."""
    fabric = crossings[0].fabric
    tier, times = fabric.tier, defaultdict[tuple[int, int], list[float | None]](list)
    nics = _latest_times((crossing.at, crossing.coverage.nics) for crossing in crossings)
    links = _latest_times((crossing.at, crossing.links) for crossing in crossings)
    times[NICS] = [nics.get(nic.id) for nic in fabric.nics if nic.node]
    for link in fabric.links:
        low, high = sorted((tier[link.a], tier[link.b]))
        times[low, high].append(links.get(frozenset((link.a, link.b))))
    return {tiers: _recency(times) for tiers, times in sorted(times.items())}


def pairs_by_hops(crossings: Sequence[Crossing]) -> dict[int, Recency]:
    """The recency of ordered pairs of NICs, by distance, as a fabric counts them."""
    fabric = crossings[0].fabric
    nodes = [node for node in fabric.nodes if node]
    every = fabric.pairs_by_hops(nodes)
    at = _latest_times((crossing.at, crossing.measured) for crossing in crossings)
    is_short = {
        rail_nics: rail_nics in crossing.short
        for crossing in reversed(crossings)
        for rail_nics in crossing.measured
    }
    by_distance = defaultdict[int, list[RailNics]](list)
    for rail_nics in at:
        ends = fabric.nic(*rail_nics[0]), fabric.nic(*rail_nics[1])
        if ends[0] and ends[1] and (hops := fabric.hops(ends[0], ends[1])) is not None:
            by_distance[hops].append(rail_nics)
    return {
        hops: Recency(
            every=number,
            measured=len(by_distance[hops]),
            short=sum(is_short[rail_nics] for rail_nics in by_distance[hops]),
            oldest=min((at[rail_nics] for rail_nics in by_distance[hops]), default=None),
            newest=max((at[rail_nics] for rail_nics in by_distance[hops]), default=None),
        )
        for hops, number in every.items()
        if hops is not None
    }


def open_suspicions(crossings: Sequence[Crossing]) -> Iterator[tuple[PartVerdict, Crossing]]:
    """Yield verdicts that blamed or doubted parts, if no later campaign has crossed all of these
    parts. The newest one shows which were taken out."""
    for place, crossing in enumerate(crossings):
        bad = [v for v in crossing.parts if v.judgement in (Judgement.DEFECTIVE, Judgement.UNKNOWN)]
        for verdict in _open_verdicts(bad, crossing, crossings[:place], _answers):
            yield verdict, crossing


def open_defects(
    verdicts: Mapping[str, Sequence[PartVerdict]],
    crossings: Iterable[Crossing],
    nodes: Collection[str] | None = None,
) -> Iterator[tuple[PartVerdict, Crossing]]:
    """Yield the verdicts on defective parts that traffic between these nodes, or between all, may
    cross, if no later campaign has crossed all of these parts without a doubt about one. The newest
    one shows which were taken out. A bad node or NIC is a matter of its node. `verdicts`: by
    campaign. `crossings` starts with the newest, and is read no further than there are verdicts
    left."""
    left = {campaign: [v for v in of if _is_between(v)] for campaign, of in verdicts.items()}
    newest_first, read = iter(crossings), list[Crossing]()
    while (left := {campaign: of for campaign, of in left.items() if of}) and (
        crossing := next(newest_first, None)
    ):
        own = list(_open_verdicts(left.pop(crossing.campaign, []), crossing, read, _clears))
        ends = crossing.fabric.nodes if nodes is None else nodes
        met = coverage_by_job(crossing.fabric, ends) if own else None
        for verdict in own:
            if met and any(met.chance(part) > 0 for part in verdict.parts):
                yield verdict, crossing
        read.append(crossing)
        left = {
            campaign: [v for v in of if not _clears(v.parts, crossing, crossing.fastest)]
            for campaign, of in left.items()
        }


def _open_verdicts(
    verdicts: Iterable[PartVerdict],
    crossing: Crossing,
    newer: Sequence[Crossing],
    answers: Callable[[Sequence[Part], Crossing, float], bool],
) -> Iterator[PartVerdict]:
    """Yield verdicts of a campaign that no later one `answers`; the newest of these comes first. A
    verdict without parts stays open."""
    for verdict in verdicts:
        left = _parts_left(verdict, crossing, (newer or [crossing])[0])
        gbit_s = crossing.speed_needed(left)
        if not (verdict.parts and any(answers(left, later, gbit_s) for later in newer)):
            yield verdict


def _is_between(verdict: PartVerdict) -> bool:
    """True if a part between nodes, such as a link or a switch, is proven to be defective."""
    return verdict.judgement is Judgement.DEFECTIVE and any(
        part.kind not in ("node", "nic") for part in verdict.parts
    )


def _clears(parts: Sequence[Part], later: Crossing, gbit_s: float) -> bool:
    return later.blamed.isdisjoint(parts) and _answers(parts, later, gbit_s)


def _answers(parts: Sequence[Part], later: Crossing, gbit_s: float) -> bool:
    """True if the later campaign crossed all of these parts, at this speed at least. Its own
    findings there are verdicts of their own."""
    return all(later.has_crossed(part, gbit_s) for part in parts)


def _parts_left(verdict: PartVerdict, its_own: Crossing, newest: Crossing) -> tuple[Part, ...]:
    """The parts of a verdict that the newest fabric does not show to be taken out."""
    return tuple(
        part for part in verdict.parts if not is_taken_out(part, its_own.fabric, newest.fabric)
    )


def is_taken_out(part: Part, then: Fabric, now: Fabric) -> bool:
    """True if a link or a switch is not in a later fabric that has everything next to it. Another
    file, or a fabric that was not read, has other switches and shows nothing."""
    there = now.switch_number.keys()
    if part.kind == "link":
        ends = {part.name, part.other}
        return ends <= there and not any(ends == {ln.a, ln.b} for ln in now.links_of[part.name])
    if part.kind == "switch":
        beside = {end for ln in then.links_of.get(part.name, ()) for end in (ln.a, ln.b)}
        return len(beside) > 1 and beside - there == {part.name}
    return False


def vanished_parts(fabric: Fabric, observations: Sequence[Observation]) -> frozenset[Part]:
    """The parts that would have been blamed if nothing had been measured a second time, by flows
    that were good when they were."""
    once = [seen for seen in observations if not seen.flow.gone or seen.shortfall > 0]
    if not any(seen.flow.gone for seen in once):
        return frozenset()
    gone = {seen.flow for seen in once if seen.flow.gone}
    first = [
        replace(seen, flow=replace(seen.flow, gone=False, excused=0.0, undisturbed=True))
        for seen in once
    ]
    return frozenset(
        part
        for cause in locate(fabric, first).causes
        if gone.issuperset(seen.flow for seen in cause.bad)
        for part in cause.parts
    )


@dataclass(frozen=True, kw_only=True)
class ReturningFault:
    """Parts, one of which came and went more often than chance explains."""

    parts: tuple[Part, ...]
    fabric: Fabric
    campaigns: tuple[str, ...]  # in which it did, the newest first
    crossed: int  # campaigns in which it could

    @property
    def subject(self) -> str:
        return " or ".join(describe(self.fabric, part) for part in self.parts)

    @property
    def reason(self) -> str:
        return (
            f"{self.subject} came and went in {len(self.campaigns)} of the last {self.crossed}"
            " campaigns across it, which chance does not explain"
        )


def returning_faults(crossings: Sequence[Crossing]) -> Iterator[ReturningFault]:
    """Yield the parts that came and went in so many campaigns that other parts of their kind show
    it to be no chance; those of the same campaigns together. `crossings` starts with the newest."""
    came: dict[Part, list[int]] = {}
    for place, crossing in enumerate(crossings):
        for part in sorted(crossing.vanished):
            came.setdefault(part, []).append(place)
    alike: dict[tuple[str, tuple[int, ...]], list[Part]] = {}
    for part, places in came.items():
        alike.setdefault((part.kind, tuple(places)), []).append(part)
    for (kind, times), parts in alike.items():
        rest = sum(len(seen) for of, seen in alike if of == kind) - len(times)
        crossed = max(sum(crossing.has_crossed(part) for crossing in crossings) for part in parts)
        crossed = max(crossed, len(times))
        every = _count_alike(crossings[0].fabric, kind)
        rate = min(1.0, (1 + rest) / (1 + every * len(crossings)))
        if len(times) >= LEAST_RETURNS and every * _tail(len(times), crossed, rate) < BY_CHANCE:
            yield ReturningFault(
                parts=tuple(parts),
                fabric=crossings[0].fabric,
                campaigns=tuple(crossings[place].campaign for place in times),
                crossed=crossed,
            )


def _count_alike(fabric: Fabric, kind: str) -> int:
    """The number of parts of this kind."""
    match kind:
        case "node":
            return len(fabric.nodes)
        case "nic":
            return sum(1 for nic in fabric.nics if nic.node)
        case "link":
            return len(fabric.links)
    return len(fabric.switches)


def _tail(least: int, tests: int, rate: float) -> float:
    """The chance of so many or more of these tests, each with this rate."""
    from scipy.special import bdtrc

    return float(bdtrc(least - 1, tests, rate))


def _latest_times(seen: Iterable[tuple[float, Iterable[T]]]) -> dict[T, float]:
    latest: dict[T, float] = {}
    for at, things in seen:
        for thing in things:
            latest[thing] = max(at, latest.get(thing, at))
    return latest


def _recency(times: Sequence[float | None]) -> Recency:
    dates = [at for at in times if at is not None]
    return Recency(
        every=len(times),
        measured=len(dates),
        oldest=min(dates, default=None),
        newest=max(dates, default=None),
    )
