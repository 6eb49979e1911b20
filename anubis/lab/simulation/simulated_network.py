"""Simulated measurements of pairs of nodes on a fabric with faults: seeded rates, and their paths.

Every flow takes one path: by the forwarding tables if the fabric has them, and then the path is
known to the measurement; else a way is drawn at every fork (ECMP), and the path is unknown. A step
that measures a pair again takes the same path.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Literal, TypeVar, get_args

import numpy as np

from anubis.core.fabric import Fabric, Link, Nic, Part, RailNic, RailNics, Shares
from anubis.core.network.counters import MOST
from anubis.core.network.crossing import Flow, Way, link_part, nic_part
from anubis.core.network.pairing import PairTest, joined_nics
from anubis.core.network.posterior import Observation
from anubis.core.records import BenchmarkSpec, Count, Counters, MetricSpec, Readings, Series, Step

FaultKind = Literal["slow node", "slow NIC", "bad cable", "lossy uplink", "slow leaf", "dead leaf"]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

DEPTH = 16  # forks on a way
TAKEN = (0.2, 0.6)  # share of a loaded cable that other jobs take
MINUTE_S = 60.0  # how long what other jobs take of a cable stays the same
BY_NETWORK = 0.2  # of the pace by NVLink: what a group has in which NVLink joins not all nodes
# Is the cable bad → share of such cables that count errors, and their usual count. A fault which
# takes a tenth of the rate counts far more errors than plugging and age.
ERRING = {False: (0.05, 20), True: (0.9, 20_000)}


@dataclass(frozen=True, kw_only=True)
class Fault:
    kind: str
    part: Part
    way: Way = "both"
    loss: float = 0.3  # share of the rate of flows that cross it
    shows: float = 1.0  # share of the tests in which it shows


_Cable = tuple[str, str, int]  # from, to, and index of the cable, as the link names its ends
Passed = tuple[str, str, int]  # from, to, and index of the cable
Drawn = tuple[PairTest, int, int, int]  # the seeds of its test and of its paths, and its minute


@dataclass(frozen=True, kw_only=True)
class _Trip:
    """A flow on its path, and its rate there without other flows."""

    flow: Flow
    is_routed: bool  # by tables, so its path is known
    cables: tuple[int, ...]
    left: float  # share of the rate that the faults on its path leave
    rate: float
    scatter: float


@dataclass(frozen=True, kw_only=True)
class SimulatedNetwork:
    fabric: Fabric
    faults: tuple[Fault, ...] = ()
    noise: float = 0.01  # standard deviation of a rate
    seed: int = 0
    gbytes_s: float = 49.0  # on one leaf; each tier above costs one percent
    loaded: float = 0.0  # share of the cables that other jobs load, others in each turn or minute

    def measure(self, pairs: Iterable[RailNics], turn: int = 0) -> list[tuple[Flow, float]]:
        """Flows and rates of both directions of each pair of NICs, one at a time; another turn
        hashes other paths, and other jobs load other cables."""
        return [self._flow_and_rate(trip) for trip in self._trips(pairs, turn)]

    def measure_at_once(self, pairs: Iterable[RailNics], turn: int = 0) -> list[tuple[Flow, float]]:
        """Flows and rates while all pairs measure at once, rail by rail: forth, then back."""
        trips = list(self._trips(pairs, turn))
        together: dict[tuple[str, int], list[int]] = {}
        for place in range(len(trips)):
            first = trips[place - place % 2].flow.source
            together.setdefault((first.rail, place % 2), []).append(place)
        for places in together.values():
            rates = self._shared_rates([trips[place] for place in places])
            for place, rate in zip(places, rates.tolist(), strict=True):
                trips[place] = replace(trips[place], rate=rate)
        return [self._flow_and_rate(trip) for trip in trips]

    def observations(self, measured: Iterable[tuple[Flow, float]]) -> list[Observation]:
        """Shares by which flows fall short of their rate on a network without faults."""
        return [
            Observation(flow, 1 - rate / self._usual_rate(flow.source, flow.target))
            for flow, rate in measured
        ]

    def rates(self, pair: Drawn, rail: str, beside: Iterable[Drawn] = ()) -> tuple[float, float]:
        """Rates forth and back, while the pairs beside it measure the same way from the same
        rail."""
        own = self._trips_of(pair)[rail]
        beside_here = [trips for drawn in beside if (trips := self._trips_of(drawn).get(rail))]
        forth, back = (
            self._shared_rates([trip, *(both[way] for both in beside_here)])[0]
            * max(trip.scatter, 0.01)
            for way, trip in enumerate(own)
        )
        return float(forth), float(back)

    def share_left(self, pair: Drawn) -> float:
        """Share of a pair's rate that the faults leave on its worst path."""
        trips = chain.from_iterable(self._trips_of(pair).values())
        return min((trip.left for trip in trips), default=1.0)

    def _usual_rate(self, source: RailNic, target: RailNic) -> float:
        hops = self.fabric.hops(self._nic(source), self._nic(target))
        return self._rate_past((hops or 2) - 1)

    def _rate_past(self, switches: int) -> float:
        return self.gbytes_s * (1 - 0.01 * (switches - 1))

    def _trips_of(self, drawn: Drawn) -> dict[str, tuple[_Trip, ...]]:
        """Trips forth and back, by the rail of the first node."""
        if drawn not in self._trip_cache:
            pair_test, turn, paths, minute = drawn
            self._trip_cache[drawn] = {
                a.rail: tuple(self._trips([(a.rail_nic, b.rail_nic)], turn, paths, minute))
                for a, b in joined_nics(self.fabric, pair_test)
            }
        return self._trip_cache[drawn]

    def _showing_faults(self, draws: Shares) -> list[Fault]:
        return [fault for fault, draw in zip(self.faults, draws, strict=True) if draw < fault.shows]

    def _trips(
        self,
        pairs: Iterable[RailNics],
        turn: int,
        paths: int | None = None,
        minute: int | None = None,
    ) -> Iterator[_Trip]:
        """Yield the trips of each pair, forth and back. The paths, and what other jobs load, are
        those of this turn unless they have seeds of their own."""
        flows = [way for a, b in pairs for way in ((a, b), (b, a))]
        rng = np.random.default_rng([self.seed, turn])
        noise = rng.normal(1, self.noise, len(flows)).tolist()
        forks = rng.random((len(flows), DEPTH)).tolist()
        shown = np.repeat(rng.random((len(flows) // 2, len(self.faults))), 2, axis=0)
        if paths is not None:
            forks = np.random.default_rng([self.seed, paths]).random((len(flows), DEPTH)).tolist()
        taken = self._loads(turn if minute is None else minute)
        for flow, scatter, draws, faults in zip(
            flows, noise, forks, map(self._showing_faults, shown), strict=True
        ):
            yield self._trip(flow, scatter, draws, faults, taken)

    def _loads(self, minute: int) -> Mapping[_Cable, float]:
        """The share of each loaded cable that other jobs take in this minute."""
        if not self.loaded:
            return {}
        rng = np.random.default_rng([self.seed, minute, 3])
        every = [
            (link.a, link.b, cable)
            for link in self.fabric.links
            for cable in range(len(link.cables))
        ]
        loaded = np.flatnonzero(rng.random(len(every)) < self.loaded).tolist()
        return {every[place]: float(rng.uniform(*TAKEN)) for place in loaded}

    def _trip(
        self,
        ends: RailNics,
        scatter: float,
        draws: Sequence[float],
        faults: Sequence[Fault],
        taken: Mapping[_Cable, float],
    ) -> _Trip:
        a, b = map(self._nic, ends)

        def choose_way(depth: int, fork: int) -> int:
            return int(draws[depth] * fork)

        route = self.fabric.route(a, b)
        via, cables = self._route_cables(a, b) if route else self._walk(a, b, choose_way)
        loss = max(_loss(faults, ends, via, cables), _load(taken, via, cables))
        rate = self._rate_past(len(via)) * (1 - loss)
        return _Trip(
            flow=Flow(*ends, via),
            is_routed=bool(route),
            cables=cables,
            left=1 - loss,
            rate=rate,
            scatter=scatter,
        )

    def _flow_and_rate(self, trip: _Trip) -> tuple[Flow, float]:
        flow = trip.flow if trip.is_routed else replace(trip.flow, via=())
        return flow, trip.rate * max(trip.scatter, 0.01)

    def _shared_rates(self, trips: Sequence[_Trip]) -> Shares:
        ways = [self._things_passed(trip) for trip in trips]
        carried = {thing: self._capacity(thing) for way in ways for thing in way}
        return max_min_rates(ways, [trip.rate for trip in trips], carried)

    def _things_passed(self, trip: _Trip) -> list[Passed]:
        """NICs and cables on the path, each cable with its direction."""
        source, target = (" ".join(rail_nic) for rail_nic in (trip.flow.source, trip.flow.target))
        steps = zip(pairwise(trip.flow.via), trip.cables, strict=True)
        ends = [("out", source, 0), ("in", target, 0)]
        return [*ends, *((here, there, cable) for (here, there), cable in steps)]

    def _capacity(self, passed: Passed) -> float:
        """Capacity of a cable, relative to a NIC by their speeds; equal if a speed is unknown."""
        here, there, cable = passed
        link = self._link_between.get((here, there))
        speed = link.cables[cable].gbit_s if link else None
        return self.gbytes_s * (speed / self._nic_gbit_s if speed and self._nic_gbit_s else 1.0)

    def _route_cables(self, a: Nic, b: Nic) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Switches on the route from one NIC to another, and the index of the cable of each
        link."""
        path = self.fabric.cables_between(a, b)
        return self.fabric.route(a, b), tuple(link.cables.index(cable) for link, cable in path)

    def _walk(
        self, a: Nic, b: Nic, choose: Callable[[int, int], int]
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Switches from one NIC to another, and the index of the cable taken of each link."""
        here, passed = a.switch, [a.switch]
        cables: list[int] = []
        while here != b.switch:
            ways = self._ways(here, b.switch)
            here, cable = ways[choose(len(cables), len(ways))]
            passed.append(here)
            cables.append(cable)
        return tuple(passed), tuple(cables)

    def _ways(self, here: str, goal: str) -> list[tuple[str, int]]:
        """Next switches and cables that lead nearer to the goal."""
        if (here, goal) not in self._forks:
            self._forks[here, goal] = [
                (there, cable)
                for link, there in self.fabric.links_onward(here, goal)
                for cable in range(len(link.cables))
            ]
        return self._forks[here, goal]

    def _nic(self, rail_nic: RailNic) -> Nic:
        nic = self.fabric.nic(*rail_nic)
        if nic is None:
            raise ValueError(f'node "{rail_nic.node}" has no NIC on rail "{rail_nic.rail}"')
        return nic

    @cached_property
    def _trip_cache(self) -> dict[Drawn, dict[str, tuple[_Trip, ...]]]:
        return {}

    @cached_property
    def _nic_gbit_s(self) -> float:
        """Speed of the fastest NIC; 0 if unknown."""
        return max((nic.gbit_s or 0.0 for nic in self.fabric.nics), default=0.0)

    @cached_property
    def _link_between(self) -> dict[tuple[str, str], Link]:
        links = self.fabric.links
        return {ends: link for link in links for ends in ((link.a, link.b), (link.b, link.a))}

    @cached_property
    def _forks(self) -> dict[tuple[str, str], list[tuple[str, int]]]:
        return {}


def _loss(
    faults: Sequence[Fault], flow: RailNics, via: Sequence[str], cables: Sequence[int]
) -> float:
    """Loss by the worst fault on the path; the first cable of a faulty link is the bad one."""
    source, target = flow
    worst = 0.0
    ends = {("node", source.node, ""): "out", ("node", target.node, ""): "in"}
    ends |= {("nic", *source): "out", ("nic", *target): "in"}
    for fault in faults:
        part = fault.part
        if part.kind in ("node", "nic"):
            way = ends.get((part.kind, part.name, part.other))
        elif part.kind == "switch":
            way = "both" if part.name in via else None
        elif part.kind == "uplinks":
            up, down = via[0] == part.name, via[-1] == part.name
            way = None if up == down else "out" if up else "in"
        else:
            way = _way_over(part, via, cables)
        if way and (fault.way == "both" or fault.way == way):
            worst = max(worst, fault.loss)
    return worst


def _load(taken: Mapping[_Cable, float], via: Sequence[str], cables: Sequence[int]) -> float:
    """The largest share that other jobs take of a cable on the path."""
    passed = zip(via, via[1:], cables, strict=False)
    ways = (way for a, b, cable in passed for way in ((a, b, cable), (b, a, cable)))
    return max((taken.get(way, 0.0) for way in ways), default=0.0) if taken else 0.0


def _way_over(part: Part, via: Sequence[str], cables: Sequence[int]) -> Way | None:
    for here, there, cable in zip(via, via[1:], cables, strict=False):
        if cable == 0 and {here, there} == {part.name, part.other}:
            return "out" if here == part.name else "in"
    return None


def number_ports(fabric: Fabric) -> Fabric:
    """Fabric with a number at each port, as switches have them: a fabric that was written by hand
    names none. One that names ports already stays as it is."""
    ports = [nic.port for nic in fabric.nics]
    ports += [end for link in fabric.links for c in link.cables for end in (c.port_a, c.port_b)]
    if any(ports):
        return fabric
    taken: Counter[str] = Counter()

    def next_port(switch: str) -> str:
        taken[switch] += 1
        return str(taken[switch])

    nics = tuple(replace(nic, port=next_port(nic.switch)) for nic in fabric.nics)
    links = (
        replace(
            link,
            cables=tuple(
                replace(cable, port_a=next_port(link.a), port_b=next_port(link.b))
                for cable in link.cables
            ),
        )
        for link in fabric.links
    )
    return replace(fabric, nics=nics, links=tuple(links))


def count_errors(network: SimulatedNetwork) -> Counters:
    """Error counters of the ports: errors on most bad cables, and a few on some good ones."""
    rng = np.random.default_rng([network.seed, 1])
    fabric, bad = network.fabric, {fault.part for fault in network.faults}
    ends = [
        (link_part(link) in bad and not number, link.a, cable.port_a)
        for link in fabric.links
        for number, cable in enumerate(link.cables)
    ]
    ends += [
        (nic_part(fabric, nic.node, nic.rail) in bad, nic.switch, nic.port) for nic in fabric.nics
    ]
    counts = []
    for is_bad, switch, port in ends:
        share, usual = ERRING[is_bad]
        if rng.random() < share:
            value = min(1 + int(rng.lognormal(np.log(usual), 2)), MOST["symbol_error"])
            name = fabric.name(switch)
            counts.append(Count(guid="", name=name, port=port, counter="symbol_error", value=value))
    return Counters(counts=tuple(counts), is_whole=True)


def readings(
    network: SimulatedNetwork,
    step: Step,
    spec: BenchmarkSpec,
    samples: int,
    beside: Iterable[Step] = (),
    at: float = 0.0,
) -> Readings:
    """Readings of a pair program at this time, while the pairs beside it measure as well: each
    direction on each rail."""
    own = _draw(step, at)
    scatter = np.random.default_rng([network.seed, own[1]]).normal(1, 0.002, samples)
    pairs_beside = [_draw(step_beside, at) for step_beside in beside]
    series = []
    for a, b in joined_nics(network.fabric, own[0]):
        rates = [max(rate, 0.01) for rate in network.rates(own, a.rail, pairs_beside)]
        for metric in spec.metrics:
            if metric.judged_by != "fleet":
                continue
            device = f"{a.device}-{b.device}"
            if metric.unit == "1":  # the share of right answers does not scatter
                right = np.ones(samples)
                series.append(Series(metric=metric.name, device=device, samples=right))
                continue
            for name, value in _values(metric, rates):
                series.append(Series(metric=name, device=device, samples=value * scatter))
    return Readings.pack(series)


def share_left(network: SimulatedNetwork, step: Step) -> float:
    """Share of the pace of a group that sends in a ring which the faults of the network leave."""
    names = step.participants
    drawn = _seed(step.id)
    domains = {network.fabric.domain_of.get(name) for name in names}
    by_network = BY_NETWORK if len(domains) > 1 else 1.0
    return by_network * min(
        (
            network.share_left((PairTest(a, b), drawn, drawn, 0))
            for a, b in zip(names, names[1:] + names[:1], strict=True)
            if a != b
        ),
        default=1.0,
    )


def _draw(step: Step, at: float) -> Drawn:
    first, second = step.participants
    paths = _seed(f"{first} {second} {step.shift}")
    return PairTest(first, second, step.shift), _seed(step.id), paths, int(at // MINUTE_S)


def _seed(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")


def _values(metric: MetricSpec, rates: Sequence[float]) -> list[tuple[str, float]]:
    if metric.direction == "lower":
        return [(metric.name, 100 / min(rates))]
    return [
        (f"{metric.name}:{way}", rate) for way, rate in zip(("forth", "back"), rates, strict=True)
    ]


def faulty(
    fabric: Fabric, nodes: Collection[str], faults: Sequence[str], seed: int
) -> SimulatedNetwork:
    """Network with faults of these kinds among these nodes."""
    rng = np.random.default_rng(seed)
    here = replace(fabric, nics=tuple(nic for nic in fabric.nics if nic.node in nodes))
    kinds = [kind for kind in FAULT_KINDS if here.links or kind != "lossy uplink"]
    planted = [plant(here, kind, rng) for kind in kinds for _ in range(faults.count(kind))]
    return SimulatedNetwork(fabric=fabric, faults=tuple(planted), seed=seed)


def plant(fabric: Fabric, kind: FaultKind, rng: np.random.Generator) -> Fault:
    """Fault of this kind somewhere in the fabric, with a loss of 12 to 60 % (a dead leaf: all)."""
    loss = float(rng.uniform(0.12, 0.6))
    node = str(rng.choice(fabric.nodes))
    rails = [rail for rail in fabric.rails if fabric.nic(node, rail)]
    rail = rails[int(rng.integers(len(rails)))]
    if kind == "slow node":
        return Fault(kind=kind, part=Part("node", node), loss=loss)
    if kind == "slow NIC":
        return Fault(kind=kind, part=nic_part(fabric, node, rail), loss=loss)
    if kind == "bad cable":
        way: Way = "out" if rng.random() < 0.5 else "in"
        return Fault(kind=kind, part=nic_part(fabric, node, rail), way=way, loss=loss)
    if kind == "lossy uplink":
        above = [link for leaf in fabric.leaves for link in fabric.uplinks(leaf)]
        uplinks = above or fabric.links  # no switch is above another in a torus
        return Fault(kind=kind, part=link_part(uplinks[int(rng.integers(len(uplinks)))]), loss=loss)
    leaf = Part("switch", str(rng.choice(fabric.leaves)))
    return Fault(kind=kind, part=leaf, loss=1.0 if kind == "dead leaf" else loss)


# --- rates under congestion --------------------------------------------------------------------
# Max-min fairness: no flow can get more unless another with no more gets less, as with fair queues
# and the usual congestion control.

Thing = TypeVar("Thing", bound=Hashable)
NEARLY = 1 + 1e-9  # so that rounding never leaves a full link open


def max_min_rates(
    ways: Sequence[Sequence[Thing]], limits: Sequence[float], carried: Mapping[Thing, float]
) -> Shares:
    """Rate of each flow. `ways`: the things that each flow passes; `limits`: its rate alone;
    `carried`: the capacity of each thing.

    All rates rise together. A flow stops at its own limit, or when something that it passes is
    full.
    """
    number = {thing: place for place, thing in enumerate(dict.fromkeys(t for w in ways for t in w))}
    flow = np.array([row for row, way in enumerate(ways) for _ in way], dtype=np.int64)
    passed = np.array([number[thing] for way in ways for thing in way], dtype=np.int64)
    left = np.array([carried[thing] for thing in number], dtype=np.float64)
    limit = np.array(limits, dtype=np.float64)
    rate, rising = np.zeros(len(ways)), np.ones(len(ways), dtype=bool)
    while rising.any():
        on = rising[flow]
        count = np.bincount(passed[on], minlength=len(left))
        room = np.divide(left, count, out=np.full(len(left), np.inf), where=count > 0)
        step = min(room.min(initial=np.inf), (limit - rate)[rising].min())
        rate[rising] += step
        left -= step * count
        full = (count > 0) & (room <= step * NEARLY)
        stopped = np.bincount(flow[full[passed]], minlength=len(ways)) > 0
        rising &= ~(stopped | (rate * NEARLY >= limit))
    return rate
